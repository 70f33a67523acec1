package bulk

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// timed counts the jobs that run at once, and measures how long each waited from its pull to its start.
type timed struct {
	m                *memory
	now, peak, waits atomic.Int64 // waits is the longest, in ns
	runs             atomic.Int64
	pool             *pool
}

// waiting returns the jobs that wait for a worker.
func (h *timed) waiting() []aheadJob {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	return slices.Clone(h.pool.ahead.jobs)
}

func (h *timed) handle(ctx context.Context, j *Job, took time.Duration) {
	h.peak.Store(max(h.peak.Load(), h.now.Add(1)))
	defer h.now.Add(-1)
	h.runs.Add(1)
	var pulled time.Time
	h.m.under(func() { pulled = h.m.starts[j.ID][len(h.m.starts[j.ID])-1] })
	h.waits.Store(max(h.waits.Load(), int64(time.Since(pulled))))
	if took > 0 {
		sleep.For(ctx, took)
	}
}

// Short jobs are pulled ahead, and never more of them run than there are workers. Longer ones start when they are pulled.
func TestAhead_ShortJobsArePulledBeyondTheFreeWorkers(t *testing.T) {
	for _, c := range []struct {
		took  time.Duration
		ahead bool
	}{{0, true}, {500 * time.Microsecond, true}, {2 * time.Millisecond, false}} {
		ids := names(2000)
		m := newMemory(ids...)
		h := &timed{m: m}
		handler := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) { h.handle(ctx, j, c.took); return nil, nil })
		bubble(t, m, Options{Worker: WorkerOptions{Count: 2, Batch: 50}}, map[string]Handler{"t": handler}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
			finished(t, m, all("succeeded", ids))
		})
		pulls := called(m, "Pull")
		if most := int64(2); h.peak.Load() > most || h.runs.Load() != 2000 {
			t.Errorf("jobs of %s: %d at once and %d runs, want at most %d and 2000", c.took, h.peak.Load(), h.runs.Load(), most)
		}
		if c.ahead && pulls > 600 || !c.ahead && pulls < 1000 {
			t.Errorf("jobs of %s: %d pulls, ahead: %t", c.took, pulls, c.ahead)
		}
		if wait := time.Duration(h.waits.Load()); wait > aheadLongest || !c.ahead && wait > 0 {
			t.Errorf("jobs of %s: one waited %s", c.took, wait)
		}
	}
}

// stuck runs jobs of which those from the thousandth on take until their context or the test ends.
func stuck(t *testing.T, test func(m *memory, h *timed, release func(), stop func())) {
	ids := names(1500)
	m := newMemory(ids...)
	h := &timed{m: m}
	var released atomic.Bool
	handler := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		h.handle(ctx, j, 0)
		for slices.Index(ids, j.ID) >= 1000 && !released.Load() {
			if !sleep.For(ctx, time.Millisecond) {
				return nil, ctx.Err()
			}
		}
		return nil, nil
	})
	o := Options{Worker: WorkerOptions{Count: 2, Batch: 50, ShutdownGrace: time.Millisecond}}
	bubble(t, m, o, map[string]Handler{"t": handler}, func(t *testing.T, e *Engine, _ *journal, stop func()) {
		h.pool = e.pool
		until(t, "no job waits", func() bool {
			e.pool.mu.Lock()
			defer e.pool.mu.Unlock()
			return e.pool.active == 2 && h.runs.Load() > 1000 && len(e.pool.ahead.jobs) > 0
		})
		test(m, h, func() { released.Store(true) }, stop)
		if released.Load() {
			finished(t, m, all("succeeded", ids))
			if h.runs.Load() != 1500 {
				t.Errorf("%d runs of 1500 jobs", h.runs.Load())
			}
		}
	})
}

// If jobs suddenly take long, those that wait for a worker are given back soon, so that other processes can run them.
func TestAhead_GivesBackJobsThatWaitTooLong(t *testing.T) {
	stuck(t, func(m *memory, _ *timed, release, _ func()) {
		<-time.After(2 * aheadLongest)
		m.under(func() {
			if len(m.leases) != 2 {
				t.Errorf("%d jobs are leased, want the two that run", len(m.leases))
			}
		})
		release()
	})
}

func TestAhead_GivesWaitingJobsBackAtShutdown(t *testing.T) {
	stuck(t, func(m *memory, h *timed, _, stop func()) {
		before := h.runs.Load()
		stop()
		if n := h.runs.Load() - before; n > 0 {
			t.Errorf("%d jobs started during the shutdown", n)
		}
		m.under(func() {
			if left := len(m.pending) + len(m.later); len(m.leases) != 0 || left+len(m.outcomes) != 1500 || slices.ContainsFunc(m.outcomes, func(o store.Outcome) bool { return o.Status != "succeeded" }) {
				t.Errorf("%d leases, %d jobs left, %d outcomes", len(m.leases), left, len(m.outcomes))
			}
		})
	})
}

