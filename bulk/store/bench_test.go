package store

import (
	"fmt"
	"testing"
)

func BenchmarkAdd(b *testing.B) {
	s, _ := open(b, nil)
	s.o.Now = nil
	create(b, s, GroupSpec{ID: "g", Tenant: "acme"})
	payload := make([]byte, 100)
	b.ResetTimer()
	n := 0
	for b.Loop() {
		jobs := make([]Job, MaxAdd)
		for i := range jobs {
			n++
			jobs[i] = Job{ID: fmt.Sprintf("job-%09d", n), Payload: payload}
		}
		if _, err := s.AddJobs(b.Context(), "g", Chunk{}, jobs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "jobs/s")
}

func BenchmarkPullAck(b *testing.B) {
	for _, row := range []struct{ tenants, batch int }{{1, 10}, {1, 50}, {10, 50}, {1000, 50}} {
		b.Run(fmt.Sprintf("%d tenants, batch %d", row.tenants, row.batch), func(b *testing.B) {
			s, _ := open(b, func(c *Settings) { c.Global = 1e6 })
			s.o.Now = nil
			total := 100_000
			for i := range row.tenants {
				id := fmt.Sprintf("g%d", i)
				create(b, s, GroupSpec{ID: id, Tenant: "t" + id})
				add(b, s, id, 0, total/row.tenants)
			}
			b.ResetTimer()
			n := 0
			for b.Loop() {
				p, err := s.Pull(b.Context(), row.batch)
				if err != nil {
					b.Fatal(err)
				}
				acks := make([]Ack, len(p.Jobs))
				for i, j := range p.Jobs {
					acks[i] = Ack{Key: j.Key, Fence: j.Fence, Verdict: Done, Result: []byte("ok")}
				}
				if _, err := s.Ack(b.Context(), acks); err != nil {
					b.Fatal(err)
				}
				n += len(acks)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
