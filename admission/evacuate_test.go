package admission

import (
	"errors"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// inside joins visitors who are admitted immediately and returns their standings.
func inside(t *testing.T, r *Room, c *testClock, n int) (all []Standing) {
	t.Helper()
	for range n {
		c.pass(time.Microsecond)
		s := mustJoin(t, r, testID(), testClient(7))
		if s.State != Active || s.ClaimedAt == 0 {
			t.Fatalf("joined as %+v", s)
		}
		all = append(all, s)
	}
	return all
}

// An evacuation ends every session at both gateways, takes back the admissions that are not claimed, and admits nobody for the
// hold. Those who were inside come first, in order, at one limit for all.
func TestEvacuate_KeepsOrders(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst, p.MaxActive = 2000, 4000, 4
	one, two := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	in := inside(t, one, c, 4)
	var waiting []Standing
	for range 3 {
		c.pass(time.Microsecond)
		waiting = append(waiting, mustJoin(t, one, testID(), testClient(7)))
	}
	for _, s := range in[:2] { // two leave, so two of the waiting are admitted, one of whom claims
		if err := one.RevokeSession(ctx5(t), "ann", s.Ticket.ID); err != nil {
			t.Fatal(err)
		}
	}
	c.pass(time.Second)
	mustTick(t, one)
	mustTick(t, two)
	claimed, err := one.Claim(ctx5(t), waiting[0].Ticket)
	if err != nil || claimed.State != Active || claimed.ClaimedAt == 0 {
		t.Fatalf("claim %+v %v", claimed, err)
	}
	if n := one.Snapshot().Admitted; n != 2 {
		t.Fatalf("%d admitted, want 2", n)
	}
	if err := one.Evacuate(ctx5(t), "ann", "the origin is down"); err != nil {
		t.Fatal(err)
	}
	c.pass(250 * time.Millisecond)
	mustTick(t, two)
	for i, r := range []*Room{one, two} {
		s := r.Snapshot()
		if s.Active+s.Admitted != 0 {
			t.Errorf("gateway %d: %d inside and %d admitted", i, s.Active, s.Admitted)
		}
		for _, pass := range []Standing{in[2], in[3], claimed} {
			if e := r.Evacuation(); !e.Ends(pass.ClaimedAt, c.us/1e6+100) || e.Ends(e.Fence+1, 0) || !e.Ends(0, e.At/1e6) || e.Ends(0, e.At/1e6+1) {
				t.Errorf("gateway %d: the evacuation %+v does not end the session of %+v", i, e, pass)
			}
		}
	}
	// A heartbeat that another gateway sends late registers nothing, and a claim of an admission of before makes no session.
	two.Touch(in[2].Ticket.ID, false)
	c.pass(time.Second)
	mustTick(t, two)
	if s, err := two.Claim(ctx5(t), waiting[1].Ticket); err != nil && !errors.Is(err, ErrNotYet) || s.State == Active {
		t.Errorf("an admission of before was claimed: %+v %v", s, err)
	}
	late := mustJoin(t, two, testID(), testClient(9))
	var back []Standing
	for _, s := range []Standing{in[3], claimed, in[2]} {
		a := backWith(testID(), &s, c.us/1e6-1)
		a.Return.Evacuated = true
		back = append(back, mustComeBack(t, two, a))
	}
	for i, s := range []Standing{in[3], claimed, in[2]} {
		if back[i].State != Waiting || back[i].Ticket.Order != s.Ticket.Order {
			t.Errorf("visitor %d came back at %d as %+v", i, s.Ticket.Order, back[i])
		}
	}
	mustCheck(t, two, waiting[1].Ticket)
	want := []ID{back[2].Ticket.ID, back[0].Ticket.ID, back[1].Ticket.ID, waiting[1].Ticket.ID, waiting[2].Ticket.ID, late.Ticket.ID}
	for i, id := range want {
		if f, err := one.Lookup(ctx5(t), id); err != nil && i != 4 || err == nil && f.State == Waiting && i < 4 && f.Ahead != int64(i) {
			t.Errorf("place %d: %+v %v", i, f, err)
		}
	}
	if n := two.Snapshot().Active; n != 0 {
		t.Errorf("%d inside during the hold", n)
	}
	for range 3 {
		c.pass(2 * time.Second)
		mustTick(t, two)
	}
	for _, s := range back {
		mustCheck(t, two, s.Ticket)
	}
	c.pass(250 * time.Millisecond)
	mustTick(t, two)
	if n := two.Snapshot().Admitted; n != 4 {
		t.Errorf("%d admitted after the hold, want max_active", n)
	}
}

// The evacuation outlives a loss of the store's data, of which the sessions of before do not return.
func TestEvacuate_SurvivesLossOfData(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 10_000, 10_000
	r := testRoom(t, client, prefix, c, p)
	in := inside(t, r, c, 3)
	for _, s := range in {
		r.Touch(s.Ticket.ID, false)
	}
	if err := r.Evacuate(ctx5(t), "ann", "a test"); err != nil {
		t.Fatal(err)
	}
	before := r.Evacuation()
	keys, err := client.Keys(ctx5(t), prefix+":{room*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	if err := client.Del(ctx5(t), keys...).Err(); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Second)
	mustTick(t, r)
	fresh := testRoom(t, client, prefix, c, p) // a gateway that was not there
	mustTick(t, fresh)
	for _, room := range []*Room{r, fresh} {
		s := room.Snapshot()
		if s.Evacuation != before || s.Active != 0 {
			t.Errorf("after the loss: %+v, %d inside; before it %+v", s.Evacuation, s.Active, before)
		}
	}
	a := backWith(testID(), &in[1], c.us/1e6-1)
	a.Return.Evacuated = true
	if s := mustComeBack(t, fresh, a); s.Ticket.Order != in[1].Ticket.Order {
		t.Errorf("came back as %+v, want order %d", s, in[1].Ticket.Order)
	}
}

// A session that gateways keep alive ends too, also where the store has lost its record; its visitor keeps the order.
func TestEvacuate_OfLiveSessions(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst, p.PassLife = 10_000, 10_000, time.Hour
	r := testRoom(t, client, prefix, c, p)
	in := inside(t, r, c, 2)
	c.pass(time.Second)
	mustTick(t, r)
	if err := r.Evacuate(ctx5(t), "ann", "a test"); err != nil {
		t.Fatal(err)
	}
	for i, s := range in {
		if alive, sure := r.Alive(ctx5(t), s.Ticket.ID); alive || !sure {
			t.Errorf("session %d: alive %t, sure %t", i, alive, sure)
		}
		a := backWith(testID(), &s, c.us/1e6)
		a.Return.Live, a.Return.Evacuated = true, true
		if got := mustComeBack(t, r, a); got.State != Waiting || got.Ticket.Order != s.Ticket.Order {
			t.Errorf("session %d came back as %+v, want order %d", i, got, s.Ticket.Order)
		}
	}
}
