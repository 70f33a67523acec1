package admission

import (
	"runtime"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// A revoked session stays revoked at every gateway until the last of its passes has ended, also if ttl changes before or after,
// and is then forgotten.
func TestRevocation_HoldsUntilPassesEnd(t *testing.T) {
	t.Parallel()
	long, short := 90*time.Minute, 5*time.Minute
	for name, shortenFirst := range map[string]bool{"ttl shortened after": false, "ttl shortened before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
			p := basePolicy
			p.SessionTTL = long
			a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
			s := mustJoin(t, a, testID(), testClient(1))
			if s.State != Active {
				t.Fatalf("%+v", s)
			}
			id := s.Ticket.ID
			shorten := func() {
				if err := a.Patch(ctx5(t), "ann", Live{SessionTTL: &short}); err != nil {
					t.Fatal(err)
				}
			}
			look := func(d time.Duration, rooms ...*Room) {
				for range int(d / (4 * time.Second)) {
					c.pass(4 * time.Second)
					for _, r := range rooms {
						mustTick(t, r)
					}
				}
			}
			if shortenFirst {
				shorten()
				look(8*time.Second, a, b)
			}
			if err := a.RevokeSession(ctx5(t), "ann", id); err != nil {
				t.Fatal(err)
			}
			if !shortenFirst {
				shorten()
			}
			look(8*time.Second, a, b)
			look(66*time.Minute, a)
			mustTick(t, b)
			fresh := testRoom(t, client, prefix, c, p)
			for i, r := range []*Room{a, b, fresh} {
				if !r.Revoked(id) {
					t.Errorf("gateway %d has forgotten a revocation though the pass has twenty minutes left", i)
				}
			}
			// The store loses the room: what gateways restore holds for as long.
			if err := client.Del(ctx5(t), a.keys...).Err(); err != nil {
				t.Fatal(err)
			}
			look(8*time.Second, a)
			fresh = testRoom(t, client, prefix, c, p)
			if !fresh.Revoked(id) {
				t.Error("a store that lost the room was not given the revocation back")
			}
			look(20*time.Minute, a)
			look(20*time.Minute, a, fresh) // a gateway sweeps all of its memory within five
			for i, r := range []*Room{a, fresh} {
				if r.Revoked(id) {
					t.Errorf("gateway %d remembers a revocation whose passes have ended", i)
				}
			}
			if n := client.ZCard(ctx5(t), a.keys[9]).Val(); n != 0 {
				t.Errorf("the store remembers %d revocations whose passes have ended", n)
			}
		})
	}
}

// The memory of a gateway for each revoked session and each admitted ticket is at most the figure of docs/scaling.md.
func TestMemory_IsSmall(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	measure := func(what string, most uint64, add func(ID)) {
		t.Helper()
		before, all := heap(), uint64(0)
		for range 4 {
			for range 60_000 {
				add(testID())
			}
			all += 60_000
			if each := (heap() - before) / all; each > most {
				t.Errorf("%s takes %d bytes at %d of them, want at most %d", what, each, all, most)
			} else {
				t.Logf("%s takes %d bytes at %d of them", what, each, all)
			}
		}
	}
	measure("a revoked session", 48, func(id ID) { r.sessions.markRevoked(id, r.Now()+1e9) })
	measure("an admitted ticket", 144, func(id ID) {
		r.memory.put(id, remembered{standing: Standing{State: Admitted, AdmittedAt: c.us, Ticket: Ticket{ID: id}}, at: c.us * 1000, seenAt: r.Now()})
	})
	runtime.KeepAlive(r)
}

// A pass verifies until token.Leeway after its end, so its revocation lasts longer, and is published until then.
func TestRevocation_LastsThroughLeeway(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	c := newTestClock()
	p := basePolicy
	p.SessionTTL = time.Minute
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	id, before := testID(), r.Revocations()
	r.Revoke(id)
	if r.Revocations() == before {
		t.Error("the number of revocations is unchanged")
	}
	changed := r.Revocations()
	ends := (r.RedisNow()+999_999)/1e6 + 60 // of a pass that was signed a moment ago
	for _, row := range []struct {
		name      string
		passes    time.Duration
		published bool
	}{
		{"at once", 0, true},
		{"in the last second of the pass", 59 * time.Second, true},
		{"within the leeway", 5 * time.Second, true},
		{"after it", 3 * time.Second, false},
	} {
		for left := row.passes; left > 0; left -= time.Second {
			c.pass(time.Second)
			for range 64 { // shards
				mustTick(t, r)
			}
		}
		var until []int64
		r.EachRevoked(func(sid ID, at int64) {
			if sid == id {
				until = append(until, at)
			}
		})
		if !r.Revoked(id) || len(until) != map[bool]int{true: 1}[row.published] {
			t.Errorf("%s: revoked %v, published %v; want %v", row.name, r.Revoked(id), until, row.published)
		}
		if len(until) == 1 && (until[0] < ends+5 || until[0] > ends+7) {
			t.Errorf("%s: until %d, want %d to %d", row.name, until[0], ends+5, ends+7)
		}
	}
	if n := r.Revocations() - changed; n > 1 {
		t.Errorf("one revocation has changed %d times more", n)
	}
}
