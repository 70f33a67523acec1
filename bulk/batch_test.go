package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// batchTest is a BatchHandler in a map of handlers, and keeps the batches it got.
type batchTest struct {
	HandlerFunc
	Batching
	h *batchRecorder
}

type batchRecorder struct {
	mu      sync.Mutex
	batches [][]string
	starts  []time.Time
	handle  func(ctx context.Context, jobs []*Job) []BatchResult // nil: every job succeeds
}

func (r *batchRecorder) HandleBatch(ctx context.Context, jobs []*Job) []BatchResult {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.Group + "/" + j.ID
	}
	r.mu.Lock()
	r.batches, r.starts = append(r.batches, ids), append(r.starts, time.Now())
	r.mu.Unlock()
	if r.handle != nil {
		return r.handle(ctx, jobs)
	}
	results := make([]BatchResult, len(jobs))
	for i, j := range jobs {
		results[i].Result = []byte(`"` + j.ID + `"`)
	}
	return results
}

// with returns the batches that have a job.
func (r *batchRecorder) with(job string) (found [][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.batches {
		if slices.Contains(b, job) {
			found = append(found, b)
		}
	}
	return found
}

func inBatches(t *testing.T, m *memory, h *batchRecorder, b Batching, workers int, test func(t *testing.T, e *Engine, stop func())) {
	t.Helper()
	bubble(t, m, Options{Worker: WorkerOptions{Count: workers, Batch: 50}, Metrics: NewMetrics(nil, "")}, map[string]Handler{"t": batchTest{Batching: b, h: h}},
		func(t *testing.T, e *Engine, _ *journal, stop func()) { test(t, e, stop) })
}

func TestBatch_HasJobsOfOneGroup(t *testing.T) {
	t.Parallel()
	ids := names(125)
	m, h := newMemory(ids...), &batchRecorder{}
	for i, j := range m.pending {
		if i%4 == 0 {
			j.Group = "h"
		}
	}
	inBatches(t, m, h, Batching{Most: 10, Wait: 20 * time.Millisecond}, 100, func(t *testing.T, _ *Engine, _ func()) {
		finished(t, m, all("succeeded", ids))
		sizes := map[int]int{}
		for _, b := range h.batches {
			sizes[len(b)]++
			for _, job := range b {
				if job[:1] != b[0][:1] {
					t.Errorf("%v", b)
				}
			}
		}
		if len(h.batches) > 25 || sizes[10] < 8 {
			t.Errorf("sizes %v", sizes)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, o := range m.outcomes {
			if string(o.Result) != `"`+o.ID+`"` {
				t.Errorf("%s has the result %s", o.ID, o.Result)
			}
		}
	})
}

// A job waits for others as long as configured, and no longer than workers are free.
func TestBatch_StartsAfterWait(t *testing.T) {
	t.Parallel()
	m, h := newMemory(names(3)...), &batchRecorder{}
	inBatches(t, m, h, Batching{Most: 10, Wait: 2 * time.Second}, 5, func(t *testing.T, _ *Engine, _ func()) {
		began := time.Now()
		finished(t, m, all("succeeded", names(3)))
		if waited := h.starts[0].Sub(began); len(h.batches) != 1 || waited < 1900*time.Millisecond || waited > 2100*time.Millisecond {
			t.Errorf("%v after %s", h.batches, waited)
		}
		m.submit("t", "a", "b", "c", "d", "e")
		began = time.Now()
		until(t, "they do not run", func() bool { return len(m.done()) == 8 })
		if waited := h.starts[1].Sub(began); len(h.batches) != 2 || waited > 100*time.Millisecond {
			t.Errorf("%v after %s: all workers are busy", h.batches, waited)
		}
	})
}

// A batch that a concurrency keeps from filling starts at once, unless a run may end before.
func TestBatch_StartsWhenConcurrencyIsUsedUp(t *testing.T) {
	t.Parallel()
	m := newMemory(names(40)...)
	m.most = 4
	h := &batchRecorder{handle: func(_ context.Context, jobs []*Job) []BatchResult {
		if jobs[0].Attempt > 1 {
			time.Sleep(5 * time.Second)
		}
		return make([]BatchResult, len(jobs))
	}}
	inBatches(t, m, h, Batching{Most: 10, Wait: 10 * time.Second}, 50, func(t *testing.T, _ *Engine, _ func()) {
		began := time.Now()
		finished(t, m, all("succeeded", names(40)))
		if took := time.Since(began); took > time.Second {
			t.Errorf("40 jobs took %s, four at a time: batches wait for jobs that cannot start", took)
		}
		h.mu.Lock()
		before := len(h.batches)
		h.mu.Unlock()
		if before > 20 {
			t.Errorf("%d batches of 40 jobs: %v", before, h.batches)
		}
		m.under(func() { // one runs alone and long, the others wait for it
			m.pending = append(m.pending, &memJob{Leased: store.Leased{Key: "g/again", ID: "again", Group: "g", Tenant: "acme", Type: "t", Cost: 1, Attempt: 2}})
		})
		m.submit("t", "a", "b", "c")
		began = time.Now()
		until(t, "they do not run", func() bool { return len(h.with("g/a")) == 1 })
		if waited := time.Since(began); waited < 5*time.Second || waited > 5100*time.Millisecond {
			t.Errorf("a batch started after %s, although a run ends after 5 s", waited)
		}
		until(t, "they do not end", func() bool { return len(m.done()) == 44 })
	})
}

// Batches over Redis do not wait for jobs that a concurrency of the type, the tenant or the group keeps back.
func TestBatch_DoesNotWaitForUsedUpConcurrencyOfStore(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		types  map[string]store.TypeLimit
		tenant int64
		group  int64
	}{
		"type":   {types: map[string]store.TypeLimit{"t": {Concurrency: 20}}},
		"tenant": {tenant: 20},
		"group":  {group: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, redistest.Client(t), redistest.Prefix(t), func(set *store.Settings) { set.Lease, set.Types = time.Minute, row.types })
			if _, err := s.SetTenant(t.Context(), store.Tenant{Name: "acme", Concurrency: row.tenant}); err != nil {
				t.Fatal(err)
			}
			id := submit(t, s, store.GroupSpec{Tenant: "acme", Concurrency: row.group}, 200, number)
			h := &batchRecorder{}
			began := time.Now()
			engine(t, s, Options{Worker: WorkerOptions{Count: 100, Batch: 50}, Metrics: NewMetrics(nil, "")}, func(e *Engine) {
				if err := e.RegisterBatch("t", h, Batching{Most: 50, Wait: 2 * time.Second}); err != nil {
					t.Fatal(err)
				}
			})
			ended(t, s, id)
			// The ten batches would wait 20 s. One of them may: a pull that starts no job of a tenant or group does not name its limit.
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("200 jobs took %s, 20 at a time: batches wait for jobs that cannot start", took)
			}
		})
	}
}

