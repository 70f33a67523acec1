package bulk

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// source supplies jobs.
type source interface {
	AckPull(ctx context.Context, acks []store.Ack, want int, types ...string) ([]store.AckState, store.Pulled, error)
	Wait(ctx context.Context, d time.Duration) error
	Ring(ctx context.Context) error
	Reclaim(ctx context.Context, known []int64) (int64, error)
}

const (
	longestWait = time.Second // bounds the cost of a lost event
	// shortestWait is the shortest pause for a limit.
	shortestWait = time.Millisecond
	// shortListen is the longest pause that is not worth a blocking command.
	shortListen = 5 * time.Millisecond
)

// fetcher takes jobs for free workers from the fair queue. It leases only jobs that start immediately or, where jobs are short,
// within milliseconds (ahead.go). Without any, it waits for an event or the next slot of a limit, at most a second.
type fetcher struct {
	store source
	pool  *pool
	batch int
	types []string // that this process runs
	starting
	runs    *registry
	acks    *acker
	metrics *Metrics
	role    *role
	events  *listener
	gather  gathering
	// turn waits until this process may take jobs of the shard, and reports whether ctx has not ended; nil: it always does.
	turn       func(ctx context.Context) bool
	preference *preference // of the shard; nil without turn
}

// starting passes the result of a pull on. since is when the pull began.
type starting struct {
	start    func(l store.Leased, since time.Time)
	giveBack func(l store.Leased, since time.Time) // returns a job that was not started to its group
	later    func(l store.Leased, since time.Time) // starts a job when a worker is free
	limited  func(p *store.Pulled)                 // called after the jobs have started
}

// gathering computes the shortest pause of a fetcher. Longer pauses let one pull find several jobs and keep the
// number of pulls independent of the number of processes. Where the global rate stops a pull, all processes together
// pull some eight times in the window in which a burst accumulates: each pauses for an eighth of the window times
// their number. A process that finds more than half a burst pauses for less, since others are busy. Where a gate
// opens for a few jobs, processes that find none pause for longer.
type gathering struct {
	burst     float64       // jobs that may start at once
	window    time.Duration // time in which a burst accumulates
	processes func() int64
	part      float64       // share of the wait for the global rate, up to 1
	gate      time.Duration // pause for a gate
	found     int           // jobs since the last pause
	turn      time.Time     // when to pull again for the global rate
}

const (
	// mostGathered is the longest pause for a rate that other processes use up.
	mostGathered = 500 * time.Millisecond
	// mostGated is the longest pause for a gate that has opened for other processes: a group's burst accumulates in
	// 100 ms.
	mostGated = 50 * time.Millisecond
)

func newGathering(burst, rate float64) gathering {
	g := gathering{burst: burst, window: 100 * time.Millisecond, gate: shortestWait, part: 1}
	if rate > 0 {
		g.window = min(g.window, time.Duration(burst/rate*float64(time.Second)))
	}
	return g
}

// pulled counts the jobs of a pull.
func (g *gathering) pulled(p *store.Pulled) { g.found += len(p.Jobs) }

// least returns the shortest pause after a pull that found fewer jobs than wanted.
func (g *gathering) least(p *store.Pulled) time.Duration {
	found := g.found
	g.found = 0
	if !p.Limited {
		if found > 0 {
			g.gate = shortestWait
		} else if p.Next > 0 {
			g.gate = min(2*g.gate, mostGated)
		}
		return g.gate
	}
	switch n := float64(found); {
	case n > g.burst/2:
		g.part = max(g.part/2, 1e-3)
	case n < g.burst/4:
		g.part = min(1, g.part*1.2)
	}
	wait := float64(g.window) / 8 * float64(max(1, g.processes())) * g.part
	d := time.Duration(min(max(wait, float64(shortestWait)), float64(mostGathered)))
	// A process that an event woke early keeps its turn; otherwise all processes that one event wakes would pause
	// together.
	if left := time.Until(g.turn); left > shortestWait {
		return left
	}
	d = d*3/4 + within(d/2)
	g.turn = time.Now().Add(d)
	return d
}

