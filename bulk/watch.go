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
	"github.com/anteroom/anteroom/internal/sleep"
)

const (
	tendAtOnce     = 4   // groups
	callbackAtOnce = 8   // groups
	tendMost       = 256 // groups in progress; the store names the others again
	tendLock       = 30 * time.Second
	complainEvery  = time.Minute // about one group
	// restTimes is how many times as long as a step of a sweep or purge this process pauses after it, so that these
	// take a quarter of the store's time at most, however many groups are cancelled or past their retention.
	restTimes = 3
	restMost  = 200 * time.Millisecond
)

// tender does the housekeeping of a group.
type tender interface {
	Lock(ctx context.Context, group string, d time.Duration) (unlock func(), ok bool, err error)
	Tend(ctx context.Context, group string) (store.Tended, error)
	Offer(ctx context.Context, group, need string) (waits bool, err error)
}

// watcher does the housekeeping of groups that the dispatcher names: sweeps, reduction, end, callback. The lock only
// keeps processes from doing the same work; the store decides what may happen once. Tend also moves a group on in the
// store's agenda, so it is called for busy groups too: a slow one must not stay at the front of the agenda.
type watcher struct {
	store   tender
	shard   int
	reduce  *reducing
	call    *calling
	chains  *chaining
	metrics *Metrics
	log     *slog.Logger
	health  *health
	failing atomic.Bool

	named   chan []string
	tending chan struct{} // slots
	resting chan struct{} // one at a time: otherwise several groups would take all of the store's time

	mu         sync.Mutex
	underWay   map[string]bool // groups; true: named again since
	complained map[string]time.Time
}

func newWatcher(s tender, reduce *reducing, call *calling, m *Metrics, log *slog.Logger, h *health) *watcher {
	return &watcher{store: s, reduce: reduce, call: call, metrics: m, log: log, health: h, named: make(chan []string, 1),
		tending: make(chan struct{}, tendAtOnce), resting: make(chan struct{}, 1), underWay: map[string]bool{}, complained: map[string]time.Time{}}
}

// name starts the housekeeping of groups. It never blocks.
func (w *watcher) name(groups []string) {
	if len(groups) == 0 {
		return
	}
	select {
	case w.named <- groups:
	default: // the store names them again
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
				if !w.claim(g) {
					_, err := w.step(ctx, g)
					w.logResult(ctx, g, err)
					continue
				}
				wg.Go(func() {
					defer w.leave(g)
					w.logResult(ctx, g, w.tend(ctx, g))
				})
			}
		}
	}
}

// claim marks a group as in progress. It returns false if it is already, or if too many are.
func (w *watcher) claim(group string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, busy := w.underWay[group]; busy {
		w.underWay[group] = true
		return false
	}
	if len(w.underWay) >= tendMost {
		return false
	}
	w.underWay[group] = false
	return true
}

func (w *watcher) leave(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.underWay, group)
}

// again reports whether a group in progress was named since the last call.
func (w *watcher) again(group string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.underWay[group]
	w.underWay[group] = false
	return was
}

// step does one bounded step.
func (w *watcher) step(ctx context.Context, group string) (store.Tended, error) {
	t, err := w.store.Tend(ctx, group)
	if err == nil && t.DeadGone > 0 {
		w.metrics.deadExpired.Add(float64(t.DeadGone))
		w.log.Warn("dropped dead letters past retention.dead", "group", group, "jobs", t.DeadGone)
	}
	if err == nil && t.Sealed {
		w.sealedSilent(group)
	}
	return t, err
}

// tend does all housekeeping of a group.
func (w *watcher) tend(ctx context.Context, group string) error {
	due, err := w.locked(ctx, group)
	passed := w.chains.pass(ctx, group, due)
	var lacks *missingReducer
	switch {
	case errors.As(err, &lacks):
		if waits, failed := w.store.Offer(ctx, group, needReducer+lacks.name); failed != nil || !waits {
			return errors.Join(failed, passed)
		}
	case err == nil && due.Callback && w.call.send == nil:
		_, err = w.store.Offer(ctx, group, needCallback)
	case err == nil && due.Callback:
		err = w.call.back(ctx, w.store, group)
	}
	return errors.Join(err, passed)
}

