package eta

import "math"

// memory is the state that one forecast passes to the next.
type memory struct {
	now       int64           // room time of the forecast, µs
	policy    float64         // the policy's rate at that forecast
	changes   []change        // the policy's rates during the history
	following bool            // Forecast.rate still follows a real change
	wall      int64           // Input.Wall of the forecast
	factors   *[knots]float64 // of a model, as natural logarithms; nil: none
	prior     float64         // share of the rate that was assumed and not observed
	refuted   bool            // the assumed rate has just been refuted
	leavers   leavers
	churn     churn
	full      fullness
	cohorts   *cohorts // nil: no limit of sessions
}

const (
	leastBand     = 0.05 // relative deviations up to this are always noise,
	mostBand      = 0.30 // and above this never
	bandErrors    = 2.5  // standard errors of sampling that are noise
	followTime    = 5.0  // s: time constant with which a real change is followed
	followUntil   = 0.02 // relative deviation below which a change is complete
	driftPerS     = 0.05 // largest share by which noise may move the rate in a second
	spreadTime    = 15.0 // s: time constant of the range's width
	leastTailTime = 1.0  // s
	refutes       = 0.3  // a fall of the assumed share by more than this is not noise
)

// steady makes f follow now from prev without jumps.
//
//   - A deviation within the noise moves the rate by at most the share elapsed/T, where T is the wait of the last visitor in the queue.
//     So no wait grows faster than time passes, and no visitor sees a larger figure than before.
//   - A larger deviation is a change. The rate follows it with a time constant of 5 s until the deviation is within 2 %.
//   - Observations that refute the assumed rate act at once: visitors see one correction.
//   - A new rate of the policy acts at once, by the ratio of the expected rates. If that ratio is within the noise, it counts as noise.
//
// Both directions are treated alike, because otherwise noise would drive the estimate to one side.
func (f *Forecast) steady(s source, prev *Forecast, now observation, in *Input, elapsed float64) {
	band := math.Log1p(min(max(bandErrors*now.sampling, leastBand), mostBand))
	held := prev.rate
	if hours, ok := s.(clock); ok && prev.memory.wall != 0 {
		weight, _ := hours.weightAt(in.wall())
		was, _ := hours.weightAt(prev.memory.wall)
		held *= weight / was
	}
	if old := prev.memory.policy; old != in.Rate && old > 0 {
		before := *in
		before.Rate = old
		if was := s.observe(&before, f.memory.changes).rate; was > 0 {
			if ratio := now.rate / was; math.Abs(math.Log(ratio)) > band {
				held *= ratio
			}
		}
	}
	deviation := math.Log(now.rate / held)
	if now.prior < prev.memory.prior-refutes && math.Abs(deviation) > band {
		f.memory.refuted = true
		held, deviation = now.rate, 0
	}
	f.memory.following = math.Abs(deviation) > band || prev.memory.following && math.Abs(deviation) > followUntil
	if f.memory.following {
		deviation *= 1 - math.Exp(-elapsed/followTime)
	} else {
		tail := max(float64(in.Waiting)/held, leastTailTime)
		most := elapsed * min(1/tail, driftPerS)
		deviation = min(max(deviation, -most), most)
	}
	f.rate = held * math.Exp(deviation)
	if prev.spread > 0 {
		share := 1 - math.Exp(-elapsed/spreadTime)
		f.dispersion = prev.dispersion + (now.dispersion-prev.dispersion)*share
		f.spread = prev.spread + (now.spread-prev.spread)*share
	}
}
