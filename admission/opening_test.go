package admission

import (
	"context"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// The pre-queue counts tickets that polled within 9/8 of absence. Tickets that leave or go silent do not count, so that a full
// room has places again. No ticket that polls is forgotten.
func TestPrequeue_AbandonedPlacesDoNotCount(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 9*time.Minute)
	p.Capacity = 10
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	pass := func(d time.Duration) {
		t.Helper()
		for end := c.now() + d.Microseconds(); c.now() < end; {
			c.pass(time.Second)
			mustTick(t, a)
			mustTick(t, b)
		}
	}
	want := func(n int64) {
		t.Helper()
		pass(time.Second)
		if got := a.Snapshot().Prequeued; got != n || b.Snapshot().Prequeued != n {
			t.Fatalf("%d and %d gather, want %d", got, b.Snapshot().Prequeued, n)
		}
	}
	all := gather(t, a, 10)
	want(10)
	if _, refusal, _ := b.Join(ctx5(t), Arrival{ID: testID()}); refusal != Full {
		t.Fatalf("the eleventh of ten: %q", refusal)
	}
	for range 2 { // the second time the ticket has left
		if err := b.Leave(ctx5(t), all[0].t); err != nil {
			t.Fatal(err)
		}
		want(9)
	}
	gather(t, b, 1)
	want(10)

	// Five poll through both gateways, the others are silent for absence.
	for i := range 5 {
		pass(40 * time.Second)
		for k, g := range all[1:6] {
			g.keep(mustCheck(t, []*Room{a, b}[(i+k)%2], g.t))
		}
	}
	want(5)
	gather(t, a, 5)
	want(10)

	// A poll with an older token moves the count of another place. That place is counted again, and none is forgotten.
	stale := *all[1]
	pass(50 * time.Second)
	for _, g := range all[1:6] {
		g.keep(mustCheck(t, a, g.t))
	}
	mustCheck(t, b, stale.t)
	pass(time.Second)
	if n := a.Snapshot().Prequeued; n < 10 || n > 11 {
		t.Errorf("with a copy of a token %d gather, want 10 or 11", n)
	}

	// A store that comes back empty continues from the restored count.
	keys, err := client.Keys(context.Background(), prefix+":{room:*").Result()
	if err != nil || client.Del(context.Background(), keys...).Err() != nil {
		t.Fatal(err)
	}
	pass(time.Second)
	before := a.Snapshot().Prequeued
	for _, g := range all[1:6] {
		g.keep(mustCheck(t, b, g.t))
	}
	want(before)
	if err := a.Leave(ctx5(t), all[5].t); err != nil {
		t.Fatal(err)
	}
	want(before - 1)
}

// A postponed opening is in force at every gateway, also while some still have the earlier one, whichever ticks last. At a gateway
// without the new configuration a ticket of the pre-queue waits for its order; with it, the ticket has the same order as elsewhere.
func TestOpening_PostponedHoldsAgainstOldConfiguration(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	old := lottery(c.now(), 30*time.Second)
	later := lottery(c.now(), 60*time.Second)
	a, b := testRoom(t, client, prefix, c, old), testRoom(t, client, prefix, c, old)
	all := gather(t, b, 6)
	pass := func(seconds int, check func()) {
		t.Helper()
		for i := range seconds {
			c.pass(time.Second)
			mustTick(t, []*Room{a, b}[i%2])
			mustTick(t, []*Room{b, a}[i%2])
			check()
		}
	}
	pass(10, func() {})
	a.setPolicy(later)
	pass(45, func() { // past the old opening
		for i, r := range []*Room{b, a} {
			s := r.Snapshot()
			if s.Drawn != 0 || !s.Gathering() {
				t.Fatalf("gateway %d: drawn at %d before the later opening", i, s.Drawn)
			}
		}
		if s := mustCheck(t, b, all[0].t); !s.Gathering || s.Ticket.Order != 0 {
			t.Fatalf("at a gateway with the old configuration: %+v", s)
		}
	})
	if s := b.Snapshot(); s.Policy.OpensAt != later.OpensAt {
		t.Errorf("a gateway with the old configuration has the opening %d, want %d", s.Policy.OpensAt, later.OpensAt)
	}
	for _, g := range all[:3] {
		g.keep(mustCheck(t, b, g.t))
	}
	pass(6, func() {})
	drawn := a.Snapshot().Drawn
	if drawn == 0 || b.Snapshot().Drawn != drawn {
		t.Fatalf("after the later opening: drawn %d and %d", drawn, b.Snapshot().Drawn)
	}
	lots := later.Plan.Draw(later.OpensAt)
	for i, g := range all {
		if s := mustCheck(t, b, g.t); s.State != Waiting || s.Ticket.Order != 0 {
			t.Fatalf("a gateway that does not know the draw returns for visitor %d %+v", i, s)
		}
		if i%2 == 0 {
			if s := mustCheck(t, a, g.t); s.Ticket.Order != lots.Order(g.t.ID, drawn) {
				t.Fatalf("visitor %d: %+v", i, s)
			}
		}
	}
	b.setPolicy(later)
	pass(2, func() {})
	for i, g := range all {
		if s := mustCheck(t, b, g.t); s.State != Waiting || s.Ticket.Order != lots.Order(g.t.ID, drawn) {
			t.Fatalf("with its new configuration it returns for visitor %d %+v", i, s)
		}
	}
}

