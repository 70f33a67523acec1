package gateway

import (
	"crypto/rand"
	"sync"
)

// reserve is random bytes that were fetched and not used: 16 at a time they cost ten times as much.
type reserve struct {
	b    [512]byte
	left int // at the end of b
}

var reserves = sync.Pool{New: func() any { return &reserve{} }}

// random16 gives 128 bits that nobody can guess.
func random16() (out [16]byte) {
	r := reserves.Get().(*reserve)
	if r.left == 0 {
		rand.Read(r.b[:])
		r.left = len(r.b)
	}
	next := r.b[len(r.b)-r.left:][:len(out)]
	copy(out[:], next)
	clear(next) // what has been given out is not kept
	r.left -= len(out)
	reserves.Put(r)
	return out
}
