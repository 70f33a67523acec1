package bulk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

func all(status string, ids []string) []string {
	var want []string
	for _, id := range ids {
		want = append(want, id+" "+status)
	}
	slices.Sort(want)
	return want
}

func finished(t *testing.T, m *memory, want []string) {
	t.Helper()
	until(t, "not every job has its outcome", func() bool { return len(m.done()) >= len(want) })
	if got := m.done(); !slices.Equal(got, want) {
		t.Fatalf("outcomes %v, want %v", got, want)
	}
}

func TestEngine_RunsEachJobOnceOnAllWorkers(t *testing.T) {
	ids := names(500)
	m := newMemory(ids...)
	var now, peak atomic.Int64
	h := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		if n := now.Add(1); n > peak.Load() {
			peak.Store(n)
		}
		defer now.Add(-1)
		if j.IdempotencyKey != "g/"+j.ID || j.Attempt != 1 || j.Tenant != "acme" {
			t.Errorf("job %+v", j)
		}
		sleep.For(ctx, 10*time.Millisecond)
		return []byte(`"` + j.ID + `"`), nil
	})
	bubble(t, m, Options{Worker: WorkerOptions{Count: 20, Batch: 8}}, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, _ *journal, _ func()) {
		finished(t, m, all("succeeded", ids))
		if peak.Load() != 20 {
			t.Errorf("%d jobs at once, want 20", peak.Load())
		}
		m.under(func() {
			if n := len(m.acks); n != 500 {
				t.Errorf("%d acks for 500 jobs", n)
			}
			if m.calls["Ack"] >= 400 {
				t.Errorf("%d calls of Ack for 500 jobs: they do not gather", m.calls["Ack"])
			}
		})
	})
}

// During an outage of the store, outcomes wait and no more jobs start than the pool allows; after it the engine continues.
func TestEngine_KeepsOutcomesThroughOutage(t *testing.T) {
	ids := names(300)
	m := newMemory(ids...)
	o := Options{Worker: WorkerOptions{Count: 5, Batch: 10}, Metrics: NewMetrics(nil, "")}
	h := HandlerFunc(func(ctx context.Context, _ *Job) ([]byte, error) {
		sleep.For(ctx, 20*time.Millisecond)
		return nil, nil
	})
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, log *journal, _ func()) {
		until(t, "it does not begin", func() bool { return len(m.done()) > 50 })
		same(t, o.Metrics, map[string]float64{"store_up": 1})
		m.fail(false, "Ack")
		<-time.After(time.Minute)
		if l := e.pool.snapshot(false); l.active != 0 || l.unacked != l.limit {
			t.Errorf("%+v: want nothing running and the bound reached", l)
		}
		same(t, o.Metrics, map[string]float64{"store_up": 0})
		m.fail(false)
		<-time.After(2 * time.Minute)
		if n := m.count("Pull"); n > 400 {
			t.Errorf("%d pulls: it polls a store that is away", n)
		}
		if n := log.count("cannot reach the store"); n != 1 {
			t.Errorf("the outage is logged %d times: %s", n, log.b.String())
		}
		m.heal()
		finished(t, m, all("succeeded", ids))
		until(t, "it does not say that the store is back", func() bool { return log.count("the store is back") == 1 })
		m.under(func() {
			for id, s := range m.starts {
				if len(s) != 1 {
					t.Errorf("%s started %d times", id, len(s))
				}
			}
			if len(m.gaps) != 1 || m.gaps[0] < 2*time.Minute || m.gaps[0] > 2*time.Minute+5*time.Second {
				t.Errorf("gaps %v, want one of 2 minutes", m.gaps)
			}
		})
	})
}

// Replies of the store are lost: calls that took effect are repeated without harm.
func TestEngine_RepeatsUnansweredCalls(t *testing.T) {
	ids := names(200)
	m := newMemory(ids...)
	m.tend = []string{"g"}
	m.fault = func(call string) (error, error) {
		if call != "Pull" && rand.IntN(4) == 0 {
			return nil, errAway
		}
		return nil, nil
	}
	bubble(t, m, Options{}, map[string]Handler{"t": noop}, func(t *testing.T, e *Engine, _ *journal, _ func()) {
		finished(t, m, all("succeeded", ids))
		until(t, "acks stay behind", func() bool { return e.pool.snapshot(false).unacked == 0 })
		until(t, "the group does not end", func() bool { return m.status() == store.Completed })
	})
}