// An opening that is brought forward counts ten seconds after the last gateway has the new configuration.
func TestOpening_BroughtForwardByAllGateways(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	first, sooner := lottery(c.now(), 100*time.Second), lottery(c.now(), 40*time.Second)
	a, b := testRoom(t, client, prefix, c, first), testRoom(t, client, prefix, c, first)
	gather(t, a, 2)
	told := func() int64 {
		c.pass(time.Second)
		mustTick(t, a)
		mustTick(t, b)
		return a.Snapshot().Policy.OpensAt
	}
	a.setPolicy(sooner)
	for range 20 {
		if told() != first.OpensAt {
			t.Fatal("one gateway brings the opening forward for all")
		}
	}
	b.setPolicy(sooner)
	for range 11 {
		told()
	}
	if told() != sooner.OpensAt {
		t.Fatal("it is not brought forward though all gateways have the new opening")
	}
	for range 10 {
		told()
	}
	if a.Snapshot().Drawn == 0 {
		t.Error("it does not open")
	}
}

// The lottery of an event is moved to another day whose pre-queue has not begun, so a gateway with the new configuration has no
// lottery for now. While configurations differ, each visitor has one place and keeps it: a visitor who polls at such a gateway
// before the old opening has the order of the join and is admitted by it, any other has the drawn order. None of them takes part
// in the draw of the other day.
func TestOpening_MovedToAnotherDayKeepsPlaces(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	on := func(opens int64) Policy {
		p := lottery(c.now(), 0)
		p.Method, p.OpensAt, p.PrequeueAt, p.Rate, p.Burst = FIFO, 0, 0, 1000, 1000
		p.Plan = NewPlan(drawSecret, "sale", &p, []Event{{Method: Lottery, Gathers: opens - hour/6, Starts: opens, Ends: opens + hour}})
		return p
	}
	opens := c.now() + (120 * time.Second).Microseconds()
	old, moved := on(opens), on(opens+24*hour)
	a, b := testRoom(t, client, prefix, c, old), testRoom(t, client, prefix, c, old)
	all := append(gather(t, a, 4), gather(t, b, 4)...)
	for _, g := range all {
		g.t.Joined = c.now() / 1e6
	}
	joined, states := c.now(), make([]State, len(all))
	pass := func(seconds int, asks func(i int) *Room) {
		t.Helper()
		for range seconds {
			c.pass(time.Second)
			mustTick(t, a)
			mustTick(t, b)
			for i, g := range all {
				s := mustCheck(t, asks(i), g.t)
				if s.State > Admitted || s.State < states[i] || g.t.Order != 0 && s.State == Waiting && s.Ticket.Order != g.t.Order {
					t.Fatalf("visitor %d had the order %d, and now %+v", i, g.t.Order, s)
				}
				if states[i] = s.State; s.State == Waiting {
					g.keep(s)
				}
			}
		}
	}
	pass(2, func(i int) *Room { return b })
	a.setPolicy(moved)
	pass(80, func(i int) *Room { return []*Room{a, b}[i/4] }) // the first four poll at the gateway with the new configuration
	for i := range all {
		if got := states[i]; (got == Admitted) != (i < 4) {
			t.Errorf("before the old opening visitor %d is %d", i, got)
		}
	}
	pass(39, func(i int) *Room { return b })
	drawn := b.Snapshot().Drawn
	for i, g := range all {
		want := joined / 1e6 * 1e6
		if i >= 4 {
			want = old.Plan.Draw(opens).Order(g.t.ID, drawn)
		}
		if g.t.Order != want {
			t.Errorf("visitor %d has the order %d, want %d", i, g.t.Order, want)
		}
	}
	b.setPolicy(moved)
	pass(20, func(i int) *Room { return []*Room{b, a}[i/4] })
	for i := range all {
		if states[i] != Admitted {
			t.Errorf("in the end visitor %d is %d", i, states[i])
		}
	}
	c.pass(24*time.Hour - time.Minute)
	mustTick(t, a)
	pass(2, func(i int) *Room { return b })
	if s := b.Snapshot(); !s.Gathering() || s.Prequeued != 0 || s.Admissions != int64(len(all)) || s.Opens != opens+24*hour {
		t.Errorf("on the other day: %+v", s)
	}
}

