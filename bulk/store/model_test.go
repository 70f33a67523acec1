package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/bulktest"
	. "github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// crowd drives several processes over one store, and the model beside them.
type crowd struct {
	t       *rapid.T
	ctx     context.Context
	now     int64
	stores  []*Store
	m       *bulktest.Model
	held    []Leased // by whichever process
	lost    []Leased // by processes that crashed, or whose answer got lost
	uneven  bool     // jobs of different cost
	rerate  bool     // rates change
	classic bool     // the pipeline that refuses jobs one by one, and does not say which
	starts  map[string]*starts
	serial  int
	turn    int
	reduced map[string]map[string]int // group → status → outcomes, as the reducers saw them
}

// spread is lua/lib/bulkjobs.lua's.
func spread(fence int64) float64 { return float64(fence*7919%10007) / 10007 }

func newCrowd(t *rapid.T, client redis.UniversalClient, prefix string, classic bool) *crowd {
	set := Defaults()
	set.Global = rapid.SampledFrom([]float64{5, 40, 1000}).Draw(t, "global")
	set.PerTenant = rapid.SampledFrom([]float64{0, 0, 3, 20.5}).Draw(t, "per_tenant")
	set.Burst = rapid.SampledFrom([]float64{0, 0, 7}).Draw(t, "burst")
	set.Limiter = rapid.SampledFrom([]string{"gcra", "gcra", "fixed_window"}).Draw(t, "limiter")
	set.Policy = rapid.SampledFrom([]string{"fair", "fair", "score"}).Draw(t, "policy")
	set.Strict = rapid.Bool().Draw(t, "strict")
	set.Congestion = rapid.IntRange(0, 3).Draw(t, "congestion") > 0
	set.BaseBackoff = rapid.SampledFrom([]time.Duration{250 * time.Millisecond, time.Second}).Draw(t, "base_backoff")
	set.MaxBackoff, set.Lease = 20*time.Second, 5*time.Second
	set.MaxRetries, set.MaxCrashes = int64(rapid.IntRange(0, 2).Draw(t, "max_retries")), int64(rapid.IntRange(1, 3).Draw(t, "max_crashes"))
	set.MaxAge = rapid.SampledFrom([]time.Duration{time.Hour, 10 * time.Second}).Draw(t, "max_age")
	set.PendingPerTenant = rapid.SampledFrom([]int64{0, 0, 30}).Draw(t, "pending_per_tenant")
	if set.Gating = !classic; classic {
		set.MaxAge = time.Hour // who is refused for too long is not known here
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
		c.stores = append(c.stores, s)
	}
	c.m = bulktest.New(set, c.clock, spread)
	c.m.Rerated = c.rerate
	return c
}

func (c *crowd) clock() int64 { return c.now }

// any is one of the processes.
func (c *crowd) any() *Store {
	if c.turn > 0 { // at the end they take turns
		c.turn++
		return c.stores[c.turn%len(c.stores)]
	}
	return c.stores[rapid.IntRange(0, len(c.stores)-1).Draw(c.t, "process")]
}

// upTo is a number from 1 to n, n at the end.
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

// answer is what a call said, as text: the error's sort, or the value.
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
	return fmt.Sprintf("%s %s sealed %t paused %t epoch %d: total %d, pending %d, ready %d, non-ready %d, in flight %d, succeeded %d, failed %d, "+
		"dead %d, cancelled %d, redriven %d, throttles %d, reduced %d; weight %v rate %v concurrency %d level %s; created %d sealed %d started %d finished %d touched %d; %s",
		g.ID, g.Status, g.Sealed, g.Paused, g.Epoch, g.Total, g.Pending, g.Ready, g.NonReady, g.InFlight, g.Succeeded, g.Failed,
		g.Dead, g.Cancelled, g.Redriven, g.Throttles, g.Reduced, g.Weight, g.Rate, g.Concurrency, g.Level,
		g.CreatedAt.UnixMicro(), g.SealedAt.UnixMicro(), g.StartedAt.UnixMicro(), g.FinishedAt.UnixMicro(), g.LastAddedAt.UnixMicro(), g.Result)
}

