package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/anteroom/anteroom/bulk/store"
)

// giveUpAfter is how long a handler whose context has ended may take to return. Then its run is over without it.
const giveUpAfter = time.Second

const maxErrorText = 1 << 10

// run is one run of a job, from its start until the store has taken its ack.
type run struct {
	leased  store.Leased
	began   time.Time
	renewed time.Time // when the lease was last known to be whole; the registry's lock guards it
	cancel  context.CancelFunc
	over    atomic.Bool // its end is decided: the handler returned, or was given up
	called  atomic.Bool // off: the job is cancelled
	lost    atomic.Bool // the lease: another run decides, and what this one leads to is dropped
}

// registry holds the runs whose leases this process keeps, by fence.
type registry struct {
	mu   sync.Mutex
	runs map[int64]*run
}

func newRegistry() *registry { return &registry{runs: map[int64]*run{}} }

func (g *registry) add(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[r.leased.Fence] = r
}

func (g *registry) remove(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runs, r.leased.Fence)
}

// fences lists what it holds.
func (g *registry) fences() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.runs))
}

// workers run jobs, each in a goroutine of its own.
type workers struct {
	handlers  map[string]Handler
	policies  *policies
	pool      *pool
	runs      *registry
	acks      *acker
	recent    *recent
	metrics   *Metrics
	log       *slog.Logger
	maxResult int64

	ctx    context.Context // ends when running jobs shall
	cancel context.CancelFunc
	wg     sync.WaitGroup // of runs that are not over
}

// start runs a job.
func (w *workers) start(l store.Leased) {
	h := w.handlers[l.Type]
	if h == nil { // a pull names the types with a handler
		w.log.Error("the store handed out a job of a type that was not asked for; it goes back", "type", l.Type, "group", l.Group, "job", l.ID)
		w.giveBack(l)
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.policies.of(l.Type).Timeout)
	r := w.open(l, cancel)
	w.wg.Add(1)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(giveUpAfter, func() { w.giveUp(ctx, r) }) })
	go func() {
		var result []byte
		err := errNotReturned
		defer func() { // a handler may end its goroutine
			if errors.Is(err, errNotReturned) {
				err = w.caught(&l, recover())
			}
			if !r.over.CompareAndSwap(false, true) {
				w.metrics.abandoned.Dec()
				w.pool.returned()
				return
			}
			ended := ctx.Err()
			stop()
			cancel()
			w.end(r, w.verdict(r, result, err, ended))
			w.wg.Done()
		}()
		result, err = h.Handle(ctx, &Job{ID: l.ID, Group: l.Group, Tenant: l.Tenant, Type: l.Type, Payload: l.Payload, Cost: l.Cost,
			Attempt: l.Attempt, Fence: l.Fence, IdempotencyKey: cmp.Or(l.Root, l.Group) + "/" + l.ID})
	}()
}

var errNotReturned = errors.New("the handler has not returned")

// caught makes an error of a handler's panic; cause is nil where it ended its goroutine.
func (w *workers) caught(l *store.Leased, cause any) error {
	w.metrics.of(l.Type).panics.Inc()
	w.log.Error("a handler panicked", "type", l.Type, "group", l.Group, "job", l.ID, "panic", cause, "stack", string(debug.Stack()))
	return Fail("panic", fmt.Errorf("the handler panicked: %v", cause))
}

// open enters a run into the books.
func (w *workers) open(l store.Leased, cancel context.CancelFunc) *run {
	now := time.Now()
	r := &run{leased: l, began: now, renewed: now, cancel: cancel}
	w.pool.start()
	w.runs.add(r)
	return r
}

// giveUp ends a run whose handler does not heed its context. The goroutine stays until the handler returns.
func (w *workers) giveUp(ctx context.Context, r *run) {
	if !r.over.CompareAndSwap(false, true) {
		return
	}
	l := &r.leased
	w.metrics.abandoned.Inc()
	w.pool.abandon()
	w.log.Warn("a handler goes on although its context has ended; its worker goes to other jobs, unless more handlers than workers do so", "type", l.Type, "group", l.Group, "job", l.ID)
	w.end(r, w.verdict(r, nil, fmt.Errorf("the handler did not return within %s of its end: %w", giveUpAfter, context.DeadlineExceeded), ctx.Err()))
	w.wg.Done()
}

// verdict says what a handler's answer means for the job; ended is why its context had ended by then, if it had.
func (w *workers) verdict(r *run, result []byte, err error, ended error) store.Ack {
	l := &r.leased
	if err == nil {
		if int64(len(result)) > w.maxResult {
			return store.Ack{Verdict: store.Rejected, Code: "result_too_large",
				Error: fmt.Sprintf("the result has %d bytes, limits.result allows %d", len(result), w.maxResult)}
		}
		return store.Ack{Verdict: store.Done, Result: result}
	}
	if r.called.Load() && ended != nil {
		return store.Ack{Verdict: store.Returned} // and the store, which has called it off, ends it as cancelled
	}
	f, policy := failureOf(err), w.policies.of(l.Type)
	a := store.Ack{Code: code(f.Code), Error: brief(f.Err), Down: f.Down, Breaker: policy.Breaker}
	switch f.Kind {
	case KindPermanent:
		a.Verdict = store.Rejected
	case KindBusy:
		a.Verdict, a.After = store.Throttled, min(max(0, f.After), MaxAfter)
	case KindBusyGroup:
		a.Verdict, a.After = store.Held, min(max(0, f.After), MaxAfter)
	default:
		a.Verdict, a.After = store.Retry, max(retryAfter(policy.Retry, l.Attempt), min(f.After, MaxAfter))
		a.Retries = max(0, policy.Retry.Max)
		switch {
		case w.ctx.Err() != nil && ended != nil: // cut short by the shutdown: not the job's fault
			return store.Ack{Verdict: store.Returned}
		case errors.Is(ended, context.DeadlineExceeded) && f.Code == "error":
			a.Code, a.Down = "timeout", true // whatever words the handler has for it
		}
	}
	return a
}

// end hands the ack of a run over and frees its worker.
func (w *workers) end(r *run, a store.Ack) {
	l := &r.leased
	a.Key, a.Fence, a.Took = l.Key, l.Fence, time.Since(r.began)
	w.metrics.ran(l.Type, &a)
	w.recent.ran(&a)
	w.acks.add(r, a)
	w.pool.finish()
}

// giveBack returns a job that was not started.
func (w *workers) giveBack(l store.Leased) {
	r := w.open(l, func() {})
	r.over.Store(true)
	w.acks.add(r, store.Ack{Key: l.Key, Fence: l.Fence, Verdict: store.Returned})
	w.pool.finish()
}

// finish lets running jobs end within grace, then cancels them. When it returns, every run has its ack on the way.
func (w *workers) finish(grace time.Duration) {
	idle := make(chan struct{})
	go func() {
		w.wg.Wait()
		close(idle)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
	w.cancel()
	<-idle // within giveUpAfter
}

// code makes an error code of what a handler gave: [a-z0-9_], at most 64.
func code(s string) string {
	s = strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '_'
	}, s)
	if s == "" {
		return "error"
	}
	return s[:min(len(s), 64)]
}

// brief is an error's text, in valid UTF-8 and not longer than people read.
func brief(err error) string {
	if err == nil {
		return ""
	}
	s := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(s) <= maxErrorText {
		return s
	}
	end := maxErrorText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
