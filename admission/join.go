package admission

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// Arrival is a request for a place, or for admission at once.
type Arrival struct {
	ID     ID // random, or derived from an account or an idempotency key
	Client Client
	// Keyed: the id is derived from a key or a proof, so the store may hold its place already.
	Keyed bool
	// Account: ID is the first id of an account; its ids differ in their last byte. Join returns the account's place or session and
	// its id, or a new place where the former ones have ended.
	Account bool
	// Former are the first ids of the account by other keys of the configuration. Join finds places under them and gives none.
	Former []ID
	// Held asks for the place of a derived id or an account and gives no new one. Without a place Join returns ErrUnknown for a
	// derived id, and Ended for an account.
	Held bool
	// Remember keeps a place behind the front, which the store does not hold before its first poll, in this gateway's memory, so
	// that a repeated join finds it. A join with the solution of a CAPTCHA needs that.
	Remember bool
	// SessionOnly asks for a session and takes no place: Join refuses with MustWait if the visitor would have to wait. While visitors wait
	// it makes no store call.
	SessionOnly bool
	// From is a ticket of no account whose place becomes the account's where it has none. Zero: none.
	From ID
	// Return is the pass of the visitor's ended session. Where the pass keeps its order, the place has that order. Otherwise an
	// account gets a place like any other, and an ID derived from the session (Keyed) gets ErrUnknown. With Held and where a place
	// would be given, the Standing has ReasonKept. Nil: none.
	Return *Return
	// Proof pays for a new place of an account or of a Return: Join returns Ended where it has paid for another place. It is not
	// checked while the store is away. Zero: a place needs no proof.
	Proof    ID
	Interval time.Duration // first advised polling interval
	Address  string        // as Ticket.Address
}

// joinAgain is how often a join that the store did not answer is repeated, unless the store is away.
const joinAgain = 2

// lastJoins is how long before the opening of a lottery every join is confirmed by the store, µs: a first poll might be too late.
const lastJoins = 10_000_000

// joins implements Join.
type joins struct {
	identity
	tickets     *tickets
	view        *view
	store       *store
	calls       *ticketCalls
	memory      *memory
	sessions    *sessions
	lease       *lease
	joinLimiter *joinLimiter
	offline     *offline

	waitsNew atomic.Bool // a visitor began to wait since the health of origins was published last
}

// joining is a join on its way through the steps of Join. The step that ends it writes the result in place, which is large to copy.
type joining struct {
	Arrival
	snap    *Snapshot
	now     int64 // mono
	t       Ticket
	noPlace Refusal  // why no new place may be given; Granted: it may
	full    Standing // the join limit, where noPlace is TooMany
	out     joined
}

// joined is what Join returns.
type joined struct {
	s       Standing
	refusal Refusal
	err     error
}

// Join returns a place in the queue or, while nobody waits and there is capacity, a session (Standing.State is then Active, claimed
// by a.Client). While the queue is long, a join with a random id makes no store call. For a derived id that already has a place
// Join returns that place; Standing.New marks a new one.
//
// The first step that has a result ends the join.
func (r *joins) Join(ctx context.Context, a Arrival) (Standing, Refusal, error) {
	j := joining{Arrival: a, snap: r.view.Snapshot(), now: r.c.mono()}
	j.t = Ticket{ID: a.ID, Client: a.Client, Interval: a.Interval, Address: a.Address}
	if !r.joinKnown(ctx, &j) && !r.joinRefused(&j) && !r.joinUncalled(&j) {
		j.out = r.joinStore(ctx, &j)
	}
	switch s := &j.out.s; {
	case j.out.refusal == TooMany && s.Retry == 0:
		j.out.s = j.full
	case j.SessionOnly && s.State == Active && !j.Keyed && !s.Offline:
		r.joinLimiter.count(j.Address, &j.snap.Policy, j.now)
	case s.New && j.Keyed && !s.Offline && s.Ticket.Epoch == "" && s.State == Waiting:
		r.joinLimiter.count(j.Address, &j.snap.Policy, j.now) // the store counts it with its first poll
	}
	return j.out.s, j.out.refusal, j.out.err
}

// joinKnown finds the place in this gateway's memory, so that a repeated join costs the store no more than a poll.
func (r *joins) joinKnown(ctx context.Context, j *joining) (done bool) {
	if j.Return != nil && !r.keeps(j.snap, j.Return) {
		if !j.Account {
			j.out.err = ErrUnknown
			return true
		}
		j.Return = nil
	}
	if !j.Keyed || j.Account {
		return false
	}
	s, known := r.remembers(ctx, j.snap, j.Arrival)
	switch {
	case known && j.Return != nil && s.State > Active:
		j.out.err = ErrUnknown
	case known:
		j.out.s = s
	}
	return known
}

