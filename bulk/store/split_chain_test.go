package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// splitWaiting creates a group of three parts with 30 jobs that waits, sealed.
func (c *chains) splitWaiting(begin string, spec GroupSpec, after ...string) string {
	c.t.Helper()
	spec.ID, spec.Tenant, spec.Type, spec.Split, spec.After = idOn(c.t, c.Fleet, begin, 1), "acme", "t", 3, strings.Join(after, " ")
	_, created, err := c.CreateGroup(c.t.Context(), spec)
	if err != nil || !created {
		c.t.Fatal(created, err)
	}
	_, err = c.AddJobs(c.t.Context(), spec.ID, Chunk{}, numbered(30))
	c.must(err)
	_, err = c.Seal(c.t.Context(), spec.ID)
	c.must(err)
	return spec.ID
}

// starting returns how many jobs of a group start in each shard; they return to it.
func (c *chains) starting(group string) (of [3]int) {
	c.t.Helper()
	for n, s := range c.shards {
		p, err := s.Pull(c.t.Context(), 100, "t")
		c.must(err)
		for _, j := range p.Jobs {
			if j.Group == group {
				of[n]++
			}
			_, err := s.Ack(c.t.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: Returned}})
			c.must(err)
		}
	}
	return of
}

// A split group waits as a whole one: no part starts before its predecessors have ended as required, then all do, and it ends once.
func TestSplit_WaitsForGroups(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	far, near := c.make("far", 0, ""), c.make("near", 1, "")
	id := c.splitWaiting("split", GroupSpec{StopAt: Tolerance{Count: 100}}, far, near)
	c.waits(id, fmt.Sprintf("[{%s } {%s }]", far, near))
	c.end(far, Completed)
	for range 5 {
		c.keep()
		c.advance(3 * time.Second)
	}
	c.waits(id, fmt.Sprintf("[{%s COMPLETED} {%s }]", far, near))
	if of := c.starting(id); of != [3]int{} {
		t.Fatalf("%v jobs start while the group waits", of)
	}
	c.audit()
	c.end(near, Completed)
	c.keep()
	of := c.starting(id)
	if of[0] == 0 || of[1] == 0 || of[2] == 0 || of[0]+of[1]+of[2] != 30 {
		t.Fatalf("%v jobs start in the shards", of)
	}
	c.audit()
	work(t, c.Fleet, nil)
	for range 3 {
		c.keep()
		c.advance(2 * time.Second)
	}
	if g := c.is(id, Completed); g.Succeeded != 30 || g.Total != 30 {
		t.Errorf("%+v", g)
	}
	c.audit()
}

// Where the process was killed that let the first part begin, the housekeeping of each other part finds out within two seconds.
func TestSplit_PartsBeginAfterAHalt(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	a := c.make("a", 0, "")
	id := c.splitWaiting("split", GroupSpec{}, a)
	c.keep()
	c.end(a, Completed)
	c.tend(0, a) // which hands the end over
	if tended, err := c.shards[1].Tend(t.Context(), id); err != nil || !tended.Part || !tended.Reduce {
		t.Fatalf("the step that lets the first part begin names it for Join: %+v, %v", tended, err)
	}
	if of := c.starting(id); of[0]+of[2] != 0 || of[1] == 0 {
		t.Fatalf("%v jobs start in the shards, before the other parts have looked", of)
	}
	for _, n := range []int{0, 2} {
		c.advance(2 * time.Second)
		d, err := c.shards[n].Dispatch(t.Context())
		c.must(err)
		for _, id := range d.Tend {
			c.tend(n, id)
		}
		if of := c.starting(id); of[n] == 0 {
			t.Errorf("%v jobs start in the shards, after part %d has looked", of, n)
		}
	}
	c.audit()
}

func TestSplit_IsSkippedAsAWhole(t *testing.T) {
	for name, row := range map[string]struct {
		when When
		as   Status
	}{"on success": {OnSuccess, Failed}, "on failure": {OnFailure, Completed}} {
		t.Run(name, func(t *testing.T) {
			c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
			a := c.make("a", 2, "")
			id := c.splitWaiting("split", GroupSpec{When: row.when}, a)
			then := c.make("then", 0, OnEnd, id)
			c.end(a, row.as)
			for range 4 {
				c.keep()
				c.advance(2 * time.Second)
			}
			c.skipped(id)
			if g := c.is(id, Cancelled); g.Cancelled != 30 || len(g.Result) == 0 {
				t.Errorf("%d of 30 jobs are cancelled, result %s", g.Cancelled, g.Result)
			}
			c.starts(then)
			c.audit()
		})
	}
}