// A pull whose reply is lost leaves leased jobs that no worker runs: the next call returns them before their leases end.
func TestFetcher_ReclaimsLostPull(t *testing.T) {
	m := newMemory("j")
	m.fail(true, "Pull")
	bubble(t, m, Options{}, map[string]Handler{"t": noop}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		until(t, "no pull", func() bool { return m.count("Pull") > 0 })
		m.heal()
		finished(t, m, []string{"j succeeded"})
		m.under(func() {
			s := m.starts["j"]
			if gap := s[1].Sub(s[0]); gap > 10*time.Second {
				t.Errorf("it runs again after %s, a lease is %s", gap, m.lease)
			}
		})
	})
}

// With few workers and many jobs, acks travel with the next pull: a separate call costs the store as much as one of ten jobs.
func TestFetcher_SendsAcksWithItsNextPull(t *testing.T) {
	ids := names(60)
	m := newMemory(ids...)
	bubble(t, m, Options{Worker: WorkerOptions{Count: 3}}, map[string]Handler{"t": noop}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		finished(t, m, all("succeeded", ids))
		if n := called(m, "AckPull"); n < 10 { // of 20, apart from those that come between
			t.Errorf("%d pulls with acks, %d calls with acks", n, called(m, "Ack"))
		}
	})
}

// An ack that the fetcher has sent without a reply is sent again, and the jobs of that pull are reclaimed; one that the store refuses keeps no
// other from being recorded.
func TestFetcher_ReturnsAcksOfAFailedPull(t *testing.T) {
	for _, after := range []bool{false, true} {
		ids := names(30)
		m := newMemory(ids...)
		failed := 0
		m.fault = func(call string) (error, error) {
			if call != "AckPull" || failed == 3 {
				return nil, nil
			}
			failed++
			if after {
				return nil, errAway
			}
			return errAway, nil
		}
		o := Options{Metrics: NewMetrics(nil, ""), Worker: WorkerOptions{Count: 3}}
		bubble(t, m, o, map[string]Handler{"t": HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
			if j.ID == ids[20] {
				return nil, Fail("refuse_me", errors.New("x"))
			}
			return nil, nil
		})}, func(t *testing.T, e *Engine, _ *journal, _ func()) {
			until(t, "acks stay behind", func() bool {
				n := 0
				m.under(func() { n = len(m.pending) })
				l := e.pool.snapshot(false)
				return n == 0 && l.active == 0 && l.unacked == 0
			})
			m.under(func() {
				if m.group.Succeeded != 29 || failed != 3 {
					t.Errorf("%d of 29 succeeded, %d calls failed", m.group.Succeeded, failed)
				}
			})
			same(t, o.Metrics, map[string]float64{`job_runs_total{type="t",verdict="stale"}`: 0})
		})
	}
}

func TestAcker_IsolatesRefusedAck(t *testing.T) {
	ids := names(40)
	m := newMemory(ids...)
	m.group.Total++
	var gate atomic.Bool
	h := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		for !gate.Load() { // so that they end together
			sleep.For(ctx, time.Millisecond)
		}
		if j.ID == "j7" {
			return nil, Fail("refuse_me", errors.New("x"))
		}
		return nil, nil
	})
	bubble(t, m, Options{Worker: WorkerOptions{Count: 40, JobTimeout: time.Hour}}, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, log *journal, _ func()) {
		until(t, "not all run", func() bool { return e.pool.snapshot(false).active == 40 })
		gate.Store(true)
		finished(t, m, all("succeeded", slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "j7" })))
		until(t, "no refusal is logged", func() bool { return log.count("refuses an ack") > 0 }) // its ack may be the last
		if log.count("refuses an ack") != 1 || log.count("job=j7") != 1 {
			t.Error(log.b.String())
		}
	})
}

