package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	. "github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// crowd drives several processes over one store, and the model beside them.
type crowd struct {
	t       *rapid.T
	ctx     context.Context
	now     int64
	stores  []*Store
	m       *Model
	held    []Leased // by whichever process
	lost    []Leased // by processes that crashed, or whose answer got lost
	uneven  bool     // jobs of different cost
	rerate  bool     // rates change
	pools   bool     // the first process runs webhooks only
	classic bool     // the pipeline that refuses jobs one by one, and does not say which
	starts  map[string]*starts
	serial  int
	turn    int
	pulls   int                       // in the end
	reduced map[string]map[string]int // group → status → outcomes, as the reducers saw them
}

// spread computes the spread of lua/queue_dispatch.lua.
func spread(fence int64) float64 { return float64(fence%10007*7919%10007) / 10007 }

func newCrowd(t *rapid.T, client redis.UniversalClient, prefix string, classic bool) *crowd {
	set := Defaults()
	set.Global = rapid.SampledFrom([]float64{5, 40, 1000}).Draw(t, "global")
	set.PerTenant = rapid.SampledFrom([]float64{0, 0, 3, 20.5}).Draw(t, "per_tenant")
	set.Burst = rapid.SampledFrom([]float64{0, 0, 7}).Draw(t, "burst")
	set.Limiter = rapid.SampledFrom([]string{"gcra", "gcra", "fixed_window"}).Draw(t, "limiter")
	set.Window = rapid.SampledFrom([]time.Duration{time.Second, time.Second, 7 * time.Second, 2500 * time.Millisecond}).Draw(t, "window")
	set.Policy = rapid.SampledFrom([]string{"fair", "fair", "score"}).Draw(t, "policy")
	set.ByStarts = rapid.IntRange(0, 3).Draw(t, "by_starts") == 0
	set.Strict = rapid.Bool().Draw(t, "strict")
	set.Congestion = rapid.IntRange(0, 3).Draw(t, "congestion") > 0
	set.BaseBackoff = rapid.SampledFrom([]time.Duration{250 * time.Millisecond, time.Second}).Draw(t, "base_backoff")
	set.MaxBackoff, set.Lease = 20*time.Second, 5*time.Second
	set.MaxCrashes = int64(rapid.IntRange(1, 3).Draw(t, "max_crashes"))
	set.MaxAge = rapid.SampledFrom([]time.Duration{time.Hour, 10 * time.Second}).Draw(t, "max_age")
	set.PendingPerTenant = rapid.SampledFrom([]int64{0, 0, 30}).Draw(t, "pending_per_tenant")
	if set.Gating = !classic; classic {
		set.MaxAge = time.Hour // who is refused for too long is not known here
	}
	set.Types = map[string]TypeLimit{}
	for _, kind := range rapid.SampledFrom([][]string{nil, nil, {"email"}, {"webhook", "email"}}).Draw(t, "limited types") {
		set.Types[kind] = TypeLimit{
			Rate:        rapid.SampledFrom([]float64{0, 2, 30}).Draw(t, "rate of "+kind),
			Concurrency: rapid.SampledFrom([]int64{0, 1, 3}).Draw(t, "concurrency of "+kind),
			Batch:       rapid.SampledFrom([]int64{0, 0, 2}).Draw(t, "batch of "+kind),
		}
	}
	c := &crowd{
		t: t, classic: classic, ctx: context.Background(), now: 1_780_000_000_000_000, uneven: rapid.IntRange(0, 3).Draw(t, "uneven") == 0,
		rerate: rapid.IntRange(0, 2).Draw(t, "rerate") == 0, reduced: map[string]map[string]int{}, starts: map[string]*starts{},
	}
	c.rated("", set.Global, set.Burst)
	for range 3 {
		s, err := New(Options{Client: client, Prefix: prefix, Timeout: 10 * time.Second, Settings: set, Log: slog.New(slog.DiscardHandler), Now: c.clock})
		if err != nil {
			t.Fatal(err)
		}
		s.Old() // it has been there for ever: what a process that begins does is tested by itself
		c.stores = append(c.stores, s)
	}
	c.m = newModel(set, c.clock, spread)
	c.m.Rerated = c.rerate
	c.pools = rapid.IntRange(0, 3).Draw(t, "pools") == 0
	c.m.Pools = c.pools
	return c
}

func (c *crowd) clock() int64 { return c.now }

// any returns one of the processes.
func (c *crowd) any() *Store {
	if c.turn > 0 { // at the end they take turns
		c.turn++
		return c.stores[c.turn%len(c.stores)]
	}
	return c.stores[rapid.IntRange(0, len(c.stores)-1).Draw(c.t, "process")]
}

// upTo draws a number from 1 to n; at the end it returns n.
func (c *crowd) upTo(n int) int {
	if c.turn > 0 {
		return n
	}
	return rapid.IntRange(1, n).Draw(c.t, "n")
}

func (c *crowd) group() string {
	ids := c.m.Groups()
	if len(ids) == 0 {
		c.t.Skip("there is no group")
	}
	return rapid.SampledFrom(ids).Draw(c.t, "group")
}

