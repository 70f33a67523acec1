package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Whatever step a process was killed after, another one goes on.
func TestFleetChains_GoOnAfterAnyStep(t *testing.T) {
	t.Run("entry without group", func(t *testing.T) {
		c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
		a, id := c.make("a", 0, ""), idOn(t, c.Fleet, "b", 1)
		if _, err := c.enter(t.Context(), c.shards[1], &GroupSpec{ID: id, After: a}); err != nil {
			t.Fatal(err)
		}
		c.end(a, Completed)
		c.keep()
		if c.drop(a) {
			t.Error("the predecessor is gone while the group may still be in creation")
		}
		refused(t, c.create(idOn(t, c.Fleet, "late", 2), OnEnd, a), CodeInvalid) // as behind a group that is gone
		c.advance(time.Minute)
		c.keep()
		if _, err := c.Group(t.Context(), a); !isCode(err, CodeNotFound) || len(c.links()) > 0 {
			t.Errorf("after a minute: %v, %q", err, c.links())
		}
	})
	t.Run("entry taken before the group was created", func(t *testing.T) {
		c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
		a, spec := c.make("a", 0, ""), GroupSpec{ID: idOn(t, c.Fleet, "b", 1), Tenant: "acme", Type: "t"}
		spec.After = a
		if _, err := c.enter(t.Context(), c.shards[1], &spec); err != nil {
			t.Fatal(err)
		}
		c.end(a, Completed)
		c.keep()
		c.drop(a)
		if _, _, err := c.shards[1].CreateGroup(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		c.must(c.create(spec.ID, "", a))
		c.waits(spec.ID, fmt.Sprintf("[{%s }]", a))
		c.advance(2 * time.Second)
		c.keep()
		c.starts(spec.ID)
		c.audit()
	})
	t.Run("group without entry", func(t *testing.T) {
		c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
		a := c.make("a", 0, "")
		b := c.make("b", 1, "", a)
		list := func() (entries []string) {
			_, r, err := c.shards[0].followedBy(t.Context(), "list", a, "0")
			c.must(err)
			for i := range r {
				entries = append(entries, r.string(i))
			}
			return entries
		}
		for _, wait := range []time.Duration{2 * time.Second, 30 * time.Second} {
			if _, _, err := c.shards[0].followedBy(t.Context(), "leave", a, "0", follower{1, b}); err != nil {
				t.Fatal(err)
			}
			c.advance(wait - time.Microsecond)
			c.keep()
			if n := len(list()); n != 0 {
				t.Fatalf("%d entries before %s", n, wait)
			}
			c.advance(time.Microsecond)
			c.keep()
			if got := list(); len(got) != 1 || got[0] != "1 "+b {
				t.Fatalf("after %s: %q", wait, got)
			}
		}
		// Without an entry, the end of the predecessor is found as well.
		_, _, err := c.shards[0].followedBy(t.Context(), "leave", a, "0", follower{1, b})
		c.must(err)
		c.end(a, Completed)
		c.keep()
		c.waits(b, fmt.Sprintf("[{%s }]", a))
		c.advance(30 * time.Second)
		c.keep()
		c.starts(b)
		c.audit()
	})
	t.Run("recorded, entry not removed", func(t *testing.T) {
		c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
		a, other := c.make("a", 0, ""), c.make("other", 2, "")
		b := c.make("b", 1, "", a, other)
		c.end(a, Completed)
		tended, err := c.shards[0].Tend(t.Context(), a)
		c.must(err)
		for range 2 {
			if _, err := c.recordEnd(t.Context(), 0, a, tended.chain.ending, tended.chain.followers, func(int64) bool { return true }); err != nil {
				t.Fatal(err)
			}
		}
		c.audit()
		c.waits(b, fmt.Sprintf("[{%s COMPLETED} {%s }]", a, other))
		if c.drop(a); len(c.links()) != 3 { // what b waits for, and its entry for other
			t.Errorf("%q", c.links())
		}
		c.end(other, Completed)
		c.keep()
		c.starts(b)
	})
}

// faults fails calls of a client, before the server has executed them or after.
type faults struct {
	mu  sync.Mutex
	hit func() (before, after bool) // nil: none
}

func (h *faults) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		before, after := false, false
		if h.hit != nil {
			before, after = h.hit()
		}
		h.mu.Unlock()
		if before {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		err := next(ctx, cmd)
		if after {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

func (h *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *faults) set(hit func() (before, after bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hit = hit
}

// Random chains over shards, of which any call may fail or lose its reply, end as the rule requires.
func TestFleetChains_EndAsRequiredThroughFaults(t *testing.T) {
	client := redistest.Client(t)
	broken := &faults{}
	client.AddHook(broken)
	prefix, run := redistest.Prefix(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		broken.set(nil)
		c := newChains(t, fmt.Sprint(prefix, "-", run), nil, client)
		type link struct {
			id     string
			when   When
			before []int
			ends   Status
		}
		var all []link
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		chance := rapid.IntRange(8, 40).Draw(rt, "chance")
		fail := func() (before, after bool) {
			k := random.IntN(chance)
			return k == 0, k == 1
		}
		persist := func(do func() error) {
			for range 200 {
				err := do()
				if err == nil {
					return
				}
				if !errors.Is(err, ErrStore) {
					rt.Fatal(err)
				}
				c.reachable()
			}
			rt.Fatal("200 calls failed")
		}
		for i := range rapid.IntRange(2, 6).Draw(rt, "groups") {
			l := link{when: rapid.SampledFrom([]When{"", OnSuccess, OnFailure, OnEnd}).Draw(rt, "when"), ends: rapid.SampledFrom([]Status{Completed, Failed, Cancelled}).Draw(rt, "ends")}
			l.id = idOn(t, c.Fleet, fmt.Sprint("g", i, "-"), rapid.IntRange(0, 2).Draw(rt, "shard"))
			if i > 0 {
				l.before = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, min(i, 3), rapid.ID[int]).Draw(rt, "before")
			}
			if len(l.before) == 0 {
				l.when = ""
			}
			c.split[l.id] = rapid.SampledFrom([]int{0, 0, 2, 3}).Draw(rt, "split")
			all = append(all, l)
		}
		broken.set(fail)
		for _, l := range all {
			var after []string
			for _, p := range l.before {
				after = append(after, all[p].id)
			}
			if c.split[l.id] > 0 { // under a lock, which outlasts a lost reply for seconds
				broken.set(nil)
			}
			persist(func() error { return c.create(l.id, l.when, after...) })
			broken.set(fail)
		}
		results := map[int]Status{}
		for i, l := range all {
			completed := true
			for _, p := range l.before {
				completed = completed && results[p] == Completed
			}
			starts := len(l.before) == 0 || l.when == OnEnd || completed == (l.when != OnFailure)
			broken.set(nil)
			for range 40 { // until it starts, or is skipped; housekeeping meets faults
				broken.set(fail)
				c.keep()
				broken.set(nil)
				c.reachable()
				g, err := c.Group(t.Context(), l.id)
				if err != nil {
					rt.Fatal(err)
				}
				if !g.Gated && g.Status != Created {
					break
				}
				c.advance(10 * time.Second)
			}
			if !starts {
				if g, err := c.Group(t.Context(), l.id); err != nil || !g.Skipped {
					rt.Fatalf("%+v of %+v is %s, want skipped; %v", l, all, g.Status, err)
				}
				results[i] = Cancelled
				continue
			}
			if g, err := c.Group(t.Context(), l.id); err != nil || g.Status.Ended() || g.Gated {
				rt.Fatalf("%+v of %+v is %s, gated by %q, %v", l, all, g.Status, g.GatedBy, err)
			}
			for range 3 * min(1, c.split[l.id]) { // the other parts look
				c.advance(2 * time.Second)
				c.keep()
			}
			c.end(l.id, l.ends)
			results[i] = l.ends
			if rapid.Bool().Draw(rt, "delete") {
				broken.set(fail)
				persist(func() error {
					c.keep()
					_, err := c.Delete(t.Context(), l.id, 0)
					if isCode(err, CodeNotFound) || isCode(err, CodeState) {
						return nil // by a call whose reply was lost; or its last job is still being swept
					}
					return err
				})
				broken.set(nil)
			}
		}
		c.keep()
		c.audit()
	})
}

// A group does not wait for a predecessor that its shard has lost: it counts as cancelled, as one that is missing on the group's own shard.
func TestFleetChains_PredecessorIsLost(t *testing.T) {
	var clients []redis.UniversalClient
	for range 3 {
		clients = append(clients, redistest.Server(t).Client())
	}
	c := newChains(t, "wr", nil, clients...)
	a := c.make("a", 1, "")
	success, failure := c.make("success", 0, OnSuccess, a), c.make("failure", 2, OnFailure, a)
	c.must(clients[1].FlushAll(t.Context()).Err())
	c.advance(time.Millisecond)
	// A group of the same id is another one. Waiting for each other, none of the two would ever start.
	c.must(c.create(a, OnEnd, failure))
	c.waits(a, fmt.Sprintf("[{%s }]", failure))
	c.advance(2 * time.Second)
	c.keep()
	c.skipped(success)
	c.starts(failure)
	c.end(failure, Completed)
	c.keep()
	c.starts(a)
	c.audit()
}

// While the shard of a group, or that of its predecessor, is away, nothing is decided, and afterwards it is as if it had not been.
func TestFleetChains_OutlastAShardThatIsAway(t *testing.T) {
	var servers []*redistest.PrivateServer
	var clients []redis.UniversalClient
	for range 3 {
		s := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
		servers, clients = append(servers, s), append(clients, s.Client())
	}
	var c *chains
	// back restarts a server, and waits until its client has noticed.
	back := func(n int) {
		servers[n].Restart()
		for until := time.Now().Add(20 * time.Second); clients[n].Ping(t.Context()).Err() != nil; {
			if time.Now().After(until) {
				t.Fatalf("server %d does not reply", n)
			}
			<-time.After(20 * time.Millisecond)
		}
		c.reachable()
	}
	// Retention is short: a predecessor stays as long as the shards of the groups behind it are away.
	c = newChains(t, "wr", func(s *Settings) { s.KeepJobs, s.KeepGroups, s.KeepDead = time.Second, time.Second, time.Second }, clients...)
	a, b := c.make("a", 0, ""), c.make("b", 0, "")
	afterA, afterB := c.make("after-a", 1, OnFailure, a), c.make("after-b", 1, "", b)
	c.make("lost", 2, OnEnd, a)
	c.end(a, Failed)
	c.end(b, Completed)
	servers[1].Kill()
	servers[2].Kill()
	err := c.create(idOn(t, c.Fleet, "c", 0), "", idOn(t, c.Fleet, "x", 1))
	if !errors.Is(err, ErrStore) {
		t.Fatalf("the shard of a predecessor is away: %v", err)
	}
	c.keep()
	if c.drop(a) {
		t.Fatal("a predecessor is gone before the groups behind it have its end")
	}
	for range 100 { // retention passes many times
		c.advance(time.Hour)
		c.keep()
	}
	c.is(b, Completed)
	back(1)
	servers[0].Kill() // and now the other one
	c.advance(time.Minute)
	c.keep()
	c.waits(afterA, fmt.Sprintf("[{%s }]", a))
	back(0)
	c.advance(5 * time.Second)
	c.keep()
	c.starts(afterA)
	c.starts(afterB)
	if _, err := c.Group(t.Context(), b); !isCode(err, CodeNotFound) {
		t.Errorf("retention of %s has passed, and all groups behind it have its end: %v", b, err)
	}
	// Shard 2 never comes back: after a week nothing waits for it.
	e, entries, err := c.shards[0].followedBy(t.Context(), "list", a, "0")
	if err != nil || e.status == notEnded || len(entries) != 1 {
		t.Fatal(e, entries, err)
	}
	c.advance(7 * 24 * time.Hour)
	c.keep()
	c.advance(time.Minute)
	c.keep()
	for _, n := range []int{0, 1} {
		for _, link := range clients[n].ZRange(t.Context(), c.shards[n].keys[keyLinks], 0, -1).Val() {
			if link[0] == 'r' {
				t.Errorf("shard %d: the entry %q is left", n, link)
			}
		}
	}
	if _, _, err := c.shards[0].followedBy(t.Context(), "list", a, "0"); !isCode(err, CodeNotFound) {
		t.Errorf("the deleted group: %v", err)
	}
}
