package admission

import (
	"context"
	"errors"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// Arrival asks for a place, or to be let in at once.
type Arrival struct {
	ID     ID // random, or derived from an account or an idempotency key
	Client Client
	// Keyed: the id is derived from a key or a proof, so the store may hold a place of it already.
	Keyed bool
	// Account: ID is the first of an account's ids, which differ in their last byte. The answer is about the place that
	// the account has, a session too, and names its id; where its former ones have ended it is a new one.
	Account bool
	// Former are what ID would be by other keys of the configuration: a place under one of them is the account's too, and none
	// is given there.
	Former []ID
	// Held asks for the place of a derived id or an account and takes none. Without one Join returns ErrUnknown for a derived
	// id, and Ended for an account.
	Held bool
	// Remember keeps a place behind the front, which the store does not hold before its first poll, in this gateway's memory:
	// a join that can be repeated only where its place is found, as one with the answer of a CAPTCHA, finds it.
	Remember bool
	// From is a ticket, not an account's, whose place in line becomes the account's where it has none. Zero: none.
	From ID
	// Return is the pass that a visitor of an ended session comes back with. Where it keeps its order the place is the session's,
	// in the order of the pass. Else an account gets a place as any, and for others, whose ID is derived from the session and
	// Keyed, Join returns ErrUnknown: with Held and the reason ReasonKept where a place would be given. Nil: none.
	Return *Return
	// Proof is what a new place of an account or of a Return is given for: Ended, where there is none and another was given for it. While the
	// store is away nobody knows. Zero: a place asks for none.
	Proof    ID
	Interval time.Duration // first advised polling interval
	Address  string        // as Ticket.Address
}

// joinAgain is how often an arrival that the store did not answer asks again, while the breaker is closed.
const joinAgain = 2

// Join gives an arrival a place in the queue, or admits it at once when there is capacity and nobody ahead (Standing.State is
// Active: claimed already by its Client). An arrival of a random id makes no store call while the queue is long. A derived id
// that has a place is answered with its Standing as it is; Standing.New marks a new place.
func (r *Room) Join(ctx context.Context, a Arrival) (Standing, Refusal, error) {
	snap, now := r.Snapshot(), r.c.mono()
	if a.Return != nil && !r.keeps(snap, a.Return) {
		if !a.Account {
			return Standing{}, Granted, ErrUnknown
		}
		a.Return = nil
	}
	t := Ticket{ID: a.ID, Client: a.Client, Interval: a.Interval, Address: a.Address}
	if a.Keyed && !a.Account {
		if s, known := r.remembers(ctx, snap, a); known && a.Return != nil && s.State > Active {
			return Standing{}, Granted, ErrUnknown
		} else if known {
			return s, Granted, nil
		}
	}
	held := r.view.refuses(snap) // why a derived id or an account gets no new place
	if held == Closed || held != Granted && !a.Keyed {
		return Standing{}, held, nil
	}
	away := r.store.away.Load() || !snap.Known && r.view.anchor.Load() == nil
	var limited Standing
	if wait, reason := r.joinLimiter.full(a.Address, &snap.Policy, now); wait > 0 {
		limited, held = Standing{Reason: reason, Retry: wait}, TooMany
		if !a.Keyed || !away && !r.joinLimiter.asks(addressKey(a.Address), now) {
			return limited, held, nil
		}
	}
	if !a.Keyed { // whether a derived id gets a new place, the store decides
		r.joinLimiter.count(a.Address, &snap.Policy, now)
	}
	s, refusal, err := r.take(ctx, snap, a, t, held, away)
	switch {
	case refusal == TooMany && s.Retry == 0:
		s = limited
	case s.New && a.Keyed && !s.Offline && s.Ticket.Epoch == "" && s.State == Waiting:
		r.joinLimiter.count(a.Address, &snap.Policy, now) // the store counts it with its first poll
	}
	return s, refusal, err
}

// take is Join behind the join limits of this gateway. held is why a derived id or an account gets no new place, away whether
// the store cannot be asked.
func (r *Room) take(ctx context.Context, snap *Snapshot, a Arrival, t Ticket, held Refusal, away bool) (Standing, Refusal, error) {
	switch {
	case a.Account:
		return r.joinAccount(ctx, a, t, held)
	case away && held != Granted:
		return Standing{}, held, nil
	case away && a.Held:
		return Standing{}, Granted, ErrStore
	case away:
		return r.offline.joinOffline(t, a.Return, !a.Keyed)
	case a.Return != nil:
		return r.comeBack(ctx, snap, a, t, held)
	case a.Keyed:
	case snap.Gathering() && snap.Prequeued >= snapshot.FrontSize(snap.Policy.Rate) && snap.Policy.OpensAt-r.RedisNow() > lastJoins:
		t.Fence = snap.Fence // it is confirmed with the first poll
		return Standing{State: Waiting, Ticket: t, Renewed: true, Gathering: true}, Granted, nil
	case !snap.Gathering() && (r.view.length(snap) >= snapshot.FrontSize(snap.Policy.Rate) && snap.Waiting > 0 || r.view.frontFull.Load() == snap):
		t.Order, t.Fence = r.view.nextOrder(), snap.Fence
		r.view.sign(t.Order)
		return Standing{State: Waiting, Ticket: t, Renewed: true}, Granted, nil
	}
	// It is enrolled in the front only, where every poll is checked.
	q := enterQ{kind: "arrive", id: a.ID, client: a.Client, hold: policy.FrontHold(a.Interval), t: Ticket{Address: a.Address}}
	switch {
	case a.Held || held != Granted:
		q.kind = "find"
	case a.Keyed:
		q.kind = "keyed"
	}
	ans, err := r.calls.askAgain(ctx, q)
	switch {
	case errors.Is(err, ErrStore) && held != Granted:
		return Standing{}, held, nil
	case errors.Is(err, ErrStore) && !a.Held:
		return r.offline.joinOffline(t, nil, !a.Keyed)
	case err != nil:
		return Standing{}, Granted, err
	case ans.code == replyUnknown && held != Granted:
		return Standing{}, held, nil
	case ans.code == replyUnknown:
		return Standing{}, Granted, ErrUnknown
	}
	fresh := !a.Keyed
	if f, _, ok := named(ans.reason); ok && a.Keyed {
		fresh, ans.reason = f, ""
	}
	s, refusal := r.placed(snap, t, ans, q.hold, fresh)
	if a.Remember && ans.code == replySigned {
		r.memory.put(t.ID, remembered{standing: s, at: r.c.mono()})
	}
	return s, refusal, nil
}

// placed is the answer of room_enter about an arrival. fresh: the place is a new one.
func (r *Room) placed(snap *Snapshot, t Ticket, ans reply, hold time.Duration, fresh bool) (Standing, Refusal) {
	switch ans.code {
	case replyTooMany:
		return r.refused(snap, t, ans), TooMany
	case replySigned:
		r.view.frontFull.Store(snap)
		t.Order, t.Fence = ans.ord, ans.h.fence
		return Standing{State: Waiting, Ticket: t, Renewed: true, New: fresh}, Granted
	case replyWaiting:
		if fresh {
			r.lease.joined.Add(1)
			r.noteWaiting()
		}
		r.store.wakeIdle()
	case replyConfirmed: // a lottery gathers: the queue holds nothing of it before the opening
		t.Order = 0
		if fresh {
			ans.reason = claimedFirst
		}
	case replyAdmitted:
		// Admitted by now, when the answer to a first call was lost: a token of it has to hold until it is claimed.
		t.Order, t.Seen, t.Epoch, t.Fence = ans.h.time, ans.h.time, ans.h.epoch, ans.h.fence
	case replyActive:
		t.Order, t.Fence = ans.ord, ans.h.fence // 0: it was let in before
	}
	s := r.standing(t, ans, hold, false)
	s.New = fresh
	return s, Granted
}

// remembers is what this gateway knows of the place of a derived id: one that waits is found as by a poll, one that gathers as
// it was confirmed, and one that is over stays so. A join that is repeated costs the store no more than a poll.
func (r *Room) remembers(ctx context.Context, snap *Snapshot, a Arrival) (Standing, bool) {
	now := r.c.mono()
	m, ok := r.memory.get(a.ID, now)
	if !ok {
		return Standing{}, false
	}
	if m.over() {
		return m.answer(Ticket{ID: a.ID, Client: a.Client}, now)
	}
	if m.standing.State != Waiting {
		return Standing{}, false
	}
	if snap.Gathering() {
		if s, gathers := r.gatheredBefore(snap, a, m); gathers {
			return s, true
		}
	}
	t := m.standing.Ticket
	t.ID, t.Client, t.Interval = a.ID, a.Client, a.Interval
	if !t.Counted() {
		t.Address = a.Address
	}
	s, err := r.Check(ctx, t)
	return s, err == nil && s.State <= Active
}

// lastJoins is how long before its opening a lottery confirms with the join itself, in µs: a first poll might come too late.
const lastJoins = 10_000_000
