package admission

import (
	"errors"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Tickets that were spent under a shorter absence do not become valid when absence is raised, though the store has forgotten
// them. For a ticket that polled since then the raised absence counts.
func TestAbsence_RaisedRevivesNoSpentTicket(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.Rate, p.Burst, p.Absence, p.ClaimWindow, p.SessionTTL = 100_000, 100_000, 3*time.Minute, time.Minute, time.Minute
	p.MinWait = time.Second
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	r := testRoom(t, client, prefix, c, p)
	pass := func(seconds int) {
		for range seconds {
			c.pass(time.Second)
			mustTick(t, r)
		}
	}
	join := func(n byte) Ticket { return mustCheck(t, r, mustJoin(t, r, testID(), testClient(n)).Ticket).Ticket }
	spent := map[string]Ticket{"claimed": join(1), "left": join(2), "revoked": join(3), "lapsed": join(4)}
	pass(1)
	must(t, r.Leave(ctx5(t), spent["left"]))
	pass(3)
	for _, name := range []string{"claimed", "revoked"} {
		if s, err := r.Claim(ctx5(t), spent[name]); err != nil || s.State != Active {
			t.Fatalf("%s: %+v %v", name, s, err)
		}
	}
	must(t, r.RevokeSession(ctx5(t), "ann", spent["revoked"].ID))
	p.Absence = time.Hour
	r.setPolicy(p)
	pass(5)
	must(t, r.Pause(ctx5(t), "ann"))
	since := join(5)
	pass(20 * 60)
	fresh := testRoom(t, client, prefix, c, p)
	mustTick(t, fresh)
	for name, ticket := range spent {
		for i, gateway := range []*Room{r, fresh} {
			if s := mustCheck(t, gateway, ticket); s.State == Waiting || s.State == Admitted {
				t.Errorf("gateway %d: %s is a place again: %v", i, name, s.State)
			}
		}
	}
	if s := mustCheck(t, fresh, since); s.State != Waiting {
		t.Errorf("polled 20 minutes ago, within the raised absence: %v %s", s.State, s.Reason)
	}
}

// A visitor in the pre-queue who polls as advised before absence was lowered takes part in the draw.
func TestAbsence_LoweredKeepsPrequeue(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.Rate, p.Burst, p.Absence = 1000, 1000, 30*time.Minute
	p.Method, p.OpensAt = Lottery, c.us+7200e6
	p.Plan = NewPlan(drawSecret, "sale", &p, nil)
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	ticket := mustJoin(t, r, testID(), testClient(1)).Ticket
	ticket.Interval = 5 * time.Minute // as poll_budget may need it
	ticket = mustCheck(t, r, ticket).Ticket
	c.pass(5 * time.Second)
	mustTick(t, r)
	p.Absence = 3 * time.Minute
	p.Plan = NewPlan(drawSecret, "sale", &p, nil)
	r.setPolicy(p)
	for range 295 {
		c.pass(time.Second)
		mustTick(t, r)
	}
	if s := mustCheck(t, r, ticket); s.State != Waiting || !s.Gathering {
		t.Errorf("polls as advised: %v %s", s.State, s.Reason)
	}
}

// A visitor who polls as advised before the claim window was shortened can still claim, also when gateways restart with the
// shorter window, or the store loses its data after the reload. After that poll the shorter window counts.
func TestClaimWindow_ShortenedKeepsAdvisedPolls(t *testing.T) {
	t.Parallel()
	for name, shorten := range map[string]func(t *testing.T, r *Room, p Policy, restart func(p Policy) *Room, flush func()) *Room{
		"by a reload": func(_ *testing.T, r *Room, p Policy, _ func(p Policy) *Room, _ func()) *Room {
			r.setPolicy(p)
			return r
		},
		"by a restart": func(_ *testing.T, _ *Room, p Policy, restart func(p Policy) *Room, _ func()) *Room { return restart(p) },
		"by a reload, and the data are lost": func(t *testing.T, r *Room, p Policy, _ func(p Policy) *Room, flush func()) *Room {
			r.setPolicy(p)
			mustTick(t, r)
			flush()
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := newTestClock(), basePolicy
			p.Rate, p.Burst, p.MinWait = 100_000, 100_000, 12*time.Second
			server, prefix := redistest.Server(t), redistest.Prefix(t)
			r := testRoom(t, server.Client(), prefix, c, p)
			pass := func(seconds int) {
				for range seconds {
					c.pass(time.Second)
					mustTick(t, r)
				}
			}
			join := func(n byte) Ticket {
				ticket := mustJoin(t, r, testID(), testClient(n)).Ticket
				ticket.Interval, ticket.Wait = 45*time.Second, 10*time.Minute
				return mustCheck(t, r, ticket).Ticket
			}
			before := join(1)
			pass(5)
			p.ClaimWindow = 15 * time.Second
			r = shorten(t, r, p, func(p Policy) *Room { return testRoom(t, server.Client(), prefix, c, p) }, func() { must(t, server.Client().FlushAll(ctx5(t)).Err()) })
			pass(3)
			nearby := before // another of its visitors comes by: after a loss of data the queue has it again
			mustCheck(t, r, nearby)
			pass(37)
			if s := mustCheck(t, r, before); s.State != Admitted {
				t.Errorf("advised by the former window: %v %s", s.State, s.Reason)
			}
			pass(2 * int(basePolicy.ClaimWindow/time.Second))
			after := join(2)
			pass(30)
			if s := mustCheck(t, r, after); s.State != Lapsed {
				t.Errorf("admitted 18 s ago with a window of 15 s: %v %s", s.State, s.Reason)
			}
		})
	}
}

