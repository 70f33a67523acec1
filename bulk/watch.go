package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

const (
	tendAtOnce     = 4   // groups
	callbackAtOnce = 8   // groups
	tendKnown      = 256 // groups under way or resting; the dispatcher names the others again
	tendLock       = 30 * time.Second
	tendRest       = 500 * time.Millisecond // between two looks at a group that left nothing to do
	tendRestLong   = 15 * time.Second       // at one that this process can do nothing for
)

// tender does the housekeeping of a group.
type tender interface {
	Lock(ctx context.Context, group string, d time.Duration) (unlock func(), ok bool, err error)
	Tend(ctx context.Context, group string) (store.Tended, error)
}

// watcher brings groups on that the dispatcher names: sweeps, reduction, the end, the callback. The lock only keeps processes
// from doing the same work; what may happen once is decided by the store.
type watcher struct {
	store   tender
	reduce  *reducing
	call    *calling
	metrics *Metrics
	log     *slog.Logger
	health  *health
	failing atomic.Bool

	tending chan struct{} // slots
	mu      sync.Mutex
	known   map[string]time.Time // groups under way (zero) or resting (until then)
	named   chan []string
}

// name is told which groups have housekeeping to do. It never blocks.
func (w *watcher) name(groups []string) {
	if len(groups) == 0 {
		return
	}
	select {
	case w.named <- groups:
	default: // they are named again
	}
}

func (w *watcher) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case groups := <-w.named:
			for _, g := range groups {
				if w.claim(g, time.Now()) {
					wg.Go(func() { w.rest(g, w.tend(ctx, g)) })
				}
			}
		}
	}
}

// claim says whether this process should look at a group now, and if so, marks it as under way.
func (w *watcher) claim(group string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, known := w.known[group]
	if known && (until.IsZero() || now.Before(until)) {
		return false
	}
	if !known && len(w.known) >= tendKnown {
		for g, until := range w.known {
			if !until.IsZero() && !now.Before(until) {
				delete(w.known, g)
			}
		}
		if len(w.known) >= tendKnown {
			return false
		}
	}
	w.known[group] = time.Time{}
	return true
}

func (w *watcher) rest(group string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d <= 0 {
		delete(w.known, group)
	} else {
		w.known[group] = time.Now().Add(d)
	}
}

// tend does all there is to do for a group and says how long to leave it alone.
func (w *watcher) tend(ctx context.Context, group string) (rest time.Duration) {
	rest, callback, err := w.locked(ctx, group)
	if err == nil && callback {
		rest, err = w.call.back(ctx, w.store, group)
	}
	var refused *store.Refusal
	switch {
	case ctx.Err() != nil:
		return 0
	case err == nil:
	case errors.As(err, &refused):
		if refused.Code != store.CodeNotFound { // gone meanwhile
			w.log.Warn("housekeeping of a group was refused", "group", group, "error", err)
			return tendRestLong
		}
	case errors.Is(err, errNoReducer):
		w.log.Warn("a group waits for a reducer that this process does not have: register it (Engine.RegisterReducer) "+
			"in one of those that run", "group", group, "error", err)
		return tendRestLong
	case errors.Is(err, errReducer):
		w.metrics.reduceErrors.Inc()
		w.log.Error("a group's reducer failed; it is tried again", "group", group, "error", err)
		return tendRestLong
	default:
		w.failing.Store(true)
		w.health.failed("watcher", err)
		return lastPause
	}
	if w.failing.Swap(false) {
		w.health.fine("watcher")
	}
	return rest
}

// locked does the part under the group's lock.
func (w *watcher) locked(ctx context.Context, group string) (rest time.Duration, callback bool, err error) {
	select {
	case w.tending <- struct{}{}:
		defer func() { <-w.tending }()
	case <-ctx.Done():
		return 0, false, nil
	}
	unlock, ok, err := w.store.Lock(ctx, group, tendLock)
	if err != nil || !ok {
		return tendRest, false, err
	}
	defer unlock()
	// A long reduction lets others go first now and then, and never outlasts its lock by much.
	for until := time.Now().Add(tendLock / 2); time.Now().Before(until) && ctx.Err() == nil; {
		t, err := w.store.Tend(ctx, group)
		if err != nil {
			return tendRest, false, err
		}
		w.metrics.deadExpired.Add(float64(t.DeadGone))
		if t.DeadGone > 0 {
			w.log.Warn("dead letters past retention.dead were dropped", "group", group, "jobs", t.DeadGone)
		}
		if t.Removed {
			return 0, false, nil
		}
		moved := false
		if t.Reduce {
			if moved, err = w.reduce.group(ctx, group, until); err != nil {
				return tendRest, false, err
			}
		}
		if !t.Again && !moved {
			return tendRest, t.Callback, nil
		}
	}
	return 0, false, nil // named again
}

func newWatcher(s tender, reduce *reducing, call *calling, m *Metrics, log *slog.Logger, h *health) *watcher {
	return &watcher{store: s, reduce: reduce, call: call, metrics: m, log: log, health: h,
		tending: make(chan struct{}, tendAtOnce), known: map[string]time.Time{}, named: make(chan []string, 16)}
}

// errReducer marks a failure of a team's own reducer.
var errReducer = errors.New("the reducer failed")

func reducerFailed(err error) error { return fmt.Errorf("%w: %w", errReducer, err) }
