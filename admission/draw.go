package admission

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	mathbits "math/bits"
	"time"
)

// Draw is a lottery: who gathers for it, when, and the seed that orders them. Times are µs of Redis's clock.
type Draw struct {
	Opens   int64
	Gathers int64 // 0: always
	Seed    [32]byte
}

// hour is over how long orders are spread where a lottery does not say from when people gather.
const hour = int64(time.Hour / time.Microsecond)

// NewDraw is the lottery of a room that opens then. Its seed is HMAC-SHA256 by the secret over the room's id, behind its
// length in eight bytes, and opens, in eight: the same on every gateway, and another for every room and opening.
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

// Commitment is what is published before the opening: SHA-256 of the seed.
func (d *Draw) Commitment() [32]byte { return sha256.Sum256(d.Seed[:]) }

// Span is over how many microseconds before the opening the drawn orders lie: the time in which people gather, an hour where
// that has no beginning.
func (d *Draw) Span() int64 {
	if d.Gathers <= 0 || d.Gathers >= d.Opens {
		return hour
	}
	return d.Opens - d.Gathers
}

// Order is the one that is drawn for an id, drawn being the order time of the opening.
func (d *Draw) Order(id ID, drawn int64) int64 { return DrawnOrder(d.Seed, id, drawn, d.Span()) }

// DrawnOrder is drawn - span + ⌊x · span / 2^64⌋, x being the first eight bytes of HMAC-SHA256 by the seed over the id's
// sixteen, most significant first. So every moment of [drawn - span, drawn) is as likely, whatever the id, and a hundred
// thousand ids in an hour share one in a few dozen pairs: those are ordered by id.
func DrawnOrder(seed [32]byte, id ID, drawn, span int64) int64 {
	h := hmac.New(sha256.New, seed[:])
	h.Write(id[:])
	var sum [sha256.Size]byte
	share, _ := mathbits.Mul64(binary.BigEndian.Uint64(h.Sum(sum[:0])), uint64(span))
	return drawn - span + int64(share)
}

// Spread is the time within which all who gathered for a lottery are told to poll once it has opened: as many polls a second
// as PollBudget says, at least a second, and never more than a quarter of Absence. For as long and openingLate nobody is admitted.
func (p *Policy) Spread(prequeued int64) time.Duration {
	var polls time.Duration
	if p.PollBudget > 0 {
		polls = time.Duration(float64(prequeued) / float64(p.PollBudget) * float64(time.Second))
	}
	return max(time.Second, min(polls, p.Absence/4))
}

// openingLate is what a poll at the end of the spread may be late by; LATE of lua/lib/lottery.lua.
const openingLate = 3 * time.Second

// Gathering tells whether the room is a lottery that has not opened yet, or whose opening the store has not noted: tickets
// have no order.
func (s *Snapshot) Gathering() bool {
	p := &s.Policy
	return p.Method == Lottery && p.OpensAt > 0 && (s.Drawn == 0 || s.Opens < p.OpensAt)
}

// Unheard is how many of those who gathered may still come to take the place that they drew: none once they had the time.
func (s *Snapshot) Unheard() int64 {
	if s.Drawn == 0 || s.Prequeued == 0 || s.Gathering() || s.Time > s.Drawn+(s.Policy.Spread(s.Prequeued)+openingLate).Microseconds() {
		return 0
	}
	return max(0, s.Prequeued-s.ahead(s.Drawn))
}

// UnheardBefore is how many of the unheard are ahead of an order, by its share of the numbers drawn: those are uniform.
func (r *Room) UnheardBefore(order int64) int64 {
	s := r.Snapshot()
	n := s.Unheard()
	if n == 0 || order >= s.Drawn {
		return n
	}
	d := r.draw(s.Opens)
	if d == nil {
		return n
	}
	span := d.Span()
	return int64(float64(n) * float64(max(0, order-(s.Drawn-span))) / float64(span))
}

// draw gives the lottery of that opening; nil where the configuration has none, or another gateway has its seed.
func (r *Room) draw(opens int64) *Draw {
	d := r.config.Load().policy.Plan.Draw(opens)
	if d == nil {
		return nil
	}
	switch _, seed, known := r.Lot(d); {
	case !known:
		return nil
	case seed != d.Seed:
		return &Draw{Opens: d.Opens, Gathers: d.Gathers, Seed: seed}
	}
	return d
}

// toOrder is the lot of a ticket without an order.
type toOrder uint8

const (
	hasOrder toOrder = iota
	gathers          // it has none yet, and is confirmed
	placed           // it has one now, and is enrolled
)

// order gives a ticket the order that it has come to have since it was signed without one: the drawn one, by opens and drawn
// of an opening; where the room takes people in the order in which they come, that of when it was signed; 0, that of its
// enrolment, to whom nobody confirmed in time.
func (r *Room) order(s *Snapshot, t Ticket, opens, drawn int64) (Ticket, toOrder) {
	if t.Order != 0 {
		return t, hasOrder
	}
	heard := t.Epoch != ""
	if t.Fence == 0 {
		t.Fence = s.Fence // it has no order of its gateway's clock
	}
	d := r.draw(opens)
	switch {
	case !s.Known:
		return t, gathers
	case d != nil && drawn > 0 && heard && t.Seen < drawn:
		t.Order = d.Order(t.ID, drawn)
	case d == nil && drawn > 0 && heard && t.Seen < drawn && s.Policy.Method == Lottery &&
		(opens > s.Policy.OpensAt && s.Policy.Plan.lots() > 0 || s.Policy.Plan.Draw(opens) != nil):
		return t, gathers // the draw of another configuration, or by another's secret: a gateway that has it knows the place
	case s.Policy.Method == Reject, s.Policy.Method == Passthrough, s.Gathering() && (drawn == 0 || opens < s.Policy.OpensAt):
		return t, gathers
	case heard && s.Policy.Method != Lottery && t.Joined > 0:
		t.Order = max(1, t.Joined*1e6+r.orderLead())
	}
	return t, placed
}