// Sessions that no gateway can list, since their visitors sent no further request, count after a loss of data for as long as
// their passes may be valid, though session.ttl was lowered.
func TestSessionTTL_LoweredBeforeLossKeepsLimit(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.SessionTTL, p.MaxActive, p.Rate, p.Burst = 5*time.Minute, 2, 100_000, 100_000
	server := redistest.Server(t)
	r := testRoom(t, server.Client(), redistest.Prefix(t), c, p)
	for n := range byte(2) {
		mustJoin(t, r, testID(), testClient(n))
	}
	mustTick(t, r)
	must(t, r.Patch(ctx5(t), "ann", Live{SessionTTL: new(4 * time.Second)}))
	waits := mustJoin(t, r, testID(), testClient(3)).Ticket
	for i := range 60 {
		c.pass(time.Second)
		mustTick(t, r)
		if i == 3 {
			must(t, server.Client().FlushAll(ctx5(t)).Err())
		}
		if s := mustCheck(t, r, waits); s.State != Waiting {
			t.Fatalf("after %d s: %v, with two passes that are good for five minutes", i, s.State)
		}
	}
}

// A session with a heartbeat under a longer ttl is restored for as long as its pass is valid. A later heartbeat under a shorter
// ttl does not shorten that.
func TestSessionTTL_LoweredBeforeLossIsRestoredWhole(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.SessionTTL = 4 * time.Second
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	id := testID()
	shard, ago := &r.sessions.shards[id[0]&63], r.c.mono()-int64(20*time.Second)
	given := func() time.Duration {
		for _, rec := range r.sessions.records() {
			if rec[0] == "session" && rec[1] == string(id[:]) {
				return time.Duration(rec[3].(int64)-r.Now()) * time.Microsecond
			}
		}
		return 0
	}
	for _, touch := range []bool{false, true} {
		shard.m[id] = beat{ago, 5 * time.Minute, fromKnown}
		if touch {
			r.Touch(id, false)
		}
		r.sessions.forgetSessions(r.c.mono())
		if left := given(); left < 7*time.Minute-time.Second || left > 7*time.Minute+11*time.Second {
			t.Errorf("touched %t: given back for %v, want for 7m10s", touch, left)
		}
	}
}

// An old copy of a pass does not end a session that goes on with a newer pass, also if ttl was lowered after the old pass was
// signed.
func TestReturn_OldPassEndsNoSessionAfterLowerTTL(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.SessionTTL, p.Rate, p.Burst = 10*time.Minute, 100_000, 100_000
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	in := mustJoin(t, r, testID(), testClient(7))
	ends := c.us/1e6 + 600
	must(t, r.Patch(ctx5(t), "ann", Live{SessionTTL: new(time.Minute)}))
	for range 760 {
		c.pass(time.Second)
		r.Touch(in.Ticket.ID, false)
		mustTick(t, r)
	}
	must(t, r.Pause(ctx5(t), "ann"))
	if s, _, err := r.Join(ctx5(t), backWith(testID(), &in, ends)); !errors.Is(err, ErrUnknown) || r.Revoked(in.Ticket.ID) {
		t.Errorf("%v %v; the session that is in use was ended: %t", s.State, err, r.Revoked(in.Ticket.ID))
	}
}

// A visitor in the pre-queue who polled before an outage, and again as advised before absence was lowered, takes part in the
// draw. The outage does not count as absence, though it ended longer ago than the new absence.
func TestAbsence_LoweredRemembersOutages(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.Rate, p.Burst, p.Absence = 1000, 1000, 20*time.Minute
	p.Method, p.OpensAt = Lottery, c.us+7200e6
	p.Plan = NewPlan(drawSecret, "sale", &p, nil)
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	ticket := mustCheck(t, r, mustJoin(t, r, testID(), testClient(1)).Ticket).Ticket
	c.pass(13 * time.Minute)
	for i := range 280 {
		mustTick(t, r)
		c.pass(time.Second)
		if i == 5 {
			p.Absence = 2 * time.Minute
			p.Plan = NewPlan(drawSecret, "sale", &p, nil)
			r.setPolicy(p)
		}
	}
	if s := mustCheck(t, r, ticket); s.State != Waiting || !s.Gathering {
		t.Errorf("polled 280 s before, without the outage: %v %s", s.State, s.Reason)
	}
}
