package admission

import (
	"context"
	"errors"
	"strings"
	"time"
)

// standing turns a reply into the answer about t, and remembers it. hold is what the store was asked to record for a ticket
// that waits; near that the ticket is in the front, where each poll is checked whatever its token claims.
func (r *Room) standing(t Ticket, a reply, hold time.Duration, near bool) Standing {
	s := Standing{Ticket: t, AdmittedAt: a.wall, Reason: a.reason}
	m := remembered{at: r.c.mono(), client: t.Client, seenAt: a.h.time, hold: hold}
	if owner, claimed := strings.CutPrefix(a.reason, ReasonClaimed); claimed {
		s.Reason, m.unsure = ReasonClaimed, owner == replyUnknownClient
		if !m.unsure {
			m.client = Client{}
			copy(m.client[:], owner)
		}
	}
	switch a.code {
	case replyWaiting:
		s.State = Waiting
		old := t
		s.Ticket.renew(&Ticket{Order: a.ord, Seen: a.h.time, Hold: hold, Epoch: a.h.epoch, Fence: a.h.fence})
		s.Renewed = !near || old.Order != a.ord || old.Epoch != a.h.epoch || old.Fence != a.h.fence || old.Heard != 0 ||
			a.h.time-old.Seen > r.view.quarter().Microseconds()
		if !s.Renewed {
			// The token in hand still says all that matters.
			s.Ticket = old
		}
	case replyConfirmed:
		s.State, s.Renewed, s.Gathering = Waiting, true, true
		s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence, s.Ticket.Heard = a.h.time, a.h.epoch, a.h.fence, 0
		s.Ticket.Hold = r.view.schedule.Load().Policy.PrequeueHold()
	case replyAdmitted:
		s.State = Admitted
	case replyActive:
		s.State = Active
	case replyLapsed:
		s.State = Lapsed
	case replyExpired:
		s.State = Expired
	default:
		s.State = Ended
	}
	first := (a.code == replyActive || a.code == replyConfirmed) && a.reason == claimedFirst
	if first {
		s.Reason = ""
	}
	m.standing = s
	r.memory.put(t.ID, m)
	s.First = first
	return s
}

// refusedMemory is for how long a refused ticket is not asked about again.
const refusedMemory = 10 * time.Second

// refused is the answer to a place that was not given, and lets the sieve know. snap is of before the store was asked: by a
// policy that is another since, nobody is kept off.
func (r *Room) refused(snap *Snapshot, t Ticket, a reply) Standing {
	s := Standing{State: Refused, Reason: a.reason, Retry: time.Duration(a.ord) * time.Microsecond, Ticket: t}
	r.joinLimiter.refuse(t.Address, a.reason, &snap.Policy, r.c.mono()+int64(s.Retry))
	return s
}

// claimedFirst is the reason of the claim that makes a session.
const claimedFirst = "first"

// Check answers a poll: from the snapshot or from memory where promise P6 (docs/architecture.md) allows
// it, otherwise from the store in a batch. A ticket that is not enrolled is
// enrolled. It errs only when there is no honest answer; while the store is
// away a waiting ticket is answered as waiting (Offline).
func (r *Room) Check(ctx context.Context, t Ticket) (Standing, error) {
	snap := r.Snapshot()
	if snap.Known && t.Fence > 0 && t.Fence < snap.Fence {
		return Standing{State: Expired, Reason: ReasonReset, Ticket: t}, nil
	}
	if t.Order == 0 {
		return r.checkUnordered(ctx, snap, t)
	}
	return r.checkOrdered(ctx, snap, t, false)
}

// checkOrdered is Check for a ticket with an order. fresh: it has just come to have it, so the store holds no place yet; 0 is
// then the order of its enrolment.
func (r *Room) checkOrdered(ctx context.Context, snap *Snapshot, t Ticket, fresh bool) (Standing, error) {
	near := fresh || snap.InFront(t.Order)
	if !near && r.view.present(snap, &t) && !r.memory.settled(t.ID) {
		return Standing{State: Waiting, Ticket: t}, nil
	}
	presented, now := t, r.c.mono()
	if t.Address != "" {
		if wait := r.joinLimiter.blocked(string(t.ID[:]), now); wait > 0 {
			return Standing{State: Refused, Retry: wait, Ticket: t}, nil
		}
	}
	m, ok := r.memory.get(t.ID, now)
	if ok {
		// It was confirmed before the opening, or has a place that was taken after it.
		unplaced := m.standing.State == Waiting && (m.standing.Ticket.Order == 0 ||
			(fresh || r.earlier(t, now)) && 0 < t.Order && t.Order < m.standing.Ticket.Order)
		if s, final := m.answer(t, now); final && !unplaced {
			return s, nil
		}
		if m.standing.State == Waiting && !unplaced && m.standing.Ticket.Seen > t.Seen {
			// A client that does not keep its renewed token costs no more.
			t.renew(&m.standing.Ticket)
			fresh = false
		}
	}
	near = fresh || snap.InFront(t.Order)
	// A ticket that was admitted may lie behind the front, when tickets ahead of it came back since.
	if !near && r.view.present(snap, &t) && (!ok || m.standing.State == Waiting) {
		return Standing{State: Waiting, Ticket: t, Renewed: t.Seen != presented.Seen}, nil
	}
	if r.store.away.Load() || !snap.Known && r.view.anchor.Load() == nil {
		return r.offline.checkOffline(t), nil
	}
	var ans reply
	var err error
	hold := r.view.schedule.Load().Policy.Hold(t.Interval, t.Wait, near)
	enrol := fresh || !snap.Known || t.Epoch != snap.Epoch
	if !enrol {
		lane := r.calls.renewals
		if near {
			lane = r.calls.frontChecks
		}
		ans, err = lane.ask(ctx, seenQ{id: t.ID, client: t.Client, hold: hold})
		enrol = err == nil && ans.code == replyUnknown
	}
	if enrol {
		ans, err = r.calls.enter.ask(ctx, enterQ{kind: "enrol", id: t.ID, client: t.Client, hold: hold, t: t})
	}
	if errors.Is(err, ErrStore) {
		return r.offline.checkOffline(t), nil
	}
	if err != nil {
		return Standing{}, err
	}
	if ans.code == replyTooMany {
		s := r.refused(snap, t, ans)
		// It polls again when it was told to. Till then nobody else enrols it either.
		r.joinLimiter.block(string(t.ID[:]), now+int64(min(s.Retry, refusedMemory)))
		return s, nil
	}
	if t.Epoch == "" && 0 < t.Order && t.Order < ans.ord {
		r.joinLimiter.block(earlierKey(t), now+int64(refusedMemory)) // a join limit has postponed it, or it is late
	}
	if fresh {
		t.Order = 0 // of the token in hand
	}
	s := r.standing(t, ans, hold, near)
	s.Renewed = s.Renewed || s.Ticket.Seen != presented.Seen
	if ans.code == replyWaiting && !snap.Known {
		r.store.wake()
	}
	return s, nil
}

