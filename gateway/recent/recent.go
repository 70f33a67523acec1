// Package recent remembers from which client addresses the tickets and sessions of rooms were used a short time ago, so that operators find
// them by a network. It keeps addresses in the memory of this process only, in a table of fixed size.
package recent

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/internal/table"
	"github.com/anteroom/anteroom/token"
)

// most is the highest number of tickets that are remembered, in all rooms.
const most = 1 << 16

// Use is the last time that the holder of a ticket or session received a token.
type Use struct {
	ID      token.ID
	Address netip.Addr
	At      int64 // µs
	room    string
}

// Clients remembers uses. The zero value remembers none before the first Note. Its methods are safe for concurrent use.
type Clients struct {
	table atomic.Pointer[table.Table[Use]]
}

// Note remembers for a while that the holder of a ticket or session of a room received a token at an address, at a time (µs).
func (c *Clients) Note(room string, id token.ID, address netip.Addr, at int64, keep time.Duration) {
	if !address.IsValid() {
		return
	}
	t := c.table.Load()
	if t == nil { // 6 MB, which a gateway without visitors does not need
		c.table.CompareAndSwap(nil, table.New[Use](most))
		t = c.table.Load()
	}
	t.Put(table.KeyOf(t, id), at, Use{id, address, at, room}, at+keep.Microseconds())
}

// In returns the newest uses in a room from the addresses of a prefix, at most limit, and the number of all. now is in µs.
func (c *Clients) In(room string, prefix netip.Prefix, now int64, limit int) (newest []Use, all int) {
	t := c.table.Load()
	if t == nil {
		return nil, 0
	}
	t.Each(now, func(u *Use, _ int64) {
		if u.room == room && prefix.Contains(u.Address.Unmap().WithZone("")) {
			newest = append(newest, *u)
		}
	})
	slices.SortFunc(newest, func(a, b Use) int { return cmp.Compare(b.At, a.At) })
	return newest[:min(len(newest), limit)], len(newest)
}
