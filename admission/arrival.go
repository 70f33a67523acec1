package admission

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Arrival asks for a place, or to be let in at once.
type Arrival struct {
	ID     ID // random, or derived from an account or an idempotency key
	Client Client
	// Keyed: the id is derived, so the store may know it; it is always asked.
	Keyed bool
	// Account: ID is the first of an account's ids, which differ in their last byte. The answer is about the place that
	// the account has, a session too, and names its id; where its former ones have ended it is a new one.
	Account bool
	// Former are what ID would be by other keys of the configuration: a place under one of them is the account's too, and none
	// is given there.
	Former []ID
	// Held asks for that place and gives none: Ended where there is none.
	Held bool
	// From is a ticket, not an account's, whose place in line becomes the account's where it has none. Zero: none.
	From ID
	// Proof is what an account's new place is given for: Ended, where there is none and another was given for it. While the
	// store is away nobody knows. Zero: a place asks for none.
	Proof    ID
	Interval time.Duration // first advised polling interval
	Address  string        // as Ticket.Address
}

// joinAgain is how often an arrival that the store did not answer asks again, while the breaker is closed.
const joinAgain = 2

// Join gives an arrival a place in line, or lets it in at once when there is
// capacity and nobody ahead (Standing.State is Active: claimed already by its
// Client). While there is a long line it makes no store call. A keyed id that
// is known answers with its Standing as it is.
func (r *Room) Join(ctx context.Context, a Arrival) (Standing, Refusal, error) {
	snap := r.Snapshot()
	p := &snap.Policy
	if k, ok := r.memory.get(a.ID, r.c.mono()); ok && a.Keyed && a.From == (ID{}) && snap.Gathering() {
		if s, gathers := r.gatheredBefore(snap, a, k); gathers { // the line holds nothing of it before the opening
			return s, Granted, nil
		}
	}
	held := Granted // why an account's new place is refused
	switch why := r.refuses(snap); {
	case why == Granted:
	case a.Account && why != Closed:
		held = why
	case a.Keyed && why == Full:
		if _, err := r.Held(ctx, a.ID); err != nil {
			return Standing{}, Full, nil //nolint:nilerr // a new place is what is refused, known or not
		}
	default:
		return Standing{}, why, nil
	}
	t := Ticket{ID: a.ID, Client: a.Client, Interval: a.Interval, Address: a.Address}
	if a.Account {
		return r.joinAccount(ctx, a, t, held)
	}
	if !a.Keyed { // whether a keyed one is a new place, the store decides
		if wait, reason := r.sieve.join(a.Address, p, r.c.mono()); wait > 0 {
			return Standing{Reason: reason, Retry: wait}, TooMany, nil
		}
	}
	if r.down.Load() || !snap.Known && r.anchor.Load() == nil {
		return r.joinOffline(t, !a.Keyed)
	}
	if !a.Keyed && snap.Gathering() && snap.Prequeued >= frontSize(p.Rate) && p.OpensAt-r.RedisNow() > lastJoins {
		t.Fence = snap.Fence // it is confirmed with the first poll
		return Standing{State: Waiting, Ticket: t, Renewed: true, Gathering: true}, Granted, nil
	}
	if !a.Keyed && !snap.Gathering() && (r.length(snap) >= frontSize(p.Rate) && snap.Waiting > 0 || r.long.Load() == snap) {
		t.Order, t.Fence = r.nextOrder(), snap.Fence
		r.sign(t.Order)
		return Standing{State: Waiting, Ticket: t, Renewed: true}, Granted, nil
	}
	q := enterQ{kind: "arrive", id: a.ID, client: a.Client, grace: grace(a.Interval), t: Ticket{Address: a.Address}}
	if a.Keyed {
		q.kind = "keyed"
	}
	ans, err := r.askAgain(ctx, q)
	if errors.Is(err, ErrStore) {
		return r.joinOffline(t, !a.Keyed)
	}
	if err != nil {
		return Standing{}, Granted, err
	}
	switch ans.code {
	case codeTooMany:
		s := r.refused(t, ans)
		return s, TooMany, nil
	case "W":
		r.lease.joined.Add(1)
		r.line()
		r.wake()
	case "S":
		r.long.Store(snap)
		r.wake()
		t.Order, t.Fence = ans.ord, ans.h.fence
		return Standing{State: Waiting, Ticket: t, Renewed: true}, Granted, nil
	case "P":
		t.Order = 0
		return r.standing(t, ans), Granted, nil
	case "A":
		// Admitted by now, when the answer to a first call was lost: a token of it has to hold until it is claimed.
		t.Order, t.Seen, t.Epoch, t.Fence = ans.h.room, ans.h.room, ans.h.epoch, ans.h.fence
	}
	return r.standing(t, ans), Granted, nil
}

// Refuses tells why no new place is given now; Granted where one is.
func (r *Room) Refuses() Refusal { return r.refuses(r.Snapshot()) }

func (r *Room) refuses(s *Snapshot) Refusal {
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

// Kept is the place of a derived id that this gateway knows to be alive, as a poll would find it: whoever repeats a join costs the
// store no more than one who polls. False: the store has to be asked.
func (r *Room) Kept(ctx context.Context, a Arrival) (Standing, bool) {
	m, ok := r.memory.get(a.ID, r.c.mono())
	if !ok || m.standing.State != Waiting {
		return Standing{}, false
	}
	t := m.standing.Ticket
	t.ID, t.Client, t.Interval = a.ID, a.Client, a.Interval
	s, err := r.Check(ctx, t)
	return s, err == nil && s.State <= Active
}

// Held tells what became of the place of a derived id; ErrUnknown where there is none. What is over, a left or lapsed ticket
// as against one whose session may go on, is asked about once: whoever repeats a spent key or proof costs the store nothing.
func (r *Room) Held(ctx context.Context, id ID) (State, error) {
	if m, ok := r.memory.get(id, r.c.mono()); ok && m.over() {
		return m.standing.State, nil
	}
	f, err := r.Lookup(ctx, id)
	if err != nil {
		return 0, err
	}
	m := remembered{standing: Standing{State: f.State, Reason: f.Reason, AdmittedAt: f.AdmittedAt, Ticket: Ticket{ID: id}}, at: r.c.mono()}
	if m.over() {
		r.memory.put(id, m)
	}
	return f.State, nil
}

// lastJoins is how long before its opening a lottery confirms with the join itself, in µs: a first poll might come too late.
const lastJoins = 10_000_000

// askAgain asks for a place. A late answer is no outage, and the place may have been given: asking again finds it.
// Without, it would be taken with the first poll, behind those who came meanwhile.
func (r *Room) askAgain(ctx context.Context, q enterQ) (reply, error) {
	ans, err := r.enter.ask(ctx, q)
	for range joinAgain {
		if !errors.Is(err, ErrStore) || r.down.Load() || redis.IsOOMError(err) {
			break
		}
		ans, err = r.enter.ask(ctx, q)
	}
	return ans, err
}

// length of the line with those that are not enrolled yet, and before the opening of a lottery those who gathered.
func (r *Room) length(s *Snapshot) int64 {
	n := s.Waiting + r.Arriving() + s.Unheard()
	if s.Gathering() {
		n += s.Prequeued
	}
	return n
}

// Arriving is how many arrived lately and are not enrolled yet: most of them will poll for the first time soon.
func (r *Room) Arriving() int64 {
	b := r.beyond.Load()
	n := r.untold(b, math.MaxInt64)
	for _, p := range b.snap.Pending {
		n += p.Count
	}
	return n
}
