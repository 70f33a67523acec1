// Package table is a concurrent hash table of fixed size, for caches and meters that any client may fill: memory is
// allocated once, a key can use one of eight entries, and a full set of eight replaces its least useful entry.
package table

import (
	"hash/maphash"
	"sync"
)

const (
	ways    = 8  // entries of a set
	stripes = 64 // locks; a power of two
)

// Table maps 64-bit keys to values of type V. Its methods are safe for concurrent use and allocate nothing; a lock is held for
// one set of entries at a time. Times are in any unit that the callers agree on.
//
// A new key replaces an entry of its set that has ended. Else it replaces the entry that ends first among those that Use has not returned
// since the set was last full of used entries.
type Table[V any] struct {
	seed  maphash.Seed
	sets  [][ways]entry[V]
	locks [stripes]struct {
		sync.Mutex
		_ [56]byte // a cache line each
	}
}

type entry[V any] struct {
	value V
	key   uint64 // 0: the entry is empty
	until int64
	used  bool
}

// New returns a table for at most size entries, rounded up to a power of two (at least 8).
func New[V any](size int) *Table[V] {
	sets := 1
	for sets*ways < size {
		sets *= 2
	}
	return &Table[V]{seed: maphash.MakeSeed(), sets: make([][ways]entry[V], sets)}
}

// Key returns the key of b in this table: a hash that nobody outside the process can predict.
func (t *Table[V]) Key(b []byte) uint64 { return maphash.Bytes(t.seed, b) }

// KeyOf returns the key of k in t, as Key does.
func KeyOf[K comparable, V any](t *Table[V], k K) uint64 { return maphash.Comparable(t.seed, k) }

// set locks and returns the set of a key, and the key as it is stored, which is never 0.
func (t *Table[V]) set(key uint64) (*[ways]entry[V], *sync.Mutex, uint64) {
	i := key >> 1 & uint64(len(t.sets)-1)
	lock := &t.locks[i%stripes].Mutex
	lock.Lock()
	return &t.sets[i], lock, key | 1
}

// Get returns the value of a key and the time until which it is valid; ok is false for a key that is not in the table or has
// ended by now.
func (t *Table[V]) Get(key uint64, now int64) (value V, until int64, ok bool) {
	return t.get(key, now, false)
}

// Use is Get for a cache: it also marks the entry as used.
func (t *Table[V]) Use(key uint64, now int64) (value V, until int64, ok bool) {
	return t.get(key, now, true)
}

func (t *Table[V]) get(key uint64, now int64, use bool) (value V, until int64, ok bool) {
	set, lock, key := t.set(key)
	for i := range set {
		if e := &set[i]; e.key == key && e.until > now {
			e.used = e.used || use
			value, until, ok = e.value, e.until, true
			break
		}
	}
	lock.Unlock()
	return value, until, ok
}

// Put stores a value that is valid until a time.
func (t *Table[V]) Put(key uint64, now int64, value V, until int64) {
	set, lock, key := t.set(key)
	e := place(set, key, now)
	e.value, e.until = value, until
	lock.Unlock()
}

// Update calls f with the value of a key and the time until which it is valid. f may change both, and no other call can reach
// them meanwhile. For a key that is not in the table or has ended by now, the value is zero and valid until now.
func (t *Table[V]) Update(key uint64, now int64, f func(value *V, until *int64)) {
	set, lock, key := t.set(key)
	e := place(set, key, now)
	f(&e.value, &e.until)
	lock.Unlock()
}

// place returns the entry of a key; a new one is empty.
func place[V any](set *[ways]entry[V], key uint64, now int64) *entry[V] {
	var victim *entry[V]
	start := int(key >> 32)
	for n := range ways {
		e := &set[(start+n)%ways]
		if e.key == key {
			victim = e
			break
		}
		if e.until <= now {
			e.used = false // whatever it was used for has ended
		}
		if victim == nil || rank(e, now) < rank(victim, now) || rank(e, now) == rank(victim, now) && e.until < victim.until {
			victim = e
		}
	}
	if victim.key == key && victim.until > now {
		return victim
	}
	if victim.used {
		for i := range set {
			set[i].used = false
		}
	}
	*victim = entry[V]{key: key, until: now}
	return victim
}

// rank orders entries by their use: the lowest is replaced first.
func rank[V any](e *entry[V], now int64) int {
	switch {
	case e.until <= now:
		return 0
	case !e.used:
		return 1
	}
	return 2
}

// Each calls f with every valid value, one set locked at a time.
func (t *Table[V]) Each(now int64, f func(value *V, until int64)) {
	for i := range t.sets {
		set, lock, _ := t.set(uint64(i) << 1)
		for j := range set {
			if e := &set[j]; e.key != 0 && e.until > now {
				f(&e.value, e.until)
			}
		}
		lock.Unlock()
	}
}
