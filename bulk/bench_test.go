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
			s := openStore(b, redistest.Client(b), redistest.Prefix(b), func(s *store.Settings) { s.Global = 1e9 })
			group := submit(b, s, store.GroupSpec{Tenant: "a"}, b.N, func(int) string { return `{}` })
			b.ResetTimer()
			_, stop := engine(b, s, Options{Worker: row}, func(e *Engine) {
				e.Register("t", HandlerFunc(func(context.Context, *Job) ([]byte, error) { return nil, nil }))
			})
			ended(b, s, group)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.StopTimer()
			stop()
		})
	}
}
