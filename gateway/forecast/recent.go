package forecast

import (
	"slices"
	"sync"
	"time"
)

// Recent holds the newest samples of a measurement. The zero value is ready.
type Recent struct {
	mu   sync.Mutex
	ring [512]sample
	next int
}

type sample struct {
	at     time.Time
	value  float64
	failed bool
}

// Add adds a sample. Under contention the sample may be dropped.
func (r *Recent) Add(at time.Time, value float64, failed bool) {
	if !r.mu.TryLock() {
		return
	}
	r.ring[r.next] = sample{at, value, failed}
	r.next = (r.next + 1) % len(r.ring)
	r.mu.Unlock()
}

// Quantile returns the q-quantile of the samples that did not fail, and the share of those that did, over the last d; false
// without samples.
func (r *Recent) Quantile(now time.Time, d time.Duration, q float64) (quantile, failed float64, ok bool) {
	r.mu.Lock()
	values := make([]float64, 0, len(r.ring))
	var total, bad int
	for _, s := range r.ring {
		if s.at.IsZero() || now.Sub(s.at) > d {
			continue
		}
		total++
		if s.failed {
			bad++
			continue
		}
		values = append(values, s.value)
	}
	r.mu.Unlock()
	if total == 0 {
		return 0, 0, false
	}
	if len(values) > 0 {
		slices.Sort(values)
		quantile = values[min(len(values)-1, int(q*float64(len(values))))]
	}
	return quantile, float64(bad) / float64(total), true
}
