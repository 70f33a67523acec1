package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/calendar"
	. "github.com/anteroom/anteroom/bulk/store"
)

func (c *crowd) create() {
	id := fmt.Sprintf("g%d", rapid.IntRange(1, c.serial+1).Draw(c.t, "id"))
	if _, err := c.m.Group(c.ctx, id); err == nil {
		c.serial++
		id = fmt.Sprintf("g%d", c.serial)
	}
	spec := GroupSpec{
		ID: id, Tenant: rapid.SampledFrom([]string{"acme", "beta", "acme-2"}).Draw(c.t, "tenant"), Type: "webhook",
		Level:       rapid.SampledFrom([]Level{High, Normal, Low}).Draw(c.t, "level"),
		Weight:      rapid.SampledFrom([]float64{0.01, 1, 3.5}).Draw(c.t, "weight"),
		Rate:        rapid.SampledFrom([]float64{0, 0, 2.5, 20}).Draw(c.t, "rate"),
		Concurrency: rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(c.t, "concurrency"),
		StartSealed: rapid.IntRange(0, 3).Draw(c.t, "start") == 0,
		Tolerance:   rapid.SampledFrom([]Tolerance{{}, {Count: 1}, {Count: 2}, {Percent: 33.3, Share: true}, {Percent: 50, Share: true}}).Draw(c.t, "tolerance"),
		Aggregate:   rapid.SampledFrom([]string{"", `{"op":"concat"}`, `{"op":"sum","field":"n"}`}).Draw(c.t, "aggregate"),
		StopAt:      rapid.SampledFrom([]Tolerance{{}, {}, {Count: 2}, {Share: true, Percent: 0.1}, {Share: true, Percent: 30}}).Draw(c.t, "stop_at"),
		Results:     rapid.SampledFrom([]Results{AllResults, FailureResults, NoResults}).Draw(c.t, "results"),
		Own:         rapid.Bool().Draw(c.t, "own"),
		MaxGroups:   rapid.SampledFrom([]int64{0, 0, 4}).Draw(c.t, "max_groups"),
	}
	spec.StartAt, spec.ExpiresAt = c.time("start_at"), c.time("expires_at")
	spec.Quiet = c.quiet()
	if ids := slices.DeleteFunc(c.m.Groups(), func(other string) bool { return other == id }); len(ids) > 0 && !c.classic && rapid.IntRange(0, 2).Draw(c.t, "waits") == 0 {
		spec.After = strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, min(3, len(ids)), rapid.ID).Draw(c.t, "after"), " ")
		spec.When = rapid.SampledFrom([]When{"", OnSuccess, OnFailure, OnEnd}).Draw(c.t, "when")
	}
	for range rapid.IntRange(1, 2).Draw(c.t, "times") {
		have, created, err := c.any().CreateGroup(c.ctx, spec)
		want, first, refused := c.m.CreateGroup(c.ctx, spec)
		c.equal("create", c.answer(fmt.Sprint(c.shown(have), created), err), c.answer(fmt.Sprint(c.shown(want), first), refused))
		if refused != nil {
			return
		}
	}
	spec.Tenant = "other"
	_, _, err := c.any().CreateGroup(c.ctx, spec)
	_, _, refused := c.m.CreateGroup(c.ctx, spec)
	c.equal("create another of that id", c.answer(nil, err), c.answer(nil, refused))
}

// time draws a time around now, mostly none. In the classic pipeline nothing expires: which jobs are READY then, the model does not know.
func (c *crowd) time(name string) time.Time {
	if c.classic && name == "expires_at" || rapid.IntRange(0, 3).Draw(c.t, name+" given") > 0 {
		return time.Time{}
	}
	return time.UnixMicro(c.now + int64(rapid.IntRange(-1_000_000, 20_000_000).Draw(c.t, name))).UTC()
}

