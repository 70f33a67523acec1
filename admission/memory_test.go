package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Repeated departures of one ticket cost the store one call. A ticket that the store did not hold may be enrolled elsewhere; a
// departure a second later removes it there.
func TestLeave_RepeatedCostsOneCall(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.Rate, p.Burst = 0, 1000
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	r, calls := counted(t, client, prefix, c, p)
	other := testRoom(t, client, prefix, c, p)
	mustJoin(t, r, testID(), testClient(9)) // takes the burst
	held := mustJoin(t, r, testID(), testClient(1)).Ticket
	for range frontSizeTest {
		mustJoin(t, r, testID(), Client{})
	}
	bare := mustJoin(t, r, testID(), testClient(2)).Ticket
	for _, ticket := range []Ticket{held, bare} {
		before := calls["room_leave"]
		for range 20 {
			must(t, r.Leave(ctx5(t), ticket))
		}
		if n := calls["room_leave"] - before; n != 1 {
			t.Errorf("%d calls for 20 times", n)
		}
	}
	if s := mustCheck(t, other, bare); s.State != Waiting {
		t.Fatalf("behind the front, at another gateway: %+v", s)
	}
	c.pass(time.Second)
	must(t, r.Leave(ctx5(t), bare))
	c.pass(time.Second)
	if s := mustCheck(t, other, bare); s.State != Ended {
		t.Errorf("given up again: %+v", s)
	}
}

// Repeated requests about one ticket cost the store one call a second.
func TestMemory_AsksStoreOncePerSecond(t *testing.T) {
	clock := newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 1000, 1000
	calls := 0
	core, err := New(Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: patience, Log: quiet(), Now: clock.now,
		Observe: func(string, time.Duration, error) { calls++ }})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", p)
	tick := func() {
		t.Helper()
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	tick()
	mustJoin(t, r, testID(), testClient(9)) // takes the burst
	id, client := testID(), testClient(1)
	ticket := mustJoin(t, r, id, client).Ticket
	ticket.ID, ticket.Client = id, client
	check := func(want State) {
		t.Helper()
		if s, err := r.Check(ctx5(t), ticket); err != nil || s.State != want {
			t.Fatalf("%+v %v, want %d", s, err, want)
		}
	}
	claim := func(want State) {
		t.Helper()
		s, err := r.Claim(ctx5(t), ticket)
		if s.State != want || (want == Waiting) != errors.Is(err, ErrNotYet) {
			t.Fatalf("%+v %v, want %d", s, err, want)
		}
	}
	costs := func(what string, most int, f func()) {
		t.Helper()
		before := calls
		for range 50 {
			f()
		}
		if n := calls - before; n > most {
			t.Errorf("50 %s within a second: %d calls, want at most %d", what, n, most)
		}
	}
	clock.pass(300 * time.Millisecond)
	costs("polls of one who waits", 0, func() { check(Waiting) }) // the join counts as a poll
	costs("claims of one who waits", 1, func() { claim(Waiting) })
	clock.pass(time.Second)
	costs("claims and polls a second later", 2, func() { check(Waiting); claim(Waiting) })
	clock.pass(time.Second)
	tick()
	clock.pass(1100 * time.Millisecond)
	costs("polls of one who is admitted", 1, func() { check(Admitted) })
	costs("claims of one who is admitted", 1, func() { claim(Active) })
	costs("polls of one who has claimed", 0, func() { check(Active) })
	thief := ticket
	thief.Client = testClient(2)
	costs("claims with a copied token", 0, func() {
		if s, err := r.Claim(ctx5(t), thief); err != nil || s.State != Ended || s.Reason != ReasonClaimed {
			t.Fatalf("%+v %v", s, err)
		}
	})
	clock.pass(time.Second)
	costs("polls and claims a second later, with copies", 1, func() {
		_, _ = r.Check(ctx5(t), thief)
		check(Active)
		claim(Active)
	})
	next, err := New(Options{Client: r.c.o.Client, Prefix: r.c.o.Prefix, Timeout: patience, Log: quiet(), Now: clock.now,
		Observe: func(string, time.Duration, error) { calls++ }})
	if err != nil {
		t.Fatal(err)
	}
	other := next.Room("sale", p)
	must(t, other.Tick(ctx5(t)))
	costs("polls and claims of many clients at a gateway that has not seen who claimed it", 1, func() {
		copied := ticket
		copied.Client = Client(testID())
		for _, ask := range []func(context.Context, Ticket) (Standing, error){other.Check, other.Claim} {
			if s, err := ask(ctx5(t), copied); err != nil || s.State != Ended || s.Reason != ReasonClaimed {
				t.Fatalf("%+v %v", s, err)
			}
		}
	})
	if s, err := other.Claim(ctx5(t), ticket); err != nil || s.State != Active {
		t.Errorf("who claimed it: %+v %v", s, err)
	}
	for range int(p.ClaimWindow/time.Second) + 1 {
		clock.pass(time.Second)
		tick()
	}
	costs("polls and claims when the claim can be repeated no longer", 2, func() {
		for _, room := range []*Room{r, other} {
			if s, err := room.Check(ctx5(t), ticket); err != nil || s.State != Ended || s.Reason != ReasonClaimed {
				t.Fatalf("%+v %v", s, err)
			}
		}
	})
}