// A job that waits counts as known to the process, as Reclaim would otherwise return it and it would run twice.
func TestAhead_WaitingJobIsKnown(t *testing.T) {
	p := newPool(1, 10)
	p.start() // its only worker is busy
	p.ahead.pulling = 1
	w := &workers{pool: p, runs: newRegistry()}
	w.later(store.Leased{Fence: 7}, time.Now())
	if known := w.runs.fences(); !slices.Equal(known, []int64{7}) {
		t.Errorf("known fences %v, want [7]", known)
	}
	p.ahead.timer.Stop()
}

// Jobs that wait, and those of a pull in progress, count towards the bound of outcomes during an outage.
func TestAhead_KeepsTheBoundOfThePool(t *testing.T) {
	p := newPool(4, 20)
	p.ahead.mean = 0
	if n := p.hold(10); n != 4 {
		t.Fatalf("%d workers held, want 4", n)
	}
	p.unacked = 5
	if n := p.holdAhead(100); n != 15 {
		t.Errorf("%d jobs ahead, want 4 + 20 - 4 - 5 = 15", n)
	}
	if n := p.holdAhead(100); n != 0 {
		t.Errorf("%d jobs beyond the bound", n)
	}
	p.dropAhead(15)
	p.ahead.jobs = make([]aheadJob, 3)
	if n := p.holdAhead(100); n != 12 {
		t.Errorf("%d jobs ahead beside three that wait, want 12", n)
	}
	p.ahead.jobs = nil
	p.drop(2) // a place for each of the two workers, but none within the bound
	if p.ahead.pulling = 17; p.freeLocked() != 0 {
		t.Errorf("%d workers are free while a pull may bring 17 jobs, want none", p.freeLocked())
	}
	if p.ahead.pulling = 16; p.freeLocked() != 1 {
		t.Errorf("%d workers are free while a pull may bring 16 jobs, want one", p.freeLocked())
	}
	p.dropAhead(16)
	p.ahead.mean = aheadMost + 1
	if n := p.holdAhead(100); n != 0 {
		t.Errorf("%d jobs of more than %s ahead", n, aheadMost)
	}
}

// The jobs of a pull for which there are no workers wait, those that crashed a process last.
// Jobs that wait for a worker take the next free ones, so that a pull does not count those workers again.
func TestAhead_WaitingJobsTakeFreeWorkers(t *testing.T) {
	p := newPool(4, 20)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead.jobs = make([]aheadJob, 3)
	if n := p.freeLocked(); n != 1 {
		t.Errorf("%d workers are free beside 3 waiting jobs, want 1 of 4", n)
	}
}

func TestAhead_CrashedJobsStartLast(t *testing.T) {
	var order string
	f := &fetcher{starting: starting{
		start: func(l store.Leased, _ time.Time) { order += l.ID },
		later: func(l store.Leased, _ time.Time) { order += "-" + l.ID },
	}}
	f.take(t.Context(), []store.Leased{{ID: "a", Crashes: 2}, {ID: "b"}, {ID: "c", Crashes: 1}, {ID: "d"}, {ID: "e"}}, 2, time.Now())
	if order != "bd-e-a-c" {
		t.Errorf("order %s, want bd-e-a-c", order)
	}
}

// A renewal reaches waiting jobs as it reaches those that run: one that is cancelled, or whose lease is lost, does not start.
func TestAhead_RenewalReachesWaitingJobs(t *testing.T) {
	for _, lost := range []bool{false, true} {
		var mem *memory
		var renewed []*run
		stuck(t, func(m *memory, h *timed, release, _ func()) {
			var waiting []*run
			var all *registry
			for _, r := range h.waiting() {
				waiting, all = append(waiting, r.known), r.work.runs
			}
			m.under(func() {
				m.calledOff = !lost
				for _, r := range waiting {
					if j := m.leases[r.leased.Fence]; lost {
						delete(m.leases, r.leased.Fence)
						m.pending = append(m.pending, j)
					}
				}
			})
			n := &renewer{store: m, runs: all, metrics: NewMetrics(prometheus.NewRegistry(), ""), log: discard()}
			if err := n.renew(t.Context(), waiting); err != nil {
				t.Error(err)
			}
			m.under(func() { m.calledOff = false })
			mem, renewed = m, waiting
			release() // and stuck finds that each job runs once
		})
		for _, r := range renewed {
			if n := len(mem.starts[r.leased.ID]); n < 2 {
				t.Errorf("lost: %t: job %s was pulled %d times, so it has started", lost, r.leased.ID, n)
			}
		}
		if len(renewed) == 0 {
			t.Error("no job waited")
		}
	}
}
