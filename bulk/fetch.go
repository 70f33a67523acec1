package bulk

import (
	"context"
	"runtime"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// source is where jobs come from.
type source interface {
	Pull(ctx context.Context, want int, types ...string) (store.Pulled, error)
	Wait(ctx context.Context, d time.Duration) error
	Ring(ctx context.Context) error
	Reclaim(ctx context.Context, known []int64) (int64, error)
}

const (
	longestWait = time.Second // an event that got lost costs no more
	// shortestWait is the least that a process waits for a limit.
	shortestWait = time.Millisecond
	// shortListen is the longest wait for which listening is not worth a blocking command.
	shortListen = 5 * time.Millisecond
)

// fetcher takes jobs for free workers out of the fair queue. It leases only what is started at once, and when there is
// nothing it waits: for an event, for the next slot of a limit, at most a second.
type fetcher struct {
	store    source
	pool     *pool
	batch    int
	types    []string // that this process runs
	start    func(store.Leased)
	giveBack func(store.Leased) // to its group, not started
	runs     *registry
	metrics  *Metrics
	role     *role
	ear      *ear
	gather   gathering
}

// gathering is how long a fetcher waits at least, so that a pull finds several jobs that may start, and so that many processes do not
// ask the store as often as many times one. Where the global rate stops a pull, all processes together pull again some eight times in
// the window in which a burst gathers: each waits for an eighth of it times their number. Who finds more than half a burst waits for
// less: others are busy. Where a gate opens for a few jobs, processes that find none wait for longer.
type gathering struct {
	burst     float64       // how many may start at one moment
	window    time.Duration // for how long they have gathered then
	processes func() int64
	part      float64       // of the wait for the global rate, up to 1
	gate      time.Duration // the wait for a gate
	found     int           // jobs since the last wait
	turn      time.Time     // when to pull again for the global rate
}

const (
	// mostGathered is the longest that a process waits for a rate that others use up.
	mostGathered = 500 * time.Millisecond
	// mostGated is the longest that a process waits for a gate that has opened for others: groups' bursts gather for 100 ms.
	mostGated = 50 * time.Millisecond
)

func newGathering(burst, rate float64) gathering {
	g := gathering{burst: burst, window: 100 * time.Millisecond, gate: shortestWait, part: 1}
	if rate > 0 {
		g.window = min(g.window, time.Duration(burst/rate*float64(time.Second)))
	}
	return g
}

// pulled takes in a pull.
func (g *gathering) pulled(p *store.Pulled) { g.found += len(p.Jobs) }

// least returns how long to wait at least after a pull that found fewer than were wanted.
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
	// Who was woken before its turn has it all the same, or all that one bell wakes would wait together.
	if left := time.Until(g.turn); left > shortestWait {
		return left
	}
	d = d*3/4 + within(d/2)
	g.turn = time.Now().Add(d)
	return d
}

func (f *fetcher) run(ctx context.Context) {
	listening := begin(ctx, f.ear.run)
	defer listening.stop()
	unsure := false // a pull may have leased jobs that this process does not know of
	for {
		free, ok := f.pool.wait(ctx, f.ear.heard)
		if !ok {
			return
		}
		if free == 0 { // another process may have a worker for what this one has heard of
			if err := f.store.Ring(ctx); err != nil {
				f.role.failed(ctx, err)
			}
			continue
		}
		if unsure {
			if _, err := f.store.Reclaim(ctx, f.runs.fences()); err != nil {
				f.role.failed(ctx, err)
				continue
			}
			unsure = false
		}
		free = f.pool.settled()
		want := min(free, f.batch)
		f.ear.ignore()
		// The call itself outlives ctx: jobs that it leased must not be lost to a shutdown.
		p, err := f.store.Pull(context.WithoutCancel(ctx), want, f.types...)
		if err != nil {
			unsure = true
			f.role.failed(ctx, err)
			continue
		}
		f.role.ok()
		f.metrics.pulled(p)
		f.gather.pulled(&p)
		take := f.start
		if ctx.Err() != nil {
			take = f.giveBack
		}
		for _, j := range p.Jobs {
			take(j)
		}
		// Handlers that need no time end first, and free their workers for one pull of all of them instead of many of one.
		runtime.Gosched()
		f.pool.pulled(p.More)
		if !p.More && len(p.Jobs) < want {
			f.ear.wait(ctx, next(p.Next, f.gather.least(&p), longestWait))
		}
	}
}

// next is how long to wait where the store says d (0: it does not know).
func next(d, least, most time.Duration) time.Duration {
	if d <= 0 {
		return most
	}
	return min(max(d, least), most)
}

// ear listens for events of the queue beside the fetcher's own timer: a blocking command is woken late where it times out,
// and a limit's next slot must not be missed.
type ear struct {
	store source
	role  *role
	ask   chan time.Time // until when to listen; holds the latest
	heard chan struct{}  // holds one
}

func newEar(s source, r *role) *ear {
	return &ear{store: s, role: r, ask: make(chan time.Time, 1), heard: make(chan struct{}, 1)}
}

func (e *ear) run(ctx context.Context) {
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
				continue // nothing came: the fetcher's timer has woken it
			}
			select {
			case e.heard <- struct{}{}:
			default:
			}
		}
	}
}

// ignore forgets what was heard and asked for before a pull: the pull will see it.
func (e *ear) ignore() {
	select {
	case <-e.ask:
	default:
	}
	select {
	case <-e.heard:
	default:
	}
}

// wait returns when something was heard, after d, or when ctx ends.
func (e *ear) wait(ctx context.Context, d time.Duration) {
	if d >= shortListen {
		e.ask <- time.Now().Add(d) // ignore has made room
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.heard:
	case <-timer.C:
	case <-ctx.Done():
	}
}
