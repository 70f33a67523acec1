package admission

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// hour is in microseconds.
const hour = int64(time.Hour / time.Microsecond)

var drawSecret = bytes.Repeat([]byte("draw "), 8)

// lottery is a policy of a lottery that opens that long after now, and gathers from ten minutes before that.
func lottery(now int64, opens time.Duration) Policy {
	p := basePolicy
	p.Method, p.Rate, p.Burst, p.PollBudget, p.Absence = Lottery, 100_000, 5_000, 20_000, 3*time.Minute
	p.OpensAt = now + opens.Microseconds()
	p.PrequeueAt = p.OpensAt - (10 * time.Minute).Microseconds()
	p.Plan = NewPlan(drawSecret, "sale", &p, nil)
	return p
}

// gatherer keeps the newest token.
type gatherer struct{ t Ticket }

// keep adopts the token of a reply.
func (g *gatherer) keep(s Standing) {
	if s.Renewed {
		g.t.Order, g.t.Seen, g.t.Epoch, g.t.Fence = s.Ticket.Order, s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence
	}
}

func gather(t *testing.T, r *Room, n int) []*gatherer {
	t.Helper()
	var all []*gatherer
	for range n {
		id := testID()
		s := mustJoin(t, r, id, testClient(1))
		if s.State != Waiting || !s.Gathering || s.Ticket.Order != 0 {
			t.Fatalf("joined as %+v", s)
		}
		g := &gatherer{Ticket{ID: id, Client: testClient(1)}}
		g.keep(s)
		all = append(all, g)
	}
	return all
}

// A visitor of the pre-queue has the drawn order at every gateway, through silences and clock jumps around the opening. A
// ticket that was not confirmed before the opening is behind all of them.
func TestDraw_IsSameAtEveryGateway(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(c *testClock){
		"in time":             func(c *testClock) { c.pass(30 * time.Second) },
		"a silence over it":   func(c *testClock) { c.pass(100 * time.Second) },
		"a clock that is set": func(c *testClock) { c.pass(29 * time.Second); c.pass(-3 * time.Second); c.pass(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
			p := lottery(c.now(), 30*time.Second)
			a := testRoom(t, client, prefix, c, p)
			b := testRoom(t, client, prefix, c, p)
			all := gather(t, a, 50)
			unconfirmed := Ticket{ID: testID(), Client: testClient(2), Fence: a.Snapshot().Fence}
			before(c)
			mustTick(t, b)
			mustTick(t, a)
			d, drawn := p.Plan.Draw(p.OpensAt), b.Snapshot().Drawn
			if drawn == 0 || a.Snapshot().Drawn != drawn || a.Snapshot().Gathering() || a.Snapshot().Prequeued != 50 {
				t.Fatalf("after the opening: %+v", a.Snapshot())
			}
			late := mustCheck(t, a, unconfirmed)
			if late.State != Waiting || late.Ticket.Order < drawn {
				t.Errorf("a ticket confirmed after the opening has the order %d, drawn at %d", late.Ticket.Order, drawn)
			}
			for i, g := range all {
				if i == len(all)/2 { // half of them were quick, and wait for the others
					c.pass(time.Second)
					mustTick(t, a)
					mustTick(t, b)
				}
				r := []*Room{a, b}[i%2]
				s := mustCheck(t, r, g.t)
				if want := d.Order(g.t.ID, drawn); s.State != Waiting || s.Ticket.Order != want || !s.Renewed {
					t.Fatalf("visitor %d: %+v, drawn %d", i, s, want)
				}
				// A client that does not keep its token gets the same order elsewhere.
				if s := mustCheck(t, []*Room{b, a}[i%2], g.t); s.Ticket.Order != d.Order(g.t.ID, drawn) {
					t.Fatalf("visitor %d at the other gateway: %+v", i, s)
				}
				g.keep(s)
			}
			if got := a.Snapshot().Admissions; got != 0 {
				t.Errorf("%d were admitted before all could poll", got)
			}
			slices.SortFunc(all, func(x, y *gatherer) int { return int(x.t.Order - y.t.Order) })
			for range 200 {
				c.pass(250 * time.Millisecond)
				mustTick(t, a)
			}
			var last int64
			for _, g := range all {
				f, err := a.Lookup(ctx5(t), g.t.ID)
				if err != nil || f.State != Admitted || f.AdmittedAt < last {
					t.Fatalf("order %d: %+v %v, after %d", g.t.Order, f, err, last)
				}
				last = f.AdmittedAt
			}
		})
	}
}