// joinRefused applies the room's state and the join limits of this gateway. A derived id may have a place nevertheless, so its
// address may ask the store once a second.
func (r *joins) joinRefused(j *joining) (done bool) {
	j.noPlace = r.view.refuses(j.snap)
	if j.noPlace == Closed || j.noPlace != Granted && !j.Keyed {
		j.out.refusal = j.noPlace
		return true
	}
	if wait, reason := r.joinLimiter.full(j.Address, &j.snap.Policy, j.now); wait > 0 {
		j.full, j.noPlace = Standing{Reason: reason, Retry: wait}, TooMany
		if !j.Keyed || !r.store.unreachable(j.snap) && !r.joinLimiter.mayAsk(addressKey(j.Address), j.now) {
			j.out.s, j.out.refusal = j.full, TooMany
			return true
		}
	}
	if !j.Keyed && !j.SessionOnly { // the store decides whether a derived id gets a new place
		r.joinLimiter.count(j.Address, &j.snap.Policy, j.now)
	}
	return false
}

// joinUncalled joins without a call in three cases: the store is away, this gateway remembers the account in the pre-queue, or a
// random id joins while the front is full. In the last case the order in the token is the place until the first poll enrols it.
func (r *joins) joinUncalled(j *joining) (done bool) {
	snap, front := j.snap, snapshot.FrontSize(j.snap.Policy.Rate)
	switch {
	case r.store.unreachable(snap):
		j.out = r.joinUnreached(j, "", ErrStore)
		return true
	case j.SessionOnly && (!snap.AdmitsNow() || r.view.frontFull.Load() == snap):
		j.out.refusal = MustWait
		return true
	case j.Account:
		return snap.Gathering() && j.From == (ID{}) && r.prequeuedAccount(j)
	case j.Keyed:
		return false
	case snap.Gathering():
		if snap.Prequeued < front || snap.Policy.OpensAt-r.view.RedisNow() <= lastJoins {
			return false
		}
		j.out.s.Gathering = true // its first poll confirms it
	case r.view.length(snap) >= front && snap.Waiting > 0 || r.view.frontFull.Load() == snap:
		j.t.Order = r.view.nextOrder()
		r.view.sign(j.t.Order)
	default:
		return false
	}
	j.t.Fence = snap.Fence
	j.out.s.State, j.out.s.Ticket, j.out.s.Renewed = Waiting, j.t, true
	return true
}

// joinStore runs room_enter, which finds a place or gives one in a single step, since devices and gateways may race.
func (r *joins) joinStore(ctx context.Context, j *joining) joined {
	q := j.request(j.Return != nil && r.sessions.Revoked(j.Return.Session))
	ans, err := r.calls.askAgain(ctx, q)
	switch {
	case errors.Is(err, ErrStore):
		return r.joinUnreached(j, q.kind, err)
	case err != nil:
		return joined{err: err}
	case ans.code == replyMustWait:
		return joined{refusal: MustWait}
	case ans.code == replyUnknown && j.noPlace != Granted:
		return joined{refusal: j.noPlace}
	case ans.code == replyUnknown && j.Account: // it has no place, or From does not wait any more
		return joined{s: Standing{State: Ended, Ticket: j.t}}
	case ans.code == replyUnknown && j.Return != nil && j.Held && !r.sessions.Revoked(j.Return.Session):
		return joined{s: Standing{Reason: ans.reason}, err: ErrUnknown}
	case ans.code == replyUnknown:
		return joined{err: ErrUnknown}
	case ans.code == replyTooMany:
		return joined{s: r.tickets.refused(j.snap, j.t, ans), refusal: TooMany}
	case ans.reason == "proof" && (j.Account || j.Return != nil): // the proof has paid for another place
		return joined{s: Standing{State: Ended, Ticket: j.t}}
	case ans.reason == "spent" && j.Account:
		return joined{refusal: Spent}
	}
	return r.joinPlaced(j, &q, ans)
}

// joinUnreached joins without the store: it is away, or a call of that kind failed with err.
func (r *joins) joinUnreached(j *joining, kind string, err error) (out joined) {
	switch {
	case j.Account:
		out.s, out.refusal, out.err = r.offline.joinAccountOffline(j.Arrival, j.t, j.noPlace)
	case j.noPlace != Granted:
		out.refusal = j.noPlace
	case j.Held || kind == "recall":
		out.err = err
	default:
		out.s, out.refusal, out.err = r.offline.joinOffline(j.t, j.Return, !j.Keyed && !j.SessionOnly, j.SessionOnly)
	}
	out.s.Unsure = kind != "" || j.Keyed
	return out
}