// A batch that a rate keeps from filling starts at once, unless the next job may start before.
func TestBatch_StartsWhenRateAllowsNoMore(t *testing.T) {
	t.Parallel()
	for rate, sizes := range map[time.Duration]int{time.Minute: 1, time.Second: 5} {
		t.Run(rate.String(), func(t *testing.T) {
			t.Parallel()
			m, h := newMemory(names(10)...), &batchRecorder{}
			m.rate = rate
			inBatches(t, m, h, Batching{Most: 5, Wait: 10 * time.Second}, 50, func(t *testing.T, _ *Engine, _ func()) {
				began := time.Now()
				until(t, "no batch starts", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.batches) > 0 })
				if waited := time.Since(began); len(h.batches[0]) != sizes || waited > 6*time.Second {
					t.Errorf("a batch of %d started after %s, want one of %d", len(h.batches[0]), waited, sizes)
				}
				m.under(func() { m.pending = nil })
			})
		})
	}
}

// A job that fails, or makes the whole batch fail, runs alone from then on; the others end.
func TestBatch_IsolatesFailures(t *testing.T) {
	t.Parallel()
	failing := func(what string, result BatchResult) func(context.Context, []*Job) []BatchResult {
		return func(_ context.Context, jobs []*Job) []BatchResult {
			results := make([]BatchResult, len(jobs))
			for i, j := range jobs {
				if j.ID != "j3" {
					continue
				}
				if what == "panic" {
					panic("oh")
				}
				if results[i] = result; what == "missing" {
					return results[:i]
				}
			}
			return results
		}
	}
	for what, row := range map[string]struct {
		result BatchResult
		status string
		runs   int
	}{
		"failed try": {BatchResult{Err: Fail("x", errors.New("x"))}, "dead", 4},
		"permanent":  {BatchResult{Err: Permanent("x", errors.New("x"))}, "failed", 1},
		"missing":    {BatchResult{}, "dead", 4},
		"panic":      {BatchResult{}, "dead", 4},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ids := names(5)
			m, h := newMemory(ids...), &batchRecorder{handle: failing(what, row.result)}
			inBatches(t, m, h, Batching{Most: 5, Wait: time.Second}, 10, func(t *testing.T, e *Engine, _ func()) {
				want := all("succeeded", ids)
				want[3] = "j3 " + row.status
				finished(t, m, want)
				runs := h.with("g/j3")
				if len(runs) != row.runs {
					t.Errorf("j3 ran %d times: %v", len(runs), runs)
				}
				for _, b := range runs[1:] {
					if len(b) != 1 {
						t.Errorf("%v: j3 runs with others again", b)
					}
				}
				if n := len(h.with("g/j1")); n != 1 && (n != 2 || what != "panic") {
					t.Errorf("j1 ran %d times", n)
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				for _, o := range m.outcomes {
					if code := map[string]string{"missing": "no_verdict", "panic": "panic"}[what]; o.ID == "j3" && code != "" && o.Code != code {
						t.Errorf("%+v", o)
					}
				}
			})
		})
	}
}

