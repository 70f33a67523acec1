package relay

import (
	"fmt"
	"testing"
)

// BenchmarkRelay moves 20,000 rows of one tenant.
func BenchmarkRelay(b *testing.B) {
	for _, name := range []string{"postgres", "mariadb"} {
		b.Run(name, func(b *testing.B) {
			outbox := newBench(b, name, nil)
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				outbox.insert("acme", fmt.Sprintf("%d-", n), 20_000)
				b.StartTimer()
				outbox.once()
			}
			b.ReportMetric(20_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
