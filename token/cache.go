package token

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// Cache remembers tokens that a Ring has verified, so that a token shown again costs a hash and a comparison instead of
// a signature. A hit takes no lock and allocates nothing. Waiting tokens of HS256 it passes on to the Ring: with more of
// them than it holds, to keep and to look for one costs more than to verify it, and a line may have millions.
//
// What it remembers is only that the signature and the claims are good; the room, the type and the time are compared on
// every hit. Forged tokens are never kept. It holds at most the number of tokens it was made for, about half a kilobyte
// each; where it is full, tokens that have ended go first, then those not asked for since the last time round.
type Cache struct {
	state atomic.Pointer[cacheState]
	sets  int
}

// ways is how many tokens share a set: the places that one hash may take.
const ways = 8

type cacheState struct {
	ring *Ring
	seed maphash.Seed
	sets []cacheSet
}

type cacheSet [ways]atomic.Pointer[cacheEntry]

// cacheEntry is immutable but for used.
type cacheEntry struct {
	hash    uint64
	raw     string
	room    string
	expires int64
	pass    Pass
	waiting *Waiting // nil: a pass
	used    atomic.Bool
}

// NewCache makes a cache for at most size tokens, rounded up to a power of two (at least 8). Until Swap gives it a ring
// it refuses every token with ErrKey.
func NewCache(size int) *Cache {
	sets := 1
	for sets*ways < size {
		sets *= 2
	}
	c := &Cache{sets: sets}
	c.Swap(nil)
	return c
}

// Swap replaces the ring and forgets every token: a key that is not in the new ring stops working at once.
func (c *Cache) Swap(r *Ring) {
	c.state.Store(&cacheState{ring: r, seed: maphash.MakeSeed(), sets: make([]cacheSet, c.sets)})
}

// Ring is the ring in use, nil before the first Swap.
func (c *Cache) Ring() *Ring { return c.state.Load().ring }

// VerifyPass is Ring.VerifyPass, remembered.
func (c *Cache) VerifyPass(raw []byte, room string, now int64) (Pass, error) {
	s := c.state.Load()
	e, hash, err := s.lookup(raw, room, now)
	if err != nil {
		return Pass{}, err
	}
	if e != nil {
		if e.waiting != nil {
			return Pass{}, ErrType
		}
		return e.pass, nil
	}
	p, err := s.ring.VerifyPass(raw, room, now)
	if err == nil {
		p.Room = strings.Clone(p.Room)
		s.insert(&cacheEntry{hash: hash, raw: string(raw), room: p.Room, expires: p.Expires, pass: p}, now)
	}
	return p, err
}

// VerifyWaiting is Ring.VerifyWaiting, remembered.
func (c *Cache) VerifyWaiting(raw []byte, room string, now int64) (Waiting, error) {
	s := c.state.Load()
	if s.ring != nil && s.ring.symmetric {
		return s.ring.VerifyWaiting(raw, room, now)
	}
	e, hash, err := s.lookup(raw, room, now)
	if err != nil {
		return Waiting{}, err
	}
	if e != nil {
		if e.waiting == nil {
			return Waiting{}, ErrType
		}
		return *e.waiting, nil
	}
	w, err := s.ring.VerifyWaiting(raw, room, now)
	if err == nil {
		w.Room = strings.Clone(w.Room)
		kept := w
		s.insert(&cacheEntry{hash: hash, raw: string(raw), room: w.Room, expires: w.Expires, waiting: &kept}, now)
	}
	return w, err
}

// lookup gives the entry of a token, checked for what may have changed, or nil and the token's hash.
func (s *cacheState) lookup(raw []byte, room string, now int64) (*cacheEntry, uint64, error) {
	switch {
	case len(raw) > MaxLength:
		return nil, 0, ErrTooLong
	case s.ring == nil:
		return nil, 0, ErrKey
	}
	hash := maphash.Bytes(s.seed, raw)
	set := &s.sets[hash&uint64(len(s.sets)-1)]
	for i := range set {
		e := set[i].Load()
		if e == nil || e.hash != hash || e.raw != string(raw) {
			continue
		}
		if e.room != room {
			return nil, hash, ErrAudience
		}
		if expired(e.expires, now) {
			return nil, hash, ErrExpired
		}
		if !e.used.Load() { // written once, so that hits of many cores do not fight over the line
			e.used.Store(true)
		}
		return e, hash, nil
	}
	return nil, hash, nil
}

// insert puts an entry into its set. Two that insert at once may cost each other the place, never more.
func (s *cacheState) insert(e *cacheEntry, now int64) {
	set := &s.sets[e.hash&uint64(len(s.sets)-1)]
	start := int(e.hash>>32) % ways
	victim := -1
	for n := range ways {
		i := (start + n) % ways
		old := set[i].Load()
		if old == nil || expired(old.expires, now) || old.hash == e.hash && old.raw == e.raw {
			victim = i
			break
		}
		if victim < 0 && !old.used.Load() {
			victim = i
		}
	}
	if victim < 0 { // all were asked for: each gets another round, one goes
		for i := range set {
			if old := set[i].Load(); old != nil {
				old.used.Store(false)
			}
		}
		victim = start
	}
	set[victim].Store(e)
}
