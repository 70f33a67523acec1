package bulk

import (
	"context"
	"fmt"
	"testing"

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
