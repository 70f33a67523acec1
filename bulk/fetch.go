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
	Reclaim(ctx context.Context, known []int64) (int64, error)
}

const (
	longestWait = time.Second // an event that got lost costs no more
	// shortestWait gathers what single slots of a fast limiter would hand out one by one.
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
}

func (f *fetcher) run(ctx context.Context) {
	listening := begin(ctx, f.ear.run)
	defer listening.stop()
	unsure := false // a pull may have leased jobs that this process does not know of
	for {
		if _, ok := f.pool.wait(ctx); !ok {
			return
		}
		if unsure {
			if _, err := f.store.Reclaim(ctx, f.runs.fences()); err != nil {
				f.role.failed(ctx, err)
				continue
			}
			unsure = false
		}
		free := f.pool.settled()
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
			f.ear.wait(ctx, next(p.Next, shortestWait, longestWait))
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