func TestEngine_IsQuietWhenIdle(t *testing.T) {
	m := newMemory()
	bubble(t, m, Options{}, map[string]Handler{"t": noop}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		<-time.After(100 * time.Second)
		if n := m.count("Pull"); n > 110 {
			t.Errorf("%d pulls in 100 s without work", n)
		}
		for i := range 10 {
			<-time.After(1237 * time.Millisecond)
			id, at := fmt.Sprint("j", i), time.Now()
			m.submit("t", id)
			until(t, "it does not start", func() bool { return len(m.done()) == i+1 })
			m.under(func() {
				if d := m.starts[id][0].Sub(at); d > 10*time.Millisecond {
					t.Errorf("started %s after it came", d)
				}
			})
		}
	})
}

func TestFetcher_UsesEverySlotOfRate(t *testing.T) {
	ids := names(200)
	m := newMemory(ids...)
	m.rate = 20 * time.Millisecond
	bubble(t, m, Options{}, map[string]Handler{"t": noop}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		at := time.Now()
		finished(t, m, all("succeeded", ids))
		// A call takes a millisecond here, so that a slot is met a millisecond late.
		if d := time.Since(at); d > 199*22*time.Millisecond {
			t.Errorf("took %s, want about %s", d, 199*21*time.Millisecond)
		}
		if n := m.count("Pull"); n > 2*len(ids)+20 {
			t.Errorf("%d pulls for %d slots", n, len(ids))
		}
	})
}

func TestEngine_Resizes(t *testing.T) {
	m := newMemory(names(2000)...)
	h := HandlerFunc(func(ctx context.Context, _ *Job) ([]byte, error) {
		sleep.For(ctx, 100*time.Millisecond)
		return nil, nil
	})
	bubble(t, m, Options{Worker: WorkerOptions{Count: 4}}, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, _ *journal, _ func()) {
		settles := func(n int) {
			t.Helper()
			until(t, fmt.Sprintf("not %d workers are busy", n), func() bool { size, active := e.Workers(); return size == n && active == n })
			<-time.After(time.Second)
			if _, active := e.Workers(); active > n {
				t.Errorf("%d run, want at most %d", active, n)
			}
		}
		settles(4)
		for _, n := range []int{16, 2, 0, 8} {
			if err := e.Resize(n); err != nil {
				t.Fatal(err)
			}
			settles(n)
		}
		for _, n := range []int{-1, MaxWorkers + 1} {
			if err := e.Resize(n); err == nil || !strings.Contains(err.Error(), "worker.count") {
				t.Errorf("Resize(%d): %v", n, err)
			}
		}
	})
}

func TestEngine_ScalesWithLoad(t *testing.T) {
	for _, took := range []time.Duration{time.Second, 100 * time.Millisecond, 3 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) { autoscaling(t, took) })
	}
}

func autoscaling(t *testing.T, took time.Duration) {
	jobs := int(min(100*time.Second/took, 50_000))
	m := newMemory(names(jobs)...)
	h := HandlerFunc(func(ctx context.Context, _ *Job) ([]byte, error) { sleep.For(ctx, took); return nil, nil })
	bubble(t, m, Options{Worker: WorkerOptions{Count: 1, Min: 2, Max: 40}}, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, _ *journal, _ func()) {
		if size, _ := e.Workers(); size != 2 {
			t.Errorf("begins with %d workers, want the least, 2", size)
		}
		at := time.Now()
		until(t, "it does not grow", func() bool { size, _ := e.Workers(); return size == 40 })
		if d := time.Since(at); d > 10*time.Second {
			t.Errorf("grew within %s", d)
		}
		until(t, "the work does not end", func() bool { return m.finished() == jobs })
		until(t, "it does not shrink", func() bool { size, _ := e.Workers(); return size == 2 })
		if err := e.Resize(100); err != nil {
			t.Fatal(err)
		}
		if size, _ := e.Workers(); size != 40 {
			t.Errorf("resized to %d, want the bound, 40", size)
		}
	})
}

