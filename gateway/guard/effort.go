package guard

// Effort is how much work a place costs.
type Effort struct {
	Number   int64   // tries at most, at a join rate of up to JoinRate
	Most     int64   // and however many join
	JoinRate float64 // joins a second
}

// At is the number at a join rate: doubled as often as that goes, wholly or in part, into another doubling of JoinRate.
func (e Effort) At(rate float64) int64 {
	n := e.Number
	for limit := e.JoinRate; rate > limit && n < e.Most; limit *= 2 {
		n *= 2
	}
	return min(n, e.Most)
}

// Rate is how many join a second, from totals that are heard now and then. Not safe for concurrent use.
type Rate struct {
	samples []sample
}

type sample struct{ at, total int64 }

// rateWindow is the time that a rate is of, and rateApart how far its samples are apart at least, in microseconds.
const (
	rateWindow = 10_000_000
	rateApart  = 500_000
)

// Observe takes a total at a time (µs) and gives the rate. A total or a time that goes back begins anew.
func (r *Rate) Observe(at, total int64) float64 {
	if n := len(r.samples); n > 0 && (at < r.samples[n-1].at || total < r.samples[n-1].total) {
		r.samples = r.samples[:0]
	}
	if n := len(r.samples); n == 0 || at-r.samples[n-1].at >= rateApart {
		r.samples = append(r.samples, sample{at, total})
	}
	// One that is older than the window stays, as its beginning.
	for len(r.samples) > 1 && at-r.samples[1].at >= rateWindow {
		r.samples = append(r.samples[:0], r.samples[1:]...)
	}
	first := r.samples[0]
	return float64(total-first.total) / max(1, float64(at-first.at)/1e6)
}
