package bulk

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

func TestRun_MapsHandlerErrorsToVerdicts(t *testing.T) {
	cause := errors.New("no such person")
	for _, row := range []struct {
		name   string
		handle func(ctx context.Context, j *Job) ([]byte, error)
		want   store.Ack // After is its most
	}{
		{"a result", func(context.Context, *Job) ([]byte, error) { return []byte(`{"a":1}`), nil },
			store.Ack{Verdict: store.Done, Result: []byte(`{"a":1}`)}},
		{"an oversized result", func(context.Context, *Job) ([]byte, error) { return make([]byte, 101), nil },
			store.Ack{Verdict: store.Rejected, Code: "result_too_large", Error: "the result has 101 bytes, limits.result allows 100"}},
		{"any error", func(context.Context, *Job) ([]byte, error) { return nil, cause },
			store.Ack{Verdict: store.Retry, Code: "error", Error: "no such person", After: time.Second}},
		{"a failed try", func(context.Context, *Job) ([]byte, error) { return nil, Fail("HTTP 500", cause) },
			store.Ack{Verdict: store.Retry, Code: "http_500", Error: "no such person", After: time.Second}},
		{"wrapped", func(context.Context, *Job) ([]byte, error) {
			return nil, fmt.Errorf("send: %w", Permanent("no_person", cause))
		},
			store.Ack{Verdict: store.Rejected, Code: "no_person", Error: "no such person"}},
		{"refused for now", func(context.Context, *Job) ([]byte, error) { return nil, Busy(3*time.Second, cause) },
			store.Ack{Verdict: store.Throttled, Code: "busy", Error: "no such person", After: 3 * time.Second}},
		{"refused with its group", func(context.Context, *Job) ([]byte, error) { return nil, BusyGroup(3*time.Second, cause) },
			store.Ack{Verdict: store.Held, Code: "busy", Error: "no such person", After: 3 * time.Second}},
		{"a delay that was asked for", func(context.Context, *Job) ([]byte, error) { return nil, FailAfter("greylisted", time.Hour, cause) },
			store.Ack{Verdict: store.Retry, Code: "greylisted", Error: "no such person", After: time.Hour}},
		{"too long a delay", func(context.Context, *Job) ([]byte, error) { return nil, Busy(48*time.Hour, cause) },
			store.Ack{Verdict: store.Throttled, Code: "busy", Error: "no such person", After: MaxAfter}},
		{"time-out", func(ctx context.Context, _ *Job) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() },
			store.Ack{Verdict: store.Retry, Code: "timeout", Down: true, Error: "context deadline exceeded", After: time.Second}},
		{"time-out in other words", func(ctx context.Context, _ *Job) ([]byte, error) { <-ctx.Done(); return nil, cause },
			store.Ack{Verdict: store.Retry, Code: "timeout", Down: true, Error: "no such person", After: time.Second}},
		{"done as the time ends", func(ctx context.Context, _ *Job) ([]byte, error) { <-ctx.Done(); return nil, nil },
			store.Ack{Verdict: store.Done}},
		{"panic", func(context.Context, *Job) ([]byte, error) { panic("oh") },
			store.Ack{Verdict: store.Retry, Code: "panic", Error: "the handler panicked: oh", After: time.Second}},
		{"a goroutine that ends", func(context.Context, *Job) ([]byte, error) { runtime.Goexit(); return nil, nil },
			store.Ack{Verdict: store.Retry, Code: "panic", Error: "the handler panicked: <nil>", After: time.Second}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMemory("j")
			o := Options{MaxResult: 100, Worker: WorkerOptions{JobTimeout: time.Second}}
			bubble(t, m, o, map[string]Handler{"t": HandlerFunc(row.handle)}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
				var got store.Ack
				until(t, "no ack", func() bool {
					m.under(func() {
						if len(m.acks) > 0 {
							got = m.acks[0]
						}
					})
					return got.Key != ""
				})
				if got.After < 0 || got.After > row.want.After || (row.want.After > time.Second && got.After != row.want.After) {
					t.Errorf("after %s, want at most %s", got.After, row.want.After)
				}
				if row.want.Verdict == store.Retry {
					row.want.Retries = DefaultRetries
				}
				row.want.Key, row.want.Fence, row.want.Took, row.want.After = "g/j", 1, got.Took, got.After
				if fmt.Sprint(got) != fmt.Sprint(row.want) {
					t.Errorf("got  %+v\nwant %+v", got, row.want)
				}
			})
		})
	}
}

// TestEngine_LeavesOtherTypes: a process buried every job of a type that it did not know, as in a rolling deploy.
func TestEngine_LeavesOtherTypes(t *testing.T) {
	m := newMemory("a")
	m.submit("fax", "j")
	m.group.Total = 3 // never all: the reducer stays out of it
	bubble(t, m, Options{}, map[string]Handler{"t": noop}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		until(t, "job a has not run", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.outcomes) == 1 })
		time.Sleep(time.Minute)
		m.under(func() {
			if len(m.outcomes) != 1 || len(m.pending) != 1 || m.pending[0].ID != "j" {
				t.Errorf("outcomes %+v, %d pending", m.outcomes, len(m.pending))
			}
		})
	})
}

