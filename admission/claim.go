package admission

import (
	"context"
	"time"
)

// Claim turns an admitted ticket into a session. Its State is Active for the claimer, also when the same Client repeats the claim
// within the claim window; Waiting with ErrNotYet before its turn; otherwise Lapsed, Ended or Expired without an error.
func (r *tickets) Claim(ctx context.Context, t Ticket) (Standing, error) {
	if s, known := r.claimed(t); known {
		if s.State == Waiting {
			return s, ErrNotYet
		}
		return s, nil
	}
	ans, err := r.calls.claims.ask(ctx, claimQ{id: t.ID, client: t.Client})
	if err != nil {
		return Standing{}, err
	}
	switch ans.code {
	case replyUnknown:
		// Not enrolled: Check enrols the ticket, or reports that it is late.
		s, err := r.Check(ctx, t)
		if err == nil && s.State == Waiting {
			err = ErrNotYet
		}
		return s, err
	case replyWaiting:
		s := r.waitingAt(t, ans)
		r.memory.put(t.ID, remembered{standing: s, at: r.c.mono(), asked: true})
		return s, ErrNotYet
	}
	return r.standing(t, ans, 0, false), nil
}

// claimed answers a claim without the store: for a ticket far from the front, for a claim repeated within a second, and for a
// ticket that has ended.
func (r *tickets) claimed(t Ticket) (Standing, bool) {
	snap, now := r.view.Snapshot(), r.c.mono()
	m, ok := r.memory.get(t.ID, now)
	switch {
	case t.Fence < snap.Fence:
		return Standing{}, false
	case !ok:
	case m.standing.State == Admitted: // the store was not asked to claim it
		return Standing{}, false
	case m.standing.State != Waiting:
		return m.answer(t, now)
	case m.asked:
		return Standing{State: Waiting, Ticket: t}, true
	}
	far := now-snap.ReadAt < int64(farAge) && !snap.InFront(t.Order) && r.view.present(snap, &t)
	return Standing{State: Waiting, Ticket: t}, far
}

// farAge is the greatest age of a snapshot at which no ticket behind its front can have been admitted: a front lasts at least 10 s.
const farAge = 5 * time.Second

// waitingAt returns the Standing of a waiting ticket that the store did not renew.
func (r *tickets) waitingAt(t Ticket, a reply) Standing {
	if a.ord > 0 && a.ord != t.Order {
		t.Order = a.ord
	}
	return Standing{State: Waiting, Ticket: t}
}

// Leave gives up a place or an unclaimed admission. The store keeps no record of a ticket that it does not hold, such as one
// behind the front before its first poll: only this gateway then remembers that the ticket has left, and another would enrol it
// if it polled.
func (r *tickets) Leave(ctx context.Context, t Ticket) error {
	now := r.c.mono()
	if m, ok := r.memory.get(t.ID, now); ok && m.over() && (!m.bare || now-m.at < int64(time.Second)) {
		return nil
	}
	q := leaveQ{id: t.ID}
	if t.Order == 0 && t.Counted() {
		q.fence, q.confirmed = t.Fence, max(t.Seen, r.lastSeen(t.ID))
	}
	_, err := r.calls.leaves.ask(ctx, q)
	return err
}

// lastSeen returns when the store confirmed a waiting ticket, as far as this gateway remembers; otherwise 0.
func (r *tickets) lastSeen(id ID) int64 {
	if m, ok := r.memory.get(id, r.c.mono()); ok && m.standing.State == Waiting {
		return m.standing.Ticket.Seen
	}
	return 0
}

// Charge takes one unit of the limiter for a request that gets no session, such as a subresource without a pass. It reports false
// while anybody waits or capacity is exhausted.
func (r *tickets) Charge(ctx context.Context) bool {
	snap := r.view.Snapshot()
	if r.store.away.Load() || snap.Policy.Closed() || snap.Gathering() || r.view.length(snap) > 0 {
		return false
	}
	ans, err := r.calls.enter.ask(ctx, enterQ{kind: "charge"})
	return err == nil && ans.code == replyCharged
}