// The store loses the room during the pre-queue and again after the draw: there is one draw.
func TestDraw_SurvivesLossOfStore(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 30*time.Second)
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	lose := func() {
		t.Helper()
		keys, err := client.Keys(context.Background(), prefix+":*").Result()
		if err != nil || client.Del(context.Background(), keys...).Err() != nil {
			t.Fatal(err)
		}
	}
	all := gather(t, a, 20)
	c.pass(time.Second)
	mustTick(t, a)
	mustTick(t, b)
	lose()
	mustTick(t, b)
	mustTick(t, a)
	for _, g := range all {
		s := mustCheck(t, b, g.t)
		if !s.Gathering {
			t.Fatalf("after a loss before the opening: %+v", s)
		}
		g.keep(s)
	}
	c.pass(29 * time.Second)
	mustTick(t, a)
	mustTick(t, b)
	drawn := a.Snapshot().Drawn
	if n := a.Snapshot().Prequeued; drawn == 0 || n != 20 {
		t.Fatalf("drawn at %d, %d gathered", drawn, n)
	}
	lose()
	c.pass(3 * time.Second)
	mustTick(t, b)
	mustTick(t, a)
	if s := a.Snapshot(); s.Drawn != drawn || s.Opens != p.OpensAt || s.Prequeued != 20 {
		t.Fatalf("after a loss: opens %d, drawn %d, %d gathered; want %d, %d, 20", s.Opens, s.Drawn, s.Prequeued, p.OpensAt, drawn)
	}
	for _, g := range all {
		if s := mustCheck(t, a, g.t); s.Ticket.Order != p.Plan.Draw(p.OpensAt).Order(g.t.ID, drawn) {
			t.Fatalf("%+v", s)
		}
	}
}

// Operators and visitors may do all this during the pre-queue.
func TestPrequeue_FollowsVisitorsAndOperators(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 30*time.Second)
	p.Capacity = 12
	r, calls := counted(t, client, prefix, c, p)
	all := gather(t, r, 10)

	// A confirmation holds for a quarter of absence, and costs a store call only then.
	entered := calls["room_enter"]
	for _, g := range all {
		if s := mustCheck(t, r, g.t); !s.Gathering || s.Renewed {
			t.Fatalf("polled: %+v", s)
		}
	}
	if calls["room_enter"] != entered {
		t.Error("polls of those who are confirmed went to the store")
	}
	// The same key is the same ticket, counted once.
	key := Arrival{ID: testID(), Client: testClient(3), Keyed: true}
	for i := range 2 {
		s, refusal, err := r.Join(ctx5(t), key)
		if err != nil || refusal != Granted || !s.Gathering || s.First != (i == 0) {
			t.Fatalf("with a key: %+v %q %v", s, refusal, err)
		}
	}
	mustTick(t, r)
	c.pass(300 * time.Millisecond)
	mustTick(t, r)
	if s := r.Snapshot(); s.Prequeued != 11 || s.Joins != 11 || s.Waiting != 0 {
		t.Fatalf("%d gathered, %d joined, %d wait", s.Prequeued, s.Joins, s.Waiting)
	}
	if r.Charge(ctx5(t)) {
		t.Error("a subresource went through before the opening")
	}
	// Full: checked when a token is signed.
	gather(t, r, 1)
	c.pass(300 * time.Millisecond)
	mustTick(t, r)
	if _, refusal, _ := r.Join(ctx5(t), Arrival{ID: testID()}); refusal != Full {
		t.Errorf("the thirteenth of twelve: %q", refusal)
	}
	if _, refusal, _ := r.Join(ctx5(t), key); refusal != Granted {
		t.Errorf("a key that holds a ticket: %q", refusal)
	}
	// A ticket that leaves is not drawn.
	if err := r.Leave(ctx5(t), all[0].t); err != nil {
		t.Fatal(err)
	}
	c.pass(1100 * time.Millisecond)
	if s := mustCheck(t, r, all[0].t); s.State != Ended {
		t.Errorf("who left: %+v", s)
	}
	// A reset ends the tickets of before.
	if err := r.Reset(ctx5(t), "ann"); err != nil {
		t.Fatal(err)
	}
	if s := mustCheck(t, r, all[1].t); s.State != Expired || s.Reason != ReasonReset {
		t.Errorf("after a reset: %+v", s)
	}
	if n := r.Snapshot().Prequeued; n != 0 {
		t.Errorf("%d gathered after a reset", n)
	}
	all = gather(t, r, 3)
	if err := r.Drain(ctx5(t), "ann"); err != nil {
		t.Fatal(err)
	}
	mustTick(t, r)
	if _, refusal, _ := r.Join(ctx5(t), Arrival{ID: testID()}); refusal != Draining {
		t.Errorf("while draining: %q", refusal)
	}
	// Closed and fifo keep places: those of fifo in the order in which the tickets were signed.
	for i, g := range all {
		g.t.Joined = c.now()/1e6 - int64(10*i)
	}
	closed, first := Reject, FIFO
	if err := r.Patch(ctx5(t), "ann", Live{Method: &closed}); err != nil {
		t.Fatal(err)
	}
	mustTick(t, r)
	c.pass(50 * time.Second) // over the opening
	for range 3 {
		c.pass(time.Second)
		mustTick(t, r)
	}
	if s := mustCheck(t, r, all[0].t); s.State != Waiting || s.Ticket.Order != 0 {
		t.Errorf("while closed: %+v", s)
	}
	if err := r.Patch(ctx5(t), "ann", Live{Method: &first}); err != nil {
		t.Fatal(err)
	}
	mustTick(t, r)
	var orders []int64
	for _, g := range all {
		c.pass(1100 * time.Millisecond)
		s := mustCheck(t, r, g.t)
		if s.State != Waiting && s.State != Admitted {
			t.Fatalf("%+v", s)
		}
		orders = append(orders, s.Ticket.Order)
	}
	if orders[0] <= orders[1] || orders[1] <= orders[2] {
		t.Errorf("in fifo those who signed earlier have the orders %v", orders)
	}
}

