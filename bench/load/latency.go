package load

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latency collects durations from 1 µs to 2 min with three digits.
type latency struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatency() *latency {
	return &latency{h: hdrhistogram.New(1, int64(2*time.Minute/time.Microsecond), 3)}
}

func (l *latency) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.h.RecordValue(min(max(d.Microseconds(), 1), l.h.HighestTrackableValue())); err != nil {
		panic(err) // the value is within the range
	}
}

// Quantiles are those of the duration of a kind of request, in milliseconds.
type Quantiles struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

func (l *latency) quantiles() Quantiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return Quantiles{
		Count: l.h.TotalCount(),
		P50:   ms(l.h.ValueAtQuantile(50)), P99: ms(l.h.ValueAtQuantile(99)),
		P999: ms(l.h.ValueAtQuantile(99.9)), Max: ms(l.h.Max()),
	}
}

func (q Quantiles) line(w io.Writer, name string) {
	if q.Count > 0 {
		fmt.Fprintf(w, "%-10s %d · p50 %.1f ms · p99 %.1f ms · p99.9 %.1f ms · max %.1f ms\n", name, q.Count, q.P50, q.P99, q.P999, q.Max)
	}
}

// speedometer returns a function that returns by how much a second a count has grown since the last call.
func speedometer() func(count int64) float64 {
	last, before := time.Now(), int64(0)
	return func(count int64) float64 {
		speed := float64(count-before) / max(time.Since(last).Seconds(), 0.001)
		last, before = time.Now(), count
		return speed
	}
}
