package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// lasting returns the policy of a room whose gateways keep sessions alive.
func lasting(ttl time.Duration) Policy {
	p := basePolicy
	p.SessionTTL, p.PassLife, p.Rate, p.Burst = ttl, 12*time.Hour, 100_000, 100_000
	return p
}

// alive calls Alive.
func alive(t *testing.T, r *Room, id ID) (goesOn, sure bool) {
	t.Helper()
	return r.Alive(ctx5(t), id)
}

func mustBeAlive(t *testing.T, r *Room, id ID, want bool, when string) {
	t.Helper()
	if got, sure := alive(t, r, id); got != want || !sure {
		t.Errorf("%s: alive %t, sure %t; want %t", when, got, sure, want)
	}
}

// begin starts a session, as a gateway does when it signs a pass.
func begin(t *testing.T, r *Room) ID {
	t.Helper()
	s := mustJoin(t, r, testID(), testClient(1))
	if s.State != Active {
		t.Fatalf("%+v", s)
	}
	r.Touch(s.Ticket.ID, s.Offline)
	return s.Ticket.ID
}

// live lets time pass while the gateways tick.
func live(t *testing.T, c *testClock, d time.Duration, rooms ...*Room) {
	t.Helper()
	for ; d > 0; d -= 4 * time.Second {
		c.pass(min(d, 4*time.Second))
		for _, r := range rooms {
			mustTick(t, r)
		}
	}
}

// A gateway asks the store only about a session of which it has served no request for 1.25 ttl, and remembers both replies.
func TestAlive_AsksStoreOnce(t *testing.T) {
	t.Parallel()
	client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), lasting(100*time.Second)
	a := testRoom(t, client, prefix, c, p)
	b, calls := counted(t, client, prefix, c, p)
	id := begin(t, a)
	asked := func(want int, when string) {
		t.Helper()
		if got := calls["room_heartbeat"]; got != want {
			t.Errorf("%s: %d calls, want %d", when, got, want)
		}
	}
	live(t, c, 4*time.Second, a, b)
	mustBeAlive(t, b, id, true, "first seen")
	asked(1, "first seen")
	for range 10 {
		mustBeAlive(t, b, id, true, "seen again")
		live(t, c, 12*time.Second, a, b)
	}
	asked(1, "for 1.2 ttl")
	live(t, c, 8*time.Second, a, b)
	mustBeAlive(t, b, id, true, "after 1.28 ttl")
	asked(2, "after 1.28 ttl")
	live(t, c, 152*time.Second, a, b)
	mustBeAlive(t, b, id, false, "after 1.52 ttl more")
	mustBeAlive(t, b, id, false, "the same again")
	asked(3, "the end is remembered")
	live(t, c, 28*time.Second, a, b)
	mustBeAlive(t, b, id, false, "later")
	asked(4, "for a quarter of ttl")
	if n := a.Snapshot().Active; n != 0 {
		t.Errorf("%d sessions count", n)
	}
}

// The requests reach the store through the other gateway: a session ends 1 to 1.5 ttl after its last request anywhere.
func TestAlive_EndsAfterSilenceEverywhere(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	const ttl = 100 * time.Second
	for _, row := range []struct {
		silent time.Duration
		want   bool
	}{{ttl, true}, {ttl + ttl/4, true}, {ttl*3/2 - 4*time.Second, true}, {ttl*3/2 + 4*time.Second, false}, {time.Hour, false}} {
		client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), lasting(ttl)
		a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
		id := begin(t, a)
		for range 20 {
			live(t, c, ttl/2, a, b)
			a.Touch(id, false)
			mustTick(t, a)
		}
		live(t, c, row.silent, a, b)
		mustBeAlive(t, b, id, row.want, "at the other gateway after "+row.silent.String())
		if !row.want {
			mustBeAlive(t, a, id, false, "at its own gateway after "+row.silent.String())
		}
	}
}

// While the store is away, a session that the gateway does not know counts as alive. When the store is back, the session goes on only if it
// did when the store went away.
func TestAlive_WithoutStore(t *testing.T) {
	t.Parallel()
	client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), lasting(100*time.Second)
	p.MaxActive = 2
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	over := begin(t, a)
	live(t, c, 160*time.Second, a, b)
	young, other := begin(t, a), begin(t, a)
	live(t, c, 60*time.Second, a, b)
	mustBeAlive(t, b, other, true, "before the outage")
	for _, r := range []*Room{a, b} {
		r.store.markAway(errAway)
	}
	fresh := testCore(t, client, prefix, c, p) // has never reached the store
	fresh.store.markAway(errAway)
	for range 100 {
		c.pass(20 * time.Second)
		for _, id := range []ID{over, young} {
			for _, r := range []*Room{b, fresh} {
				if goesOn, sure := alive(t, r, id); !goesOn || sure {
					t.Fatalf("without the store: alive %t, sure %t", goesOn, sure)
				}
				r.Touch(id, false)
				r.forgetSessions(r.c.mono())
			}
		}
	}
	c.pass(200 * time.Second)
	for _, r := range []*Room{b, fresh} {
		for range r.shards {
			r.forgetSessions(r.c.mono())
		}
	}
	live(t, c, 8*time.Second, a, b, fresh)
	for _, r := range []*Room{a, b, fresh} {
		mustBeAlive(t, r, over, false, "ended before the outage")
		mustBeAlive(t, r, young, true, "used before and during the outage")
	}
	if n := a.Snapshot().Active; n > p.MaxActive {
		t.Errorf("%d sessions count, of at most %d", n, p.MaxActive)
	}
	mustBeAlive(t, a, other, true, "silent during the outage, which does not count")
}