// request returns the arguments of room_enter for a join. revoked reports that the session of j.Return is revoked.
func (j *joining) request(revoked bool) enterQ {
	q := enterQ{id: j.ID, client: j.Client, t: Ticket{Address: j.Address}, sessionOnly: j.SessionOnly}
	find := j.Held || j.noPlace != Granted
	if !j.Account && j.Return == nil {
		q.hold = policy.FrontHold(j.Interval) // the store enrols it in the front only, and signs it behind
		switch {
		case find:
			q.kind = "find"
		case j.Keyed:
			q.kind = "keyed"
		default:
			q.kind = "arrive"
		}
		return q
	}
	q.hold, q.proof, q.pass = policy.JoinHold(j.Interval), j.Proof, j.Return.arg()
	switch {
	case !j.Account && (find || revoked):
		q.kind = "recall"
	case !j.Account:
		q.kind = "return"
	case find:
		q.kind, q.former = "held", j.Former
	default:
		q.kind, q.former = "account", j.Former
		if j.From != (ID{}) {
			q.from = j.From
		}
	}
	return q
}

// joinPlaced returns the place that the store found or gave.
func (r *joins) joinPlaced(j *joining, q *enterQ, ans reply) joined {
	fresh, id, hasID := named(ans.reason)
	switch {
	case !j.Account && j.Return == nil:
		if !j.Keyed || !hasID {
			fresh = !j.Keyed
		} else {
			ans.reason = ""
		}
	case !hasID:
		return joined{err: errors.New("admission: room_enter returned no id for " + q.kind)}
	default:
		j.t.ID, ans.reason = id, ""
		if q.from != (ID{}) {
			r.memory.forgetWaiting(j.From) // it has left the queue, unless it was admitted before
		}
		if !j.Account {
			r.sessions.markRevoked(j.Return.Session, 0)
		}
	}
	s := r.place(j, ans, q.hold, fresh)
	if j.Remember && ans.code == replySigned && !j.Account && j.Return == nil {
		r.memory.put(j.t.ID, remembered{standing: s, at: r.c.mono()})
	}
	return joined{s: s}
}

// place returns the Standing of a place that room_enter found or, fresh, gave.
func (r *joins) place(j *joining, ans reply, hold time.Duration, fresh bool) Standing {
	t := j.t
	switch ans.code {
	case replySigned:
		r.view.frontFull.Store(j.snap)
		t.Order, t.Fence = ans.ord, ans.h.fence
		return Standing{State: Waiting, Ticket: t, Renewed: true, New: fresh}
	case replyWaiting:
		if fresh {
			r.lease.joined.Add(1)
			r.noteWaiting()
		}
		r.store.wakeIdle()
	case replyConfirmed: // the queue holds nothing of a pre-queue before the opening
		t.Order = 0
		if fresh {
			ans.reason = claimedFirst
		}
	case replyAdmitted:
		// Admitted since, when the reply to a first call was lost: its token must stay valid until it is claimed.
		t.Order, t.Seen, t.Epoch, t.Fence = ans.h.time, ans.h.time, ans.h.epoch, ans.h.fence
	case replyActive:
		t.Order, t.Fence = ans.ord, ans.h.fence // 0: it was admitted before
	}
	if b := j.Return; b != nil && !j.Account && b.Fence == ans.h.fence && (ans.code == replyAdmitted || ans.code == replyActive) {
		t.Order = min(b.Order, ans.h.time) // the store keeps no order of a place that was admitted; it was that of the pass
	}
	s := r.tickets.standing(t, ans, hold, false)
	s.New = fresh
	return s
}

// remembers returns the place of a derived id from this gateway's memory. A waiting ticket is checked as by a poll; a ticket of the
// pre-queue and an ended ticket are returned as the store last reported them.
func (r *joins) remembers(ctx context.Context, snap *Snapshot, a Arrival) (Standing, bool) {
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
		if s, gathers := r.tickets.gatheredBefore(snap, a, m); gathers {
			return s, true
		}
	}
	t := m.standing.Ticket
	t.ID, t.Client, t.Interval = a.ID, a.Client, a.Interval
	if !t.Counted() {
		t.Address = a.Address
	}
	s, err := r.tickets.Check(ctx, t)
	return s, err == nil && s.State <= Active
}