// answer returns the result of a call as text: the kind of the error, or the value.
func (c *crowd) answer(v any, err error) string {
	var r *Refusal
	var done *ChunkDone
	switch {
	case errors.As(err, &r):
		return string(r.Code)
	case errors.As(err, &done):
		return "done: " + string(done.Answer)
	case err != nil:
		c.t.Fatal(err)
	}
	return fmt.Sprintf("%+v", v)
}

func (c *crowd) equal(what, have, want string) {
	c.t.Helper()
	if have != want {
		c.t.Fatalf("%s:\nthe store says %s\nthe model says %s", what, have, want)
	}
}

func shown(g Group) string {
	return fmt.Sprintf("%s %s sealed %t paused %t stopped %t epoch %d: total %d, pending %d, ready %d, non-ready %d, in flight %d, succeeded %d, failed %d, "+
		"dead %d, cancelled %d, redriven %d, throttles %d, reduced %d; weight %v rate %v concurrency %d level %s start %d expires %d; created %d sealed %d started %d finished %d touched %d; %s",
		g.ID, g.Status, g.Sealed, g.Paused, g.Stopped, g.Epoch, g.Total, g.Pending, g.Ready, g.NonReady, g.InFlight, g.Succeeded, g.Failed,
		g.Dead, g.Cancelled, g.Redriven, g.Throttles, g.Reduced, g.Weight, g.Rate, g.Concurrency, g.Level, g.StartAt.Unix(), g.ExpiresAt.Unix(),
		g.CreatedAt.UnixMicro(), g.SealedAt.UnixMicro(), g.StartedAt.UnixMicro(), g.FinishedAt.UnixMicro(), g.LastAddedAt.UnixMicro(), g.Result)
}

// shown returns the part of a group that has to be equal. In the classic pipeline it is not known which jobs were refused.
func (c *crowd) shown(g Group) string {
	if c.classic {
		g.Pending, g.Ready, g.NonReady, g.Throttles = g.Pending+g.Ready+g.NonReady, 0, 0, 0
	}
	return shown(g)
}

