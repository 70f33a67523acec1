package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

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
