package token

import (
	"strings"
	"sync/atomic"

	"github.com/anteroom/anteroom/internal/table"
)

// Cache remembers tokens that a Ring has verified, so that verifying one again costs a hash and a comparison instead of a
// signature check. A hit allocates nothing. Waiting tokens of HS256 are left to the Ring: a queue may hold millions, and with more of
// them than the cache holds, keeping and finding one costs more than verifying it.
//
// The cache remembers only that the signature and the claims are valid; every hit compares the room, the type and the time.
// Forged tokens are never kept. The cache holds at most the number of tokens it was made for, about half a kilobyte each. A full
// cache replaces expired tokens first, then tokens that were not verified again.
type Cache struct {
	state atomic.Pointer[cacheState]
	size  int
}

type cacheState struct {
	ring  *Ring
	table *table.Table[*cacheEntry]
}

// cacheEntry is immutable.
type cacheEntry struct {
	raw     string
	room    string
	pass    Pass
	waiting *Waiting // nil: a pass
}

// NewCache returns a cache for at most size tokens, rounded up to a power of two (at least 8). Until Swap sets a ring, the cache
// refuses every token with ErrKey.
func NewCache(size int) *Cache {
	c := &Cache{size: size}
	c.Swap(nil)
	return c
}

// Swap replaces the ring and forgets every token: a key that is not in the new ring stops working at once.
func (c *Cache) Swap(r *Ring) {
	c.state.Store(&cacheState{ring: r, table: table.New[*cacheEntry](c.size)})
}

// Ring returns the ring in use, nil before the first Swap.
func (c *Cache) Ring() *Ring { return c.state.Load().ring }

// VerifyPass returns the result of Ring.VerifyPass, from the cache if it has the token.
func (c *Cache) VerifyPass(raw []byte, room string, now int64) (Pass, error) {
	s := c.state.Load()
	e, key, err := s.lookup(raw, room, now)
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
		s.table.Put(key, now, &cacheEntry{raw: string(raw), room: p.Room, pass: p}, p.Expires+Leeway)
	}
	return p, err
}

// VerifyWaiting returns the result of Ring.VerifyWaiting, from the cache if it has the token.
func (c *Cache) VerifyWaiting(raw []byte, room string, now int64) (Waiting, error) {
	s := c.state.Load()
	if s.ring != nil && s.ring.symmetric {
		return s.ring.VerifyWaiting(raw, room, now)
	}
	e, key, err := s.lookup(raw, room, now)
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
		s.table.Put(key, now, &cacheEntry{raw: string(raw), room: w.Room, waiting: &kept}, w.Expires+Leeway)
	}
	return w, err
}

// lookup returns the entry of a token that is valid now, or nil and the token's key in the table.
func (s *cacheState) lookup(raw []byte, room string, now int64) (*cacheEntry, uint64, error) {
	switch {
	case len(raw) > MaxLength:
		return nil, 0, ErrTooLong
	case s.ring == nil:
		return nil, 0, ErrKey
	}
	key := s.table.Key(raw)
	e, _, ok := s.table.Use(key, now)
	if !ok || e.raw != string(raw) {
		return nil, key, nil
	}
	if e.room != room {
		return nil, key, ErrAudience
	}
	return e, key, nil
}
