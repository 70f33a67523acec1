package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// chains is a fleet of three shards with a clock.
type chains struct {
	*Fleet
	*clock
	t     testing.TB
	split map[string]int // into how many parts create splits a group
}

func newChains(t testing.TB, prefix string, change func(*Settings), clients ...redis.UniversalClient) *chains {
	t.Helper()
	c := &chains{clock: &clock{us: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC).UnixMicro()}, t: t, split: map[string]int{}}
	set := Defaults()
	if change != nil {
		change(&set)
	}
	f, err := NewFleet(Options{Shards: 3, Prefix: prefix, Timeout: 2 * time.Second, Settings: set, Log: slog.New(slog.DiscardHandler), Now: c.now}, clients...)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.Fleet = f
	for _, s := range f.shards { // a new shard has no burst yet
		if _, err := s.Pull(context.Background(), 1, "t"); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(time.Second)
	return c
}

// make creates a group with a job and seals it. It returns the id, which leads to the shard.
func (c *chains) make(begin string, shard int, when When, after ...string) string {
	c.t.Helper()
	id := idOn(c.t, c.Fleet, begin, shard)
	c.must(c.create(id, when, after...))
	return id
}

// create is make with an id, and returns the first error. It may be repeated.
func (c *chains) create(id string, when When, after ...string) error {
	spec := GroupSpec{ID: id, Tenant: "acme", Type: "t", After: strings.Join(after, " "), When: when, Split: c.split[id]}
	if _, _, err := c.CreateGroup(context.Background(), spec); err != nil {
		return err
	}
	jobs := []Job{{ID: "j", Payload: []byte("1")}}
	if spec.Split > 1 {
		jobs = numbered(4 * spec.Split)
	}
	if _, err := c.AddJobs(context.Background(), id, Chunk{}, jobs); err != nil && !isCode(err, CodeSealed) {
		return err
	}
	_, err := c.Seal(context.Background(), id)
	if isCode(err, CodeState) {
		return nil // it was cancelled because of its predecessors
	}
	return err
}

func (c *chains) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// end ends a group whose job can start.
func (c *chains) end(id string, as Status) {
	c.t.Helper()
	if as == Cancelled {
		_, err := c.Cancel(context.Background(), id)
		c.must(err)
		return
	}
	p, err := c.parts(context.Background(), id)
	c.must(err)
	for _, s := range p {
		c.endOn(s, id, as)
	}
	if len(p) > 1 {
		c.keep()
	}
	c.is(id, as)
}

func (c *chains) endOn(s *Store, id string, as Status) {
	c.t.Helper()
	var acks []Ack
	p, err := s.Pull(context.Background(), 100, "t")
	c.must(err)
	for _, j := range p.Jobs {
		verdict := Returned
		if j.Group == id {
			verdict = map[Status]Verdict{Completed: Done, Failed: Rejected}[as]
		}
		acks = append(acks, Ack{Key: j.Key, Fence: j.Fence, Verdict: verdict})
	}
	if len(acks) == 0 {
		c.t.Fatalf("no job of %s starts", id)
	}
	_, err = s.Ack(context.Background(), acks)
	c.must(err)
}

// keep does rounds of housekeeping, without a step of the clock; while shards are away, that of the others.
func (c *chains) keep() {
	c.t.Helper()
	for range 4 {
		for n, s := range c.shards {
			d, err := s.Dispatch(context.Background())
			if err != nil && !errors.Is(err, ErrStore) {
				c.t.Fatal(err)
			}
			for _, id := range d.Tend {
				c.tend(n, id)
			}
		}
	}
}

// tend does all housekeeping of a group.
func (c *chains) tend(n int, id string) {
	c.t.Helper()
	for again := true; again; {
		tended, err := c.shards[n].Tend(context.Background(), id)
		if err == nil && tended.Part && tended.Reduce {
			_, err = c.Join(context.Background(), n, id)
		}
		if err == nil && tended.Chained {
			err = c.Chain(context.Background(), n, id, tended)
		}
		if err != nil && !errors.Is(err, ErrStore) {
			c.t.Fatal(err)
		}
		again = tended.Again && err == nil
	}
}

func (c *chains) is(id string, want Status) Group {
	c.t.Helper()
	g, err := c.Group(context.Background(), id)
	if err != nil || g.Status != want {
		c.t.Fatalf("%s is %s, want %s; %v", id, g.Status, want, err)
	}
	return g
}

// waits checks that a group waits, and for which predecessors.
func (c *chains) waits(id string, predecessors string) {
	c.t.Helper()
	if g := c.is(id, Dispatched); g.GatedBy != GatedByAfter || fmt.Sprint(g.Predecessors) != predecessors {
		c.t.Fatalf("%s: gated by %q, waits for %v, want %s", id, g.GatedBy, g.Predecessors, predecessors)
	}
}

