package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

func mustTick(t *testing.T, r *Room) {
	t.Helper()
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
}

func mustCheck(t *testing.T, r *Room, tk Ticket) Standing {
	t.Helper()
	s, err := r.Check(ctx5(t), tk)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counted returns a room that counts its store calls by script.
func counted(t *testing.T, client redis.UniversalClient, prefix string, c *testClock, p Policy) (*Room, map[string]int) {
	t.Helper()
	calls := map[string]int{}
	core, err := New(Options{
		Client: client, Prefix: prefix, Timeout: patience, Log: quiet(), Now: c.now,
		Observe: func(script string, _ time.Duration, _ error) { calls[script]++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", p)
	mustTick(t, r)
	return r, calls
}

var errAway = errors.New("the store is away")

func TestOutage_IdleRoomExpiresNobody(t *testing.T) {
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	c.pass(time.Second)
	r.store.markAway(errAway)
	var queue []Ticket
	for range 3 {
		c.pass(2 * time.Minute)
		s := mustJoin(t, r, testID(), testClient(1))
		if s.State != Waiting || !s.Offline {
			t.Fatalf("joined without the store: %+v", s)
		}
		queue = append(queue, s.Ticket)
	}
	c.pass(basePolicy.Absence)
	mustTick(t, r)
	mustTick(t, r)
	for range 6 { // the burst, and one who has to wait
		mustJoin(t, r, testID(), testClient(3))
	}
	for i, tk := range queue {
		if s := mustCheck(t, r, tk); s.State != Waiting && s.State != Admitted {
			t.Fatalf("visitor %d after the outage: %+v", i, s)
		}
	}
	for i, tk := range queue {
		if f, err := r.Lookup(ctx5(t), tk.ID); err != nil || f.Ahead != int64(i) {
			t.Fatalf("visitor %d: %+v %v", i, f, err)
		}
	}
}

func TestOffline_HoardedTokensAreNotFirst(t *testing.T) {
	c := newTestClock()
	p := basePolicy
	p.OnStoreError = OnErrorLocal
	p.Rate, p.Burst = 1000, 1000
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	for range 1200 { // an hour
		c.pass(3 * time.Second)
		mustTick(t, r)
	}
	mustJoin(t, r, testID(), testClient(1)) // the burst
	var queue []Ticket
	for range 50 {
		c.pass(time.Millisecond)
		queue = append(queue, mustJoin(t, r, testID(), testClient(2)).Ticket)
	}
	c.pass(500 * time.Millisecond)
	mustTick(t, r)
	snap := r.Snapshot()
	if snap.Waiting != int64(len(queue)) {
		t.Fatalf("%d wait", snap.Waiting)
	}
	hoarded := []Ticket{
		{ID: testID(), Order: snap.Time - 30*60e6, Seen: snap.Time - 30*60e6, Epoch: snap.Epoch, Fence: snap.Fence},
		{ID: testID(), Order: snap.Time - 30*60e6, Fence: snap.Fence},
		{ID: testID(), Order: snap.RedisTime - 30*60e6},
	}
	c.pass(time.Second)
	r.store.markAway(errAway)
	c.pass(3 * time.Second)
	for _, tk := range hoarded {
		if s := mustCheck(t, r, tk); s.State != Waiting {
			t.Fatalf("token %+v got in: %+v", tk, s)
		}
	}
	if s := mustCheck(t, r, queue[0]); s.State != Active {
		t.Fatalf("the head: %+v", s)
	}
}

func TestOutage_KeepsOneHeartbeatPerSession(t *testing.T) {
	c := newTestClock()
	r, calls := counted(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	r.store.markAway(errAway)
	const sessions = 600
	ids := make([]ID, sessions)
	for i := range ids {
		ids[i] = testID()
	}
	for range 20 {
		c.pass(basePolicy.SessionTTL / 4)
		for _, id := range ids {
			r.Touch(id, true)
		}
	}
	mustTick(t, r)
	if n := calls["room_heartbeat"]; n != 2 {
		t.Fatalf("%d calls for the heartbeats of %d sessions", n, sessions)
	}
	mustTick(t, r)
	if n := r.Snapshot().Active; n != sessions {
		t.Fatalf("%d active of %d", n, sessions)
	}
}

func TestOfflinePass_SpendsItsTicket(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	c := newTestClock()
	p := basePolicy
	p.OnStoreError = OnErrorOpen
	p.Rate, p.Burst = 1000, 1000
	r, other := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	mustJoin(t, r, testID(), testClient(1)) // the burst
	tk := mustJoin(t, r, testID(), testClient(2)).Ticket
	tk.Client = testClient(2)
	c.pass(time.Second)
	mustTick(t, other)
	if n := other.Snapshot().Admitted; n != 1 {
		t.Fatalf("%d admitted", n)
	}
	r.store.markAway(errAway)
	if s := mustCheck(t, r, tk); s.State != Active || !s.Offline {
		t.Fatalf("open: %+v", s)
	}
	mustTick(t, r)
	c.pass(time.Second)
	mustTick(t, r)
	if s := r.Snapshot(); s.Admitted != 0 || s.Active != 2 {
		t.Fatalf("one session is counted as %d admitted and %d active", s.Admitted, s.Active-1)
	}
	tk.Client = testClient(9)
	if s, err := other.Claim(ctx5(t), tk); err != nil || s.State != Ended {
		t.Fatalf("a copied token after its ticket was spent: %+v %v", s, err)
	}
}

func TestCheck_OldTokenCostsOneCallPerSecond(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	c := newTestClock()
	r, calls := counted(t, client, prefix, c, basePolicy)
	for range 5 {
		mustJoin(t, r, testID(), testClient(1))
	}
	never := Ticket{ID: testID(), Order: c.us - 1000}
	former := Ticket{ID: testID(), Order: c.us - 1000, Seen: c.us - 1000, Epoch: "0.former", Fence: 1}
	for _, tk := range []Ticket{never, former} {
		c.pass(time.Millisecond)
		clear(calls)
		for range 20 {
			if s := mustCheck(t, r, tk); s.State != Waiting || !s.Renewed {
				t.Fatalf("%+v", s)
			}
		}
		if n := calls["room_enter"] + calls["room_seen"]; n != 1 {
			t.Fatalf("20 polls of %+v within a second made %d checks", tk, n)
		}
	}
}

func TestMemory_LateTokensLeaveNothing(t *testing.T) {
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	for range 100 {
		old := c.us - basePolicy.Absence.Microseconds() - 1e6
		s := mustCheck(t, r, Ticket{ID: testID(), Order: old, Seen: old, Epoch: r.Snapshot().Epoch, Fence: 1})
		if s.State != Expired || s.Reason != ReasonLate {
			t.Fatalf("%+v", s)
		}
	}
	n := 0
	r.memory.all(c.us*1000, func(ID, remembered) { n++ }, func(ID, time.Duration) { n++ })
	if n != 0 {
		t.Fatalf("%d late tokens are remembered", n)
	}
}

// A gateway has more records than it can send within one deadline.
func TestRestore_LargeCrowdInParts(t *testing.T) {
	srv := redistest.Server(t)
	client := srv.Client()
	c := newTestClock()
	var cut context.CancelFunc
	calls := 0
	core, err := New(Options{
		Client: client, Timeout: patience, Log: quiet(), Now: c.now,
		Observe: func(script string, _ time.Duration, _ error) {
			if script == "room_restore" {
				if calls++; calls%3 == 0 {
					cut()
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", basePolicy)
	mustTick(t, r)
	calls = 0
	const sessions = 4000
	for range sessions {
		id := testID()
		r.memory.put(id, remembered{
			standing: Standing{State: Active, AdmittedAt: c.us, Ticket: Ticket{ID: id}}, at: c.us * 1000, client: testClient(1), seenAt: r.Now(),
		})
		r.Touch(id, false)
	}
	if err := client.FlushAll(ctx5(t)).Err(); err != nil {
		t.Fatal(err)
	}
	for attempt := 0; ; attempt++ {
		if attempt == 20 {
			t.Fatalf("%d calls of room_restore, and the room is not back", calls)
		}
		var ctx context.Context
		ctx, cut = context.WithCancel(ctx5(t))
		_, _, err := r.store.do(ctx, 2*time.Second, "room_lookup", "none")
		cut()
		if err == nil {
			break
		}
	}
	n, err := client.ZCard(ctx5(t), r.keys[6]).Result()
	if err != nil || n != sessions {
		t.Fatalf("%d sessions of %d are back: %v", n, sessions, err)
	}
}

// A new gateway starts the room on the clock without the silences that were left out of room time. Visitors who waited before
// are not late because of them.
func TestEmptiedStore_NewGatewayExpiresNobody(t *testing.T) {
	srv := redistest.Server(t)
	client := srv.Client()
	c := newTestClock()
	r := testRoom(t, client, "wr", c, basePolicy)
	for range 5 {
		mustJoin(t, r, testID(), testClient(1))
	}
	tk := mustJoin(t, r, testID(), testClient(2)).Ticket
	for range 2 {
		c.pass(basePolicy.Absence) // the store is away
		mustTick(t, r)
		tk = mustCheck(t, r, tk).Ticket
	}
	c.pass(time.Second)
	if err := client.FlushAll(ctx5(t)).Err(); err != nil {
		t.Fatal(err)
	}
	testRoom(t, client, "wr", c, basePolicy)
	c.pass(100 * time.Millisecond)
	mustTick(t, r)
	c.pass(time.Second)
	if s := mustCheck(t, r, tk); s.State != Waiting || s.Ticket.Order != tk.Order {
		t.Fatalf("%+v", s)
	}
}

// A visitor who joined during an outage and has not polled yet is not overtaken by a visitor who joins after it.
func TestOutage_PlacesPrecedeLaterJoins(t *testing.T) {
	srv := redistest.Server(t)
	c := newTestClock()
	r := testRoom(t, srv.Client(), "wr", c, basePolicy)
	for range 5 {
		mustJoin(t, r, testID(), testClient(1)) // the burst
	}
	c.pass(250 * time.Millisecond)
	mustTick(t, r)
	r.store.markAway(ErrStore)
	c.pass(100 * time.Millisecond)
	var meanwhile []Ticket
	for range 6 {
		c.pass(time.Millisecond)
		s := mustJoin(t, r, testID(), testClient(2))
		if s.State != Waiting || !s.Offline {
			t.Fatalf("without the store: %+v", s)
		}
		meanwhile = append(meanwhile, s.Ticket)
	}
	c.pass(500 * time.Millisecond)
	mustTick(t, r)
	later := mustJoin(t, r, testID(), testClient(3))
	if later.State != Waiting {
		t.Fatalf("admitted before waiting visitors: %+v", later)
	}
	for i, tk := range append(meanwhile, later.Ticket) {
		f, err := r.Lookup(ctx5(t), tk.ID)
		if err != nil {
			t.Fatalf("place %d: %v", i, err)
		}
		if i == len(meanwhile) && (f.State != Waiting || f.Ahead == 0) {
			t.Fatalf("the later visitor: %+v", f)
		}
	}
	// All of them are in before the one who came later, and none polled.
	for range 20 {
		c.pass(250 * time.Millisecond)
		mustTick(t, r)
		last, err := r.Lookup(ctx5(t), later.Ticket.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i, tk := range meanwhile {
			f, err := r.Lookup(ctx5(t), tk.ID)
			if err != nil {
				t.Fatal(err)
			}
			if f.State == Waiting && last.State == Admitted {
				t.Fatalf("place %d waits, a later one is admitted", i)
			}
		}
		if last.State == Admitted {
			return
		}
	}
	t.Fatal("the last one was not admitted")
}

// The store loses its data. Of two gateways, the one that did not see the claim restores the room first, and sends the
// heartbeat of the session.
func TestRestore_KeepsClaimingClient(t *testing.T) {
	t.Parallel()
	client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), basePolicy
	p.Rate, p.Burst, p.MinWait = 100_000, 100_000, 2*time.Second
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	tk := mustCheck(t, a, mustJoin(t, a, testID(), testClient(1)).Ticket).Ticket
	for range 4 {
		c.pass(time.Second)
		mustTick(t, a)
		mustTick(t, b)
	}
	s, err := a.Claim(ctx5(t), tk)
	if err != nil || s.State != Active {
		t.Fatalf("%+v %v", s, err)
	}
	at := s.AdmittedAt
	c.pass(2 * time.Second)
	mustTick(t, a)
	mustTick(t, b)
	must(t, client.Del(ctx5(t), a.keys...).Err())
	b.Touch(tk.ID, false) // the visitor's next request goes to b
	mustTick(t, b)
	mustTick(t, b)
	mustTick(t, a)
	c.pass(3 * time.Second)
	mustTick(t, a)
	got := mustCheck(t, a, tk)
	if got.State != Active || got.AdmittedAt != at {
		t.Errorf("the gateway of the claim returned %+v to its client", got)
	}
}
