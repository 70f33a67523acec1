package admission

import (
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/internal/table"
)

// joinLimiter keeps most of a flood of joins from one address away from the store, and counts joins that are signed without it.
// It belongs to this process and forgets addresses when it is full; the limits of room_enter are binding. It counts every join,
// whether it is enrolled later or not, in windows like those of lua/lib/joins.lua.
type joinLimiter struct {
	table atomic.Pointer[joinWindows]
}

// joinWindows counts the joins of each key until its window ends (mono, ns).
type joinWindows struct{ *table.Table[int64] }

const joinWindowsMost = 1 << 15

func addressKey(hash string) string { return hash[:len(hash)/2] }
func networkKey(hash string) string { return hash[len(hash)/2:] }

func (s *joinLimiter) get() *joinWindows {
	t := s.table.Load()
	if t == nil {
		s.table.CompareAndSwap(nil, &joinWindows{table.New[int64](joinWindowsMost)})
		t = s.table.Load()
	}
	return t
}

// hash returns the key of a window that is no join limit.
func (t *joinWindows) hash(key string) uint64 { return table.KeyOf(t.Table, key) }

// limit returns the key of the window of a join limit. A changed limit has another key, so that windows and refusals of the
// former limit no longer count.
func (t *joinWindows) limit(l joinLimit) uint64 { return table.KeyOf(t.Table, l) }

// joinLimit is a limit of a policy in which a join counts.
type joinLimit struct {
	key, reason string
	most        int64
	per         time.Duration
}

func joinLimits(hash string, p *Policy) [2]joinLimit {
	return [...]joinLimit{{networkKey(hash), ReasonNetwork, p.Wide, p.WidePer}, {addressKey(hash), ReasonAddress, p.Joins, p.JoinsPer}}
}

// full returns the time until an address may join again, and whether its own window or its network's is full; 0 while neither is.
func (s *joinLimiter) full(hash string, p *Policy, now int64) (wait time.Duration, reason string) {
	t := s.table.Load()
	if p.Joins <= 0 || hash == "" || t == nil {
		return 0, ""
	}
	for _, l := range joinLimits(hash, p) {
		if n, till, ok := t.Get(t.limit(l), now); ok && l.most > 0 && n >= l.most {
			wait, reason = max(wait, time.Duration(till-now)), l.reason
		}
	}
	return wait, reason
}

// count counts a join of an address.
func (s *joinLimiter) count(hash string, p *Policy, now int64) {
	if p.Joins <= 0 || hash == "" {
		return
	}
	t := s.get()
	for _, l := range joinLimits(hash, p) {
		t.Update(t.limit(l), now, func(n, till *int64) {
			if *n == 0 {
				*till = now + int64(l.per)
			}
			*n++
		})
	}
}

// join counts a join unless the window of its address or network is full.
func (s *joinLimiter) join(hash string, p *Policy, now int64) (wait time.Duration, reason string) {
	if wait, reason = s.full(hash, p, now); wait == 0 {
		s.count(hash, p, now)
	}
	return wait, reason
}

// mayAsk reports whether an address whose window is full may ask the store for a place that it has. It allows one call a second.
func (s *joinLimiter) mayAsk(key string, now int64) (asks bool) {
	t := s.get()
	t.Update(t.hash("asks"+key), now, func(n, till *int64) {
		if asks = *n == 0; asks {
			*till, *n = now+int64(time.Second), 1
		}
	})
	return asks
}

// refuse fills the window of an address or, by the reason, of its network until a time, after the store refused a join by policy p.
func (s *joinLimiter) refuse(hash, reason string, p *Policy, till int64) {
	t := s.get()
	for _, l := range joinLimits(hash, p) {
		if l.reason == reason {
			t.block(t.limit(l), till)
		}
	}
}

// block keeps a refused ticket away from the store until a time.
func (s *joinLimiter) block(key string, till int64) {
	t := s.get()
	t.block(t.hash(key), till)
}

func (t *joinWindows) block(h uint64, till int64) {
	t.Put(h, 0, MostJoins, till)
}

// blocked returns for how long a ticket is still blocked.
func (s *joinLimiter) blocked(key string, now int64) time.Duration {
	t := s.table.Load()
	if t == nil {
		return 0
	}
	if n, till, ok := t.Get(t.hash(key), now); ok && n >= MostJoins {
		return time.Duration(till - now)
	}
	return 0
}
