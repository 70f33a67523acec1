package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