// If an event closes the room until the pre-queue of the other day, the visitors of the first pre-queue take part in that draw.
func TestOpening_MovedAcrossClosedTime(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	opens, begun := c.now()+hour/60, c.now()
	on := func(opens int64, more ...Event) Policy {
		p := lottery(c.now(), 0)
		p.Method, p.OpensAt, p.PrequeueAt = FIFO, 0, 0
		p.Plan = NewPlan(drawSecret, "sale", &p, append(more, Event{Method: Lottery, Gathers: opens - hour/6, Starts: opens, Ends: opens + hour}))
		return p
	}
	other := opens + 24*hour
	old, moved := on(opens), on(other, Event{Method: Reject, Starts: begun, Ends: other - hour/6})
	a, b := testRoom(t, client, prefix, c, old), testRoom(t, client, prefix, c, old)
	all := gather(t, a, 4)
	pass := func(d time.Duration) {
		t.Helper()
		c.pass(d)
		for i, g := range all {
			mustTick(t, a)
			mustTick(t, b)
			s := mustCheck(t, []*Room{a, b}[i%2], g.t)
			if g.keep(s); s.State != Waiting {
				t.Fatalf("visitor %d: %+v", i, s)
			}
		}
	}
	a.setPolicy(moved)
	b.setPolicy(moved)
	for range 80 { // over the old time
		pass(time.Second)
	}
	pass(24*time.Hour - 5*time.Minute)
	if s := a.Snapshot(); !s.Gathering() || s.Drawn != 0 || s.Prequeued != int64(len(all)) {
		t.Fatalf("in the prequeue of the other day: %+v", s)
	}
	for a.Snapshot().Drawn == 0 {
		pass(10 * time.Second)
	}
	pass(time.Second)
	for i, g := range all {
		if want := moved.Plan.Draw(other).Order(g.t.ID, a.Snapshot().Drawn); g.t.Order != want {
			t.Errorf("visitor %d has the order %d, want the drawn one, %d", i, g.t.Order, want)
		}
	}
}

// A visitor who joined the pre-queue before a reset leaves through a gateway that does not know of the reset. The size of the
// new pre-queue stays the same.
func TestPrequeue_LeaveFromBeforeResetCountsForNobody(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 9*time.Minute)
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	before := gather(t, a, 2)
	mustTick(t, b)
	if err := a.Reset(ctx5(t), "test"); err != nil {
		t.Fatal(err)
	}
	gather(t, a, 2)
	if err := b.Leave(ctx5(t), before[0].t); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Second)
	mustTick(t, a)
	if n := a.Snapshot().Prequeued; n != 2 {
		t.Errorf("%d gather, want 2", n)
	}
}

// A visitor of the pre-queue who was silent for absence is late, however late the drawn order is.
func TestOpening_DrawnOrderIsNoPresence(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	p := basePolicy
	p.Method, p.Absence, p.PrequeueAt, p.OpensAt = Lottery, 3*time.Minute, c.us, c.us+(10*time.Minute).Microseconds()
	p.Plan = NewPlan([]byte("a secret"), "sale", &p, nil)
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	var gathered []Ticket
	for range 20 {
		gathered = append(gathered, mustJoin(t, r, testID(), testClient(1)).Ticket)
	}
	for range 160 {
		c.pass(4 * time.Second)
		mustTick(t, r)
	}
	for _, tk := range gathered {
		if s := mustCheck(t, r, tk); s.State != Expired || s.Reason != ReasonLate {
			t.Errorf("%+v", s)
		}
	}
}