// starts checks that a group waits no more.
func (c *chains) starts(id string) {
	c.t.Helper()
	if g := c.is(id, Dispatched); g.Gated {
		c.t.Fatalf("%s is gated by %s: %v", id, g.GatedBy, g.Predecessors)
	}
}

// skipped checks that a group was cancelled because of its predecessors.
func (c *chains) skipped(id string) {
	c.t.Helper()
	if g := c.is(id, Cancelled); !g.Skipped {
		c.t.Fatalf("%s was not skipped", id)
	}
}

// drop deletes a group.
func (c *chains) drop(id string) (gone bool) {
	c.t.Helper()
	gone, err := c.Delete(context.Background(), id, 50*time.Millisecond)
	c.must(err)
	return gone
}

// reachable makes the fleet call shards again that did not reply, as after a second.
func (c *chains) reachable() {
	c.unreached.mu.Lock()
	defer c.unreached.mu.Unlock()
	c.unreached.since = nil
}

// links returns the entries of all shards.
func (c *chains) links() (all []string) {
	for n, s := range c.shards {
		for _, link := range s.o.Client.ZRange(context.Background(), s.keys[keyLinks], 0, -1).Val() {
			all = append(all, fmt.Sprint(n, " ", link))
		}
	}
	return all
}

func (c *chains) audit() {
	c.t.Helper()
	broken, err := c.Audit(context.Background())
	if err != nil || len(broken) > 0 {
		c.t.Fatal(broken, err)
	}
}

// Chains over shards decide as those of one shard do.
func TestFleetChains_StartAsWhenRequires(t *testing.T) {
	for _, row := range chainRows {
		for shard := range 3 { // that of a, that of b, and another
			t.Run(fmt.Sprint(row.when, row.a, row.b, shard), func(t *testing.T) {
				c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
				a, b := c.make("a", 0, ""), c.make("b", 1, "")
				id := c.make("c", shard, row.when, a, b)
				c.waits(id, fmt.Sprintf("[{%s } {%s }]", a, b))
				c.end(a, row.a)
				c.keep()
				c.waits(id, fmt.Sprintf("[{%s %s} {%s }]", a, row.a, b))
				c.audit()
				c.end(b, row.b)
				c.keep()
				if row.want == Cancelled {
					c.skipped(id)
				} else {
					c.starts(id)
					c.end(id, Completed)
				}
				c.keep()
				c.audit()
				for _, id := range []string{a, b, id} {
					if !c.drop(id) {
						t.Errorf("%s is not deleted", id)
					}
				}
				if left := c.links(); len(left) > 0 {
					t.Errorf("entries are left: %q", left)
				}
			})
		}
	}
}

// Predecessors that have ended do not hold a group, and one that could never start is refused and leaves nothing.
func TestFleetChains_PredecessorsHaveEnded(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	a, open := c.make("a", 0, ""), c.make("open", 1, "")
	c.end(a, Failed)
	c.keep()
	c.starts(c.make("b", 2, OnFailure, a))
	refused(t, c.create(idOn(t, c.Fleet, "never", 2), OnSuccess, a), CodeState)
	c.waits(c.make("d", 2, OnEnd, a, open), fmt.Sprintf("[{%s FAILED} {%s }]", a, open))
	// A refused creation leaves no entry, whatever the reason.
	before := c.links()
	for _, spec := range []GroupSpec{
		{After: open + " nobody"},
		{After: open, ExpiresAt: after(c.us, -time.Minute)},
	} {
		spec.ID, spec.Tenant, spec.Type = idOn(t, c.Fleet, "refused", 2), "acme", "t"
		_, _, err := c.CreateGroup(t.Context(), spec)
		refused(t, err, CodeInvalid)
	}
	named := GroupSpec{ID: "first", Tenant: "acme", Type: "t", Unique: Unique{"k", time.Hour}}
	if _, created, err := c.CreateGroup(t.Context(), named); err != nil || !created {
		t.Fatal(created, err)
	}
	named.ID, named.After = idOn(t, c.Fleet, "second", 2), open
	if g, created, err := c.CreateGroup(t.Context(), named); err != nil || created || !g.Duplicate {
		t.Fatal(g.ID, created, err)
	}
	if left := c.links(); fmt.Sprint(left) != fmt.Sprint(before) {
		t.Errorf("entries are left: %q, before: %q", left, before)
	}
	// The same request again is the same group, also once its predecessor is gone.
	if !c.drop(a) {
		t.Fatal("not deleted")
	}
	for range 2 {
		c.must(c.create(idOn(t, c.Fleet, "b", 2), OnFailure, a))
	}
	refused(t, c.create(idOn(t, c.Fleet, "late", 2), OnEnd, a), CodeInvalid)
	c.audit()
}

