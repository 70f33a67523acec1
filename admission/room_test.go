package admission

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"log/slog"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// atOnce is the default number of parallel tests. Most tests wait for a hold, a failover or a reply, and do not compute.
const atOnce = 4

func TestMain(m *testing.M) {
	if runtime.GOMAXPROCS(0) < atOnce {
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce)) // -parallel is read later, and counts above it
	}
	redistest.MainNoLeaks(m)
}

// clock is Redis's clock in a test.
type testClock struct{ us int64 }

func (c *testClock) now() int64           { return c.us }
func (c *testClock) pass(d time.Duration) { c.us += d.Microseconds() }
func newTestClock() *testClock            { return &testClock{us: 1_780_000_000_000_000} }
func quiet() *slog.Logger                 { return slog.New(slog.DiscardHandler) }
func testID() (id ID)                     { _, _ = rand.Read(id[:]); return }
func testClient(b byte) (c Client)        { c[0] = b; return }

// patience bounds every call. Only a failing test takes that long.
const patience = 3 * time.Minute

func ctx5(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

var basePolicy = Policy{
	Enabled: true, Method: FIFO, Rate: 5000, Burst: 5000, Absence: 10 * time.Minute,
	ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: OnErrorWait,
}

func testRoom(t *testing.T, client redis.UniversalClient, prefix string, c *testClock, p Policy) *Room {
	t.Helper()
	r := testCore(t, client, prefix, c, p)
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	return r
}

// testCore returns a room that has not reached the store yet.
func testCore(t *testing.T, client redis.UniversalClient, prefix string, c *testClock, p Policy) *Room {
	t.Helper()
	core, err := New(Options{Client: client, Prefix: prefix, Timeout: patience, Log: quiet(), Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return core.Room("sale", p)
}

func mustJoin(t *testing.T, r *Room, id ID, c Client) Standing {
	t.Helper()
	s, refusal, err := r.Join(ctx5(t), Arrival{ID: id, Client: c})
	if err != nil || refusal != Granted {
		t.Fatalf("join: %v %q", err, refusal)
	}
	return s
}

// Ticks admit from the queue up to max_active and no further, however many tokens are left.
func TestTick_KeepsMaxActive(t *testing.T) {
	p := basePolicy
	p.Burst, p.MaxActive = 100_000, 3
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	inside := testID()
	mustJoin(t, r, inside, Client{})
	for i := range 9 {
		mustJoin(t, r, testID(), testClient(byte(i)))
	}
	for range 3 {
		c.pass(200 * time.Millisecond)
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.Snapshot(); s.Active+s.Admitted != 3 || s.Waiting != 7 {
		t.Fatalf("%d inside, %d admitted and %d waiting", s.Active, s.Admitted, s.Waiting)
	}
}

// A join into an empty queue enters at once only below max_active, however many tokens are left.
func TestJoin_KeepsMaxActive(t *testing.T) {
	p := basePolicy
	p.Burst, p.MaxActive = 100_000, 3
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), newTestClock(), p)
	for i := range 5 {
		want := Active
		if i >= 3 {
			want = Waiting
		}
		if s := mustJoin(t, r, testID(), Client{}); s.State != want {
			t.Errorf("visitor %d is %v, want %v", i, s.State, want)
		}
	}
}

func TestJoin_AdmitsThenQueues(t *testing.T) {
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	for i := range 5 {
		if s := mustJoin(t, r, testID(), Client{}); s.State != Active || s.AdmittedAt != c.us {
			t.Fatalf("visitor %d of the burst: %+v", i, s)
		}
	}
	a, b := testID(), testID()
	sa, sb := mustJoin(t, r, a, testClient(1)), mustJoin(t, r, b, testClient(2))
	if sa.State != Waiting || sb.State != Waiting || sa.Ticket.Order >= sb.Ticket.Order && c.us != sa.Ticket.Order {
		t.Fatalf("beyond the burst: %+v %+v", sa, sb)
	}
	c.pass(200 * time.Millisecond)
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	first, second := sa, sb
	if n := r.Snapshot().Admitted; n != 1 {
		t.Fatalf("admitted after 200 ms at 5/s: %d", n)
	}
	var got [2]Standing
	for i, s := range []Standing{first, second} {
		st, err := r.Claim(ctx5(t), s.Ticket)
		if err != nil && !errors.Is(err, ErrNotYet) {
			t.Fatal(err)
		}
		got[i] = st
	}
	if (got[0].State == Active) == (got[1].State == Active) {
		t.Fatalf("one of two is in: %+v", got)
	}
	in := 0
	if got[1].State == Active {
		in = 1
	}
	again, err := r.Claim(ctx5(t), []Standing{first, second}[in].Ticket)
	if err != nil || again.State != Active || again.AdmittedAt != got[in].AdmittedAt {
		t.Fatalf("the same client again: %+v %v", again, err)
	}
	stolen := []Standing{first, second}[in].Ticket
	stolen.Client = testClient(9)
	if s, err := r.Claim(ctx5(t), stolen); err != nil || s.State != Ended || s.Reason != ReasonClaimed {
		t.Fatalf("another client: %+v %v", s, err)
	}
}

func TestFlushAll_KeepsPlaces(t *testing.T) {
	srv := redistest.Server(t)
	c := newTestClock()
	client := srv.Client()
	r := testRoom(t, client, "wr", c, basePolicy)
	var queue []Ticket
	for i := range 30 {
		c.pass(time.Millisecond)
		if s := mustJoin(t, r, testID(), testClient(byte(i))); s.State == Waiting {
			queue = append(queue, s.Ticket)
		}
	}
	if len(queue) != 25 {
		t.Fatalf("%d wait", len(queue))
	}
	epoch := r.Snapshot().Epoch
	if err := client.FlushAll(ctx5(t)).Err(); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Second)
	// Those who poll are enrolled again with their order, in any order of polling.
	for i := len(queue) - 1; i >= 0; i-- {
		s, err := r.Check(ctx5(t), queue[i])
		if err != nil || s.State != Waiting || s.Ticket.Order != queue[i].Order || !s.Renewed && s.Ticket.Epoch == epoch {
			t.Fatalf("ticket %d after the loss: %+v %v", i, s, err)
		}
		queue[i] = s.Ticket
	}
	for i, tk := range queue {
		f, err := r.Lookup(ctx5(t), tk.ID)
		if err != nil || f.Ahead != int64(i) {
			t.Fatalf("place %d: %+v %v", i, f, err)
		}
	}
	for range 8 {
		c.pass(500 * time.Millisecond)
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.Snapshot().Admitted; n != 0 {
		t.Fatalf("%d admitted within 5 s of the loss", n)
	}
	c.pass(1500 * time.Millisecond)
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	if n := r.Snapshot().Admitted; n != 5 {
		t.Fatalf("%d admitted after the hold, want the burst", n)
	}
	for i, tk := range queue {
		s, err := r.Check(ctx5(t), tk)
		if err != nil || (s.State == Admitted) != (i < 5) {
			t.Fatalf("ticket %d: %+v %v", i, s, err)
		}
	}
}

func TestOperators_ChangeRoom(t *testing.T) {
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	rate, msg := int64(2500), "back soon,\n<b>friends</b>"
	if err := r.Patch(ctx5(t), "ann", Live{Rate: &rate, Message: &msg}); err != nil {
		t.Fatal(err)
	}
	if p := r.Snapshot().Policy; p.Rate != 2500 || p.Message != msg || p.Burst != 5000 {
		t.Fatalf("%+v", p)
	}
	if err := r.Pause(ctx5(t), "bob"); err != nil {
		t.Fatal(err)
	}
	s := mustJoin(t, r, testID(), testClient(1))
	if s.State != Waiting || !r.Snapshot().Policy.Paused {
		t.Fatalf("paused: %+v", s)
	}
	if err := r.Resume(ctx5(t), "bob"); err != nil {
		t.Fatal(err)
	}
	if err := r.Reset(ctx5(t), "bob"); err != nil {
		t.Fatal(err)
	}
	if st, err := r.Check(ctx5(t), s.Ticket); err != nil || st.State != Expired || st.Reason != ReasonReset {
		t.Fatalf("after reset: %+v %v", st, err)
	}
	audit, err := r.c.Audit(ctx5(t), 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	var what []string
	for _, e := range audit {
		what = append(what, e.Who+" "+e.Action)
	}
	if len(what) != 4 || what[0] != "bob reset" && what[3] != "ann patch" {
		t.Fatalf("%v", what)
	}
	if ch := audit[3].Changes; len(ch) != 2 || ch[0].Field != "rate" || ch[0].Before != nil || *ch[0].After != "2500" || *ch[1].After != msg {
		t.Fatalf("%+v", ch)
	}
	h, err := r.History(ctx5(t), 5)
	if err != nil || len(h) != 5 || h[4].Joins == 0 {
		t.Fatalf("%+v %v", h, err)
	}
}

// The history records pauses and, where there is one, the limit of active visitors.
func TestHistory_RecordsPausesAndLimit(t *testing.T) {
	c := newTestClock()
	p := basePolicy
	p.MaxActive = 7
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	mustJoin(t, r, testID(), testClient(1))
	none := int64(0)
	for _, act := range []func() error{
		func() error { return nil },
		func() error { return r.Pause(ctx5(t), "ann") },
		func() error { return r.Resume(ctx5(t), "ann") },
		func() error { return r.Patch(ctx5(t), "ann", Live{MaxActive: &none}) },
	} {
		if err := act(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			c.pass(time.Second)
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	h, err := r.History(ctx5(t), 1)
	if err != nil || h[0].Paused != 2*time.Second || h[0].MaxActive != 7 || h[0].Active != 1 {
		t.Fatalf("%+v %v; want 2 s of pause and 1 of 7 active", h, err)
	}
	c.pass(time.Minute)
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	if h, err := r.History(ctx5(t), 1); err != nil || h[0].MaxActive != 0 || h[0].Paused != 0 {
		t.Fatalf("a minute later: %+v %v", h, err)
	}
}

// A session that its origin ends while the store is away ends at this gateway immediately, and everywhere when the store is
// back.
func TestRevoke_IsSentWhenStoreIsBack(t *testing.T) {
	srv := redistest.Server(t)
	c := newTestClock()
	a := testRoom(t, srv.Client(), "wr", c, basePolicy)
	b := testRoom(t, srv.Client(), "wr", c, basePolicy)
	id := testID()
	if s := mustJoin(t, a, id, testClient(1)); s.State != Active {
		t.Fatalf("%+v", s)
	}
	srv.Stop()
	a.Revoke(id)
	if !a.Revoked(id) || b.Revoked(id) {
		t.Fatal("revoked here at once, elsewhere not yet")
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Tick(short); err == nil {
		t.Fatal("the store is away")
	}
	srv.Cont()
	for _, r := range []*Room{a, b} {
		c.pass(time.Second)
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	if !b.Revoked(id) {
		t.Fatal("the other gateway never got it")
	}
	if f, err := b.Lookup(ctx5(t), id); err != nil || f.State != Ended || f.Reason != ReasonRevoked {
		t.Fatalf("%+v %v", f, err)
	}
}

// A grant that is available before the tick belongs to the first ticket of the queue, not to a visitor who joins at that
// moment.
func TestJoin_NeverPassesQueue(t *testing.T) {
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	for range 5 {
		mustJoin(t, r, testID(), testClient(1)) // the burst
	}
	head := mustJoin(t, r, testID(), testClient(2))
	c.pass(2 * time.Second) // ten tokens' time, and no tick
	if r.Charge(ctx5(t)) {
		t.Fatal("a request without a session passed the queue")
	}
	if s := mustJoin(t, r, testID(), testClient(3)); s.State != Waiting {
		t.Fatalf("a newcomer passed the queue: %+v", s)
	}
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	if f, err := r.Lookup(ctx5(t), head.Ticket.ID); err != nil || f.State != Admitted {
		t.Fatalf("the head after the tick: %+v %v", f, err)
	}
}