const (
	// needCallback and needReducer are what a group may need that not every process has, as the store names it.
	needCallback = "callback"
	needReducer  = "reduce/" // followed by its name
)

// locked does the part that needs the group's lock, and returns what is left to do without it.
func (w *watcher) locked(ctx context.Context, group string) (due store.Tended, err error) {
	select {
	case w.tending <- struct{}{}:
		defer func() { <-w.tending }()
	case <-ctx.Done():
		return due, nil
	}
	unlock, ok, err := w.store.Lock(ctx, group, tendLock)
	if err != nil {
		return due, err
	}
	if !ok {
		due, err = w.step(ctx, group)
		due.Callback = false
		return due, err
	}
	defer unlock()
	callback := false
	// A long reduction lets other calls run in between and does not outlast its lock. If it does, the store names the group again.
	for until := time.Now().Add(tendLock / 2); time.Now().Before(until) && ctx.Err() == nil; {
		began := time.Now()
		if due, err = w.step(ctx, group); err != nil || due.Removed {
			break
		}
		if due.Again {
			w.rest(ctx, time.Since(began))
		}
		more := false
		if due.Part && due.Reduce {
			if due.Reduce, err = w.join(ctx, group); err != nil {
				break
			}
		}
		if due.Reduce {
			if more, err = w.reduce.group(ctx, group, until); err != nil {
				break
			}
		}
		if !due.Again && !more && !w.again(group) {
			callback = due.Callback
			break
		}
	}
	due.Callback = callback
	return due, err
}

// join does what is due of a split group, and reports whether its outcomes are to be reduced. A shard that is away is reported by
// its own lane, and the group is named again.
func (w *watcher) join(ctx context.Context, group string) (reduce bool, err error) {
	j, err := w.reduce.splits.Join(ctx, w.shard, group)
	if errors.Is(err, store.ErrStore) {
		return false, nil
	}
	if j.Sealed {
		w.sealedSilent(group)
	}
	return j.Reduce, err
}

// sealedSilent reports that a group was sealed for its silence.
func (w *watcher) sealedSilent(group string) {
	w.metrics.silent.Inc()
	w.log.Warn("sealed a group without a new job or outcome for unsealed_after; its sender should seal or cancel it", "group", group)
}

// rest lets the store's other work run after a step of that length.
func (w *watcher) rest(ctx context.Context, took time.Duration) {
	select {
	case w.resting <- struct{}{}:
		sleep.For(ctx, min(restTimes*took, restMost))
		<-w.resting
	case <-ctx.Done():
	}
}

// errReducer is returned when a user's reducer fails.
var errReducer = errors.New("the reducer failed")

func reducerFailed(err error) error { return fmt.Errorf("%w: %w", errReducer, err) }

// logResult logs the failure of a group's housekeeping. Failures are retried when the store names the group again.
func (w *watcher) logResult(ctx context.Context, group string, err error) {
	var refused *store.Refusal
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
	case errors.As(err, &refused):
		if refused.Code != store.CodeNotFound && refused.Code != store.CodeState { // the group was deleted or has ended
			w.complain(group, "housekeeping of a group was refused", err)
		}
	case errors.Is(err, errNoReducer):
		w.complain(group, "a group waits for a reducer that no running process has; register it in one of them", err)
	case errors.Is(err, errReducer):
		w.metrics.reduceErrors.Inc()
		w.complain(group, "a group's reducer failed; will retry", err)
	default:
		w.failing.Store(true)
		w.health.failed("watcher", err)
		return
	}
	if w.failing.Swap(false) {
		w.health.fine("watcher")
	}
}

// complain logs a group's problem, at most once in complainEvery.
func (w *watcher) complain(group, text string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if last, ok := w.complained[group]; ok && now.Sub(last) < complainEvery {
		return
	}
	for g, at := range w.complained {
		if now.Sub(at) >= complainEvery {
			delete(w.complained, g)
		}
	}
	w.complained[group] = now
	w.log.Error(text, "group", group, "error", err)
}
