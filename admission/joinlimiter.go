package admission

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// joinLimiter keeps most of a flood of joins of one address from the store, and counts those that are signed without it. It is
// this process's alone and forgets whom it has no room for: room_enter decides. It counts every join, whether or not it is
// ever enrolled, in windows like those of lua/lib/joins.lua.
type joinLimiter struct {
	table atomic.Pointer[joinWindows]
}

const (
	joinSets = 1 << 12
	joinWays = 8
)

// joinWindows has room for 32768 windows, 24 bytes each, in sets of which a key has one: nothing is ever searched or grown.
type joinWindows struct {
	seed  maphash.Seed
	locks [64]sync.Mutex
	sets  [joinSets][joinWays]joinWindow
}

// joinWindow counts the joins of one key till then. Its key is kept as a hash: two that share one are counted together,
// one time in 2^60.
type joinWindow struct {
	key  uint64
	till int64 // mono, ns
	n    int64
}

func addressKey(hash string) string { return hash[:len(hash)/2] }
func networkKey(hash string) string { return hash[len(hash)/2:] }

func (s *joinLimiter) get() *joinWindows {
	t := s.table.Load()
	if t == nil {
		s.table.CompareAndSwap(nil, &joinWindows{seed: maphash.MakeSeed()})
		t = s.table.Load()
	}
	return t
}

// hash is the key of a window that is no join limit's.
func (t *joinWindows) hash(key string) uint64 { return maphash.String(t.seed, key) }

// limit is the key of a join limit's window. A limit that is changed has another: nothing that the store said of the former
// one, and no time that it lasted, is held against anybody.
func (t *joinWindows) limit(l joinLimit) uint64 { return maphash.Comparable(t.seed, l) }

// at gives the window of a key, to change until unlock; a new one is empty and takes the place of that which ends first.
func (t *joinWindows) at(h uint64, now int64) (w *joinWindow, unlock func()) {
	i := h % joinSets
	lock := &t.locks[i%uint64(len(t.locks))]
	lock.Lock()
	for j := range t.sets[i] {
		other := &t.sets[i][j]
		if other.key == h {
			w = other
			break
		}
		if w == nil || other.till < w.till {
			w = other
		}
	}
	if w.key != h || w.till <= now {
		*w = joinWindow{key: h, till: now}
	}
	return w, lock.Unlock
}

// find gives a copy of a key's window.
func (t *joinWindows) find(h uint64) joinWindow {
	i := h % joinSets
	lock := &t.locks[i%uint64(len(t.locks))]
	lock.Lock()
	defer lock.Unlock()
	for _, w := range t.sets[i] {
		if w.key == h {
			return w
		}
	}
	return joinWindow{}
}

// joinLimit is a window of a policy that a join of an address counts in.
type joinLimit struct {
	key, reason string
	most        int64
	per         time.Duration
}

func joinLimits(hash string, p *Policy) [2]joinLimit {
	return [...]joinLimit{{networkKey(hash), ReasonNetwork, p.Wide, p.WidePer}, {addressKey(hash), ReasonAddress, p.Joins, p.JoinsPer}}
}

// full returns the time until an address may join again, and whether its own window or the network's is full; 0 while neither is.
func (s *joinLimiter) full(hash string, p *Policy, now int64) (wait time.Duration, reason string) {
	t := s.table.Load()
	if p.Joins <= 0 || hash == "" || t == nil {
		return 0, ""
	}
	for _, l := range joinLimits(hash, p) {
		if w := t.find(t.limit(l)); l.most > 0 && w.n >= l.most && w.till > now {
			wait, reason = max(wait, time.Duration(w.till-now)), l.reason
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
		w, unlock := t.at(t.limit(l), now)
		if w.n == 0 {
			w.till = now + int64(l.per)
		}
		w.n++
		unlock()
	}
}

// join counts a join unless the window of its address or network is full.
func (s *joinLimiter) join(hash string, p *Policy, now int64) (wait time.Duration, reason string) {
	if wait, reason = s.full(hash, p, now); wait == 0 {
		s.count(hash, p, now)
	}
	return wait, reason
}

// asks reports whether an address whose window is full may ask the store for a place that it has: once a second.
func (s *joinLimiter) asks(key string, now int64) bool {
	t := s.get()
	w, unlock := t.at(t.hash("asks"+key), now)
	defer unlock()
	if w.n > 0 {
		return false
	}
	w.till, w.n = now+int64(time.Second), 1
	return true
}

// refuse keeps off till then the joins that count in the window of an address, or its network's by the reason: the store has
// refused one by this policy.
func (s *joinLimiter) refuse(hash, reason string, p *Policy, till int64) {
	t := s.get()
	for _, l := range joinLimits(hash, p) {
		if l.reason == reason {
			t.block(t.limit(l), till)
		}
	}
}

// block keeps a ticket off till then: the store has refused it.
func (s *joinLimiter) block(key string, till int64) {
	t := s.get()
	t.block(t.hash(key), till)
}

func (t *joinWindows) block(h uint64, till int64) {
	w, unlock := t.at(h, till)
	w.till, w.n = till, MostJoins
	unlock()
}

// blocked is for how long a ticket is kept off; 0: not at all.
func (s *joinLimiter) blocked(key string, now int64) time.Duration {
	t := s.table.Load()
	if t == nil {
		return 0
	}
	if w := t.find(t.hash(key)); w.n >= MostJoins {
		return max(0, time.Duration(w.till-now))
	}
	return 0
}