func (c *crowd) compare() {
	for _, id := range c.m.Groups() {
		have, err := c.stores[0].Group(c.ctx, id)
		want, refused := c.m.Group(c.ctx, id)
		c.equal("group "+id, c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
	}
	if c.classic {
		return
	}
	for _, name := range c.m.Tenants() {
		have, err := c.stores[0].Congestion(c.ctx, name)
		if err != nil {
			c.t.Fatal(err)
		}
		want := c.m.Tenant(name)
		have[0].At, have[0].AvgThrottles, want.AvgThrottles = time.Time{}, tidy(have[0].AvgThrottles), tidy(want.AvgThrottles)
		c.equal("tenant "+name, fmt.Sprintf("%+v", have[0]), fmt.Sprintf("%+v", want))
	}
}

func tidy(f float64) float64 { return float64(int64(f*1e4+0.5)) / 1e4 }

func (c *crowd) audit() {
	if broken, err := c.stores[0].Audit(c.ctx); err != nil || len(broken) > 0 {
		c.t.Fatalf("audit: %v, %v", broken, err)
	}
}

// drain runs all jobs to their end. It fails the test if a job is lost, or if a process waits for an event that never comes.
func (c *crowd) drain() {
	c.turn = 1
	for _, id := range c.m.Groups() {
		if c.m.Deleted(id) {
			continue
		}
		for key := range 6 { // broken chunks are sent again
			name := fmt.Sprintf("c%d", key)
			if g, _ := c.m.Group(c.ctx, id); !g.Sealed && !g.Status.Ended() {
				c.put(id, Chunk{Key: name, Last: true, Answer: []byte("answer")}, nil)
			}
		}
		if g, _ := c.m.Group(c.ctx, id); !g.Status.Ended() {
			c.seal(id)
			if g, _ := c.m.Group(c.ctx, id); g.Status.Ended() {
				continue
			}
			c.resume(id)
		}
	}
	for range 5_000 {
		next := c.dispatch()
		if c.finished() {
			return
		}
		p := c.pullSome(7)
		var acks []Ack
		for _, l := range append(c.held, p.Jobs...) {
			acks = append(acks, Ack{Key: l.Key, Fence: l.Fence, Verdict: Done, Result: []byte(`{"ok":1}`)})
		}
		c.held = nil
		want, _ := c.m.Ack(c.ctx, acks)
		if have, err := c.any().Ack(c.ctx, acks); len(acks) > 0 {
			c.equal("ack", c.answer(have, err), fmt.Sprintf("%+v", want))
			continue
		}
		for _, id := range c.m.Groups() { // a job that died since has stopped its group
			if g, _ := c.m.Group(c.ctx, id); g.Stopped && !g.Status.Ended() {
				c.resume(id)
			}
		}
		if !p.More {
			wait := time.Second // housekeeping has no other clock
			for _, d := range []time.Duration{next, p.Next} {
				if d > 0 {
					wait = min(wait, d)
				}
			}
			c.now += wait.Microseconds()
		}
	}
	c.compare()
	for _, id := range c.m.Groups() {
		if g, _ := c.m.Group(c.ctx, id); !g.Status.Ended() || g.Reduced != g.Total {
			c.t.Logf("not at its end: %s", c.shown(g))
		}
	}
	c.t.Fatal("it does not come to an end")
}

func (c *crowd) resume(id string) {
	_, _ = c.m.Patch(c.ctx, id, Patch{Paused: new(false)})
	if _, err := c.any().Patch(c.ctx, id, Patch{Paused: new(false)}); err != nil {
		c.t.Fatal(err)
	}
}

// kept compares which outcomes still exist.
func (c *crowd) kept() {
	for _, id := range c.m.Groups() {
		if c.tend(id).Removed || c.m.Deleted(id) {
			continue
		}
		g, err := c.any().Group(c.ctx, id)
		want, _ := c.m.Group(c.ctx, id)
		c.equal("outcomes gone of group "+id, c.answer(g.Gone, err), fmt.Sprint(want.Gone))
		var ids []string
		for p, err := c.any().Results(c.ctx, id, "", 7); ; p, err = c.any().Results(c.ctx, id, p.Next, 7) {
			if err != nil {
				c.t.Fatal(err)
			}
			if len(p.Outcomes) == 0 {
				break
			}
			for _, o := range p.Outcomes {
				ids = append(ids, o.ID)
			}
		}
		slices.Sort(ids) // the model sweeps a cancelled group in another order
		kept := c.m.Kept(id)
		slices.Sort(kept)
		c.equal("outcomes kept of group "+id, fmt.Sprint(ids), fmt.Sprint(kept))
	}
}

// finished reports whether every group has ended and is reduced.
func (c *crowd) finished() bool {
	for _, id := range c.m.Groups() {
		if g, _ := c.m.Group(c.ctx, id); !c.m.Deleted(id) && (!g.Status.Ended() || g.Reduced != g.Total) {
			return false
		}
	}
	return true
}

func checkStore(t *rapid.T, client redis.UniversalClient, prefix string, classic bool) {
	c := newCrowd(t, client, prefix, classic)
	c.create()
	t.Repeat(map[string]func(*rapid.T){
		"":           func(*rapid.T) { c.ratesInForce(); c.compare() },
		"create":     func(*rapid.T) { c.create() },
		"add":        func(*rapid.T) { c.add() },
		"add 2":      func(*rapid.T) { c.add() },
		"seal":       func(*rapid.T) { c.seal(c.group()) },
		"patch":      func(*rapid.T) { c.patch() },
		"cancel job": func(*rapid.T) { c.cancelJob() },
		"retry job": func(t *rapid.T) {
			if c.classic { // where jobs are in it is not known
				t.Skip()
			}
			c.retryJob()
		},
		"cancel": func(t *rapid.T) {
			if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
				t.Skip()
			}
			c.cancel()
		},
		"delete": func(*rapid.T) { c.delete() },
		"pull":   func(*rapid.T) { c.pull() },
		"pull 2": func(*rapid.T) { c.pull() },
		"ack":    func(*rapid.T) { c.ack() },
		"ack 2":  func(*rapid.T) { c.ack() },
		"next":   func(*rapid.T) { c.next() },
		"renew":  func(*rapid.T) { c.renew() },
		"crash":  func(*rapid.T) { c.crash() },
		"soon":   func(t *rapid.T) { c.now += int64(rapid.IntRange(1, 700_000).Draw(t, "µs")) },
		"later": func(t *rapid.T) { // beside a dispatcher that is alive
			for range rapid.IntRange(1, 12).Draw(t, "rounds") {
				c.now += int64(rapid.IntRange(1, 1_600_000).Draw(t, "µs"))
				c.dispatch()
			}
		},
		"gap":      func(t *rapid.T) { c.now += int64(rapid.IntRange(1_000_000, 12_000_000).Draw(t, "µs")); c.dispatch() },
		"dispatch": func(*rapid.T) { c.dispatch() },
		"redrive":  func(*rapid.T) { c.redrive() },
		"limits":   func(*rapid.T) { c.limits() },
		"tenant":   func(*rapid.T) { c.tenant() },
		"audit":    func(*rapid.T) { c.audit() },
	})
	c.drain()
	c.compare()
	c.kept()
	c.audit()
}

// TestStore_AgreesWithModel drives the store and its model through the same random operations of several processes: every reply must
// equal that of the model, the model must allow every start, and at the end no job may be lost.
func TestStore_AgreesWithModel(t *testing.T) {
	t.Run("server", func(t *testing.T) { t.Parallel(); model(t, redistest.Client(t), false) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); model(t, redistest.Cluster(t), false) })
	t.Run("classic", func(t *testing.T) { t.Parallel(); model(t, redistest.Client(t), true) })
}

func model(t *testing.T, client redis.UniversalClient, classic bool) {
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		checkStore(rt, client, fmt.Sprintf("%s-%d", redistest.Prefix(t), run), classic)
	})
}
