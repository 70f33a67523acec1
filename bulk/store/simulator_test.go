package store_test

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// Engine is what a simulation drives: a Model, or a store.Store whose clock is the simulation's.
type Engine interface {
	CreateGroup(ctx context.Context, g store.GroupSpec) (store.Group, bool, error)
	AddJobs(ctx context.Context, group string, c store.Chunk, jobs []store.Job) (store.Added, error)
	Seal(ctx context.Context, group string) (store.Group, error)
	Group(ctx context.Context, group string) (store.Group, error)
	Pull(ctx context.Context, want int, types ...string) (store.Pulled, error)
	Ack(ctx context.Context, acks []store.Ack) ([]store.AckState, error)
	Dispatch(ctx context.Context) (store.Dispatch, error)
}

var (
	_ Engine = (*Model)(nil)
	_ Engine = (*store.Store)(nil)
)

// Clock is the virtual time of a simulation, µs. The engine reads it with Now.
type Clock struct{ us int64 }

// NewClock begins at the full second, where an aligned window does.
func NewClock() *Clock { return &Clock{us: 1_780_000_000_000_000} }

// Now returns the time.
func (c *Clock) Now() int64 { return c.us }

// Simulation is one run: equal tenants submit their jobs at once, and a pool of workers does them.
type Simulation struct {
	Name    string // of the groups too: a store runs several, one after the other
	Tenants int
	Jobs    int // of each tenant
	Workers int
	Service time.Duration // how long a job takes
	// Batch is how many jobs one pull asks for at most, and Pace the least time between two pulls. In the classic pipeline
	// that is how many jobs a second can be looked at; in the default engine there is nothing to look at in vain.
	Batch    int
	Pace     time.Duration
	Dispatch time.Duration // between two rounds of the dispatcher
	// Lag returns how late the dispatcher's n-th round is; nil: no round is late.
	Lag func(n int) time.Duration
	// Downstream decides about a start; wait is its Retry-After. nil: it takes every job.
	Downstream func(tenant string, now int64) (ok bool, wait time.Duration)
}

// Report is the result of a run.
type Report struct {
	Took      time.Duration
	Throttles float64 // a job
	Pulls     int
	// Peak is the most starts in any sliding second, of a tenant and of all.
	TenantPeak, Peak int
}

// event is something that happens at a time: in the order of time, then of creation.
type event struct {
	at, serial int64
	what       int
	job        store.Leased
	ok         bool
	wait       time.Duration
}