// TestEngine_WithoutHandlersTakesNothing: an engine without handlers leaves every job to other processes.
func TestEngine_WithoutHandlersTakesNothing(t *testing.T) {
	m := newMemory("a")
	bubble(t, m, Options{}, nil, func(t *testing.T, _ *Engine, log *journal, _ func()) {
		time.Sleep(time.Minute)
		m.under(func() {
			if len(m.pending) != 1 || m.calls["Pull"] != 0 {
				t.Errorf("%d pending, %d pulls", len(m.pending), m.calls["Pull"])
			}
		})
		if log.count("no processor is configured") != 1 {
			t.Error("nothing is logged")
		}
	})
}

var noop = HandlerFunc(func(context.Context, *Job) ([]byte, error) { return nil, nil })

// A handler that ignores its context blocks no worker: its job is retried and its worker runs other jobs.
func TestRun_AbandonsHandlerAfterTimeout(t *testing.T) {
	m := newMemory("stuck", "b", "c")
	m.group.Total = 4 // never all: the reducer stays out of it
	var released atomic.Bool
	h := HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
		for j.ID == "stuck" && j.Attempt == 1 && !released.Load() {
			time.Sleep(time.Second) // whatever its context says
		}
		return nil, nil
	})
	o := Options{Worker: WorkerOptions{Count: 1, JobTimeout: time.Second}, Metrics: NewMetrics(nil, "")}
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, log *journal, _ func()) {
		finished(t, m, []string{"b succeeded", "c succeeded", "stuck succeeded"})
		m.under(func() {
			a := m.acks[0]
			if a.Code != "timeout" || a.Verdict != store.Retry || a.Took < 2*time.Second || a.Took > 3*time.Second {
				t.Errorf("%+v", a)
			}
		})
		same(t, o.Metrics, map[string]float64{`handlers_abandoned`: 1, `job_timeouts_total{type="t"}`: 1,
			`job_runs_total{type="t",verdict="retry"}`: 1, `job_runs_total{type="t",verdict="success"}`: 3})
		released.Store(true)
		until(t, "the handler is still counted", func() bool { return value(t, o.Metrics, "handlers_abandoned") == 0 })
		m.under(func() {
			if len(m.acks) != 4 {
				t.Errorf("%d acks, want 4: what comes late is dropped", len(m.acks))
			}
		})
	})
}

func TestRun_LogsPanicWithStack(t *testing.T) {
	m := newMemory("j")
	h := HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
		if j.Attempt == 1 {
			panic("oh")
		}
		return nil, nil
	})
	bubble(t, m, Options{}, map[string]Handler{"t": h}, func(t *testing.T, _ *Engine, log *journal, _ func()) {
		finished(t, m, []string{"j succeeded"})
		if log.count("TestRun_LogsPanicWithStack.func1") == 0 || log.count("panic=oh") != 1 {
			t.Error(log.b.String())
		}
	})
}

func TestRenewer_KeepsLeaseOfLongJob(t *testing.T) {
	m := newMemory("long")
	o := Options{Worker: WorkerOptions{JobTimeout: 10 * time.Minute}}
	h := HandlerFunc(func(ctx context.Context, _ *Job) ([]byte, error) {
		sleep.For(ctx, 5*time.Minute)
		return nil, ctx.Err()
	})
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		finished(t, m, []string{"long succeeded"})
		m.under(func() {
			if n := len(m.starts["long"]); n != 1 {
				t.Errorf("%d starts", n)
			}
			// Every third of the lease, give or take a twelfth.
			if n := m.calls["Renew"]; n < 23 || n > 31 {
				t.Errorf("%d renewals in 5 minutes of a lease of 30 s", n)
			}
		})
	})
}

// The context of a cancelled job ends with the next renewal and no try is spent. A job that succeeds all the same counts as succeeded.
func TestRenewer_EndsCancelledJobs(t *testing.T) {
	m := newMemory("heeds", "succeeds")
	m.group.Total = 3 // never all: the reducer stays out of it
	m.calledOff = true
	h := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		<-ctx.Done()
		if j.ID == "succeeds" {
			return nil, nil
		}
		return nil, ctx.Err()
	})
	o := Options{Worker: WorkerOptions{JobTimeout: 10 * time.Minute}, Metrics: NewMetrics(nil, "")}
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		began := time.Now()
		until(t, "two acks", func() bool { return len(ackedOf(m)) == 2 })
		if took := time.Since(began); took > 15*time.Second { // a lease is 30 s
			t.Errorf("after %s", took)
		}
		for _, a := range ackedOf(m) {
			if want := map[string]store.Verdict{"heeds": store.Returned, "succeeds": store.Done}[strings.TrimPrefix(a.Key, "g/")]; a.Verdict != want {
				t.Errorf("%s: %s, want %s", a.Key, a.Verdict, want)
			}
		}
		m.under(func() { m.calledOff = false })
		same(t, o.Metrics, map[string]float64{"leases_lost_total": 0})
	})
}