// shown is what of a group has to be equal. In the classic pipeline it is not known which jobs were refused.
func (c *crowd) shown(g Group) string {
	if c.classic {
		g.Pending, g.Ready, g.NonReady, g.Throttles = g.Pending+g.Ready+g.NonReady, 0, 0, 0
	}
	return shown(g)
}

func (c *crowd) compare() {
	for _, id := range c.m.Groups() {
		have, err := c.stores[0].Group(c.ctx, id)
		want, _ := c.m.Group(c.ctx, id)
		c.equal("group "+id, c.answer(c.shown(have), err), c.shown(want))
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

func (c *crowd) create() {
	c.serial++
	spec := GroupSpec{
		ID: fmt.Sprintf("g%d", c.serial), Tenant: rapid.SampledFrom([]string{"acme", "beta", "acme-2"}).Draw(c.t, "tenant"), Type: "webhook",
		Level:       rapid.SampledFrom([]Level{High, Normal, Low}).Draw(c.t, "level"),
		Weight:      rapid.SampledFrom([]float64{0.01, 1, 3.5}).Draw(c.t, "weight"),
		Rate:        rapid.SampledFrom([]float64{0, 0, 2.5, 20}).Draw(c.t, "rate"),
		Concurrency: rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(c.t, "concurrency"),
		StartSealed: rapid.IntRange(0, 3).Draw(c.t, "start") == 0,
		Tolerance:   Tolerance{Count: int64(rapid.IntRange(0, 2).Draw(c.t, "tolerance"))},
	}
	for range rapid.IntRange(1, 2).Draw(c.t, "times") {
		have, created, err := c.any().CreateGroup(c.ctx, spec)
		want, first, _ := c.m.CreateGroup(c.ctx, spec)
		c.equal("create", c.answer(fmt.Sprint(c.shown(have), created), err), fmt.Sprint(c.shown(want), first))
	}
	spec.Tenant = "other"
	_, _, err := c.any().CreateGroup(c.ctx, spec)
	_, _, refused := c.m.CreateGroup(c.ctx, spec)
	c.equal("create another of that id", c.answer(nil, err), c.answer(nil, refused))
}

func (c *crowd) add() {
	id := c.group()
	jobs := make([]Job, rapid.IntRange(0, 8).Draw(c.t, "jobs"))
	for i := range jobs {
		jobs[i] = Job{ID: fmt.Sprintf("j%02d", rapid.IntRange(0, 40).Draw(c.t, "id")), Payload: []byte(`{"n":1}`), Type: rapid.SampledFrom([]string{"", "email"}).Draw(c.t, "type"), Cost: 1}
		if c.uneven {
			jobs[i].Cost = int64(rapid.IntRange(1, 9).Draw(c.t, "cost"))
		}
		if rapid.IntRange(0, 5).Draw(c.t, "later") == 0 {
			jobs[i].RunAt = time.UnixMicro(c.now + int64(rapid.IntRange(-1, 15_000_000).Draw(c.t, "run_at")))
		}
	}
	chunk := Chunk{}
	if rapid.Bool().Draw(c.t, "chunk") {
		chunk = Chunk{Key: fmt.Sprintf("c%d", rapid.IntRange(0, 5).Draw(c.t, "key")), Last: rapid.IntRange(0, 3).Draw(c.t, "last") > 0, Answer: []byte("answer")}
	}
	c.put(id, chunk, jobs)
}

// put adds jobs; when the answer gets lost, again.
func (c *crowd) put(id string, chunk Chunk, jobs []Job) {
	for range c.upTo(2) {
		want, refused := c.m.AddJobs(c.ctx, id, chunk, slices.Clone(jobs))
		have, err := c.any().AddJobs(c.ctx, id, chunk, slices.Clone(jobs))
		c.equal("add", c.answer(have, err), c.answer(want, refused))
	}
}

func (c *crowd) seal(id string) {
	want, refused := c.m.Seal(c.ctx, id)
	have, err := c.any().Seal(c.ctx, id)
	c.equal("seal", c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
}

func (c *crowd) patch() {
	id := c.group()
	p := Patch{}
	switch rapid.IntRange(0, 5).Draw(c.t, "field") {
	case 0:
		p.Weight = new(rapid.SampledFrom([]float64{0.5, 2}).Draw(c.t, "weight"))
	case 1:
		if !c.rerate {
			c.t.Skip("rates stay")
		}
		p.Rate = new(rapid.SampledFrom([]float64{0, 1, 30}).Draw(c.t, "rate"))
	case 2:
		p.Concurrency = new(rapid.Int64Range(0, 4).Draw(c.t, "concurrency"))
	case 3:
		p.Level = new(rapid.SampledFrom([]Level{High, Normal, Low}).Draw(c.t, "level"))
	default:
		p.Paused = new(rapid.Bool().Draw(c.t, "paused"))
	}
	want, refused := c.m.Patch(c.ctx, id, p)
	have, err := c.any().Patch(c.ctx, id, p)
	c.equal("patch", c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
}

// cancel ends a group. From that moment nothing of it starts, which the next pull's Follow sees; then it is swept.
func (c *crowd) cancel() {
	id := c.group()
	want, refused := c.m.Cancel(c.ctx, id)
	have, err := c.any().Cancel(c.ctx, id)
	c.equal("cancel", c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
	c.pull()
	c.tend(id)
}

// tend does all housekeeping of a group but its reduction.
func (c *crowd) tend(id string) (t Tended) {
	for again := true; again; again = t.Again {
		var err error
		if t, err = c.any().Tend(c.ctx, id); err != nil {
			c.t.Fatal(err)
		}
	}
	return t
}

func (c *crowd) pull() {
	want := rapid.IntRange(1, 7).Draw(c.t, "want")
	p, err := c.any().Pull(c.ctx, want)
	if err != nil {
		c.t.Fatal(err)
	}
	c.follow(p, want)
	c.held = append(c.held, p.Jobs...)
}

func (c *crowd) follow(p Pulled, want int) {
	err := error(nil)
	if c.classic {
		err = c.m.FollowClassic(p)
	} else {
		err = c.m.Follow(p, want)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.started(p.Jobs)
}

var verdicts = []Verdict{Done, Done, Done, Rejected, Retry, Retry, Throttled, Throttled, Returned, Buried}

func (c *crowd) ack() {
	n := rapid.IntRange(0, min(4, len(c.held))).Draw(c.t, "acks")
	var acks []Ack
	for range n {
		i := rapid.IntRange(0, len(c.held)-1).Draw(c.t, "which")
		acks = append(acks, c.verdict(c.held[i], rapid.SampledFrom(verdicts).Draw(c.t, "verdict")))
		c.lost = append(c.lost, c.held[i])
		c.held = slices.Delete(c.held, i, i+1)
	}
	if len(c.lost) > 0 && rapid.Bool().Draw(c.t, "late") {
		acks = append(acks, c.verdict(rapid.SampledFrom(c.lost).Draw(c.t, "old"), rapid.SampledFrom(verdicts).Draw(c.t, "verdict")))
	}
	c.acknowledge(acks)
}

func (c *crowd) verdict(l Leased, v Verdict) Ack {
	a := Ack{Key: l.Key, Fence: l.Fence, Verdict: v}
	switch v {
	case Done:
		a.Result = []byte(`{"ok":1}`)
	case Throttled, Retry:
		a.After = time.Duration(rapid.SampledFrom([]int{0, 0, 700, 9000}).Draw(c.t, "after")) * time.Millisecond
		fallthrough
	default:
		a.Code, a.Error = "http_500", "it went wrong\nbadly"
	}
	return a
}

func (c *crowd) acknowledge(acks []Ack) {
	for range rapid.IntRange(1, 2).Draw(c.t, "times") { // the second is of one who lost the answer
		want, _ := c.m.Ack(c.ctx, acks)
		have, err := c.any().Ack(c.ctx, acks)
		if len(acks) > 0 {
			c.equal("ack", c.answer(have, err), fmt.Sprintf("%+v", want))
		}
	}
}

func (c *crowd) renew() {
	var leases []Lease
	for _, l := range slices.Concat(c.held, c.lost) {
		if rapid.Bool().Draw(c.t, "renew") {
			leases = append(leases, Lease{l.Key, l.Fence})
		}
	}
	want, _ := c.m.Renew(c.ctx, leases)
	have, err := c.any().Renew(c.ctx, leases)
	if len(leases) > 0 {
		c.equal("renew", c.answer(have, err), fmt.Sprintf("%+v", want))
	}
}

// crash forgets what some processes hold.
func (c *crowd) crash() {
	n := rapid.IntRange(0, len(c.held)).Draw(c.t, "forgotten")
	c.lost = append(c.lost, c.held[:n]...)
	c.held = slices.Clone(c.held[n:])
}

// dispatch does what the dispatcher does until it has no more to do now.
func (c *crowd) dispatch(gap time.Duration) (next time.Duration) {
	have, err := c.any().Dispatch(c.ctx, gap)
	for err == nil && have.More {
		var d Dispatch
		d, err = c.any().Dispatch(c.ctx, 0)
		have.Moved, have.Recovered, have.Dead = have.Moved+d.Moved, have.Recovered+d.Recovered, have.Dead+d.Dead
		have.Next, have.More, have.Tend = d.Next, d.More, append(have.Tend, d.Tend...)
	}
	want, _ := c.m.Dispatch(c.ctx, gap)
	sums := func(d Dispatch) string {
		return fmt.Sprintf("moved %d, recovered %d, dead %d", d.Moved, d.Recovered, d.Dead)
	}
	if c.classic {
		have.Moved, want.Moved, want.Next = 0, 0, 0
	}
	c.equal("dispatch", c.answer(sums(have), err), sums(want))
	if want.Next > 0 && (have.Next == 0 || have.Next > want.Next) {
		c.t.Fatalf("dispatch: next in %v (0: never), there is something to do in %v", have.Next, want.Next)
	}
	for _, id := range have.Tend {
		if t := c.tend(id); t.Reduce {
			c.reduce(id)
		}
	}
	return have.Next
}

// reduce takes outcomes in, some at a time, and is overtaken by another now and then.
func (c *crowd) reduce(id string) {
	r, err := c.any().BeginReduce(c.ctx, id)
	want, refused := c.m.BeginReduce(c.ctx, id)
	c.equal("begin to reduce", c.answer(fmt.Sprint(c.shown(r.Group), r.Fence, r.Cursor, string(r.State)), err), c.answer(fmt.Sprint(c.shown(want.Group), want.Fence, want.Cursor, string(want.State)), refused))
	for {
		p, err := c.any().Results(c.ctx, id, r.Cursor, c.upTo(20))
		if err != nil {
			c.t.Fatal(err)
		}
		if len(p.Outcomes) == 0 {
			break
		}
		fence := r.Fence
		if c.turn == 0 && rapid.IntRange(0, 9).Draw(c.t, "overtaken") == 0 {
			if _, err := c.any().BeginReduce(c.ctx, id); err != nil {
				c.t.Fatal(err)
			}
			_, _ = c.m.BeginReduce(c.ctx, id)
		}
		have, err := c.any().CommitReduce(c.ctx, id, fence, p.Next, int64(len(p.Outcomes)), []byte(p.Next))
		ok, _ := c.m.CommitReduce(c.ctx, id, fence, p.Next, int64(len(p.Outcomes)), []byte(p.Next))
		c.equal("commit", c.answer(have, err), fmt.Sprint(ok))
		if !ok {
			return
		}
		r.Cursor = p.Next
		c.taken(id, p.Outcomes)
	}
	result := fmt.Appendf(nil, "%v", c.reduced[id])
	g, done, err := c.any().Finish(c.ctx, id, r.Fence, result)
	wanted, ok, _ := c.m.Finish(c.ctx, id, r.Fence, result)
	c.equal("finish", c.answer(fmt.Sprint(done, c.shown(g)), err), fmt.Sprint(ok, c.shown(wanted)))
}

// taken counts outcomes, and compares each with the model's.
func (c *crowd) taken(id string, outcomes []Outcome) {
	if c.reduced[id] == nil {
		c.reduced[id] = map[string]int{}
	}
	want := c.m.Outcomes(id)
	for _, o := range outcomes {
		c.reduced[id][o.Status]++
		text := func(o Outcome) string {
			return fmt.Sprintf("%s %s attempts %d code %q result %q at %d cost %d", o.ID, o.Status, o.Attempts, o.Code, o.Result, o.At.UnixMilli(), o.Cost)
		}
		c.equal("outcome in group "+id, text(o), text(want[o.ID]))
	}
}

func (c *crowd) redrive() {
	id, rate := c.group(), rapid.SampledFrom([]float64{0, 12}).Draw(c.t, "rate")
	if len(id) > 8 {
		c.t.Skip("redriven twice already")
	}
	want, refused := c.m.Redrive(c.ctx, id, rate)
	have, err := c.any().Redrive(c.ctx, id, rate)
	c.equal("redrive", c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
}

func (c *crowd) limits() {
	if !c.rerate {
		c.t.Skip("rates stay")
	}
	global, tenant := rapid.SampledFrom([]float64{2, 30, 500}).Draw(c.t, "global"), rapid.SampledFrom([]float64{0, 1.5, 40}).Draw(c.t, "per_tenant")
	if _, err := c.any().SetLimits(c.ctx, &global, &tenant); err != nil {
		c.t.Fatal(err)
	}
	c.m.SetLimits(global, tenant)
}

func (c *crowd) tenant() {
	names := c.m.Tenants()
	if len(names) == 0 {
		c.t.Skip("there is no tenant")
	}
	in := Tenant{
		Name: rapid.SampledFrom(names).Draw(c.t, "tenant"), Weight: rapid.SampledFrom([]float64{0.1, 1, 4}).Draw(c.t, "weight"),
		Rate: rapid.SampledFrom([]float64{0, 0.5, 2, 25}).Draw(c.t, "rate"),
	}
	if !c.rerate {
		in.Rate = 0
	}
	if _, err := c.any().SetTenant(c.ctx, in); err != nil {
		c.t.Fatal(err)
	}
	c.m.SetTenant(in)
}

// starts are those under a limit: of all jobs, of a tenant's, of a group's.
type starts struct {
	rate, burst float64 // the most that was ever in force; infinite without a limit
	log         []start
}

type start struct{ at, cost int64 }

// rated notes that a rate comes into force.
func (c *crowd) rated(name string, rate, burst float64) {
	s := c.starts[name]
	if s == nil {
		s = &starts{}
		c.starts[name] = s
	}
	if rate == 0 {
		rate = math.Inf(1)
	}
	if burst == 0 {
		burst = max(1, rate/10)
	}
	s.rate, s.burst = max(s.rate, rate), max(s.burst, burst)
}

// ratesInForce notes the rates of tenants and groups.
func (c *crowd) ratesInForce() {
	c.rated("", c.m.S.Global, c.m.S.Burst)
	for name, rate := range c.m.Rates() {
		burst := c.m.S.Burst
		if strings.HasPrefix(name, "group ") {
			burst = 0
		}
		c.rated(name, rate, burst)
	}
}

// started checks that between any start and now no more have started than rate and burst allow, whatever changed meanwhile.
func (c *crowd) started(jobs []Leased) {
	for _, j := range jobs {
		for _, name := range []string{"", "tenant " + j.Tenant, "group " + j.Group} {
			s := c.starts[name]
			s.log = append(s.log, start{c.now, j.Cost})
			sum, dearest := 0.0, 1.0
			for _, l := range slices.Backward(s.log) {
				sum, dearest = sum+float64(l.cost), max(dearest, float64(l.cost))
				dt := float64(c.now-l.at) / 1e6
				most := s.rate*dt + max(s.burst, dearest) // a cost above the burst is granted when nothing is owed
				if c.m.S.Limiter == "fixed_window" {
					most = s.rate * (math.Floor(float64(c.now)/1e6) - math.Floor(float64(l.at)/1e6) + 1)
					if c.uneven {
						most += dearest // a cost above a window's is charged to those that follow
					}
					most = max(most, 1) // rates below one a second
				}
				if sum > most+1e-6 {
					c.t.Fatalf("%s: a cost of %v started within %v s; rate %v, burst %v", name, sum, dt, s.rate, s.burst)
				}
			}
		}
	}
}

// drain lets everything come to its end: nothing may be lost, nobody may wait for an event that never comes.
func (c *crowd) drain() {
	c.turn = 1
	for _, id := range c.m.Groups() {
		for key := range 6 { // broken chunks are sent again
			name := fmt.Sprintf("c%d", key)
			if g, _ := c.m.Group(c.ctx, id); !g.Sealed && !g.Status.Ended() {
				c.put(id, Chunk{Key: name, Last: true, Answer: []byte("answer")}, nil)
			}
		}
		if g, _ := c.m.Group(c.ctx, id); !g.Status.Ended() {
			c.seal(id)
			paused := false
			_, _ = c.m.Patch(c.ctx, id, Patch{Paused: &paused})
			if _, err := c.any().Patch(c.ctx, id, Patch{Paused: &paused}); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for range 5_000 {
		next := c.dispatch(0)
		if c.finished() {
			return
		}
		p, err := c.any().Pull(c.ctx, 7)
		if err != nil {
			c.t.Fatal(err)
		}
		c.follow(p, 7)
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

// finished says that every group is at its end and reduced.
func (c *crowd) finished() bool {
	for _, id := range c.m.Groups() {
		if g, _ := c.m.Group(c.ctx, id); !g.Status.Ended() || g.Reduced != g.Total {
			return false
		}
	}
	return true
}

func checkStore(t *rapid.T, client redis.UniversalClient, prefix string, classic bool) {
	c := newCrowd(t, client, prefix, classic)
	c.create()
	t.Repeat(map[string]func(*rapid.T){
		"":       func(*rapid.T) { c.ratesInForce(); c.compare() },
		"create": func(*rapid.T) { c.create() },
		"add":    func(*rapid.T) { c.add() },
		"add 2":  func(*rapid.T) { c.add() },
		"seal":   func(*rapid.T) { c.seal(c.group()) },
		"patch":  func(*rapid.T) { c.patch() },
		"cancel": func(t *rapid.T) {
			if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
				t.Skip()
			}
			c.cancel()
		},
		"pull":   func(*rapid.T) { c.pull() },
		"pull 2": func(*rapid.T) { c.pull() },
		"ack":    func(*rapid.T) { c.ack() },
		"ack 2":  func(*rapid.T) { c.ack() },
		"renew":  func(*rapid.T) { c.renew() },
		"crash":  func(*rapid.T) { c.crash() },
		"soon":   func(t *rapid.T) { c.now += int64(rapid.IntRange(1, 700_000).Draw(t, "µs")) },
		"later":  func(t *rapid.T) { c.now += int64(rapid.IntRange(1, 12_000_000).Draw(t, "µs")); c.dispatch(0) },
		"dispatch": func(t *rapid.T) {
			c.dispatch(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(t, "gap")) * time.Second)
		},
		"redrive": func(*rapid.T) { c.redrive() },
		"limits":  func(*rapid.T) { c.limits() },
		"tenant":  func(*rapid.T) { c.tenant() },
		"audit":   func(*rapid.T) { c.audit() },
	})
	c.drain()
	c.compare()
	c.audit()
}

// TestModel drives the store and its model through the same random operations of several processes: every answer has to be
// that of the model, every start one that the model allows, and at the end nobody may be lost.
func TestModel(t *testing.T) {
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
