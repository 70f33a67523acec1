// Package recent remembers from which client addresses the tickets and sessions of rooms were used a short time ago, so that operators find
// them by a network. It keeps addresses in the memory of this process only, in a ring of fixed size.
package recent

import (
	"cmp"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/anteroom/anteroom/token"
)

const (
	most  = 1 << 18 // uses that are remembered, in all rooms
	block = 1 << 10 // uses that In reads at a time
)

// Use is the last time that the holder of a ticket or session received a token.
type Use struct {
	ID      token.ID
	Address netip.Addr // without a zone
	At      int64      // µs
}

// Clients remembers uses. The zero value remembers none before the first Note. Its methods are safe for concurrent use.
//
// Each join is a use of a new ticket. A ring takes it in one cache line beside the last one; a table by ticket would read four lines
// anywhere in its memory.
type Clients struct {
	mu   sync.Mutex // held for one use, or for a block
	seed maphash.Seed
	ring []use  // nil before the first Note
	next uint64 // number of all uses so far; the next one is at next modulo the length of ring
}

// use is a Use without pointers, so that the garbage collector does not read the ring.
type use struct {
	id        token.ID
	address   [16]byte
	room      uint64 // hash of its name
	at, until int64  // µs
}

// Note remembers for a while that the holder of a ticket or session of a room received a token at an address, at a time (µs).
func (c *Clients) Note(room string, id token.ID, address netip.Addr, at int64, keep time.Duration) {
	if !address.IsValid() {
		return
	}
	c.mu.Lock()
	if c.ring == nil { // 15 MB, which a gateway without visitors does not need
		c.ring, c.seed = make([]use, most), maphash.MakeSeed()
	}
	c.ring[c.next%most] = use{id, address.As16(), maphash.String(c.seed, room), at, at + keep.Microseconds()}
	c.next++
	c.mu.Unlock()
}

// In returns the newest uses in a room from the addresses of a prefix, at most limit, and the number of all. now is in µs.
func (c *Clients) In(room string, prefix netip.Prefix, now int64, limit int) (newest []Use, all int) {
	last := map[token.ID]Use{}
	for from := uint64(0); ; {
		var done bool
		if from, done = c.read(from, room, prefix, now, last); done {
			break
		}
	}
	newest = slices.SortedFunc(maps.Values(last), func(a, b Use) int { return cmp.Compare(b.At, a.At) })
	return newest[:min(len(newest), limit)], len(newest)
}

// read reads a block of uses from a number on, or from the oldest one that is kept, into last, which has the last use of each ticket that is
// in the prefix. It returns where the next block begins, and whether there is none.
func (c *Clients) read(from uint64, room string, prefix netip.Prefix, now int64, last map[token.ID]Use) (next uint64, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring == nil {
		return 0, true
	}
	if c.next > most {
		from = max(from, c.next-most)
	}
	end, wanted := min(from+block, c.next), maphash.String(c.seed, room)
	for ; from < end; from++ {
		u := &c.ring[from%most]
		address := netip.AddrFrom16(u.address).Unmap()
		switch {
		case u.room != wanted:
		case u.until > now && prefix.Contains(address):
			last[u.id] = Use{u.id, address, u.at}
		default: // the ticket was used elsewhere since
			delete(last, u.id)
		}
	}
	return from, from == c.next
}
