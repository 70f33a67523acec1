package eta

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bucket is one second of a room's admissions. A second without a bucket counts as one in which nobody wanted to be
// admitted, so a second in which the line stood and nobody was let in needs its bucket too.
type Bucket struct {
	Second   int64   // room time, s
	Admitted int64   // admissions in that second
	Busy     float64 // 0..1: the share of it in which the line was not empty and the room not paused, so that admission was wanted
}

// MaxBuckets is how many seconds of history a forecast looks at: those before the current one.
const MaxBuckets = 900

// Input is what a room knows of itself at one moment.
type Input struct {
	Now       int64    // room time, µs
	Since     int64    // room time at which the room began, µs
	Buckets   []Bucket // ascending; seconds outside the last MaxBuckets, and the current one, are not looked at
	Rate      float64  // the policy's rate now, visitors/s; under 0.00001, or not a finite number: admits nobody
	Paused    bool
	Waiting   int64 // people in the line
	MaxActive int64 // 0: no limit
	Active    int64 // admitted and active, counted against MaxActive
}

// Estimate is a wait in seconds: with four chances in five it lies between Low and High. Where nothing honest can be said
// (paused, rate 0, nobody has been let in) Known is false and the rest is 0.
type Estimate struct {
	Seconds, Low, High float64
	Known              bool
}

// Estimator makes forecasts. prev is the same room's last forecast by the same estimator, or nil; it is not changed.
type Estimator interface {
	Forecast(prev *Forecast, in Input) *Forecast
}

// estimators by their name in the configuration.
var estimators = map[string]Estimator{"window": Window{}}

// Names lists the estimators that New knows, sorted.
func Names() []string {
	names := make([]string, 0, len(estimators))
	for name := range estimators {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New gives the estimator of a name.
func New(name string) (Estimator, error) {
	if e, ok := estimators[name]; ok {
		return e, nil
	}
	return nil, fmt.Errorf("eta: estimator %q is not known; use one of: %s", name, strings.Join(Names(), ", "))
}

// Forecast is what is expected of one room's line from one moment on. It is immutable.
type Forecast struct {
	known      bool
	rate       float64 // admissions per second that are expected
	dispersion float64 // variance over mean of the number admitted in a long time; 1 for a Poisson process
	spread     float64 // relative standard deviation of rate
	memory     memory  // for the next forecast
}

// Rate is the admissions per second that the forecast expects; 0 where it knows nothing.
func (f *Forecast) Rate() float64 {
	if f == nil || !f.known {
		return 0
	}
	return f.rate
}

// quantile of the standard normal distribution between which and its negative lie four fifths.
const quantile = 1.2816

// At estimates the wait of a visitor with that many people ahead; 0 is the next to be admitted. All three figures grow
// with ahead. A nil forecast knows nothing.
//
// With k = ahead+1, rate r, index of dispersion D of the admissions and relative error s of r, the k-th admission from
// now comes after k/r on average, and by the central limit theorem for renewal processes (D. R. Cox, Renewal Theory,
// 1962, §3.3) its variance for a known r is D·k/r². With an r that is itself uncertain the relative deviation is
//
//	ρ = √(D/k + s²)        (to first order: law of total variance)
//
// and Low = (k/r)/(1 + zρ), High = (k/r)·(1 + zρ) with z = 1.28 for four chances in five: a ratio, because a rate that
// turns out at half its estimate doubles the wait while one at twice halves it.
func (f *Forecast) At(ahead int64) Estimate {
	if f == nil || !f.known {
		return Estimate{}
	}
	k := float64(max(ahead, 0)) + 1
	seconds := k / f.rate
	factor := 1 + quantile*math.Sqrt(f.dispersion/k+f.spread*f.spread)
	return Estimate{Seconds: seconds, Low: seconds / factor, High: seconds * factor, Known: true}
}
