package eta

import "math"

// EMA averages admissions with weights that fall exponentially with their age, over two horizons: of 30 s and of 300 s of
// busy time (R. G. Brown, Statistical Forecasting for Inventory Control, 1959: simple exponential smoothing). It uses the
// long one, which has less noise. If the short one differs from it by more than chance allows (over 2 to 4 standard deviations, and
// by over 10 to 25 %), the flow has changed, and it uses the short one. As in Window, the rate in force replaces missing
// observations, acts at once when it changes, and is never exceeded.
type EMA struct {
	SecondsPerPlace float64 // as in Window
}

var _ Estimator = EMA{}

const (
	fastTime = 30.0  // s of busy time
	slowTime = 300.0 // s of busy time
)

// fastSecond and slowSecond are the factors of a weight for each second of busy time.
var fastSecond, slowSecond = math.Exp(-1 / fastTime), math.Exp(-1 / slowTime)

// Forecast implements Estimator.
func (e EMA) Forecast(prev *Forecast, in Input) *Forecast { return forecast(e, prev, in) }

// faded are weighted sums, and the sum of the squared weights of the admissions.
type faded struct{ admitted, counted, busy, squares float64 }

func (s *faded) rate() float64 { return s.admitted / s.busy }

func (s *faded) add(h *history, i int, w float64) {
	s.admitted += w * h.admitted[i]
	s.counted += w * h.counted[i]
	s.busy += w * h.busy[i]
	s.squares += w * w * h.counted[i]
}

func (e EMA) observe(in *Input, changes []change) observation {
	var h history
	h.read(in, changes)
	o := observation{dispersion: h.dispersion()}
	var fast, slow faded
	age := 0.0       // in busy time
	f, w := 1.0, 1.0 // weights of that age
	for i := range h.busy {
		if h.busy[i] == 0 {
			continue
		}
		fast.add(&h, i, f)
		slow.add(&h, i, w)
		age += h.busy[i]
		if h.busy[i] == 1 {
			f, w = f*fastSecond, w*slowSecond
		} else {
			f, w = f*math.Exp(-h.busy[i]/fastTime), w*math.Exp(-h.busy[i]/slowTime)
		}
	}
	assumed := rateOf(e.SecondsPerPlace, in)
	prior := (1 - evidence(sums{busy: age}, in.Rate)) * plausible(in, h.sum(0, blockSeconds), assumed)
	observed, sampling := 0.0, 0.0
	if age > 0 {
		apart := math.Abs(fast.rate() - slow.rate())
		deviation := math.Sqrt(o.dispersion*max(fast.squares, 1)) / fast.busy
		changed := ramp(apart/deviation, 2, 4) * ramp(apart/max(fast.rate(), slow.rate(), leastRate), 0.10, 0.25)
		if age < fastTime {
			changed = 0
		}
		observed = changed*fast.rate() + (1-changed)*slow.rate()
		used := slow
		if changed > 0.5 {
			used = fast
		}
		sampling = math.Sqrt(o.dispersion*max(used.squares, 1)) / max(used.counted, 1)
	}
	o.rate = min(prior*assumed+(1-prior)*observed, in.Rate)
	o.sampling, o.prior = sampling, prior
	seen := (1 - prior) * (1 - prior)
	o.spread = min(1, math.Sqrt(seen*sampling*sampling+prior*prior*priorError*priorError+leastError*leastError))
	return o
}
