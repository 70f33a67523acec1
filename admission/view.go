package admission

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// view answers from memory what the newest snapshot and what happened since mean: it makes no calls.
type view struct {
	identity
	clock
	schedule      atomic.Pointer[policy.Schedule]
	snap          atomic.Pointer[Snapshot]
	frontFull     atomic.Pointer[Snapshot] // the snapshot since which the store found the front full
	changing      sync.Mutex               // held to replace sinceSnapshot
	sinceSnapshot atomic.Pointer[sinceSnapshot]
	arrived       arrivals

	signedFrom, signedLast atomic.Int64 // orders: since when places are signed without a pause, and the last
}

// Snapshot is the newest one; never nil.
func (r *view) Snapshot() *Snapshot { return r.snap.Load() }

// Age is how long ago the snapshot was built, seen from here.
func (r *view) Age() time.Duration {
	s := r.snap.Load()
	if !s.Known {
		return time.Duration(r.c.mono())
	}
	return time.Duration(r.c.mono() - s.ReadAt)
}

func (r *view) policyArg() string { return r.schedule.Load().At(r.RedisNow()).Arg }

// quarter of absence: how old a confirmation may be before it is renewed.
func (r *view) quarter() time.Duration { return r.schedule.Load().Policy.Absence / 4 }

func (r *view) refuses(s *Snapshot) Refusal {
	switch p := &s.Policy; {
	case p.Method == Reject, s.Gathering() && r.RedisNow() < p.PrequeueAt:
		return Closed
	case p.Draining:
		return Draining
	case p.Capacity > 0 && r.length(s) >= p.Capacity:
		return Full
	}
	return Granted
}

// Refuses tells why no new place is given now; Granted where one is.
func (r *view) Refuses() Refusal { return r.refuses(r.Snapshot()) }

// length of the line with those that are not enrolled yet, and before the opening of a lottery those who gathered.
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

// Arriving is how many arrived lately and are not enrolled yet: most of them will poll for the first time soon.
func (r *view) Arriving() int64 {
	b := r.sinceSnapshot.Load()
	n := r.untold(b, math.MaxInt64)
	for _, p := range b.snap.Pending {
		n += p.Count
	}
	return n
}

// Ahead is how many are ahead of an order in line (0: next): those enrolled by
// the snapshot or through this gateway since, and those that arrived before it and are not enrolled yet. For 90 s after the store
// lost its data it is counted from the last snapshot before.
func (r *view) Ahead(order int64) int64 {
	for {
		b := r.sinceSnapshot.Load()
		s, from := b.snap, r.signedFrom.Load()
		n := s.Ahead(order) + s.Unenrolled(order, from) + b.recent.ahead(order) + max(s.Extrapolated(order), r.untold(b, order))
		if f := b.before; f != nil && r.c.mono() < f.until {
			n = max(n, f.snap.Ahead(order)+f.snap.Unenrolled(order, from)-(s.Admissions-f.base))
		}
		if r.sinceSnapshot.Load() == b { // else arrivals may have been counted by another's reckoning
			return max(0, n)
		}
	}
}

// untold counts the arrivals before an order that were signed here and that the snapshot does not hold.
func (r *view) untold(b *sinceSnapshot, order int64) (n int64) {
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
	for _, t := range b.told {
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

// present reports whether the store counts a ticket in line as present until the poll that is about to be advised, so that
// nothing has to be asked as long as it is not in the front.
func (r *view) present(s *Snapshot, t *Ticket) bool {
	return s.Known && t.Epoch == s.Epoch && t.covers(s.Elapsed(t.Seen, r.Now()))
}

// confirmed says whether the store has confirmed a ticket that gathers for a lottery lately enough.
func (r *view) confirmed(s *Snapshot, t Ticket) bool {
	return s.Known && t.Epoch == s.Epoch && s.Elapsed(t.Seen, r.Now()) <= r.quarter()
}
