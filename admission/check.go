package admission

import (
	"context"
	"errors"
	"strings"
	"time"
)

// tickets answers the polls and claims of tickets, and gives up places: from the snapshot, from memory or by the store.
type tickets struct {
	identity
	view        *view
	draws       *draws
	store       *store
	calls       *ticketCalls
	memory      *memory
	joinLimiter *joinLimiter
	offline     *offline
}

// standing turns a reply about t into its Standing, and remembers it. hold is the presence hold that the store was asked to
// record for a waiting ticket. front: the ticket is in the front, where every poll is a check.
func (r *tickets) standing(t Ticket, a reply, hold time.Duration, front bool) Standing {
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
		s.Renewed = !front || old.Order != a.ord || old.Epoch != a.h.epoch || old.Fence != a.h.fence || old.Heard != 0 ||
			a.h.time-old.Seen > r.view.quarter().Microseconds()
		if !s.Renewed {
			s.Ticket = old // the client's token still serves
		}
	case replyConfirmed:
		s.State, s.Renewed, s.Gathering = Waiting, true, true
		s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence, s.Ticket.Heard = a.h.time, a.h.epoch, a.h.fence, 0
		s.Ticket.Hold = r.view.schedule.Load().Policy.PrequeueHold()
	case replyAdmitted:
		s.State = Admitted
	case replyActive:
		s.State, s.ClaimedAt = Active, a.h.time
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

// refusedMemory is for how long a refused ticket is not sent to the store again.
const refusedMemory = 10 * time.Second

// refused returns the Standing of a refused place, and informs the join limiter. snap is the snapshot from before the call, so
// that a policy that has changed since blocks nobody.
func (r *tickets) refused(snap *Snapshot, t Ticket, a reply) Standing {
	s := Standing{State: Refused, Reason: a.reason, Retry: time.Duration(a.ord) * time.Microsecond, Ticket: t}
	r.joinLimiter.refuse(t.Address, a.reason, &snap.Policy, r.c.mono()+int64(s.Retry))
	return s
}

// claimedFirst is the reason of the claim that makes a session.
const claimedFirst = "first"

// Check answers a poll: from the snapshot or from memory while the ticket is present there and behind the front, otherwise from
// the store in a batch. A ticket that is not enrolled is enrolled. While the store is away, a waiting ticket stays waiting
// (Standing.Offline) unless on_store_error admits it. After an error the state is unknown.
func (r *tickets) Check(ctx context.Context, t Ticket) (Standing, error) {
	snap := r.view.Snapshot()
	if snap.Known && t.Fence > 0 && t.Fence < snap.Fence {
		return Standing{State: Expired, Reason: ReasonReset, Ticket: t}, nil
	}
	if t.Order == 0 {
		return r.checkUnordered(ctx, snap, t)
	}
	return r.checkOrdered(ctx, snap, t, false)
}

// checkOrdered is Check for a ticket with an order. fresh: the ticket got its order a moment ago and is not enrolled yet; order 0
// then stands for the time of its enrolment.
func (r *tickets) checkOrdered(ctx context.Context, snap *Snapshot, t Ticket, fresh bool) (Standing, error) {
	front := fresh || snap.InFront(t.Order)
	if !front && r.view.present(snap, &t) && !r.memory.settled(t.ID) {
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
		// The remembered ticket has no order yet, or a later one than this ticket.
		unplaced := m.standing.State == Waiting && (m.standing.Ticket.Order == 0 ||
			(fresh || r.earlier(t, now)) && 0 < t.Order && t.Order < m.standing.Ticket.Order)
		if s, final := m.answer(t, now); final && !unplaced {
			return s, nil
		}
		if m.standing.State == Waiting && !unplaced && m.standing.Ticket.Seen > t.Seen {
			// A client that sends an older token causes no more calls.
			t.renew(&m.standing.Ticket)
			fresh = false
		}
	}
	front = fresh || snap.InFront(t.Order)
	// An admitted ticket may be behind the front, when tickets before it were restored since.
	if !front && r.view.present(snap, &t) && (!ok || m.standing.State == Waiting) {
		return Standing{State: Waiting, Ticket: t, Renewed: t.Seen != presented.Seen}, nil
	}
	if r.store.unreachable(snap) {
		return r.offline.checkOffline(t), nil
	}
	var ans reply
	var err error
	hold := r.view.schedule.Load().Policy.Hold(t.Interval, t.Wait, front)
	enrol := fresh || !snap.Known || t.Epoch != snap.Epoch
	if !enrol {
		batch := r.calls.renewals
		if front {
			batch = r.calls.frontChecks
		}
		ans, err = batch.ask(ctx, seenQ{id: t.ID, client: t.Client, hold: hold})
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
		// It polls again after Retry. Until then no other request enrols it either.
		r.joinLimiter.block(string(t.ID[:]), now+int64(min(s.Retry, refusedMemory)))
		return s, nil
	}
	if t.Epoch == "" && 0 < t.Order && t.Order < ans.ord {
		r.joinLimiter.block(earlierKey(t), now+int64(refusedMemory)) // a join limit postponed the ticket, or it is late
	}
	if fresh {
		t.Order = 0 // as in the client's token
	}
	s := r.standing(t, ans, hold, front)
	s.Renewed = s.Renewed || s.Ticket.Seen != presented.Seen
	if ans.code == replyWaiting && !snap.Known {
		r.store.wake()
	}
	return s, nil
}

// earlier reports whether a ticket that was never enrolled may get an order before the one that this gateway remembers: its join
// was repeated, and a later order of it was enrolled first. The store is asked about it once in refusedMemory.
func (r *tickets) earlier(t Ticket, now int64) bool {
	return t.Epoch == "" && r.joinLimiter.blocked(earlierKey(t), now) == 0
}

func earlierKey(t Ticket) string { return "order" + string(t.ID[:]) }

// Settled reports whether this gateway may know that a ticket has stopped waiting: it was admitted, or it ended here. Check then
// returns how. Settled makes no call and takes no lock.
func (r *tickets) Settled(id ID) bool { return r.memory.settled(id) }

// checkUnordered is Check for a ticket that was signed before the opening of a lottery: it is confirmed in the pre-queue, or has
// an order now.
func (r *tickets) checkUnordered(ctx context.Context, snap *Snapshot, t Ticket) (Standing, error) {
	presented, now := t, r.c.mono()
	if t.Address != "" {
		if wait := r.joinLimiter.blocked(string(t.ID[:]), now); wait > 0 {
			return Standing{State: Refused, Retry: wait, Ticket: t}, nil
		}
	}
	m, ok := r.memory.get(t.ID, now)
	if drawn, has := r.draws.order(snap, t, snap.Opens, snap.Drawn); has == newOrder && ok && m.standing.State == Waiting &&
		0 < drawn.Order && drawn.Order < m.standing.Ticket.Order {
		return r.checkOrdered(ctx, snap, drawn, true) // its key or account joined again since the opening: the drawn order counts
	}
	if k := m.standing.Ticket; ok && m.standing.State == Waiting && k.Seen > t.Seen {
		// A client that sends an older token causes no more calls.
		t.renew(&k)
	}
	ordered, has := r.draws.order(snap, t, snap.Opens, snap.Drawn)
	switch {
	case has == hasOrder:
		s, err := r.checkOrdered(ctx, snap, t, false)
		s.Renewed = s.Renewed || s.State == Waiting
		return s, err
	case has == newOrder:
		return r.checkOrdered(ctx, snap, ordered, true)
	case ok && m.standing.State != Waiting:
		if s, final := m.answer(t, now); final {
			return s, nil
		}
	case r.view.confirmed(snap, t):
		return Standing{State: Waiting, Ticket: t, Renewed: t.Seen != presented.Seen, Gathering: true}, nil
	}
	if r.store.unreachable(snap) {
		return r.offline.checkOffline(t), nil
	}
	hold := r.view.schedule.Load().Policy.Hold(t.Interval, t.Wait, true) // of a ticket that the queue holds already
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
		r.store.wake() // the snapshot must show the opening
		if ordered, has = r.draws.order(snap, t, ans.wall, ans.ord); has == noOrder {
			return Standing{State: Waiting, Ticket: t, Gathering: true}, nil
		}
		return r.checkOrdered(ctx, snap, ordered, true)
	}
	return r.standing(t, ans, hold, false), nil
}

// gatheredBefore returns the place of an id that this gateway remembers as confirmed in the pre-queue.
func (r *tickets) gatheredBefore(snap *Snapshot, a Arrival, k remembered) (s Standing, gathers bool) {
	t := k.standing.Ticket
	t.ID, t.Client, t.Interval = a.ID, a.Client, a.Interval
	if k.standing.State != Waiting || !r.view.confirmed(snap, t) || t.Fence != snap.Fence {
		return s, false
	}
	return Standing{State: Waiting, Ticket: t, Renewed: true, Gathering: t.Order == 0}, true
}
