package admission

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// view computes positions and lengths from the newest snapshot and the changes since then. It makes no calls.
type view struct {
	identity
	clock
	planned       planned
	schedule      atomic.Pointer[policy.Schedule]
	snap          atomic.Pointer[Snapshot]
	frontFull     atomic.Pointer[Snapshot] // the snapshot since which the store found the front full
	changing      sync.Mutex               // held to replace sinceSnapshot
	sinceSnapshot atomic.Pointer[sinceSnapshot]

	_                      [64]byte // every join writes these, and every request reads the fields around them
	arrived                arrivals
	signedFrom, signedLast atomic.Int64 // first and last order of the current series of signed places
	_                      [64]byte
}

// Snapshot returns the newest snapshot; never nil.
func (r *view) Snapshot() *Snapshot { return r.snap.Load() }

// Age returns how long ago the snapshot was built.
func (r *view) Age() time.Duration {
	s := r.snap.Load()
	if !s.Known {
		return time.Duration(r.c.mono())
	}
	return time.Duration(r.c.mono() - s.ReadAt)
}

func (r *view) policyArg() string { return r.schedule.Load().At(r.RedisNow()).Arg }

// quarter returns a quarter of absence: the age from which on a confirmation of a ticket is renewed.
func (r *view) quarter() time.Duration { return r.schedule.Load().Policy.Absence / 4 }

// refuses returns why a snapshot allows no new place, or Granted.
func (r *view) refuses(s *Snapshot) Refusal {
	switch p := &s.Policy; {
	case p.Closed(), s.Gathering() && r.RedisNow() < p.PrequeueAt:
		return Closed
	case p.Draining:
		return Draining
	case p.Capacity > 0 && r.length(s) >= p.Capacity:
		return Full
	}
	return Granted
}

// Refuses returns why no new place is given now, or Granted.
func (r *view) Refuses() Refusal { return r.refuses(r.Snapshot()) }

// length returns the length of the queue with the tickets that are not enrolled yet; before an opening, of the pre-queue.
func (r *view) length(s *Snapshot) int64 {
	n := s.Waiting + r.Arriving() + s.Unheard()
	if s.Gathering() {
		n += s.Prequeued
	}
	return n
}

// idle reports whether a room has no visitors, waiting or admitted, and no backlog.
func (r *view) idle(s *Snapshot) bool {
	return s.Waiting+s.Parked+s.Admitted+s.Active == 0 && !s.Backlog && r.length(s) == 0
}

// Arriving returns how many tickets are signed and not enrolled yet: most of their visitors will soon poll for the first time.
func (r *view) Arriving() int64 {
	b := r.sinceSnapshot.Load()
	n := r.signedSince(b, math.MaxInt64)
	for _, p := range b.snap.Pending {
		n += p.Count
	}
	return n
}

// Ahead returns how many tickets are before an order (0: it is next): those enrolled by the snapshot or through this gateway
// since, and those signed before it that are not enrolled yet. For 90 s after the store lost its data, the last snapshot before
// the loss counts too.
func (r *view) Ahead(order int64) int64 {
	for {
		b := r.sinceSnapshot.Load()
		s, from := b.snap, r.signedFrom.Load()
		n := s.Ahead(order) + s.Unenrolled(order, from) + b.recent.ahead(order) + max(s.Extrapolated(order), r.signedSince(b, order))
		if f := b.before; f != nil && r.c.mono() < f.until {
			n = max(n, f.snap.Ahead(order)+f.snap.Unenrolled(order, from)-(s.Admissions-f.base))
		}
		if r.sinceSnapshot.Load() == b { // otherwise arrivals may be counted twice or not at all
			return max(0, n)
		}
	}
}

// signedSince returns how many tickets before an order this gateway has signed that the snapshot does not include.
func (r *view) signedSince(b *sinceSnapshot, order int64) (n int64) {
	at := order / 1e6
	same := int64(-1) // in the order's own second, without itself
	count := func(second, count int64) {
		switch {
		case second < at:
			n += count
		case second == at:
			same += count
		}
	}
	for _, t := range b.sent {
		count(t.second, t.count)
	}
	now := r.arrived.tally()
	for i := range now {
		count(now.since(&b.taken, i))
	}
	if same > 0 {
		n += snapshot.PartOfSecond(same, order, r.signedFrom.Load(), r.Now())
	}
	return n
}

// present reports whether the store counts a waiting ticket as present until the poll that is about to be advised. Behind the
// front such a ticket needs no check.
func (r *view) present(s *Snapshot, t *Ticket) bool {
	return s.Known && t.Epoch == s.Epoch && t.covers(s.Elapsed(t.Seen, r.Now()))
}

// confirmed reports whether the store confirmed a ticket of the pre-queue recently enough.
func (r *view) confirmed(s *Snapshot, t Ticket) bool {
	return s.Known && t.Epoch == s.Epoch && s.Elapsed(t.Seen, r.Now()) <= r.quarter()
}
