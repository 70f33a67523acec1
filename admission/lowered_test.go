package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// A visitor who was advised by the former absence polls in time, though a reload has lowered absence since.
func TestAbsence_LoweredKeepsAdvisedPolls(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.Rate, p.Burst, p.Absence, p.ClaimWindow = 0, 1000, 20*time.Minute, 5*time.Minute
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	r := testRoom(t, client, prefix, c, p)
	mustJoin(t, r, testID(), Client{}) // takes the burst
	for range frontSizeTest {
		mustJoin(t, r, testID(), Client{})
	}
	checked := mustJoin(t, r, testID(), testClient(1)).Ticket
	checked.Interval, checked.Wait = p.LongestPoll(), 2*time.Hour
	pass := func(seconds int) {
		for range seconds {
			c.pass(time.Second)
			mustTick(t, r)
		}
	}
	pass(2)
	if checked = mustCheck(t, r, checked).Ticket; checked.Hold < 9*time.Minute {
		t.Fatalf("checked as %+v", checked)
	}
	p.Absence = time.Minute
	r.setPolicy(p)
	pass(int(checked.Hold / time.Second))
	// A store that does not hold the ticket has only the token.
	if s := mustCheck(t, testRoom(t, client, prefix+"b", c, p), checked); s.State != Waiting {
		t.Errorf("with a store that does not know the room: %+v", s)
	}
	if f, err := r.Lookup(ctx5(t), checked.ID); err != nil || f.State != Waiting {
		t.Errorf("checked with a hold of %v: %+v %v", checked.Hold, f, err)
	}
	pass(10)
	if f, err := r.Lookup(ctx5(t), checked.ID); err == nil {
		t.Errorf("long after its hold: %+v", f)
	}
}

// A lower session.ttl shortens no existing session: its visitor keeps the slot while the pass is valid, and returns in the
// order of arrival when the pass has ended.
func TestSessionTTL_LoweredKeepsSessions(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.SessionTTL, p.MaxActive, p.Rate, p.Burst = 10*time.Minute, 1, 100_000, 100_000
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	in := mustJoin(t, r, testID(), testClient(7))
	if in.State != Active {
		t.Fatalf("%+v", in)
	}
	ends := c.us/1e6 + 600
	must(t, r.Patch(ctx5(t), "ann", Live{SessionTTL: new(time.Minute)}))
	c.pass(20 * time.Second)
	r.Touch(in.Ticket.ID, false) // a request; the pass has over half of the new ttl left, and is not renewed
	mustTick(t, r)
	other := mustJoin(t, r, testID(), testClient(9)).Ticket
	until := func(second int64) {
		for c.us/1e6 < second {
			c.pass(2 * time.Second)
			mustTick(t, r)
			if other.Order > 0 && c.us/1e6%30 < 2 {
				s := mustCheck(t, r, other)
				if other = s.Ticket; s.State != Waiting {
					t.Fatalf("%d s before the pass of the session ends: %+v", ends-c.us/1e6, s)
				}
			}
		}
	}
	until(ends + 7)
	must(t, r.Pause(ctx5(t), "ann"))
	if s := mustComeBack(t, r, backWith(testID(), &in, ends)); s.State != Waiting || s.Ticket.Order != in.Ticket.Order {
		t.Errorf("came back as %+v, want the order %d", s, in.Ticket.Order)
	}
}

// After an outage min_wait does not delay visitors by the length of the outage, also if the origin has a budget.
func TestMinWait_IsSameAfterSilence(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.MinWait, p.Budgeted = 2*time.Second, true
	p.Budget = Budget{Origin: "shop", Rate: 50_000, Burst: 50_000, Weight: 1000, Weights: 1000}
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	run := func(d time.Duration) {
		for end := c.us + d.Microseconds(); c.us < end; c.pass(250 * time.Millisecond) {
			mustTick(t, r)
		}
	}
	run(5 * time.Second)
	c.pass(time.Hour)
	run(20 * time.Second)
	ticket := mustJoin(t, r, testID(), testClient(1)).Ticket
	run(4 * time.Second)
	if s := mustCheck(t, r, ticket); s.State != Admitted {
		t.Errorf("%+v 4 s after a join, with a least wait of 2 s", s)
	}
}

// When a busy room becomes idle, its gateways are still counted, though they tick the room rarely from then on.
func TestGateways_AreCountedWhenRoomBecomesIdle(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 100_000, 100_000
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	in := mustJoin(t, a, testID(), testClient(1))
	for range 5 {
		c.pass(time.Second)
		mustTick(t, a)
		mustTick(t, b)
	}
	must(t, a.RevokeSession(ctx5(t), "ann", in.Ticket.ID))
	for range 28 {
		c.pass(time.Second)
		mustTick(t, a)
		if n := a.Snapshot().Gateways; n != 2 {
			t.Fatalf("%d gateways are counted", n)
		}
	}
}

// The next request sends a higher session.ttl to the store, so that an active session does not drop out of max_active.
func TestSessionTTL_RaisedKeepsSessions(t *testing.T) {
	t.Parallel()
	c, p := newTestClock(), basePolicy
	p.SessionTTL, p.MaxActive, p.Rate, p.Burst = 8*time.Second, 1, 100_000, 100_000
	r, calls := counted(t, redistest.Client(t), redistest.Prefix(t), c, p)
	in := mustJoin(t, r, testID(), testClient(7)).Ticket.ID
	r.Touch(in, false)
	mustTick(t, r)
	other := mustJoin(t, r, testID(), testClient(9)).Ticket
	must(t, r.Patch(ctx5(t), "ann", Live{SessionTTL: new(5 * time.Minute)}))
	for i := range 60 {
		c.pass(time.Second)
		r.Touch(in, false) // the first request renews the pass, and so do all of a client that keeps the former
		mustTick(t, r)
		if s := mustCheck(t, r, other); s.State != Waiting {
			t.Fatalf("%d s later: %+v", i+1, s)
		}
	}
	if n := calls["room_heartbeat"]; n != 2 {
		t.Errorf("%d heartbeats, want the first and one by the new ttl", n)
	}
}
