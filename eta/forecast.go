package eta

import "math"

// Forecast is the expected future of one room's queue from one moment on. It is immutable.
type Forecast struct {
	known      bool
	rate       float64 // admissions per second that are expected now
	dispersion float64 // variance over mean of the number admitted in a long time; 1 for a Poisson process
	spread     float64 // relative standard deviation of rate
	hold       float64 // s until the next admission
	absent     float64 // share of the visitors reached by the front lately who were absent
	turnout    turnout
	leaving    float64   // share of the queue that leaves in a second
	course     []stretch // the future rate; empty: constant
	knots      []knot    // corrections and ranges by seconds, ascending; empty: none
	fallback   string
	memory     memory // for the next forecast
}

// stretch is a time with one expected rate.
type stretch struct {
	until float64 // s from now; the last is +Inf
	rate  float64 // admissions/s
}

// knot maps an expected wait to the wait that is shown.
type knot struct{ at, seconds, low, high float64 }

// Rate returns the admissions per second that the forecast expects now, or 0 if it has none.
func (f *Forecast) Rate() float64 {
	if f == nil || !f.known {
		return 0
	}
	return f.rate
}

// Fallback returns why the forecast uses Window instead of Modelled, FallbackNone if it does not.
func (f *Forecast) Fallback() string {
	if f == nil {
		return ""
	}
	return f.fallback
}

// quantile is the value of the standard normal distribution for which four fifths lie between −quantile and quantile.
const quantile = 1.2816

// At returns the estimate for a visitor with that many tickets ahead; 0 is the next to be admitted. All three figures grow with ahead.
// A nil Forecast has no estimates.
//
// The queue is modelled as a fluid. n counts the visitor and the visitors ahead who will be present at their turn (see turnout). Each of
// them leaves with hazard θ, and r is the rate of admissions:
//
//	dn/dt = −r − θn,   so that   T = ln(1 + θn/r)/θ,   and n/r if nobody leaves
//
// (the fluid limit of a queue with impatient customers: O. Garnett, A. Mandelbaum, M. Reiman, Designing a Call Center with
// Impatient Customers, 2002, §4). If r is expected to change, the formula applies to each stretch.
//
// Without learnt errors the range comes from the randomness of admissions. With k = rT of them, index of dispersion D of the
// admissions and relative error s of r, the k-th admission comes after k/r on average, and by the central limit theorem for
// renewal processes (D. R. Cox, Renewal Theory, 1962, §3.3) its variance for a known r is D·k/r². With an r that is itself
// uncertain the relative deviation is
//
//	ρ = √(D/k + s²)        (to first order: law of total variance)
//
// and Low = T/(1 + zρ), High = T·(1 + zρ) with z = 1.28 for four chances in five: a ratio, because a rate that turns out at
// half its estimate doubles the wait while one at twice halves it.
func (f *Forecast) At(ahead int64) Estimate {
	if f == nil || !f.known {
		return Estimate{}
	}
	k := f.turnout.of(float64(max(ahead, 0))) + 1
	seconds := f.seconds(k)
	if math.IsInf(seconds, 1) { // admissions end before the visitor's turn
		return Estimate{}
	}
	if len(f.knots) > 0 {
		return f.corrected(seconds)
	}
	factor := f.factor(seconds)
	return Estimate{Seconds: seconds, Low: seconds / factor, High: seconds * factor, Known: true}
}

func (f *Forecast) factor(seconds float64) float64 {
	return 1 + quantile*math.Sqrt(f.dispersion/(f.rate*seconds)+f.spread*f.spread)
}

// seconds returns the time until n present visitors have left the queue.
func (f *Forecast) seconds(n float64) float64 {
	if len(f.course) == 0 {
		return f.hold + f.through(n, f.rate)
	}
	begin := f.hold
	for _, s := range f.course {
		if s.until <= begin {
			continue
		}
		t := f.through(n, s.rate)
		if begin+t <= s.until {
			return begin + t
		}
		n = f.left(n, s.rate, s.until-begin)
		begin = s.until
	}
	return begin
}

// through returns the time in which n visitors leave the queue at one rate of admissions.
func (f *Forecast) through(n, rate float64) float64 {
	if rate < leastRate {
		return math.Inf(1)
	}
	if x := f.leaving * n / rate; x > 1e-6 {
		return math.Log1p(x) / f.leaving
	}
	return n / rate
}

// left returns how many of n are left after a time at one rate.
func (f *Forecast) left(n, rate, seconds float64) float64 {
	if x := f.leaving * seconds; x > 1e-9 {
		stay := math.Exp(-x)
		return max(0, n*stay-rate/f.leaving*(1-stay))
	}
	return max(0, n-rate*seconds)
}

// corrected interpolates between the knots, and extends the first and the last one in proportion.
func (f *Forecast) corrected(seconds float64) Estimate {
	first, last := f.knots[0], f.knots[len(f.knots)-1]
	switch {
	case seconds <= first.at:
		x := seconds / first.at
		return Estimate{Seconds: first.seconds * x, Low: first.low * x, High: first.high * x, Known: true}
	case seconds >= last.at:
		x := seconds / last.at
		return Estimate{Seconds: last.seconds * x, Low: last.low * x, High: last.high * x, Known: true}
	}
	low, high := 0, len(f.knots)-1
	for high-low > 1 {
		if mid := (low + high) / 2; f.knots[mid].at <= seconds {
			low = mid
		} else {
			high = mid
		}
	}
	a, b := f.knots[low], f.knots[high]
	x := (seconds - a.at) / (b.at - a.at)
	between := func(p, q float64) float64 { return p + (q-p)*x }
	return Estimate{Seconds: between(a.seconds, b.seconds), Low: between(a.low, b.low), High: between(a.high, b.high), Known: true}
}