// A split group ends for the groups that wait for it when all its parts have, also if it is cancelled.
func TestFleetChains_WaitForSplitGroups(t *testing.T) {
	for _, as := range []Status{Completed, Cancelled} {
		t.Run(string(as), func(t *testing.T) {
			c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
			split := splitGroup(t, c.Fleet, GroupSpec{ID: idOn(t, c.Fleet, "split", 0), Split: 3}, 30)
			var success, failure []string
			for n := range 3 {
				success = append(success, c.make(fmt.Sprint("success", n), n, OnSuccess, split.ID))
				failure = append(failure, c.make(fmt.Sprint("failure", n), n, OnFailure, split.ID))
			}
			jobs := map[int][]Leased{}
			for n, s := range c.shards {
				jobs[n] = pullSome(t, s, 3)
			}
			if as == Cancelled {
				_, err := c.Cancel(t.Context(), split.ID)
				c.must(err)
			} else {
				_, err := c.Seal(t.Context(), split.ID)
				c.must(err)
			}
			end := func(n int) {
				for s := c.shards[n]; len(jobs[n]) > 0; {
					ack(t, s, Done, jobs[n]...)
					p, err := s.Pull(t.Context(), 50, "t")
					c.must(err)
					jobs[n] = p.Jobs
				}
			}
			for n := range 3 {
				for _, id := range append(success, failure...) {
					c.waits(id, fmt.Sprintf("[{%s }]", split.ID))
				}
				end(n)
				c.keep()
				c.advance(time.Second)
				c.keep()
			}
			c.is(split.ID, as)
			for n := range 3 {
				if as == Completed {
					c.starts(success[n])
					c.skipped(failure[n])
				} else {
					c.skipped(success[n])
					c.starts(failure[n])
				}
			}
			c.audit()
		})
	}
}

// A group that waits can be cancelled and can expire; a predecessor's end does not revive it.
func TestFleetChains_CancelAndExpiryHold(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	a := c.make("a", 0, "")
	cancelled := c.make("cancelled", 1, OnEnd, a)
	expiring := GroupSpec{ID: idOn(t, c.Fleet, "expiring", 2), Tenant: "acme", Type: "t", After: a, When: OnEnd, ExpiresAt: after(c.us, time.Minute)}
	if _, _, err := c.CreateGroup(t.Context(), expiring); err != nil {
		t.Fatal(err)
	}
	last := c.make("last", 0, OnFailure, cancelled, expiring.ID)
	c.end(cancelled, Cancelled)
	c.keep()
	c.waits(last, fmt.Sprintf("[{%s CANCELLED} {%s }]", cancelled, expiring.ID))
	c.advance(time.Minute)
	c.keep()
	c.is(expiring.ID, Completed) // it had no job
	c.starts(last)
	c.end(a, Completed)
	c.keep()
	if g := c.is(cancelled, Cancelled); g.Skipped {
		t.Error("the end of its predecessor has skipped a cancelled group")
	}
	c.audit()
}

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

// At most a hundred groups wait for one, over all shards; those that wait no more do not count.
func TestFleetChains_AreBounded(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	a := c.make("a", 0, "")
	var waiting []string
	for i := range 100 {
		waiting = append(waiting, c.make(fmt.Sprintf("w%d-", i), i%3, "", a))
	}
	for n := range 3 {
		refused(t, c.create(idOn(t, c.Fleet, "more", n), "", a), CodeInvalid)
	}
	for n := range 3 {
		c.end(waiting[n], Cancelled)
		c.keep()
		c.make("again", n, "", a)
		refused(t, c.create(idOn(t, c.Fleet, "more", n), "", a), CodeInvalid)
	}
	c.audit()
	c.end(a, Completed)
	for range 3 {
		c.keep()
	}
	for _, id := range waiting[3:] {
		c.starts(id)
	}
	c.audit()
}

// A process of an earlier version would take a predecessor on another shard for one that is missing, so there are no such chains beside it.
func TestFleetChains_NeedEveryProcess(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	a := c.make("a", 0, "")
	old := ProcessStatus{Host: "old-host", Shards: 3}
	for _, s := range c.shards {
		if _, err := s.Keep(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
	err := c.create(idOn(t, c.Fleet, "b", 1), "", a)
	if refused(t, err, CodeState); !strings.Contains(err.Error(), "old-host") || !strings.Contains(err.Error(), "upgrade") {
		t.Error(err)
	}
	c.waits(c.make("b", 0, "", a), fmt.Sprintf("[{%s }]", a)) // on one shard nothing changes
	old.Chains = true
	for _, s := range c.shards {
		if _, err := s.Keep(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
	c.make("b", 1, "", a)
}
