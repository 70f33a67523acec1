package store

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

func BenchmarkAdd(b *testing.B) {
	s, _ := open(b, nil)
	s.o.Now = nil
	create(b, s, GroupSpec{ID: "g", Tenant: "acme"})
	payload := make([]byte, 100)
	before := cpuTime(b, s)
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
	b.ReportMetric((cpuTime(b, s)-before)/float64(n), "redis-µs/job")
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

// BenchmarkPull_InTurns measures the cost of a pull of 50 for Redis: from a group with jobs in order of submission, with returned
// jobs, and with both, which alternate.
func BenchmarkPull_InTurns(b *testing.B) {
	for _, row := range []struct {
		name       string
		due, order int
	}{{"order", 0, 60_000}, {"due", 60_000, 0}, {"due and order", 60_000, 60_000}} {
		b.Run(row.name, func(b *testing.B) {
			s, c := openOn(b, redistest.Server(b).Client(), func(set *Settings) { set.Global, set.DispatchBatch = 1e6, 2000 })
			var cpu float64
			left, groups, pulls := 0, 0, 0
			for b.Loop() {
				if left < 50 {
					b.StopTimer()
					id := fmt.Sprintf("g%d", groups)
					create(b, s, GroupSpec{ID: id, Tenant: "acme"})
					addDue(b, s, id, row.due, time.UnixMicro(c.us).Add(time.Second))
					add(b, s, id, 0, row.order)
					c.advance(time.Minute)
					for more := true; more; {
						more = dispatch(b, s).More
					}
					left, groups = left+row.due+row.order, groups+1
					cpu -= cpuTime(b, s)
					b.StartTimer()
				}
				c.advance(time.Second)
				n := len(pull(b, s, 50).Jobs)
				if left, pulls = left-n, pulls+1; n != 50 {
					b.Fatalf("%d jobs are pulled", n)
				}
				if left < 50 {
					cpu += cpuTime(b, s)
				}
			}
			if left >= 50 {
				cpu += cpuTime(b, s)
			}
			b.ReportMetric(cpu/float64(pulls), "redis-cpu-µs/op")
		})
	}
}

// addDue adds n jobs that are due at a time.
func addDue(b *testing.B, s *Store, group string, n int, due time.Time) {
	b.Helper()
	for from := 0; from < n; from += MaxAdd {
		jobs := make([]Job, min(MaxAdd, n-from))
		for i := range jobs {
			jobs[i] = Job{ID: fmt.Sprintf("d%06d", from+i), Payload: []byte(`{}`), RunAt: due}
		}
		if _, err := s.AddJobs(b.Context(), group, Chunk{}, jobs); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime returns the microseconds of processor time that Redis has used. Other than its commandstats, they do not grow while it waits for a processor.
func cpuTime(b *testing.B, s *Store) (us float64) {
	b.Helper()
	text, err := s.o.Client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		us += n * 1e6
	}
	return us
}

// BenchmarkCost drains groups and reports the processor time of Redis for each job: all processes share Redis.
func BenchmarkCost(b *testing.B) {
	for _, row := range []struct{ groups, batch int }{{10, 1}, {50, 1}, {10, 10}, {50, 10}, {50, 100}} {
		b.Run(fmt.Sprintf("groups=%d/batch=%d", row.groups, row.batch), func(b *testing.B) {
			n, used := 0, 0.0
			for b.Loop() {
				b.StopTimer()
				s, _ := open(b, func(c *Settings) { c.Global, c.Burst = 1e6, 1e6 })
				s.o.Now = nil
				for i := range row.groups {
					id := fmt.Sprintf("g%d", i)
					create(b, s, GroupSpec{ID: id, Tenant: fmt.Sprintf("t%d", i%5)})
					add(b, s, id, 0, min(20_000, 4000*row.batch)/row.groups)
				}
				before := cpuTime(b, s)
				b.StartTimer()
				for {
					p, err := s.Pull(b.Context(), row.batch)
					if err != nil {
						b.Fatal(err)
					}
					if len(p.Jobs) == 0 {
						break
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
				used += cpuTime(b, s) - before
			}
			b.ReportMetric(used/float64(n), "redis-µs/job")
		})
	}
}