// A store that came back empty has no sessions. For a ttl each session without a record counts, then none.
func TestAlive_AfterLoss(t *testing.T) {
	t.Parallel()
	client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), lasting(100*time.Second)
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	known, unknown, late := begin(t, b), begin(t, a), begin(t, a)
	live(t, c, 20*time.Second, a, b)
	if err := client.Del(ctx5(t), a.keys...).Err(); err != nil { // a alone has served two of the sessions
		t.Fatal(err)
	}
	live(t, c, 80*time.Second, b)
	mustBeAlive(t, b, unknown, true, "a session of a gateway that has died")
	live(t, c, 30*time.Second, b)
	mustBeAlive(t, b, known, true, "a session that this gateway has restored")
	mustBeAlive(t, b, unknown, true, "known again")
	mustBeAlive(t, b, late, false, "silent for more than ttl since the loss")
}

// A gateway that was cut off from the store keeps the sessions that went on there, although no other gateway has served them.
func TestAlive_GatewayCutOff(t *testing.T) {
	t.Parallel()
	client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), lasting(100*time.Second)
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	over := begin(t, a)
	live(t, c, 160*time.Second, a, b)
	id := begin(t, a)
	live(t, c, 50*time.Second, a, b)
	b.store.markAway(errAway)
	for range 30 {
		live(t, c, 20*time.Second, a)
		for _, id := range []ID{id, over} {
			if goesOn, _ := alive(t, b, id); !goesOn {
				t.Fatal("refused without the store")
			}
			b.Touch(id, false)
		}
	}
	live(t, c, 4*time.Second, a, b)
	for _, r := range []*Room{a, b} {
		mustBeAlive(t, r, id, true, "in use at the gateway that was cut off")
		mustBeAlive(t, r, over, false, "over before it was cut off")
	}
}

// A session stays revoked until its pass ends, also after the store lost its data.
func TestAlive_RevokedStaysRevoked(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), lasting(100*time.Second)
	p.PassLife = 2 * time.Hour
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	id := begin(t, a)
	if err := a.RevokeSession(ctx5(t), "ann", id); err != nil {
		t.Fatal(err)
	}
	for range 11 {
		live(t, c, 10*time.Minute, a)
		if !a.Revoked(id) {
			t.Fatal("the revocation is forgotten before the pass has ended")
		}
	}
	mustTick(t, b)
	if err := client.Del(ctx5(t), a.keys...).Err(); err != nil {
		t.Fatal(err)
	}
	live(t, c, 8*time.Second, a)
	if !testRoom(t, client, prefix, c, p).Revoked(id) {
		t.Error("a store that lost its data has lost the revocation")
	}
	live(t, c, 30*time.Minute, a)
	if a.Revoked(id) {
		t.Error("remembered although the pass has ended")
	}
}

// A session that is revoked after session.renew was changed stays revoked until the passes from before have ended.
func TestAlive_RevokedAfterChange(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	c, p := newTestClock(), lasting(100*time.Second)
	p.PassLife = 2 * time.Hour
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	id := begin(t, r)
	live(t, c, 8*time.Second, r)
	p.PassLife = 0
	r.setPolicy(p)
	live(t, c, 8*time.Second, r)
	if err := r.RevokeSession(ctx5(t), "ann", id); err != nil {
		t.Fatal(err)
	}
	live(t, c, 110*time.Minute, r)
	if !r.Revoked(id) {
		t.Error("the revocation is forgotten before the pass has ended")
	}
}

// The visitor of a session that ended by silence keeps the order for absence after the end, however long ttl is.
func TestReturn_AfterSilence(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	for _, ttl := range []time.Duration{20 * time.Second, 5 * time.Minute, 40 * time.Minute} {
		for _, row := range []struct {
			after time.Duration // the end of the session
			keeps bool
		}{{-ttl / 3, false}, {5 * time.Second, true}, {basePolicy.Absence - 20*time.Second, true}, {basePolicy.Absence + 20*time.Second, false}} {
			client, prefix, c, p := redistest.Client(t), redistest.Prefix(t), newTestClock(), lasting(ttl)
			p.MaxActive = 1
			r := testRoom(t, client, prefix, c, p)
			s := mustJoin(t, r, testID(), testClient(1))
			id := s.Ticket.ID
			r.Touch(id, false)
			live(t, c, 3*ttl/2+row.after, r)
			back := &Return{Session: id, Order: c.us - 2*3600e6, Fence: r.Snapshot().Fence, Began: c.us/1e6 - 2*3600, Ended: c.us / 1e6, Live: true}
			got, refusal, err := r.Join(ctx5(t), Arrival{ID: testID(), Client: testClient(1), Keyed: true, Return: back})
			if kept := err == nil && refusal == Granted && got.State == Active; kept != row.keeps {
				t.Errorf("ttl %s, %s after its end: %+v %q %v, want an order kept: %t", ttl, row.after, got, refusal, err, row.keeps)
			}
		}
	}
}
