package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	mathbits "math/bits"
	"time"
)

// Draw is a lottery: its opening, its pre-queue, and the seed that orders its tickets. Times are µs of Redis's clock.
type Draw struct {
	Opens   int64
	Gathers int64 // when the pre-queue opens; 0: it is always open
	Seed    [32]byte
}

// openSpan is the span of drawn orders where the pre-queue is always open.
const openSpan = int64(time.Hour / time.Microsecond)

// NewDraw returns the lottery of a room at an opening. Its seed is HMAC-SHA256 by secret over the length of the room's id (eight
// bytes), the id, and opens (eight bytes): equal on all gateways, and different for every room and opening.
func NewDraw(secret []byte, room string, gathers, opens int64) *Draw {
	d := &Draw{Opens: opens, Gathers: gathers}
	h := hmac.New(sha256.New, secret)
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(room)))
	h.Write(n[:])
	h.Write([]byte(room))
	binary.BigEndian.PutUint64(n[:], uint64(opens))
	h.Write(n[:])
	h.Sum(d.Seed[:0])
	return d
}

// Commitment returns SHA-256 of the seed, which is published before the opening.
func (d *Draw) Commitment() [32]byte { return sha256.Sum256(d.Seed[:]) }

// Span returns the microseconds before the opening over which drawn orders are spread: the time that the pre-queue is open, or
// an hour where it is always open.
func (d *Draw) Span() int64 {
	if d.Gathers <= 0 || d.Gathers >= d.Opens {
		return openSpan
	}
	return d.Opens - d.Gathers
}

// Order returns the drawn order of a ticket; drawn is the order time of the opening.
func (d *Draw) Order(id [16]byte, drawn int64) int64 { return DrawnOrder(d.Seed, id, drawn, d.Span()) }

// DrawnOrder returns drawn - span + ⌊x · span / 2^64⌋, where x is the first eight bytes, big-endian, of HMAC-SHA256 by seed over
// id. Every moment of [drawn - span, drawn) is equally likely, whatever the id. Of a hundred thousand tickets in an hour a few
// dozen pairs share an order; the queue sorts those by id.
func DrawnOrder(seed [32]byte, id [16]byte, drawn, span int64) int64 {
	h := hmac.New(sha256.New, seed[:])
	h.Write(id[:])
	var sum [sha256.Size]byte
	share, _ := mathbits.Mul64(binary.BigEndian.Uint64(h.Sum(sum[:0])), uint64(span))
	return drawn - span + int64(share)
}

// Spread returns the time over which the tickets of a pre-queue are advised to poll after the opening: PollBudget polls per
// second, at least a second in all, and at most a quarter of Absence. Nobody is admitted before it has passed.
func (p *Policy) Spread(prequeued int64) time.Duration {
	var polls time.Duration
	if p.PollBudget > 0 {
		polls = time.Duration(float64(prequeued) / float64(p.PollBudget) * float64(time.Second))
	}
	return max(time.Second, min(polls, p.Absence/4))
}
