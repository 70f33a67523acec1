package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// arriveForSession joins as a check does: it asks for a session and takes no place.
func arriveForSession(t *testing.T, r *Room, a Arrival) (Standing, Refusal) {
	t.Helper()
	a.SessionOnly = true
	s, refusal, err := r.Join(ctx5(t), a)
	if err != nil {
		t.Fatalf("join for a session: %v", err)
	}
	return s, refusal
}

func TestJoinSessionOnly_StartsSessionOrLeavesNothing(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Burst, p.MaxActive = 2000, 3
	r := testRoom(t, client, prefix, c, p)
	for i := range 2 {
		if s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(byte(i))}); s.State != Active || refusal != Granted {
			t.Fatalf("visitor %d of the burst: %+v %q", i, s, refusal)
		}
	}
	for _, a := range []Arrival{
		{ID: testID(), Client: testClient(3)},
		{ID: ID{4}, Client: testClient(4), Keyed: true},
		{ID: ID{5}, Client: testClient(5), Keyed: true, Account: true},
	} {
		if s, refusal := arriveForSession(t, r, a); refusal != MustWait {
			t.Errorf("beyond the burst %+v: %+v %q, want %q", a, s, refusal, MustWait)
		}
	}
	mustTick(t, r)
	if s := r.Snapshot(); s.Waiting != 0 || s.Admitted != 0 {
		t.Errorf("%d wait and %d are admitted, want nobody", s.Waiting, s.Admitted)
	}
	c.pass(200 * time.Millisecond)
	if s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(6)}); s.State != Active || refusal != Granted {
		t.Fatalf("when the limiter has capacity again: %+v %q", s, refusal)
	}
	c.pass(time.Second)
	if s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(7)}); refusal != MustWait {
		t.Errorf("with max_active reached: %+v %q, want %q", s, refusal, MustWait)
	}
}

// While visitors wait, a check makes no store call and admits nobody.
func TestJoinSessionOnly_NeverOvertakesQueue(t *testing.T) {
	t.Parallel()
	client, c, p := redistest.Server(t).Client(), newTestClock(), basePolicy
	p.Rate, p.Burst = 1, 1000
	r := testRoom(t, client, "wr", c, p)
	mustJoin(t, r, testID(), testClient(1))
	mustJoin(t, r, testID(), testClient(2))
	if s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(3)}); refusal != MustWait {
		t.Errorf("before the next tick: %+v %q, want %q", s, refusal, MustWait)
	}
	c.pass(time.Second)
	mustTick(t, r)
	if ran := commands(t, client, func() {
		for range 100 {
			if s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(4)}); refusal != MustWait {
				t.Fatalf("while a visitor waits: %+v %q, want %q", s, refusal, MustWait)
			}
		}
	}); len(ran) != 0 {
		t.Errorf("100 joins ran %v, want no command", ran)
	}
}

// A front that fills up between two ticks gives a check no signed place either: positions would count a visitor who has no ticket.
func TestJoinSessionOnly_FullFrontGivesNoPlace(t *testing.T) {
	t.Parallel()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), newTestClock(), basePolicy)
	mustTick(t, r)
	snap := r.Snapshot()
	r.view.frontFull.Store(snap)
	before := r.view.length(snap)
	if s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(1)}); refusal != MustWait {
		t.Errorf("%+v %q, want %q", s, refusal, MustWait)
	}
	if n := r.view.length(snap); n != before {
		t.Errorf("%d arrivals since the snapshot, want %d", n, before)
	}
}

func TestJoinSessionOnly_WithoutStoreFollowsOnStoreError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		policy  string
		state   State
		refusal Refusal
	}{
		{OnErrorWait, 0, MustWait},
		{OnErrorOpen, Active, Granted},
		{OnErrorClosed, 0, Unavailable},
	} {
		p := basePolicy
		p.OnStoreError = row.policy
		r := testRoom(t, redistest.Client(t), redistest.Prefix(t), newTestClock(), p)
		r.store.markAway(errAway)
		if s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(1)}); s.State != row.state || refusal != row.refusal {
			t.Errorf("on_store_error %s: %+v %q, want state %d and %q", row.policy, s, refusal, row.state, row.refusal)
		}
	}
}

// Joins for a session alone, mixed with others, admit nobody above the limits and add nobody to the queue.
func TestJoinSessionOnly_Property(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		c, p := newTestClock(), basePolicy
		p.Rate, p.Burst, p.MaxActive = 2000, 2000, int64(rapid.IntRange(0, 6).Draw(rt, "max_active"))
		r := testRoom(t, client, redistest.Prefix(t), c, p)
		began, admitted, queued := c.us, int64(0), int64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"session", "join", "pass", "tick"}).Draw(rt, "step") {
			case "session":
				s, refusal := arriveForSession(t, r, Arrival{ID: testID(), Client: testClient(1)})
				switch {
				case refusal == Granted && s.State == Active:
					admitted++
				case refusal != MustWait:
					rt.Fatalf("%+v %q", s, refusal)
				}
			case "join":
				if s := mustJoin(t, r, testID(), testClient(2)); s.State == Active {
					admitted++
				} else {
					queued++
				}
			case "pass":
				c.pass(time.Duration(rapid.IntRange(1, 900).Draw(rt, "ms")) * time.Millisecond)
			case "tick":
				mustTick(t, r)
			}
			s := r.Snapshot()
			if most := 2 + (c.us-began)*2/1_000_000; admitted > most {
				rt.Fatalf("%d admitted immediately, the limiter allows %d", admitted, most)
			}
			if p.MaxActive > 0 && s.Active+s.Admitted > p.MaxActive {
				rt.Fatalf("%d active and %d admitted, at most %d may be", s.Active, s.Admitted, p.MaxActive)
			}
			if s.Waiting+s.Admitted > queued {
				rt.Fatalf("%d wait and %d are admitted, but %d took a place", s.Waiting, s.Admitted, queued)
			}
		}
	})
}
