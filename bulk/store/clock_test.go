package store

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// TestShardTime_CatchesUp: after the clock had once been ahead, a shard in use stayed ahead for ever, and jobs with run_at started early.
func TestShardTime_CatchesUp(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	dispatch(t, s)
	c.advance(10 * time.Minute) // the clock is wrong for a moment
	dispatch(t, s)
	c.us -= (10 * time.Minute).Microseconds()
	for range 11 * 60 / 5 * 2 { // and right again for 110 minutes
		c.advance(25 * time.Second)
		dispatch(t, s)
	}
	at := time.UnixMicro(c.us).Add(2 * time.Second)
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "later", Payload: []byte("1"), RunAt: at}}); err != nil {
		t.Fatal(err)
	}
	g, err := s.Group(t.Context(), "g")
	if err != nil || !g.LastAddedAt.Equal(time.UnixMicro(c.us)) {
		t.Errorf("the shard is ahead by %s, %v", g.LastAddedAt.Sub(time.UnixMicro(c.us)), err)
	}
	c.advance(time.Second)
	dispatch(t, s)
	if jobs := pull(t, s, 1).Jobs; len(jobs) != 0 {
		t.Error("the job starts before its run_at")
	}
	c.advance(time.Second)
	dispatch(t, s)
	if jobs := pull(t, s, 1).Jobs; len(jobs) != 1 {
		t.Error("the job does not start at its run_at")
	}
}

// TestShardTime_NeverGoesBack: while the clock catches up with the shard, the shard's time advances, a tenth slower.
func TestShardTime_NeverGoesBack(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	c.advance(time.Hour)
	dispatch(t, s)
	c.us -= time.Hour.Microseconds()
	last := time.Time{}
	for range 20 {
		c.advance(10 * time.Second)
		add(t, s, "g", 0, 1)
		g, err := s.Group(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		if step := g.LastAddedAt.Sub(last); !last.IsZero() && step != 9*time.Second {
			t.Fatalf("in 10 s the shard's time moves by %s, want 9 s", step)
		}
		last = g.LastAddedAt
	}
}

// TestFence_AfterLostWrites: a store that restarted without its last second of writes issued the same fences again.
func TestFence_AfterLostWrites(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 4)
	before := map[string]string{}
	for _, key := range s.keys {
		if v, err := s.o.Client.Dump(t.Context(), key).Result(); err == nil {
			before[key] = v
		}
	}
	lost := pull(t, s, 2).Jobs
	for _, key := range s.keys {
		if err := s.o.Client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		if v, ok := before[key]; ok {
			if err := s.o.Client.Restore(t.Context(), key, 0, v).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.advance(time.Second)
	again := pull(t, s, 2).Jobs
	for _, j := range again {
		if j.Fence <= lost[1].Fence {
			t.Errorf("fence %d after %d", j.Fence, lost[1].Fence)
		}
	}
	if state := ack(t, s, Done, lost[0]); state[0] != AckStale {
		t.Errorf("the ack of the lost run is %s", state[0])
	}
	clean(t, s)
}

// TestDispatch_TwoViewsOfOneMaster: when processes reached the store under two names, every round extended all leases, and orphans
// were never recovered.
func TestDispatch_TwoViewsOfOneMaster(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 1)
	round := func(id string) (recovered int64) {
		t.Helper()
		r, err := s.run(t.Context(), "queue_dispatch", id, Defaults().DispatchBatch, time.Hour.Microseconds(), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		return r.int(1)
	}
	round("one")
	round("two")
	pull(t, s, 1)
	recovered := int64(0)
	for i := range 80 {
		c.advance(time.Second)
		recovered += round([]string{"one", "two", ""}[i%3])
	}
	if recovered != 1 {
		t.Errorf("%d orphans recovered, want 1", recovered)
	}
	// After a change to a server that was not in use lately, no lease ends before a full lease has passed.
	c.advance(time.Second)
	dispatch(t, s)
	pull(t, s, 1)
	for range 29 {
		c.advance(time.Second)
		round("one")
	}
	if n := round("three"); n != 0 {
		t.Errorf("%d recovered by the first round on another server", n)
	}
	c.advance(2 * time.Second)
	if n := round("three"); n != 0 {
		t.Errorf("%d recovered before a full lease on another server", n)
	}
	clean(t, s)
}

// TestDispatch_WithoutInfo: a user that may not run INFO had no dispatcher, so that no group ended.
func TestDispatch_WithoutInfo(t *testing.T) {
	server := redistest.Server(t)
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "w", "on", ">p", "resetchannels", "~*", "-@all", "+@read", "+@write",
		"-@dangerous", "+eval", "+evalsha", "+script|load", "+time", "+ping", "+select").Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "w", Password: "p"})
	t.Cleanup(func() { _ = client.Close() })
	s, c := openOn(t, client, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 1)
	dispatch(t, s)
	pull(t, s, 1)
	for range 31 {
		c.advance(time.Second)
		dispatch(t, s)
	}
	if g, err := s.Group(t.Context(), "g"); err != nil || g.InFlight != 0 || g.NonReady+g.Pending != 1 {
		t.Errorf("the orphan is not recovered: %+v, %v", g, err)
	}
}
