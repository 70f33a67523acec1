package eta

import "math"

// Window estimates from what was admitted in the last 1, 5 and 15 minutes of room time, weighted 0.5, 0.3 and 0.2.
//
//   - Time in which admission was not wanted (the queue empty, the room paused) does not count. A window that reaches back before the
//     beginning of the room is dropped, except for the shortest, and so is a window without busy time; the weights of the others are
//     scaled up. A window with less than a minute of busy time counts less in proportion.
//   - While the longest window that counts has less than a minute of busy time, or less than 20 admissions at the policy's rate, the
//     policy's rate fills the gap, unless ten seconds or more show that it is wrong.
//   - The policy's rate is never exceeded: a burst ends before it shortens the waits farther back. A flow below it (a full
//     room, a shared budget) is used as observed.
//   - When the rate of the policy changes, the history is scaled to the new rate at once.
//   - When the last minute differs from the time before it by more than chance allows (over 2 to 4 standard deviations,
//     and by over 10 to 25 %), the longer windows lose their weight: a change takes effect within about a minute.
//
// The rate behind the estimates follows with hysteresis, see steady.
type Window struct {
	SecondsPerPlace float64 // assumed until there are observations; 0: one over the rate in force
}

var _ Estimator = Window{}

// Forecast implements Estimator. It takes about as long as reading 900 buckets a few times.
func (w Window) Forecast(prev *Forecast, in Input) *Forecast { return forecast(w, prev, in) }

var windows = [...]struct {
	seconds int
	weight  float64
}{{60, 0.5}, {300, 0.3}, {900, 0.2}}

const (
	priorSeconds    = 60   // busy seconds from which on the policy's rate is not needed,
	priorAdmissions = 20   // if at least so many admissions were due in them
	priorError      = 0.25 // relative error that is assumed of the policy's rate as a forecast
	leastError      = 0.03 // least relative error of any forecast, because visitors' behaviour is unknown
	leastRate       = 1e-5 // below one admission a day: no flow
	mostRate        = 1e9  // keeps products of rates finite for any input
)

func (w Window) observe(in *Input, changes []change) observation {
	var h history
	h.read(in, changes)
	return w.weigh(in, &h)
}

// weigh returns the observation from the weighted windows.
func (w Window) weigh(in *Input, h *history) observation {
	o := observation{dispersion: h.dispersion()}
	age := float64(in.Now-in.Since) / 1e6

	var parts [len(windows)]sums
	var weights [len(windows)]float64
	total, trust := 0.0, 0.0
	minute := h.sum(0, windows[0].seconds)
	for i, w := range windows {
		if i > 0 && age < float64(w.seconds) {
			break
		}
		parts[i] = h.sum(0, w.seconds)
		trust = evidence(parts[i], in.Rate)
		weights[i] = w.weight * trust
		if i > 0 {
			weights[i] *= agreement(minute, h.sum(windows[0].seconds, w.seconds), o.dispersion)
		}
		total += weights[i]
	}
	observed := 0.0
	if total > 0 {
		for i := range weights {
			weights[i] /= total
			observed += weights[i] * parts[i].rate()
		}
	} else {
		trust = 0
	}
	assumed := rateOf(w.SecondsPerPlace, in)
	prior := (1 - trust) * plausible(in, minute, assumed)
	o.rate, o.prior = min(prior*assumed+(1-prior)*observed, in.Rate), prior
	if o.rate > 0 {
		o.errors(parts[:], weights[:], observed, prior)
	}
	return o
}

// evidence returns the weight of a window, from 0 to 1.
func evidence(s sums, policy float64) float64 {
	return min(1, s.busy/priorSeconds, s.busy*policy/priorAdmissions)
}

// plausible returns 1 if the observed admissions fit the assumed rate, and 0 if they certainly do not, by the same test as
// agreement. A few seconds are no evidence, because the first visitors in the queue have yet to poll.
func plausible(in *Input, seen sums, prior float64) float64 {
	switch {
	case prior == 0:
		return 0
	case in.full.is: // the assumed rate was observed before, and places become free in lumps
		return 1
	}
	expected := seen.busy * prior
	if seen.busy < grainSeconds || seen.counted == 0 || expected == 0 {
		return 1
	}
	apart := 1 - seen.counted/expected
	if prior < in.Rate {
		apart = math.Abs(apart)
	} // else a larger number is a burst, which does not last
	return 1 - ramp(apart*math.Sqrt(expected), 2, 4)*ramp(apart, 0.10, 0.25)
}

// agreement returns 1 if the last minute and the time before it may have had the same rate, and 0 if they certainly had not: a
// two-sample test of rates with the pooled variance, widened by the dispersion.
func agreement(minute, before sums, dispersion float64) float64 {
	if minute.busy < priorSeconds/2 || before.busy < priorSeconds/2 {
		return 1
	}
	pooled := (minute.admitted + before.admitted) / (minute.busy + before.busy)
	if pooled == 0 {
		return 1
	}
	apart := math.Abs(minute.rate() - before.rate())
	deviations := apart / math.Sqrt(dispersion*pooled*(1/minute.busy+1/before.busy))
	return 1 - ramp(deviations, 2, 4)*ramp(apart/pooled, 0.10, 0.25)
}

// errors sets the relative error of the rate, as the sum of those of sampling (the windows share their newest admissions, so the
// covariance of two is the variance of the longer), of the windows among each other, and of the prior.
func (o *observation) errors(parts []sums, weights []float64, observed, prior float64) {
	variance, among := 0.0, 0.0
	for i := range parts {
		if weights[i] == 0 {
			continue
		}
		for j := range parts {
			variance += weights[i] * weights[j] / max(parts[i].counted, parts[j].counted, 1)
		}
		d := parts[i].rate()/o.rate - observed/o.rate
		among += weights[i] * d * d
	}
	o.sampling = math.Sqrt(o.dispersion * variance)
	seen := (1 - prior) * (1 - prior)
	o.spread = min(1, math.Sqrt(seen*(o.dispersion*variance+among)+prior*prior*priorError*priorError+leastError*leastError))
}