// quiet draws quiet hours around now, mostly none.
func (c *crowd) quiet() calendar.Quiet {
	if rapid.IntRange(0, 4).Draw(c.t, "quiet") > 0 {
		return calendar.Quiet{}
	}
	zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Asia/Kolkata"}).Draw(c.t, "zone")
	in, err := calendar.Zone(zone)
	if err != nil {
		c.t.Fatal(err)
	}
	from := time.UnixMicro(c.now).In(in).Add(time.Duration(rapid.IntRange(-1, 1).Draw(c.t, "from")) * time.Minute)
	to := from.Add(time.Duration(rapid.IntRange(1, 2).Draw(c.t, "minutes")) * time.Minute)
	return calendar.Quiet{From: from.Format("15:04"), To: to.Format("15:04"), Zone: zone}
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
	chunk := Chunk{MaxPending: rapid.SampledFrom([]int64{0, 0, 25}).Draw(c.t, "max_pending")}
	if rapid.Bool().Draw(c.t, "chunk") {
		chunk = Chunk{MaxPending: chunk.MaxPending, Key: fmt.Sprintf("c%d", rapid.IntRange(0, 5).Draw(c.t, "key")), Last: rapid.IntRange(0, 3).Draw(c.t, "last") > 0, Answer: []byte("answer"),
			Whole: int64(max(0, rapid.IntRange(-3, 5).Draw(c.t, "whole")))}
	}
	c.put(id, chunk, jobs)
}

// put adds jobs, and repeats the call when the reply is lost.
func (c *crowd) put(id string, chunk Chunk, jobs []Job) {
	for range c.upTo(2) {
		want, refused := c.m.AddJobs(c.ctx, id, chunk, slices.Clone(jobs))
		have, err := c.any().AddJobs(c.ctx, id, chunk, slices.Clone(jobs))
		c.equal("add", c.answer(have, err), c.answer(want, refused))
	}
}