func TestPrequeue_RefusesJoinsBeforeItBegins(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	p := lottery(c.now(), 11*time.Minute)
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	if _, refusal, _ := r.Join(ctx5(t), Arrival{ID: testID()}); refusal != Closed {
		t.Errorf("a minute before: %q", refusal)
	}
	c.pass(61 * time.Second)
	mustTick(t, r)
	gather(t, r, 1)
}

// Events change the policy by Redis's clock. Operators' changes override them.
func TestEvent_YieldsToOperator(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate = 1000
	at := func(s int64) int64 { return c.now() + s*1e6 }
	p.Plan = NewPlan(drawSecret, "sale", &p, []Event{
		{Name: "fast", Starts: at(10), Ends: at(20), Rate: 50_000},
		{Name: "shut", Starts: at(20), Ends: at(30), Method: Reject},
		{Name: "lot", Gathers: at(40), Starts: at(50), Ends: at(60), Method: Lottery, Rate: 7_000},
	})
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	for now := range int64(70) {
		c.pass(time.Second)
		mustTick(t, a)
		mustTick(t, b)
		want := Policy{Method: FIFO, Rate: 1000}
		switch s := now + 1; {
		case s >= 10 && s < 20:
			want.Rate = 50_000
		case s >= 20 && s < 30:
			want.Method = Reject
		case s >= 50 && s < 60:
			want.Method, want.Rate = Lottery, 7_000
		case s >= 40 && s < 50:
			want.Method = Lottery
		}
		for name, r := range map[string]*Room{"a": a, "b": b} {
			if got := r.Snapshot().Policy; got.Method != want.Method || got.Rate != want.Rate {
				t.Fatalf("%s after %d s: %s at %d, want %s at %d", name, now+1, got.Method, got.Rate, want.Method, want.Rate)
			}
			if gathering := r.Snapshot().Gathering(); gathering != (now+1 >= 40 && now+1 < 50) {
				t.Fatalf("after %d s: gathering %t", now+1, gathering)
			}
		}
		if now == 14 {
			rate := int64(2000)
			if err := a.Patch(ctx5(t), "ann", Live{Rate: &rate}); err != nil {
				t.Fatal(err)
			}
			mustTick(t, b)
			if got := b.Snapshot().Policy.Rate; got != 2000 {
				t.Errorf("an operator's rate during an event: %d", got)
			}
			if err := a.Patch(ctx5(t), "ann", Live{Clear: []string{"rate"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if opens, gathers := p.NextOpening(c.now()); opens != 0 || gathers != 0 {
		t.Error("an opening of the past")
	}
}

// A room that is closed by configuration, an event or an operator admits nobody. Waiting visitors keep their places.
func TestReject_AdmitsNobody(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	for name, shut := range map[string]func(p *Policy, now int64){
		"file": func(p *Policy, _ int64) { p.Method = Reject },
		"event": func(p *Policy, now int64) {
			p.Plan = NewPlan(nil, "sale", p, []Event{{Starts: now, Ends: now + 20e6, Method: Reject}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestClock()
			r := testRoom(t, client, redistest.Prefix(t), c, basePolicy)
			for range 5 { // the burst
				mustJoin(t, r, testID(), testClient(1))
			}
			waits := mustJoin(t, r, testID(), testClient(1))
			p := basePolicy
			shut(&p, c.now())
			r.setPolicy(p)
			for range 10 {
				c.pass(time.Second)
				mustTick(t, r)
				if s := mustCheck(t, r, waits.Ticket); s.State != Waiting {
					t.Fatalf("while the room is closed: %+v", s)
				}
			}
			s := r.Snapshot()
			if s.Admissions != 5 || s.Policy.Method != Reject {
				t.Errorf("%s, and %d were admitted", s.Policy.Method, s.Admissions)
			}
			for _, f := range s.Flow {
				if f.Second > c.now()/1e6-9 && f.Busy > 0 {
					t.Errorf("%+v is time in which admissions were possible", f)
				}
			}
			open := FIFO // an operator's word counts
			if err := r.Patch(ctx5(t), "ann", Live{Method: &open}); err != nil {
				t.Fatal(err)
			}
			c.pass(time.Second)
			mustTick(t, r)
			if s := mustCheck(t, r, waits.Ticket); s.State != Admitted {
				t.Errorf("open again: %+v", s)
			}
		})
	}
}

// A ticket of the pre-queue that did not poll for absence is late after the draw. Otherwise such tickets could be hoarded, and
// an account could leave one after the other.
func TestDraw_AbsentTicketIsLate(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 8*time.Minute)
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	kept, put := gather(t, a, 1)[0], gather(t, a, 1)[0]
	for range 48 { // four minutes, of three that a place is kept
		c.pass(5 * time.Second)
		mustTick(t, a)
		mustTick(t, b)
		kept.keep(mustCheck(t, b, kept.t))
	}
	if s := mustCheck(t, b, kept.t); s.State != Waiting || !s.Gathering {
		t.Errorf("the ticket that polled: %+v", s)
	}
	if s := mustCheck(t, b, put.t); s.State != Expired || s.Reason != ReasonLate {
		t.Errorf("the ticket that did not poll: %+v", s)
	}
}

// A key or account that joins again after the opening, before its earlier ticket polls, has the drawn order of that ticket.
func TestDraw_OrderCountsOverLaterJoin(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]Arrival{
		"key":     {ID: testID(), Client: testClient(1), Keyed: true},
		"account": {ID: testID(), Client: testClient(1), Keyed: true, Account: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
			p := lottery(c.now(), 10*time.Second)
			rooms := []*Room{testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)}
			s, _, err := rooms[0].Join(ctx5(t), a)
			if err != nil || !s.Gathering {
				t.Fatalf("%+v %v", s, err)
			}
			lot := s.Ticket
			lot.ID = a.ID
			for range 11 {
				c.pass(time.Second)
				for _, r := range rooms {
					mustTick(t, r)
				}
			}
			if s, _, err = rooms[1].Join(ctx5(t), a); err != nil || s.Ticket.Order < rooms[1].Snapshot().Drawn {
				t.Fatalf("joined after the opening: %+v %v", s, err)
			}
			want := rooms[1].draws.draw(p.OpensAt).Order(a.ID, rooms[1].Snapshot().Drawn)
			for i, r := range []*Room{rooms[1], rooms[2], rooms[0]} { // the first two have replied about the later place
				c.pass(1100 * time.Millisecond)
				if s := mustCheck(t, r, lot); s.State != Waiting || s.Ticket.Order != want || !s.Renewed {
					t.Errorf("%d: %+v, want the order %d", i, s, want)
				}
			}
			if found, err := rooms[0].Lookup(ctx5(t), a.ID); err != nil || found.Order != want {
				t.Errorf("the queue holds %+v, %v", found, err)
			}
		})
	}
}

// min_wait of a drawn ticket counts from the opening, however small its order is.
func TestMinWait_CountsFromOpening(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 2*time.Minute)
	p.MinWait = 30 * time.Second
	r := testRoom(t, client, prefix, c, p)
	c.pass(119 * time.Second)
	mustTick(t, r)
	all := gather(t, r, 5)
	for r.Snapshot().Gathering() {
		c.pass(250 * time.Millisecond)
		mustTick(t, r)
	}
	drawn := r.Snapshot().Drawn
	for r.Snapshot().Admissions == 0 && r.Now() < drawn+60_000_000 {
		for _, g := range all {
			g.keep(mustCheck(t, r, g.t))
		}
		c.pass(4 * time.Second)
		mustTick(t, r)
	}
	if waited := r.Now() - drawn; r.Snapshot().Admissions == 0 || waited < p.MinWait.Microseconds() {
		t.Errorf("%d were admitted %d µs after the opening", r.Snapshot().Admissions, waited)
	}
}