// A million remembered places contain no pointers for the garbage collector, and are returned as they were stored.
func TestMemory_ReturnsWhatWasStored(t *testing.T) {
	var m memory
	m.init()
	now := newTestClock().now() * 1000
	waits := Ticket{ID: testID(), Order: 5, Seen: 7, Epoch: "1.a", Fence: 3}
	m.put(waits.ID, remembered{standing: Standing{State: Waiting, Ticket: waits}, at: now})
	other := waits
	other.ID, other.Epoch, other.Fence = testID(), "2.b", 4
	m.put(other.ID, remembered{standing: Standing{State: Waiting, Ticket: other}, at: now})
	for _, want := range []Ticket{waits, other} {
		got, ok := m.get(want.ID, now)
		if !ok || got.standing.Ticket != want || got.standing.State != Waiting || got.asked {
			t.Errorf("%+v, want %+v", got, want)
		}
		if m.settled(want.ID) {
			t.Error("a waiting ticket counts as settled")
		}
	}
	ended := remembered{standing: Standing{State: Ended, Reason: ReasonLeft, Ticket: Ticket{ID: waits.ID}}, at: now}
	m.put(waits.ID, ended)
	for range 200 { // rounds of sweeps
		if got, ok := m.get(waits.ID, now); !ok || got != ended || !m.settled(waits.ID) {
			t.Fatalf("%+v, settled %t", got, m.settled(waits.ID))
		}
		m.forget(now, 10*time.Minute, time.Minute)
	}
	for range 200 {
		m.forget(now+int64(time.Hour), 10*time.Minute, time.Minute)
	}
	if _, ok := m.get(waits.ID, now); ok || m.settled(waits.ID) {
		t.Error("an hour later it is still remembered")
	}
	if _, ok := m.get(other.ID, now); ok {
		t.Error("an hour later a place is still remembered")
	}
}

// A claim before the turn shows no presence: one claim a second between polls does not keep the polls from the store.
func TestMemory_EarlyClaimHidesNoPoll(t *testing.T) {
	clock := newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), clock, p)
	mustJoin(t, r, testID(), testClient(9)) // takes the burst
	id, client := testID(), testClient(1)
	ticket := mustJoin(t, r, id, client).Ticket
	ticket.ID, ticket.Client = id, client
	for range 60 {
		clock.pass(500 * time.Millisecond)
		if s, err := r.Claim(ctx5(t), ticket); s.State != Waiting || !errors.Is(err, ErrNotYet) {
			t.Fatalf("%+v %v", s, err)
		}
		clock.pass(500 * time.Millisecond)
		if s, err := r.Check(ctx5(t), ticket); s.State != Waiting || err != nil {
			t.Fatalf("%+v %v", s, err)
		}
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := r.Lookup(ctx5(t), id)
	if err != nil {
		t.Fatal(err)
	}
	if silent := time.Duration(clock.us-f.Seen) * time.Microsecond; silent > 2*time.Second || f.Parked {
		t.Errorf("polled every second, the store last confirmed it %s ago (parked: %t)", silent, f.Parked)
	}
}

// A spent key or proof that is sent again and again costs each gateway one call.
func TestJoin_AsksOnceAboutEndedPlace(t *testing.T) {
	client, prefix, clock := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate = 0
	a, b := testRoom(t, client, prefix, clock, p), testRoom(t, client, prefix, clock, p)
	left, waits := Arrival{ID: testID(), Keyed: true}, Arrival{ID: testID(), Keyed: true}
	var gone Ticket
	for _, arrival := range []Arrival{left, waits} {
		s, _, err := a.Join(ctx5(t), arrival)
		if err != nil {
			t.Fatal(err)
		}
		if arrival.ID == left.ID {
			gone = s.Ticket
		}
	}
	clock.pass(time.Second)
	mustCheck(t, a, gone)
	if err := a.Leave(ctx5(t), gone); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Room{a, b} {
		for arrival, want := range map[*Arrival]State{&left: Ended, &waits: Waiting} {
			for _, held := range []bool{true, false} {
				arrival.Held = held
				if got, refusal, err := r.Join(ctx5(t), *arrival); got.State != want || refusal != Granted || err != nil || got.New {
					t.Errorf("%+v %q %v, want state %v", got, refusal, err, want)
				}
			}
		}
		r.store.markAway(nil) // calls to the store fail
		if got, _, err := r.Join(ctx5(t), left); got.State != Ended || got.Offline || err != nil {
			t.Errorf("once more: %+v %v", got, err)
		}
		r.store.markBack()
	}
	if _, _, err := a.Join(ctx5(t), Arrival{ID: testID(), Keyed: true, Held: true}); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown id: %v", err)
	}
}

// A repeated join with the same key finds its place as a poll does: at most one call a second.
func TestJoin_RepeatedCostsOnePoll(t *testing.T) {
	t.Parallel()
	c, calls := newTestClock(), 0
	core, err := New(Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: patience, Log: quiet(), Now: c.now,
		Observe: func(string, time.Duration, error) { calls++ }})
	if err != nil {
		t.Fatal(err)
	}
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	r := core.Room("sale", p)
	mustTick(t, r)
	a := Arrival{ID: testID(), Client: testClient(1), Keyed: true, Interval: 5 * time.Second}
	first, refusal, err := r.Join(ctx5(t), a)
	if err != nil || refusal != Granted || first.State != Waiting || !first.New {
		t.Fatalf("%+v %q %v", first, refusal, err)
	}
	mustTick(t, r)
	before := calls
	for range 3 {
		c.pass(1100 * time.Millisecond)
		for range 20 {
			if s, _, err := r.Join(ctx5(t), a); err != nil || s.State != Waiting || s.New || s.Ticket.Order != first.Ticket.Order {
				t.Fatalf("%+v %v; joined as %+v", s, err, first)
			}
		}
	}
	if calls-before > 3 {
		t.Errorf("60 joins in three seconds made %d calls", calls-before)
	}
	if err := r.Leave(ctx5(t), first.Ticket); err != nil {
		t.Fatal(err)
	}
	if s, _, err := r.Join(ctx5(t), a); s.State != Ended || err != nil {
		t.Errorf("a place that was given up is held: %+v %v", s, err)
	}
}