func ackedOf(m *memory) (acks []store.Ack) {
	m.under(func() { acks = slices.Clone(m.acks) })
	return acks
}

func TestRenewer_StopsJobOfLostLease(t *testing.T) {
	m := newMemory("j")
	var ended atomic.Int64
	h := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		if j.Fence == 1 {
			m.under(func() { // somebody else has it
				m.pending = append(m.pending, m.leases[1])
				delete(m.leases, 1)
			})
			<-ctx.Done()
			ended.Add(1)
		}
		return nil, nil
	})
	o := Options{Worker: WorkerOptions{Count: 2, JobTimeout: time.Hour}, Metrics: NewMetrics(nil, "")}
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, _ *journal, _ func()) {
		finished(t, m, []string{"j succeeded"})
		until(t, "the job of the lost lease goes on", func() bool { return ended.Load() == 1 })
		until(t, "its worker is not free", func() bool { l := e.pool.snapshot(false); return l.active == 0 && l.unacked == 0 })
		m.under(func() {
			if len(m.acks) != 1 || m.acks[0].Fence != 2 {
				t.Errorf("acks %+v, want that of the second run alone", m.acks)
			}
		})
		same(t, o.Metrics, map[string]float64{"leases_lost_total": 1})
	})
}

func TestRetryAfter_GrowsToMost(t *testing.T) {
	for _, row := range []struct {
		attempt int64
		most    time.Duration
	}{{1, time.Second}, {2, 2 * time.Second}, {3, 4 * time.Second}, {7, 64 * time.Second}, {8, 2 * time.Minute}, {1000, 2 * time.Minute}} {
		longest := time.Duration(0)
		for range 2000 {
			d := retryAfter(Retry{Base: time.Second, Most: 2 * time.Minute}, row.attempt)
			if d < row.most/2 || d > row.most {
				t.Fatalf("attempt %d: %s, want between %s and %s", row.attempt, d, row.most/2, row.most)
			}
			longest = max(longest, d)
		}
		if longest < row.most*3/4 {
			t.Errorf("attempt %d: at most %s of 2000, want up to %s", row.attempt, longest, row.most)
		}
	}
}

// Handlers that never return occupy workers once there are more such handlers than workers: this bounds the handlers of a process.
func TestHandlers_ThatNeverReturnAreBounded(t *testing.T) {
	m := newMemory(names(20)...)
	m.group.Total = 21 // never all: the reducer stays out of it
	var running atomic.Int64
	var released atomic.Bool
	h := HandlerFunc(func(context.Context, *Job) ([]byte, error) {
		running.Add(1)
		defer running.Add(-1)
		for !released.Load() {
			time.Sleep(time.Second) // whatever its context says
		}
		return nil, nil
	})
	o := Options{Worker: WorkerOptions{Count: 3, JobTimeout: time.Second}, Metrics: NewMetrics(nil, "")}
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		time.Sleep(time.Minute)
		if n := running.Load(); n != 6 {
			t.Errorf("%d handlers run, want twice the workers", n)
		}
		released.Store(true)
		until(t, "jobs go on when they return", func() bool { return value(t, o.Metrics, "handlers_abandoned") == 0 && running.Load() == 0 })
	})
}

// A process without a free worker passes a wakeup for new jobs on to another process.
func TestFetcher_PassesOnWhatItHearsOfWhileAllWorkersAreBusy(t *testing.T) {
	m := newMemory()
	synctest.Test(t, func(t *testing.T) {
		m.event = make(chan struct{}, 1) // of this bubble
		workers := newPool(1, 1)
		workers.start() // busy
		f := &fetcher{store: m, pool: workers, acks: &acker{}, events: newListener(m, nil)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() { f.run(ctx); close(ended) }()
		f.events.arrived <- struct{}{}
		until(t, "nobody else is told", func() bool { return called(m, "Ring") == 1 })
		cancel()
		<-ended
	})
}

// An ack without a reply that is sent again does not count as a lost run.
func TestAck_SentAgainIsNoLostRun(t *testing.T) {
	m := newMemory("j")
	m.group.Total = 2
	var once sync.Once
	m.fault = func(call string) (before, after error) {
		if call == "Ack" {
			once.Do(func() { after = errAway })
		}
		return nil, after
	}
	o := Options{Metrics: NewMetrics(nil, "")}
	bubble(t, m, o, map[string]Handler{"t": noop}, func(t *testing.T, e *Engine, _ *journal, _ func()) {
		until(t, "the ack stays behind", func() bool { return called(m, "Ack") == 2 && e.pool.snapshot(false).unacked == 0 })
		same(t, o.Metrics, map[string]float64{"acks_uncertain_total": 1, `job_runs_total{type="t",verdict="stale"}`: 0})
	})
}

func called(m *memory, call string) (n int) {
	m.under(func() { n = m.calls[call] })
	return n
}