func (f *fetcher) run(ctx context.Context) {
	listening := begin(ctx, f.events.run)
	defer listening.stop()
	defer f.acks.leave(false)
	limited := false // a limit stopped the last pull
	unsure := false  // an unanswered pull may have leased jobs
	more := false    // the last pull left jobs, and the next one follows
	beyond := 0      // jobs of a pull beyond the free workers
	for {
		if f.turn != nil && !f.turn(ctx) {
			return
		}
		if unsure { // before the turn: the shard may be away
			if _, err := f.store.Reclaim(ctx, f.runs.fences()); err != nil {
				f.role.failed(ctx, err)
				if ctx.Err() != nil {
					return
				}
				continue
			}
			unsure = false
		}
		free, ok := f.pool.wait(ctx, f.batch, f.events.arrived)
		if !ok {
			return
		}
		if free == 0 { // pass the event on: another process may have a free worker
			if err := f.store.Ring(ctx); err != nil {
				f.role.failed(ctx, err)
			}
			continue
		}
		f.acks.leave(more && free+beyond <= fewJobs)
		want := f.pool.hold(f.batch)
		if want == 0 { // another lane has taken them
			f.pool.pulled(more, false)
			continue
		}
		f.events.ignore()
		// The call outlives ctx: a shutdown must not lose the jobs that it leases.
		began := time.Now()
		if beyond = 0; !limited {
			beyond = f.pool.holdAhead(f.batch - want)
		}
		p, err := f.pull(context.WithoutCancel(ctx), want+beyond)
		now := min(want, len(p.Jobs))
		f.pool.drop(want - now)
		f.pool.dropAhead(beyond - (len(p.Jobs) - now))
		if err != nil {
			unsure, more = true, false
			f.pool.pulled(false, false)
			f.acks.leave(false)
			if f.preference != nil {
				f.preference.busy.Store(false) // other shards are served while this one is away
			}
			f.role.failed(ctx, err)
			continue
		}
		f.role.ok()
		f.metrics.pulled(p)
		f.gather.pulled(&p)
		f.take(ctx, p.Jobs, now, began)
		f.limited(&p)
		limited = p.Limited || p.Next > 0
		want += beyond
		// Handlers that end at once free their workers first, for one pull instead of many.
		runtime.Gosched()
		f.pool.pulled(p.More, len(p.Jobs) == want)
		more = p.More && ctx.Err() == nil
		f.acks.leave(more && want <= fewJobs)
		if f.preference != nil && f.preference.pulled(&p, want) {
			continue
		}
		if !p.More && len(p.Jobs) < want {
			f.events.wait(ctx, next(p.Next, f.gather.least(&p), longestWait))
		}
	}
}

// take starts the first jobs of a pull, for which workers are reserved, and the others when workers are free.
func (f *fetcher) take(ctx context.Context, jobs []store.Leased, now int, began time.Time) {
	stopping := ctx.Err() != nil
	if len(jobs) > now {
		crashedLast(jobs)
	}
	for i, j := range jobs {
		switch {
		case i >= now:
			f.later(j, began)
		case stopping:
			f.giveBack(j, began)
		default:
			f.start(j, began)
		}
	}
}

// fewJobs is up to how many jobs a pull also sends the acks: more are better sent at the same time as the pull.
const fewJobs = 64

// pull pulls, and sends the acks that were left to it.
func (f *fetcher) pull(ctx context.Context, want int) (store.Pulled, error) {
	var batch []pendingAck
	if f.acks.left.Load() && want <= fewJobs {
		batch = f.acks.handOver(fewJobs)
	}
	states, p, err := f.store.AckPull(ctx, acksOf(batch), want, f.types...)
	if _, refused := errors.AsType[*store.Refusal](err); refused { // of one ack, which the acker finds
		f.acks.giveBack(batch)
		_, p, err = f.store.AckPull(ctx, nil, want, f.types...)
		return p, err
	}
	if err != nil {
		for i := range batch {
			batch[i].sent = true
		}
		f.acks.giveBack(batch)
		return p, err
	}
	f.acks.recorded(batch, states)
	return p, nil
}

// next returns the pause when the store asks for d (0: unknown).
func next(d, least, most time.Duration) time.Duration {
	if d <= 0 {
		return most
	}
	return min(max(d, least), most)
}

// listener waits for events of the queue beside the fetcher's timer: a blocking command returns late when it times out,
// and the next slot of a limit must not be missed.
type listener struct {
	store   source
	role    *role
	ask     chan time.Time // until when to listen; the latest replaces others
	arrived chan struct{}  // signals an event; capacity 1
}

func newListener(s source, r *role) *listener {
	return &listener{store: s, role: r, ask: make(chan time.Time, 1), arrived: make(chan struct{}, 1)}
}

func (e *listener) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case until := <-e.ask:
			d := time.Until(until)
			if d < shortListen {
				continue
			}
			err := e.store.Wait(ctx, d)
			broken := err != nil
			for ; err != nil && ctx.Err() == nil; err = e.store.Wait(ctx, shortListen) {
				e.role.failed(ctx, err)
			}
			e.role.ok()
			if !broken && time.Until(until) <= 0 {
				continue // no event: the fetcher's timer wakes it
			}
			select {
			case e.arrived <- struct{}{}:
			default:
			}
		}
	}
}

// ignore discards events and requests from before a pull, which will see the jobs.
func (e *listener) ignore() {
	select {
	case <-e.ask:
	default:
	}
	select {
	case <-e.arrived:
	default:
	}
}

// wait returns after an event, after d, or when ctx ends.
func (e *listener) wait(ctx context.Context, d time.Duration) {
	if d >= shortListen {
		e.ask <- time.Now().Add(d) // ignore has made room
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.arrived:
	case <-timer.C:
	case <-ctx.Done():
	}
}