func (c *crowd) seal(id string) {
	if rapid.IntRange(0, 3).Draw(c.t, "abandons chunks") == 3 {
		want, refused := c.m.SealAbandoning(c.ctx, id)
		have, err := c.any().SealAbandoning(c.ctx, id)
		c.equal("seal abandoning chunks", c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
		return
	}
	want, refused := c.m.Seal(c.ctx, id)
	have, err := c.any().Seal(c.ctx, id)
	c.equal("seal", c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
}

func (c *crowd) patch() {
	id := c.group()
	p := Patch{Own: rapid.Bool().Draw(c.t, "own")}
	switch rapid.IntRange(0, 9).Draw(c.t, "field") {
	case 7:
		p.Quiet = new(c.quiet())
	case 5:
		p.StartAt = new(c.time("start_at"))
	case 6:
		p.ExpiresAt = new(c.time("expires_at"))
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
	case 4:
		p.BasePriority = new(rapid.Int64Range(-1, 1).Draw(c.t, "base"))
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

// oneJob draws the id of an existing job, or of one that does not exist.
func (c *crowd) oneJob() (group, job string) {
	group = c.group()
	ids := c.m.Jobs(group)
	if g, _ := c.m.Group(c.ctx, group); g.Results == AllResults || len(ids) == 0 {
		ids = append(ids, "none")
	}
	return group, rapid.SampledFrom(ids).Draw(c.t, "job")
}

// answerOfJob takes a job that may have been there for one that is not.
func (c *crowd) answerOfJob(v any, err error) string {
	if a := c.answer(v, err); a != string(CodeNotKept) {
		return a
	}
	return string(CodeNotFound)
}

func (c *crowd) cancelJob() {
	group, job := c.oneJob()
	want, refused := c.m.CancelJob(c.ctx, group, job)
	have, err := c.any().CancelJob(c.ctx, group, job)
	c.equal("cancel job "+job+" of "+group, c.answerOfJob(have, err), c.answer(want, refused))
}

func (c *crowd) retryJob() {
	group, job := c.oneJob()
	want, refused := c.m.RetryJob(c.ctx, group, job, 0)
	have, err := c.any().RetryJob(c.ctx, group, job, 0)
	text := func(g *Group) string {
		if g == nil {
			return "in its group"
		}
		return c.shown(*g)
	}
	c.equal("retry job "+job+" of "+group, c.answerOfJob(text(have), err), c.answer(text(want), refused))
}

// delete deletes a group, mostly one that has ended: at once, or with its next housekeeping.
func (c *crowd) delete() {
	id := c.group()
	var over []string
	for _, id := range c.m.Groups() {
		if g, _ := c.m.Group(c.ctx, id); g.Status.Ended() {
			over = append(over, id)
		}
	}
	if len(over) > 0 && rapid.IntRange(0, 3).Draw(c.t, "whichever") > 0 {
		id = rapid.SampledFrom(over).Draw(c.t, "ended group")
	}
	_, err := c.any().Delete(c.ctx, id, 0)
	refused := c.m.Delete(c.ctx, id)
	c.equal("delete "+id, c.answer(nil, err), c.answer(nil, refused))
	if refused != nil || rapid.Bool().Draw(c.t, "with its next housekeeping") {
		return
	}
	// The last one of its tenant may have to wait for its limit.
	last := c.m.GroupsOf(id) == 1
	if gone := c.tend(id).Removed; !gone && !last {
		c.t.Fatalf("group %s is not gone", id)
	}
}

// removed checks that nothing is left of a group.
func (c *crowd) removed(id string) {
	if err := c.m.Removed(id); err != nil {
		c.t.Fatal(err)
	}
	delete(c.reduced, id)
	_, err := c.any().Group(c.ctx, id)
	c.equal("group "+id+" that was deleted", c.answer(nil, err), string(CodeNotFound))
	c.audit()
	c.compare()
}

// tend does all housekeeping of a group but its reduction.
func (c *crowd) tend(id string) (t Tended) {
	for again := true; again; again = t.Again {
		var err error
		if t, err = c.any().Tend(c.ctx, id); err != nil {
			c.t.Fatal(err)
		}
	}
	if t.Removed {
		c.removed(id)
		return t
	}
	c.m.Resume(id)
	if g, err := c.any().Group(c.ctx, id); err == nil && g.Status == Cancelled && len(g.Result) > 0 {
		c.m.Swept(id)
	}
	c.m.Tended(id)
	return t
}

func (c *crowd) pull() {
	want := rapid.IntRange(1, 7).Draw(c.t, "want")
	c.held = append(c.held, c.pullSome(want).Jobs...)
}

// next acknowledges some jobs and pulls others, in one step.
func (c *crowd) next() {
	var acks []Ack
	for range rapid.IntRange(1, 3).Draw(c.t, "acks") {
		if len(c.held) == 0 {
			break
		}
		i := rapid.IntRange(0, len(c.held)-1).Draw(c.t, "which")
		acks = append(acks, c.verdict(c.held[i], rapid.SampledFrom(verdicts).Draw(c.t, "verdict")))
		c.lost = append(c.lost, c.held[i])
		c.held = slices.Delete(c.held, i, i+1)
	}
	if len(acks) == 0 {
		c.t.Skip("no job runs")
	}
	want := rapid.IntRange(1, 7).Draw(c.t, "want")
	s := c.any()
	var types []string
	if c.pools && s == c.stores[0] {
		types = []string{"webhook"}
	}
	states, _ := c.m.Ack(c.ctx, acks)
	have, p, err := s.AckPull(c.ctx, acks, want, types...)
	c.equal("ack and pull", c.answer(have, err), fmt.Sprintf("%+v", states))
	c.follow(p, want, types)
	c.held = append(c.held, p.Jobs...)
}

// pullSome pulls with one of the processes.
func (c *crowd) pullSome(want int) Pulled {
	s, types := c.any(), []string(nil)
	if c.turn > 0 { // any of them pulls in the end, whatever else takes turns
		c.pulls++
		s = c.stores[c.pulls%len(c.stores)]
	}
	if c.pools && s == c.stores[0] {
		types = []string{"webhook"}
	}
	p, err := s.Pull(c.ctx, want, types...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.follow(p, want, types)
	return p
}

func (c *crowd) follow(p Pulled, want int, types []string) {
	err := error(nil)
	if c.classic {
		err = c.m.FollowClassic(p, types...)
	} else {
		err = c.m.Follow(p, want, types...)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.started(p.Jobs)
}

var verdicts = []Verdict{Done, Done, Done, Rejected, Retry, Retry, Throttled, Held, Returned, Buried}

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
	a := Ack{Key: l.Key, Fence: l.Fence, Verdict: v, Took: time.Duration(rapid.SampledFrom([]int{0, 1, 5, 1000, 70_000}).Draw(c.t, "took")) * time.Millisecond}
	switch v {
	case Done:
		a.Result = []byte(`{"ok":1}`)
	case Throttled, Held, Retry:
		a.Retries = int64(rapid.IntRange(0, 2).Draw(c.t, "retries"))
		a.After = time.Duration(rapid.SampledFrom([]int{0, 0, 700, 9000, 70_000}).Draw(c.t, "after")) * time.Millisecond
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

// crash drops the jobs that some processes hold.
func (c *crowd) crash() {
	n := rapid.IntRange(0, len(c.held)).Draw(c.t, "forgotten")
	c.lost = append(c.lost, c.held[:n]...)
	c.held = slices.Clone(c.held[n:])
}

// dispatch does what the dispatcher does until it has no more to do now.
func (c *crowd) dispatch() (next time.Duration) {
	have, err := c.any().Dispatch(c.ctx)
	for err == nil && have.More {
		var d Dispatch
		d, err = c.any().Dispatch(c.ctx)
		have.Moved, have.Recovered, have.Dead = have.Moved+d.Moved, have.Recovered+d.Recovered, have.Dead+d.Dead
		have.Next, have.More, have.Tend = d.Next, d.More, append(have.Tend, d.Tend...)
	}
	want, _ := c.m.Dispatch(c.ctx)
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

// reduce reduces outcomes, some at a time; now and then another reducer takes over.
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
	id := c.group()
	if n, _ := strconv.Atoi(id[strings.LastIndex(id, "r")+1:]); strings.Contains(id, "-r") && n > 3 {
		c.t.Skip("redriven often already")
	}
	o := RedriveOptions{
		Rate:     rapid.SampledFrom([]float64{0, 12}).Draw(c.t, "rate"),
		Statuses: rapid.SampledFrom([][]string{nil, nil, {"dead"}, {"failed"}, {"dead", "failed"}}).Draw(c.t, "statuses"),
		Codes:    rapid.SampledFrom([][]string{nil, nil, {"http_500"}, {"refused_too_long", "crashed"}}).Draw(c.t, "codes"),
	}
	want, refused := c.m.RedriveJobs(c.ctx, id, o)
	have, err := c.any().RedriveJobs(c.ctx, id, o)
	c.equal("redrive", c.answer(c.shown(have), err), c.answer(c.shown(want), refused))
}

func (c *crowd) limits() {
	if !c.rerate {
		c.t.Skip("rates stay")
	}
	global, tenant := rapid.SampledFrom([]float64{2, 30, 500}).Draw(c.t, "global"), rapid.SampledFrom([]float64{0, 1.5, 40}).Draw(c.t, "per_tenant")
	limit := TypeLimit{
		Rate:        rapid.SampledFrom([]float64{0, 1.5, 20}).Draw(c.t, "rate of email"),
		Concurrency: rapid.SampledFrom([]int64{0, 1, 4}).Draw(c.t, "concurrency of email"),
	}
	patch := LimitsPatch{Global: &global, PerTenant: &tenant, GlobalGiven: true, PerTenantGiven: true, Types: map[string]TypeLimitPatch{
		"email": {Rate: &limit.Rate, Concurrency: &limit.Concurrency, RateGiven: true, ConcurrencyGiven: true},
	}}
	if _, err := c.any().SetLimits(c.ctx, patch); err != nil {
		c.t.Fatal(err)
	}
	c.m.SetLimits(global, tenant)
	c.m.SetType("email", limit)
}

func (c *crowd) tenant() {
	names := c.m.Tenants()
	if len(names) == 0 {
		c.t.Skip("there is no tenant")
	}
	in := Tenant{
		Name: rapid.SampledFrom(names).Draw(c.t, "tenant"), Weight: rapid.SampledFrom([]float64{0.1, 1, 4}).Draw(c.t, "weight"),
		Rate:        rapid.SampledFrom([]float64{0, 0.5, 2, 25}).Draw(c.t, "rate"),
		Concurrency: rapid.SampledFrom([]int64{0, 0, 2, 5}).Draw(c.t, "concurrency"),
	}
	if !c.rerate {
		in.Rate = 0
	}
	if _, err := c.any().SetTenant(c.ctx, in); err != nil {
		c.t.Fatal(err)
	}
	c.m.SetTenant(in)
	if !slices.Contains(c.m.Tenants(), in.Name) { // operators have reset it
		delete(c.starts, "tenant "+in.Name)
	}
}