func TestEngine_ReturnsJobsAtShutdown(t *testing.T) {
	m := newMemory("short", "long", "deaf", "last")
	o := Options{Worker: WorkerOptions{Count: 3, JobTimeout: time.Hour, ShutdownGrace: 10 * time.Second}}
	release := make(chan struct{})
	h := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		switch j.ID {
		case "short":
			sleep.For(ctx, 8*time.Second)
			return nil, ctx.Err()
		case "deaf":
			<-release
		default:
			<-ctx.Done()
		}
		return nil, ctx.Err()
	})
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, _ *journal, stop func()) {
		release = make(chan struct{})
		until(t, "not all run", func() bool { _, active := e.Workers(); return active == 3 })
		pulls := m.count("Pull")
		at := time.Now()
		stop()
		if d := time.Since(at); d < 10*time.Second || d > 12*time.Second {
			t.Errorf("took %s, want the grace and a second for the deaf", d)
		}
		m.under(func() {
			if m.calls["Pull"] > pulls+1 {
				t.Errorf("%d pulls after the end began", m.calls["Pull"]-pulls)
			}
			verdicts := map[string]store.Verdict{}
			for _, a := range m.acks {
				verdicts[a.Key] = a.Verdict
			}
			want := map[string]store.Verdict{"g/short": store.Done, "g/long": store.Returned, "g/deaf": store.Returned}
			if fmt.Sprint(verdicts) != fmt.Sprint(want) {
				t.Errorf("verdicts %v, want %v", verdicts, want)
			}
			if len(m.leases) != 0 || len(m.pending) != 3 {
				t.Errorf("%d leases and %d pending are left, want 0 and 3", len(m.leases), len(m.pending))
			}
		})
		close(release)
		if err := e.Run(t.Context()); err == nil {
			t.Error("it runs a second time")
		}
	})
}

// An engine without workers takes no job, and does all other work.
func TestEngine_WithoutWorkersDoesHousekeeping(t *testing.T) {
	m := newMemory("j")
	m.group.CallbackURL, m.tend = "https://example.com", []string{"g"}
	o := Options{Worker: WorkerOptions{Count: NoWorkers}}
	bubble(t, m, o, nil, func(t *testing.T, e *Engine, _ *journal, _ func()) {
		until(t, "no housekeeping", func() bool { return m.count("Dispatch") > 100 && m.count("Tend") > 1 && m.count("Depths") > 1 })
		if n := m.count("Pull"); n > 0 {
			t.Errorf("%d pulls", n)
		}
		if size, active := e.Workers(); size != 0 || active != 0 {
			t.Errorf("%d workers, %d active", size, active)
		}
		if err := e.Resize(3); err == nil || !strings.Contains(err.Error(), "without workers") {
			t.Errorf("Resize: %v", err)
		}
	})
}

func TestEngine_StopsWithoutStore(t *testing.T) {
	m := newMemory("j")
	h := HandlerFunc(func(ctx context.Context, _ *Job) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
	o := Options{Worker: WorkerOptions{ShutdownGrace: time.Second}}
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, e *Engine, log *journal, stop func()) {
		until(t, "it does not run", func() bool { _, active := e.Workers(); return active == 1 })
		m.fail(false)
		at := time.Now()
		stop()
		if d := time.Since(at); d > time.Second+flushFor+2*time.Second {
			t.Errorf("took %s", d)
		}
		if log.count("cannot record the last acks") != 1 {
			t.Error(log.b.String())
		}
	})
}

func TestNew_RefusesInvalidOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "Store") {
		t.Errorf("without a store: %v", err)
	}
	for _, row := range []struct {
		o    Options
		says string
	}{
		{Options{Worker: WorkerOptions{Count: -2}}, "worker.count -2"},
		{Options{Worker: WorkerOptions{Count: NoWorkers, Min: 1, Max: 2}}, "worker.max 2: there are no workers"},
		{Options{Worker: WorkerOptions{Batch: MaxWorkers + 1}}, "worker.batch 10001"},
		{Options{Worker: WorkerOptions{Min: 5, Max: 2}}, "worker.min 5 and worker.max 2"},
		{Options{Worker: WorkerOptions{Min: 5}}, "worker.max 0"},
		{Options{Worker: WorkerOptions{Lease: -time.Second}}, "worker.lease -1s"},
		{Options{Worker: WorkerOptions{Lease: time.Minute}}, "worker.lease 1m0s: must not exceed the store's lease, 30s"},
		{Options{MaxResult: -1}, "limits.result -1"},
		{Options{Callback: func(context.Context, string, []byte) error { return nil }}, "CallbackBody"},
	} {
		if _, err := newEngine(row.o, newMemory().stores(), store.Defaults()); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("got %v, want it to name %q", err, row.says)
		}
	}
}
