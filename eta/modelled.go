package eta

import (
	"math"
	"time"
)

// Modelled is Window, corrected by a model that was trained on its errors (J. H. Friedman, Greedy Function Approximation: A
// Gradient Boosting Machine, 2001). If the model is missing, older than MaxAge, or its input is outside the range of its
// training, Modelled uses Window alone, and Forecast.Fallback returns the reason.
type Modelled struct {
	Window
	Model  *Model
	MaxAge time.Duration // 0: at any age
	Zone   *time.Location
}

var _ Estimator = Modelled{}

// Why a model is not used.
const (
	FallbackNone    = ""
	FallbackMissing = "missing"
	FallbackOld     = "old"
	FallbackRange   = "out_of_range"
)

// Fallbacks lists the reasons.
func Fallbacks() []string { return []string{FallbackMissing, FallbackOld, FallbackRange} }

// Forecast implements Estimator.
func (x Modelled) Forecast(prev *Forecast, in Input) *Forecast {
	f := forecast(x, prev, in)
	if !f.known {
		return f
	}
	switch {
	case x.Model == nil:
		f.fallback = FallbackMissing
	case x.MaxAge > 0 && time.UnixMicro(in.wall()).Sub(x.Model.Trained) > x.MaxAge:
		f.fallback = FallbackOld
	default:
		f.correct(prev, x.Model, &in, x.Zone)
	}
	return f
}

// correctTime is the time constant with which a correction follows the model, s, because features are noisy and trees have steps.
const correctTime = 30.0

// correct sets the knots by the model.
func (f *Forecast) correct(prev *Forecast, m *Model, in *Input, z *time.Location) {
	x := Features(f, in, z)
	for i := range x {
		if i != featureSeconds && i != featureThen && (x[i] < m.low[i] || x[i] > m.high[i]) {
			f.fallback = FallbackRange
			return
		}
	}
	f.knots = make([]knot, knots)
	f.memory.factors = new([knots]float64)
	var old *[knots]float64
	share := 1.0
	elapsed := 0.0
	if prev != nil && prev.memory.factors != nil && in.Now >= prev.memory.now && !f.memory.refuted {
		old = prev.memory.factors
		elapsed = float64(in.Now-prev.memory.now) / 1e6
		share = 1 - math.Exp(-elapsed/correctTime)
	}
	wall, last := in.wall(), 0.0
	for i := range f.knots {
		at := knotAt(i)
		x.then(at, wall, z)
		x[featureSeconds] = min(max(x[featureSeconds], m.low[featureSeconds]), m.high[featureSeconds])
		factor := m.Predict(x)
		if old != nil {
			most := elapsed * min(1/at, driftPerS) // as noise may move the rate
			factor = old[i] + min(max((factor-old[i])*share, -most), most)
		}
		f.memory.factors[i] = factor
		seconds := max(at*math.Exp(factor), last)
		f.knots[i] = knot{at: at, seconds: seconds, low: seconds, high: seconds}
		last = seconds
	}
}

// Example is the input of a model, in the order of FeatureNames.
type Example [features]float64

const (
	featureSeconds = 0
	featureThen    = 2
)

// Features returns the input of a model for a room with that forecast by Window, without the two features that depend on the wait.
func Features(f *Forecast, in *Input, z *time.Location) Example {
	var h history
	h.read(in, f.memory.changes)
	at := time.UnixMicro(in.wall()).In(z)
	x := Example{1: hourOf(at), 6: min(f.rate/in.Rate, 1), 8: f.absent}
	for i, w := range windows {
		if s := h.sum(0, w.seconds); s.busy >= 10 && s.admitted > 0 {
			x[3+i] = min(max(math.Log(s.rate()/f.rate), -3), 3)
		}
	}
	if in.MaxActive > 0 {
		x[7] = min(float64(in.Active)/float64(in.MaxActive), 1)
	}
	return x
}

// then sets the two features that depend on the wait.
func (x *Example) then(seconds float64, wall int64, z *time.Location) {
	x[featureSeconds] = math.Log(max(seconds, 1))
	x[featureThen] = hourOf(time.UnixMicro(wall + int64(seconds*1e6)).In(z))
}

// Then returns the example of one wait, as Window estimates it in seconds at the moment of in.
func (x Example) Then(seconds float64, in *Input, z *time.Location) Example {
	x.then(seconds, in.wall(), z)
	return x
}

func hourOf(t time.Time) float64 {
	return float64(t.Hour()) + float64(t.Minute())/60 + float64(t.Second())/3600
}

// knots is the number of waits for which corrections and ranges are kept, half an octave apart, from 2 s to 6.4 h.
const knots = 28

func knotAt(i int) float64 { return 2 * math.Exp2(float64(i)/2) }

// knotOf returns the knot nearest to a wait.
func knotOf(seconds float64) int {
	return min(max(int(math.Round(2*math.Log2(max(seconds, 1)/2))), 0), knots-1)
}
