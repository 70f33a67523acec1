package guard

// Effort describes the proof of work for a ticket.
type Effort struct {
	Number   int64   // tries at most, at a join rate of up to JoinRate
	Most     int64   // tries at most, at any join rate
	JoinRate float64 // joins a second
}

// At returns the number of tries at a join rate: Number up to JoinRate, twice as many above JoinRate, four times as many above twice
// JoinRate, and so on up to Most.
func (e Effort) At(rate float64) int64 {
	n := e.Number
	for limit := e.JoinRate; rate > limit && n < e.Most; limit *= 2 {
		n *= 2
	}
	return min(n, e.Most)
}

// Rate measures joins a second from totals that are observed now and then. It is not safe for concurrent use.
type Rate struct {
	samples []sample
}

type sample struct{ at, total int64 }

// rateWindow is the time over which a rate is measured, and rateApart the least time between its samples, in microseconds.
const (
	rateWindow = 10_000_000
	rateApart  = 500_000
)

// Observe adds a total at a time (µs) and returns the rate. A total or a time that goes back starts again.
func (r *Rate) Observe(at, total int64) float64 {
	if n := len(r.samples); n > 0 && (at < r.samples[n-1].at || total < r.samples[n-1].total) {
		r.samples = r.samples[:0]
	}
	if n := len(r.samples); n == 0 || at-r.samples[n-1].at >= rateApart {
		r.samples = append(r.samples, sample{at, total})
	}
	// The newest sample from before the window stays, because the window begins at it.
	for len(r.samples) > 1 && at-r.samples[1].at >= rateWindow {
		r.samples = append(r.samples[:0], r.samples[1:]...)
	}
	first := r.samples[0]
	return float64(total-first.total) / max(1, float64(at-first.at)/1e6)
}
