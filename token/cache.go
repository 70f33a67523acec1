package token

import (
	"errors"
	"strings"
	"sync/atomic"

	"github.com/anteroom/anteroom/internal/table"
)

// Cache remembers tokens that a Ring has verified, so that verifying one again costs a hash and a comparison instead of a
// signature check. A hit allocates nothing. Waiting tokens of HS256 are left to the Ring: a queue may hold millions, and with more of
// them than the cache holds, keeping and finding one costs more than verifying it.
//
// The cache remembers only that the signature and the claims are valid; every hit compares the room, the type and the time.
// Expired tokens are kept too, for expiredKept: a client may send them with every request. Tokens that name another room are
// refused without a check of the signature. Forged tokens are never kept. The cache holds at most the number of tokens it was made for, about half a kilobyte each. A full
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

// expiredKept is how long the cache keeps a token that was expired when it was verified, in seconds.
const expiredKept = 600

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
		if expired(e.pass.Expires, now) {
			return Pass{}, ErrExpired
		}
		return e.pass, nil
	}
	if s.otherRoom(raw, room) {
		return Pass{}, ErrAudience
	}
	p, err := s.ring.readPass(raw, room, now)
	if keep := keepUntil(err, p.Expires, now); keep > 0 {
		p.Room = strings.Clone(p.Room)
		s.table.Put(key, now, &cacheEntry{raw: string(raw), room: p.Room, pass: p}, keep)
	}
	if err != nil {
		return Pass{}, err
	}
	return p, nil
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
		if expired(e.waiting.Expires, now) {
			return Waiting{}, ErrExpired
		}
		return *e.waiting, nil
	}
	if s.otherRoom(raw, room) {
		return Waiting{}, ErrAudience
	}
	w, err := s.ring.readWaiting(raw, room, now)
	if keep := keepUntil(err, w.Expires, now); keep > 0 {
		w.Room = strings.Clone(w.Room)
		kept := w
		s.table.Put(key, now, &cacheEntry{raw: string(raw), room: w.Room, waiting: &kept}, keep)
	}
	if err != nil {
		return Waiting{}, err
	}
	return w, nil
}

// keepUntil returns until when the cache keeps a token that was verified with a result; 0: not at all.
func keepUntil(err error, expires, now int64) int64 {
	switch {
	case err == nil:
		return expires + Leeway
	case errors.Is(err, ErrExpired):
		return now + expiredKept
	}
	return 0
}

// otherRoom reports whether a token names another room than room, where checking its signature is expensive.
func (s *cacheState) otherRoom(raw []byte, room string) bool {
	if s.ring.symmetric {
		return false
	}
	named := s.ring.RoomOf(raw)
	return named != "" && named != room
}

// lookup returns the entry of a token that is kept now, or nil and the token's key in the table.
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
