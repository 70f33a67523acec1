package bulk

import (
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

	"github.com/anteroom/anteroom/bulk/jobtrace"
	"github.com/anteroom/anteroom/bulk/store"
)

// giveUpAfter is how long a handler may take to return after its context has ended. Then the handler is abandoned.
const giveUpAfter = time.Second

const maxErrorText = 1 << 10

// run is one run of a job, from its start until its ack is recorded.
type run struct {
	leased  store.Leased
	began   time.Time
	renewed time.Time // start of the current lease, the same for all jobs of a pull; guarded by the registry's lock
	cancel  context.CancelFunc
	over    atomic.Bool // the handler returned or was abandoned
	called  atomic.Bool // the job is to be cancelled
	lost    atomic.Bool // the lease is lost: this run's outcome is dropped
	traced  *jobtrace.Run
}

// registry holds the runs whose leases this process renews, by fence.
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

// fences returns the fences of the runs.
func (g *registry) fences() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.runs))
}

// count returns how many runs satisfy a condition.
func (g *registry) count(is func(l *store.Leased) bool) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runs {
		if is(&r.leased) {
			n++
		}
	}
	return n
}

// workers run jobs, each in its own goroutine.
type workers struct {
	handlers  map[string]Handler
	policies  *policies
	pool      *pool
	runs      *registry
	acks      *acker
	recent    *recent
	metrics   *Metrics
	tracer    *jobtrace.Tracer
	log       *slog.Logger
	maxResult int64

	ctx    context.Context // cancels running jobs
	cancel context.CancelFunc
	wg     sync.WaitGroup // of runs that are not over
}

// start runs a job.
func (w *workers) start(l store.Leased, since time.Time) {
	h := w.handlers[l.Type]
	if h == nil { // a pull requests only types with a handler
		w.log.Error("the store returned a job of a type without a handler; giving it back", "type", l.Type, "group", l.Group, "job", l.ID)
		w.giveBack(l, since)
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.policies.of(l.Type).Timeout)
	r := w.open(l, since, cancel)
	ctx, r.traced = w.tracer.Run(ctx, &r.leased)
	w.wg.Add(1)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(giveUpAfter, func() { w.giveUp(ctx, r) }) })
	go func() {
		var result []byte
		err := errNotReturned
		defer func() { // runtime.Goexit in a handler
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
		result, err = h.Handle(ctx, jobOf(&l))
	}()
}

func jobOf(l *store.Leased) *Job {
	return &Job{ID: l.ID, Group: l.Group, Tenant: l.Tenant, Type: l.Type, Payload: l.Payload, Cost: l.Cost, Attempt: l.Attempt, Fence: l.Fence,
		IdempotencyKey: l.IdempotencyKey()}
}

var errNotReturned = errors.New("the handler has not returned")

// caught returns an error for a handler's panic; cause is nil if the handler ended its goroutine.
func (w *workers) caught(l *store.Leased, cause any) error {
	w.metrics.of(l.Type).panics.Inc()
	w.log.Error("handler panicked", "type", l.Type, "group", l.Group, "job", l.ID, "panic", cause, "stack", string(debug.Stack()))
	return Fail("panic", fmt.Errorf("the handler panicked: %v", cause))
}

// open registers a run. Its lease began at since.
func (w *workers) open(l store.Leased, since time.Time, cancel context.CancelFunc) *run {
	r := &run{leased: l, began: time.Now(), renewed: since, cancel: cancel}
	w.pool.start()
	w.runs.add(r)
	return r
}

// giveUp abandons a handler that ignores its context. Its goroutine stays until the handler returns.
func (w *workers) giveUp(ctx context.Context, r *run) {
	if !r.over.CompareAndSwap(false, true) {
		return
	}
	l := &r.leased
	w.metrics.abandoned.Inc()
	w.pool.abandon()
	w.log.Warn("handler ignores the end of its context; abandoning it, its worker takes other jobs", "type", l.Type, "group", l.Group, "job", l.ID)
	w.end(r, w.verdict(r, nil, fmt.Errorf("the handler did not return within %s of its end: %w", giveUpAfter, context.DeadlineExceeded), ctx.Err()))
	w.wg.Done()
}

// verdict returns the ack for a handler's result or error. ended is the error of its context, if that had ended.
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
		return store.Ack{Verdict: store.Returned} // the store ends it as cancelled
	}
	f := failureOf(err)
	if f.Kind == KindRetry {
		switch {
		case w.ctx.Err() != nil && ended != nil: // interrupted by the shutdown
			return store.Ack{Verdict: store.Returned}
		case errors.Is(ended, context.DeadlineExceeded) && f.Code == "error": // whatever error the handler returned
			f = &Failure{Kind: f.Kind, Code: "timeout", After: f.After, Err: f.Err, Down: true}
		}
	}
	return w.policies.of(l.Type).Failed(l.Attempt, f)
}

// end queues the ack of a run and frees its worker.
func (w *workers) end(r *run, a store.Ack) {
	l := &r.leased
	a.Key, a.Fence, a.Took = l.Key, l.Fence, time.Since(r.began)
	w.metrics.ran(l.Type, &a, r.traced.TraceID())
	r.traced.End(string(a.Verdict), a.Code, a.Error)
	w.recent.ran(&a)
	w.pool.ran(a.Took)
	w.acks.add(r, a)
	w.pool.finish()
}

// giveBack returns a job that was not started to its group.
func (w *workers) giveBack(l store.Leased, since time.Time) { w.giveBackRun(l, since, false) }

// giveBackRun is giveBack. If the lease is lost, there is nothing to return.
func (w *workers) giveBackRun(l store.Leased, since time.Time, lost bool) {
	r := w.open(l, since, func() {})
	r.over.Store(true)
	r.lost.Store(lost)
	w.acks.add(r, store.Ack{Key: l.Key, Fence: l.Fence, Verdict: store.Returned})
	w.pool.finish()
}

// finish lets running jobs end within grace, then cancels them. When it returns, every run has a queued ack.
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

// code returns s as an error code: [a-z0-9_], at most 64.
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

// brief returns an error's text in valid UTF-8, shortened.
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