// A batch that takes too long ends for all its jobs, and a handler that ignores this is abandoned.
func TestBatch_TimesOut(t *testing.T) {
	t.Parallel()
	m := newMemory("a", "b")
	h := &batchRecorder{handle: func(ctx context.Context, jobs []*Job) []BatchResult {
		if jobs[0].Attempt == 1 && len(jobs) == 2 {
			<-ctx.Done()
			time.Sleep(time.Minute)
		}
		return make([]BatchResult, len(jobs))
	}}
	inBatches(t, m, h, Batching{Most: 2, Wait: time.Second}, 4, func(t *testing.T, e *Engine, _ func()) {
		if err := e.SetPolicy("t", Policy{Timeout: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		finished(t, m, all("succeeded", []string{"a", "b"}))
		m.under(func() {
			for _, a := range m.acks[:2] {
				if a.Verdict != store.Retry || a.Code != "timeout" || !a.Down {
					t.Errorf("%+v", a)
				}
			}
		})
		time.Sleep(2 * time.Minute) // the handler returns
		if l := e.pool.snapshot(false); l.active != 0 || l.unacked != 0 || e.pool.givenUp != 0 {
			t.Errorf("%+v, %d given up", l, e.pool.givenUp)
		}
	})
}

// Jobs that are cancelled leave their batch; with its last job the batch ends.
func TestBatch_EndsWhenAllAreCancelled(t *testing.T) {
	t.Parallel()
	m := newMemory("a", "b")
	h := &batchRecorder{handle: func(ctx context.Context, jobs []*Job) []BatchResult {
		<-ctx.Done()
		return []BatchResult{{Err: ctx.Err()}, {Err: ctx.Err()}}
	}}
	inBatches(t, m, h, Batching{Most: 2, Wait: time.Second}, 2, func(t *testing.T, e *Engine, stop func()) {
		if err := e.SetPolicy("t", Policy{Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		until(t, "they do not run", func() bool { return len(h.with("g/a")) == 1 })
		m.under(func() { m.calledOff = true })
		until(t, "they are not stopped", func() (both bool) {
			m.under(func() { both = len(m.acks) >= 2 })
			return both
		})
		m.under(func() {
			for _, a := range m.acks[:2] {
				if a.Verdict != store.Returned {
					t.Errorf("%+v", a)
				}
			}
			m.pending = nil
		})
	})
}

// Jobs that gather at the shutdown run before it.
func TestBatch_RunsAtShutdown(t *testing.T) {
	t.Parallel()
	m, h := newMemory(names(3)...), &batchRecorder{}
	inBatches(t, m, h, Batching{Most: 10, Wait: 10 * time.Second}, 10, func(t *testing.T, e *Engine, stop func()) {
		until(t, "they are not pulled", func() bool { return e.pool.snapshot(false).active == 3 })
		stop()
		if got := m.done(); strings.Join(got, ",") != "j0 succeeded,j1 succeeded,j2 succeeded" {
			t.Errorf("%v", got)
		}
	})
}

func TestRegisterBatch_RefusesBounds(t *testing.T) {
	t.Parallel()
	for _, b := range []Batching{{}, {Most: MaxBatch + 1}, {Most: 1, Wait: -1}, {Most: 1, Wait: MaxBatchWait + 1}} {
		e := &Engine{batched: map[string]batchType{}}
		if err := e.RegisterBatch("t", &batchRecorder{}, b); err == nil || !strings.Contains(err.Error(), "type t") {
			t.Error(fmt.Sprint(b), err)
		}
	}
}