// No new visitor overtakes a visitor of the pre-queue who polls as advised, however the pre-queue ends: the opening is brought
// forward, the configuration or an operator changes the method to fifo, both happen, or the store loses its data afterwards.
func TestOpening_BeforeItsTimeOvertakesNobody(t *testing.T) {
	t.Parallel()
	pass := func(t *testing.T, c *testClock, r *Room, seconds int) {
		for range seconds {
			c.pass(time.Second)
			mustTick(t, r)
		}
	}
	forward := func(c *testClock, r *Room, p Policy, in time.Duration) {
		p.OpensAt = c.us + in.Microseconds()
		p.Plan = NewPlan(drawSecret, "sale", &p, nil)
		r.setPolicy(p)
	}
	fifo := func(r *Room, p Policy) {
		p.Method, p.OpensAt, p.PrequeueAt = FIFO, 0, 0
		p.Plan = NewPlan(drawSecret, "sale", &p, nil)
		r.setPolicy(p)
	}
	for name, change := range map[string]func(t *testing.T, c *testClock, r *Room, p Policy, flush func()){
		"brought forward":     func(_ *testing.T, c *testClock, r *Room, p Policy, _ func()) { forward(c, r, p, 20*time.Second) },
		"no lottery any more": func(_ *testing.T, _ *testClock, r *Room, p Policy, _ func()) { fifo(r, p) },
		"fifo by an operator": func(t *testing.T, _ *testClock, r *Room, _ Policy, _ func()) {
			must(t, r.Patch(ctx5(t), "ann", Live{Method: new(FIFO)}))
		},
		"brought forward and no lottery any more": func(t *testing.T, c *testClock, r *Room, p Policy, _ func()) {
			forward(c, r, p, 2*time.Minute)
			pass(t, c, r, 10)
			fifo(r, p)
		},
		"no lottery, a lottery again, and no lottery any more": func(t *testing.T, c *testClock, r *Room, p Policy, _ func()) {
			fifo(r, p)
			pass(t, c, r, 1)
			r.setPolicy(p) // visitors of the pre-queue do not poll meanwhile
			pass(t, c, r, 90)
			fifo(r, p)
			pass(t, c, r, 2)
		},
		"no lottery any more, and a shorter absence": func(_ *testing.T, _ *testClock, r *Room, p Policy, _ func()) {
			p.Absence = 3 * time.Minute
			fifo(r, p)
		},
		"brought forward, and the store loses its data": func(t *testing.T, c *testClock, r *Room, p Policy, flush func()) {
			forward(c, r, p, 20*time.Second)
			pass(t, c, r, 12)
			flush()
		},
		"no lottery any more, and the store loses its data": func(t *testing.T, c *testClock, r *Room, p Policy, flush func()) {
			fifo(r, p)
			pass(t, c, r, 12)
			flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTestClock()
			p := lottery(c.now(), 9*time.Minute) // the pre-queue has begun
			p.Absence = 10 * time.Minute
			server := redistest.Server(t)
			r := testRoom(t, server.Client(), redistest.Prefix(t), c, p)
			all := gather(t, r, 20)
			for _, g := range all {
				g.t.Joined = c.us / 1e6
			}
			began := c.us
			pass(t, c, r, 5)
			change(t, c, r, p, func() { must(t, server.Client().FlushAll(ctx5(t)).Err()) })
			pass(t, c, r, 40-int((c.us-began)/1e6)) // gateways agree within ten seconds
			if r.Snapshot().Gathering() {
				t.Fatal("the room still gathers")
			}
			late := mustJoin(t, r, testID(), testClient(9)).Ticket
			pass(t, c, r, 25)
			in := 0
			for range 14 { // the first time a minute after their last poll
				newcomer := mustCheck(t, r, late)
				in = 0
				for _, g := range all {
					s := mustCheck(t, r, g.t)
					g.keep(s)
					if s.State == Admitted {
						in++
					}
				}
				if newcomer.State != Waiting && in < len(all) {
					t.Fatalf("%d of %d who gathered are admitted; the newcomer is %v", in, len(all), newcomer.State)
				}
				pass(t, c, r, 5)
			}
			if s := mustCheck(t, r, late); in != len(all) || s.State != Admitted {
				t.Errorf("%d of %d who gathered are admitted; the newcomer is %v", in, len(all), s.State)
			}
		})
	}
}
