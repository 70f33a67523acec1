package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latency collects how long one kind of request took, from 1 µs to 2 min with three digits.
type latency struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatency() *latency {
	return &latency{h: hdrhistogram.New(1, int64(2*time.Minute/time.Microsecond), 3)}
}

func (l *latency) record(d time.Duration) {
	us := min(max(d.Microseconds(), 1), l.h.HighestTrackableValue())
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.h.RecordValue(us); err != nil {
		panic(err) // clamped to the histogram's range above
	}
}

// quantiles is what a report says of a kind of request, in milliseconds.
type quantiles struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

func (l *latency) quantiles() quantiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return quantiles{
		Count: l.h.TotalCount(),
		P50:   ms(l.h.ValueAtQuantile(50)), P99: ms(l.h.ValueAtQuantile(99)),
		P999: ms(l.h.ValueAtQuantile(99.9)), Max: ms(l.h.Max()),
	}
}