const (
	pull = iota
	dispatch
	end
)

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[k].at), cmp.Compare(e[i].serial, e[k].serial)) < 0
}
func (e events) Swap(i, k int) { e[i], e[k] = e[k], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

type run struct {
	Simulation
	engine Engine
	clock  *Clock
	events events
	serial int64
	free   int
	left   int
	pullAt int64 // of the pull that is planned; 0: none
	pulled int64
	rounds int
	starts map[string][]int64
	report Report
}

// Run submits all jobs and simulates until they are done.
func (s Simulation) Run(ctx context.Context, engine Engine, clock *Clock) (Report, error) {
	r := &run{Simulation: s, engine: engine, clock: clock, free: s.Workers, left: s.Tenants * s.Jobs, starts: map[string][]int64{}}
	if err := s.Submit(ctx, engine); err != nil {
		return Report{}, err
	}
	began := clock.us
	r.soon(began)
	r.at(event{at: began + s.Dispatch.Microseconds(), what: dispatch})
	for r.left > 0 {
		e := heap.Pop(&r.events).(event)
		clock.us = e.at
		var err error
		switch e.what {
		case pull:
			err = r.pull(ctx, e)
		case dispatch:
			err = r.dispatch(ctx)
		case end:
			err = r.end(ctx, e)
		}
		if err != nil {
			return Report{}, err
		}
	}
	r.report.Took = time.Duration(clock.us-began) * time.Microsecond
	var err error
	r.report.Throttles, err = s.Count(ctx, engine)
	return r.report, err
}

func (s Simulation) group(tenant int) string { return fmt.Sprintf("%s-%d", s.Name, tenant) }

// Submit makes a group for each tenant and puts its jobs in.
func (s Simulation) Submit(ctx context.Context, engine Engine) error {
	jobs := make([]store.Job, s.Jobs)
	for i := range jobs {
		jobs[i] = store.Job{ID: fmt.Sprintf("%06d", i), Payload: []byte("{}")}
	}
	for t := range s.Tenants {
		if _, _, err := engine.CreateGroup(ctx, store.GroupSpec{ID: s.group(t), Tenant: fmt.Sprintf("tenant%d", t), Type: "noop"}); err != nil {
			return err
		}
		for part := range slices.Chunk(jobs, store.MaxAdd) {
			if _, err := engine.AddJobs(ctx, s.group(t), store.Chunk{}, part); err != nil {
				return err
			}
		}
		if _, err := engine.Seal(ctx, s.group(t)); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) at(e event) {
	r.serial++
	e.serial = r.serial
	heap.Push(&r.events, e)
}

// soon plans a pull, if none is planned for sooner, Pace after the last one at the earliest.
func (r *run) soon(at int64) {
	at = max(at, r.pulled+r.Pace.Microseconds())
	if r.pullAt == 0 || at < r.pullAt {
		r.pullAt = at
		r.at(event{at: at, what: pull})
	}
}

func (r *run) pull(ctx context.Context, e event) error {
	if e.at != r.pullAt { // another one was sooner
		return nil
	}
	r.pullAt = 0
	want := min(r.free, r.Batch)
	if want == 0 {
		return nil // the end of a job pulls
	}
	now := r.clock.us
	p, err := r.engine.Pull(ctx, want)
	if err != nil {
		return err
	}
	r.pulled = now
	r.report.Pulls++
	r.free -= len(p.Jobs)
	for _, j := range p.Jobs {
		ok, wait := true, time.Duration(0)
		if r.Downstream != nil {
			ok, wait = r.Downstream(j.Tenant, now)
		}
		r.started(j.Tenant, now)
		r.at(event{at: now + r.Service.Microseconds(), what: end, job: j, ok: ok, wait: wait})
	}
	switch {
	case p.More:
		r.soon(now)
	case p.Next > 0:
		r.soon(now + p.Next.Microseconds())
	}
	return nil
}

// started keeps the starts of the last second.
func (r *run) started(tenant string, now int64) {
	for name, peak := range map[string]*int{tenant: &r.report.TenantPeak, "": &r.report.Peak} {
		list := append(r.starts[name], now)
		for list[0] <= now-1_000_000 {
			list = list[1:]
		}
		r.starts[name] = list
		*peak = max(*peak, len(list))
	}
}

func (r *run) dispatch(ctx context.Context) error {
	d, err := r.engine.Dispatch(ctx)
	for err == nil && d.More {
		var more store.Dispatch
		more, err = r.engine.Dispatch(ctx)
		d.Moved, d.Woken, d.More = d.Moved+more.Moved, d.Woken+more.Woken, more.More
	}
	if err != nil {
		return err
	}
	if d.Moved+d.Woken > 0 {
		r.soon(r.clock.us)
	}
	r.rounds++
	next := r.clock.us - r.clock.us%r.Dispatch.Microseconds() + r.Dispatch.Microseconds()
	if r.Lag != nil {
		next += r.Lag(r.rounds).Microseconds()
	}
	r.at(event{at: next, what: dispatch})
	return nil
}

func (r *run) end(ctx context.Context, e event) error {
	ack := store.Ack{Key: e.job.Key, Fence: e.job.Fence, Verdict: store.Done, Took: r.Service}
	if !e.ok {
		ack.Verdict, ack.After, ack.Code = store.Held, e.wait, "http_429"
	}
	states, err := r.engine.Ack(ctx, []store.Ack{ack})
	if err != nil {
		return err
	}
	r.free++
	if states[0] == store.AckDone {
		r.left--
	}
	r.soon(r.clock.us)
	return nil
}

// Count checks that every job has succeeded once, and returns the mean throttles of a job.
func (s Simulation) Count(ctx context.Context, engine Engine) (float64, error) {
	throttles := int64(0)
	for t := range s.Tenants {
		g, err := engine.Group(ctx, s.group(t))
		if err != nil {
			return 0, err
		}
		if g.Succeeded != int64(s.Jobs) || g.Total != g.Succeeded {
			return 0, fmt.Errorf("group %s: %d of %d jobs are done", g.ID, g.Succeeded, s.Jobs)
		}
		throttles += g.Throttles
	}
	return float64(throttles) / float64(s.Tenants*s.Jobs), nil
}
