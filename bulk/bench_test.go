package bulk

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// BenchmarkEngine runs no-op jobs from the fair queue to their acks.
func BenchmarkEngine(b *testing.B) {
	for _, row := range []WorkerOptions{{Count: 10}, {Count: 100, Batch: 50}, {Count: 500, Batch: 250}} {
		b.Run(fmt.Sprintf("workers=%d", row.Count), func(b *testing.B) {
			m := NewMetrics(nil, "")
			set := store.Defaults()
			set.Global = 1e9
			s, err := store.New(store.Options{Client: redistest.Client(b), Prefix: redistest.Prefix(b), Timeout: patience, Settings: set,
				Observe: m.ObserveStore, Log: discard()})
			if err != nil {
				b.Fatal(err)
			}
			group := submit(b, s, store.GroupSpec{Tenant: "a"}, b.N, func(int) string { return `{}` })
			b.ResetTimer()
			_, stop := engine(b, s, Options{Worker: row, Metrics: m}, func(e *Engine) {
				e.Register("t", HandlerFunc(func(context.Context, *Job) ([]byte, error) { return nil, nil }))
			})
			ended(b, s, group)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.StopTimer()
			stop()
			b.ReportMetric(float64(b.N)/value(b, m, `store_script_seconds{script="jobs_pull"}`), "jobs/pull")
			b.ReportMetric(float64(b.N)/value(b, m, `store_script_seconds{script="jobs_ack"}`), "jobs/ack")
		})
	}
}

// BenchmarkDispatch_ManyDueAtOnce measures how long another client waits for Redis while 300,000 jobs that are due at the same moment
// return to their group, and, for comparison, while Redis is idle. Run it with -benchtime=1x.
func BenchmarkDispatch_ManyDueAtOnce(b *testing.B) {
	const jobs = 300_000
	for b.Loop() {
		server := redistest.Server(b)
		var ahead atomic.Int64 // µs
		s, err := store.New(store.Options{Client: server.Client(), Prefix: "b", Timeout: patience, Settings: store.Defaults(), Log: discard(),
			Now: func() int64 { return time.Now().UnixMicro() + ahead.Load() }})
		if err != nil {
			b.Fatal(err)
		}
		g, _, err := s.CreateGroup(b.Context(), store.GroupSpec{Tenant: "acme", Type: "t"})
		if err != nil {
			b.Fatal(err)
		}
		due := time.Now().Add(time.Hour)
		for from := 0; from < jobs; from += store.MaxAdd {
			part := make([]store.Job, min(store.MaxAdd, jobs-from))
			for i := range part {
				part[i] = store.Job{ID: fmt.Sprintf("j%06d", from+i), Payload: []byte(`{}`), RunAt: due}
			}
			if _, err := s.AddJobs(b.Context(), g.ID, store.Chunk{}, part); err != nil {
				b.Fatal(err)
			}
		}
		_, stop := engine(b, s, Options{Worker: WorkerOptions{Count: NoWorkers}}, func(*Engine) {})
		look := server.Client()
		idle := pings(b, look, func(n int) bool { return n < 2000 })
		b.ResetTimer()
		began := time.Now()
		ahead.Store(2 * time.Hour.Microseconds())
		busy := pings(b, look, func(n int) bool {
			if n%100 > 0 {
				return true
			}
			g, err := s.Group(b.Context(), g.ID)
			return err == nil && g.NonReady > 0
		})
		b.ReportMetric(time.Since(began).Seconds(), "s")
		for name, all := range map[string][]time.Duration{"idle": idle, "busy": busy} {
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), name+"-median-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), name+"-p99-µs")
			b.ReportMetric(float64(all[len(all)-1].Microseconds()), name+"-worst-µs")
		}
		stop()
	}
}

// pings asks Redis for nothing, once in a millisecond, while more holds, and returns how long each answer took.
func pings(b *testing.B, c redis.UniversalClient, more func(n int) bool) (took []time.Duration) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; more(n); n++ {
		<-tick.C
		began := time.Now()
		if err := c.Ping(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return took
}
