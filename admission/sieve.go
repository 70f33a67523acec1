package admission

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// sieve keeps most of a flood of joins of one address from the store, and counts those that are signed without it. It is
// this process's alone and forgets whom it has no room for: room_enter decides. It counts every join, whether or not it is
// ever enrolled, in windows like those of lua/lib/joins.lua.
type sieve struct {
	table atomic.Pointer[sieveTable]
}

const (
	sieveSets = 1 << 12
	sieveWays = 8
)

// sieveTable has room for 32768 windows, 24 bytes each, in sets of which a key has one: nothing is ever searched or grown.
type sieveTable struct {
	seed  maphash.Seed
	locks [64]sync.Mutex
	sets  [sieveSets][sieveWays]sieveWindow
}

// sieveWindow counts the joins of one key till then. Its key is kept as a hash: two that share one are counted together,
// one time in 2^60.
type sieveWindow struct {
	key  uint64
	till int64 // mono, ns
	n    int64
}

func addressKey(hash string) string { return hash[:len(hash)/2] }
func networkKey(hash string) string { return hash[len(hash)/2:] }

func (s *sieve) get() *sieveTable {
	t := s.table.Load()
	if t == nil {
		s.table.CompareAndSwap(nil, &sieveTable{seed: maphash.MakeSeed()})
		t = s.table.Load()
	}
	return t
}

// at gives the window of a key, to change until unlock; a new one is empty and takes the place of that which ends first.
func (t *sieveTable) at(key string, now int64) (w *sieveWindow, unlock func()) {
	h := maphash.String(t.seed, key)
	i := h % sieveSets
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
		*w = sieveWindow{key: h, till: now}
	}
	return w, lock.Unlock
}

// find gives a copy of a key's window.
func (t *sieveTable) find(key string) sieveWindow {
	h := maphash.String(t.seed, key)
	i := h % sieveSets
	lock := &t.locks[i%uint64(len(t.locks))]
	lock.Lock()
	defer lock.Unlock()
	for _, w := range t.sets[i] {
		if w.key == h {
			return w
		}
	}
	return sieveWindow{}
}

// join counts a join of an address, unless it or its network had its share here: then it gives the time until it may join
// again, and which of the two it was.
func (s *sieve) join(hash string, p *Policy, now int64) (wait time.Duration, reason string) {
	if p.Joins <= 0 || hash == "" {
		return 0, ""
	}
	t := s.get()
	limits := [...]struct {
		key, reason string
		most        int64
		per         time.Duration
	}{{networkKey(hash), ReasonNetwork, p.Wide, p.WidePer}, {addressKey(hash), ReasonAddress, p.Joins, p.JoinsPer}}
	for _, l := range limits {
		if w := t.find(l.key); l.most > 0 && w.n >= l.most && w.till > now {
			wait, reason = max(wait, time.Duration(w.till-now)), l.reason
		}
	}
	if wait > 0 {
		return wait, reason
	}
	for _, l := range limits {
		w, unlock := t.at(l.key, now)
		if w.n == 0 {
			w.till = now + int64(l.per)
		}
		w.n++
		unlock()
	}
	return 0, ""
}

// block keeps a key's joins off till then: the store has refused one.
func (s *sieve) block(key string, till int64) {
	w, unlock := s.get().at(key, till)
	w.till, w.n = till, MostJoins
	unlock()
}

// blocked is for how long a key is kept off; 0: not at all.
func (s *sieve) blocked(key string, now int64) time.Duration {
	t := s.table.Load()
	if t == nil {
		return 0
	}
	if w := t.find(key); w.n >= MostJoins {
		return max(0, time.Duration(w.till-now))
	}
	return 0
}