// What is changed while it waits holds for all parts; and a group whose predecessors have ended starts at once.
func TestSplit_ChangesWhileItWaits(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	a := c.make("a", 0, "")
	cancelled, paused, expired := c.splitWaiting("c", GroupSpec{}, a), c.splitWaiting("p", GroupSpec{}, a), c.splitWaiting("e", GroupSpec{ExpiresAt: time.UnixMicro(c.us).Add(time.Minute)}, a)
	empty := idOn(t, c.Fleet, "n", 2)
	_, _, err := c.CreateGroup(t.Context(), GroupSpec{ID: empty, Tenant: "acme", Type: "t", Split: 3, After: a})
	c.must(err)
	_, err = c.Seal(t.Context(), empty)
	c.must(err)
	_, err = c.Cancel(t.Context(), cancelled)
	c.must(err)
	_, err = c.Patch(t.Context(), paused, Patch{Paused: new(true)})
	c.must(err)
	for range 40 {
		c.keep()
		c.advance(2 * time.Second)
	}
	if g := c.is(cancelled, Cancelled); g.Cancelled != 30 || g.Skipped {
		t.Errorf("%+v", g)
	}
	if g := c.is(expired, Failed); g.Dead != 30 {
		t.Errorf("%+v", g)
	}
	c.is(empty, Dispatched)
	c.end(a, Completed)
	for range 3 {
		c.keep()
		c.advance(2 * time.Second)
	}
	c.is(empty, Completed)
	if of := c.starting(paused); of != [3]int{} {
		t.Errorf("%v jobs of a paused group start", of)
	}
	_, err = c.Patch(t.Context(), paused, Patch{Paused: new(false)})
	c.must(err)
	if of := c.starting(paused); of[0]+of[1]+of[2] != 30 {
		t.Errorf("%v jobs start in the shards after the pause", of)
	}
	late := c.splitWaiting("late", GroupSpec{}, a)
	if of := c.starting(late); of[0]+of[1]+of[2] != 30 {
		t.Errorf("%v jobs start in the shards, although the predecessor has ended", of)
	}
	c.audit()
}

// A refused group leaves nothing: its id can be used again with another spec.
func TestSplit_RefusedGroupLeavesNoParts(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	far, near := c.make("far", 0, ""), c.make("near", 1, "")
	c.end(far, Completed)
	c.end(near, Completed)
	id := idOn(t, c.Fleet, "split", 1)
	for name, spec := range map[string]GroupSpec{
		"could never start":   {When: OnFailure, After: far + " " + near},
		"unknown predecessor": {After: "none-such"},
		"unknown near one":    {After: idOn(t, c.Fleet, "none", 1)},
	} {
		spec.ID, spec.Tenant, spec.Type, spec.Split = id, "acme", "t", 3
		if _, _, err := c.CreateGroup(t.Context(), spec); err == nil {
			t.Fatalf("%s: accepted", name)
		}
		for n, s := range c.shards {
			if g, err := s.Group(t.Context(), id); !isCode(err, CodeNotFound) {
				t.Errorf("%s: shard %d has %+v, %v", name, n, g, err)
			}
		}
	}
	c.splitWaiting("split", GroupSpec{}, far)
	c.audit()
}

// The first part decides whether the others start. If it is lost, a sealed part that waits is cancelled.
func TestSplit_WaitingPartWithoutTheFirstIsCancelled(t *testing.T) {
	c := newChains(t, redistest.Prefix(t), nil, redistest.Client(t))
	a := c.make("a", 0, "")
	id := c.splitWaiting("split", GroupSpec{}, a)
	c.must(c.shards[1].o.Client.Del(t.Context(), c.shards[1].keys[:]...).Err())
	c.must(c.Prepare(t.Context()))
	c.end(a, Completed)
	for range 4 {
		c.advance(2 * time.Second)
		c.keep()
	}
	for _, n := range []int{0, 2} {
		if g, err := c.shards[n].Group(t.Context(), id); err != nil || g.Status != Cancelled {
			t.Errorf("shard %d has %+v, %v", n, g, err)
		}
	}
}