// earlier reports whether a ticket that was never enrolled may get its place by an order before the one that this gateway
// remembers: its join was repeated, and another of its orders was enrolled first. The store is asked once in a while.
func (r *Room) earlier(t Ticket, now int64) bool {
	return t.Epoch == "" && r.joinLimiter.blocked(earlierKey(t), now) == 0
}

func earlierKey(t Ticket) string { return "order" + string(t.ID[:]) }

// Settled says whether a ticket may have been heard to wait no longer: admitted, here or elsewhere, or ended here. Where it
// says so, Check knows. It asks and waits for nothing.
func (r *Room) Settled(id ID) bool { return r.memory.settled(id) }

// checkUnordered is Check for a ticket that was signed before the opening of a lottery: it is confirmed, or has an order now.
func (r *Room) checkUnordered(ctx context.Context, snap *Snapshot, t Ticket) (Standing, error) {
	presented, now := t, r.c.mono()
	if t.Address != "" {
		if wait := r.joinLimiter.blocked(string(t.ID[:]), now); wait > 0 {
			return Standing{State: Refused, Retry: wait, Ticket: t}, nil
		}
	}
	m, ok := r.memory.get(t.ID, now)
	if lot, has := r.draws.order(snap, t, snap.Opens, snap.Drawn); has == placed && ok && m.standing.State == Waiting &&
		0 < lot.Order && lot.Order < m.standing.Ticket.Order {
		return r.checkOrdered(ctx, snap, lot, true) // its key or account has joined again since the opening: the lot counts
	}
	if k := m.standing.Ticket; ok && m.standing.State == Waiting && k.Seen > t.Seen {
		// A client that does not keep its renewed token costs no more.
		t.renew(&k)
	}
	named, lot := r.draws.order(snap, t, snap.Opens, snap.Drawn)
	switch {
	case lot == hasOrder:
		s, err := r.checkOrdered(ctx, snap, t, false)
		s.Renewed = s.Renewed || s.State == Waiting
		return s, err
	case lot == placed:
		return r.checkOrdered(ctx, snap, named, true)
	case ok && m.standing.State != Waiting:
		if s, final := m.answer(t, now); final {
			return s, nil
		}
	case r.view.confirmed(snap, t):
		return Standing{State: Waiting, Ticket: t, Renewed: t.Seen != presented.Seen, Gathering: true}, nil
	}
	if r.store.away.Load() || !snap.Known && r.view.anchor.Load() == nil {
		return r.offline.checkOffline(t), nil
	}
	hold := r.view.schedule.Load().Policy.Hold(t.Interval, t.Wait, true) // of one that the line holds already
	ans, err := r.calls.prequeueChecks.ask(ctx, enterQ{kind: "prequeue", id: t.ID, client: t.Client, hold: hold, t: t})
	switch {
	case errors.Is(err, ErrStore):
		return r.offline.checkOffline(t), nil
	case err != nil:
		return Standing{}, err
	case ans.code == replyTooMany:
		s := r.refused(snap, t, ans)
		r.joinLimiter.block(string(t.ID[:]), now+int64(min(s.Retry, refusedMemory)))
		return s, nil
	case ans.code == replyOpened:
		r.store.wake() // for the snapshot that says so too
		if named, lot = r.draws.order(snap, t, ans.wall, ans.ord); lot == gathers {
			return Standing{State: Waiting, Ticket: t, Gathering: true}, nil
		}
		return r.checkOrdered(ctx, snap, named, true)
	}
	return r.standing(t, ans, hold, false), nil
}

// gatheredBefore is the place of an id that this gateway remembers to be confirmed before the opening of a lottery.
func (r *Room) gatheredBefore(snap *Snapshot, a Arrival, k remembered) (s Standing, gathers bool) {
	t := k.standing.Ticket
	t.ID, t.Client, t.Interval = a.ID, a.Client, a.Interval
	if k.standing.State != Waiting || !r.view.confirmed(snap, t) || t.Fence != snap.Fence {
		return s, false
	}
	return Standing{State: Waiting, Ticket: t, Renewed: true, Gathering: t.Order == 0}, true
}
