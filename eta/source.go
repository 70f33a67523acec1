package eta

import "math"

// source is the part of an estimator that differs between estimators.
type source interface {
	// observe returns what follows from the room's history alone.
	observe(in *Input, changes []change) observation
}

// clock is a source with a rate that follows the time of day.
type clock interface {
	// weightAt returns the weight of a moment (µs since 1970), and the moment from which another one applies.
	weightAt(wall int64) (weight float64, until int64)
}

// observation is what follows from a room's history alone.
type observation struct {
	rate       float64
	dispersion float64
	sampling   float64 // relative standard error of rate from the finite number of admissions
	spread     float64 // all of rate's relative error
	prior      float64 // share of rate that was assumed and not observed
}

// rateOf returns the assumed rate of a room without observations, never more than the rate in force. For a full room it follows
// from the sessions that end; 0: unknown.
func rateOf(secondsPerPlace float64, in *Input) float64 {
	if in.full.is {
		return min(in.full.flow, in.Rate)
	}
	if secondsPerPlace > 0 {
		return min(1/secondsPerPlace, in.Rate)
	}
	return in.Rate
}

// forecast makes the Forecast of any source. All estimators share the treatment of departures, pauses, the policy's future and
// jumps.
func forecast(s source, prev *Forecast, in Input) *Forecast {
	f := expect(s, prev, in)
	var p presence
	p.learn(in.Passed, in.Sample, in.Waiting)
	if f.absent = p.absent; f.known {
		f.turnout.foresee(f, &p, &in)
	}
	return f
}

// expect forecasts the flow of admissions.
func expect(s source, prev *Forecast, in Input) *Forecast {
	if !(in.Rate >= leastRate) || math.IsInf(in.Rate, 0) {
		in.Rate = 0
	}
	in.Rate = min(in.Rate, mostRate)
	var old memory
	if prev != nil {
		old = prev.memory
	}
	elapsed := float64(in.Now-old.now) / 1e6
	if elapsed < 0 || elapsed > MaxBuckets { // room time went back or jumped: the last forecast is not comparable
		prev, old, elapsed = nil, memory{}, 0
	}
	f := &Forecast{memory: memory{now: in.Now, wall: in.wall(), policy: in.Rate, changes: notedChanges(old.changes, floorSeconds(in.Now), in.Rate)}}
	f.memory.leavers, f.memory.churn = old.leavers, old.churn
	if prev == nil || elapsed > 0 { // otherwise no time has passed in which a visitor could leave
		f.memory.leavers = old.leavers.after(&in, elapsed)
		f.memory.churn = old.churn.after(&in, elapsed)
	}
	f.leaving = f.memory.leavers.hazard()
	f.memory.full = old.full.after(&in, prev == nil, f.memory.churn.hazard())
	in.full = f.memory.full
	if f.memory.cohorts = old.cohorts; prev == nil || elapsed > 0 {
		f.memory.cohorts = old.cohorts.after(&in, old.churn, f.memory.churn, elapsed)
	}
	f.hold = max(0, float64(in.Hold-in.Now)/1e6, f.memory.churn.over(&in))
	keep := func() {
		if prev != nil && prev.rate > 0 { // the next forecast continues from them
			f.rate, f.dispersion, f.spread = prev.rate, prev.dispersion, prev.spread
			f.memory.policy, f.memory.wall = old.policy, old.wall
		}
	}
	if in.Paused {
		keep()
		return f
	}
	if in.Rate == 0 {
		keep()
		f.opening(&in)
		return f
	}
	if in.full.is && f.memory.cohorts.unexpected(f.memory.churn.ended, in.full.since == math.MinInt64) {
		keep()
		return f
	}
	if c := f.memory.cohorts; c.lumpy(&in, f.memory.churn.hazard()) {
		f.known, f.rate, f.dispersion, f.spread = true, c.mean, 1, leastError
		f.hold, f.course = max(0, float64(in.Hold-in.Now)/1e6), c.course
		return f
	}
	now := s.observe(&in, f.memory.changes)
	if now.rate < leastRate {
		return f
	}
	f.known = true
	f.rate, f.dispersion, f.spread = now.rate, now.dispersion, now.spread
	f.memory.prior = now.prior
	if prev != nil && prev.rate > 0 {
		f.steady(s, prev, now, &in, elapsed)
	}
	f.plan(s, &in)
	return f
}

// opening forecasts a room with rate 0 and an opening time.
func (f *Forecast) opening(in *Input) {
	for i, step := range in.Schedule {
		if step.At > in.Now && step.Rate >= leastRate && !math.IsInf(step.Rate, 0) {
			at := *in
			at.Rate, at.Schedule = step.Rate, in.Schedule[i+1:]
			f.known, f.rate, f.dispersion, f.spread = true, step.Rate, 1, priorError
			f.hold = max(f.hold, float64(step.At-in.Now)/1e6)
			f.plan(nil, &at)
			return
		}
	}
}

// mostStretches is the largest length of a course.
const mostStretches = 64

// plan sets the course of the rate, from the hours of the day, the policy's future rates and the limit of active visitors, once that is
// reached. A flow that the rate in force does not limit is not changed by a higher rate.
func (f *Forecast) plan(s source, in *Input) {
	hours, _ := s.(clock)
	full, flow := f.memory.churn.full(in, f.rate)
	if len(in.Schedule) == 0 && hours == nil && math.IsInf(full, 1) {
		return
	}
	limited := ramp(f.rate/in.Rate, 0.8, 0.95)
	wall := in.wall()
	weight := 1.0
	if hours != nil {
		weight, _ = hours.weightAt(wall)
	}
	begin, policy, steps := 0.0, in.Rate, in.Schedule
	for len(f.course) < mostStretches {
		next, m := math.Inf(1), 1.0
		if hours != nil {
			w, until := hours.weightAt(wall + int64(begin*1e6))
			next, m = float64(until-wall)/1e6, w/weight
		}
		for len(steps) > 0 && float64(steps[0].At-in.Now)/1e6 <= begin {
			if r := steps[0].Rate; r >= leastRate && r <= mostRate {
				policy = r
			} else {
				policy = 0
			}
			steps = steps[1:]
		}
		if len(steps) > 0 {
			next = min(next, float64(steps[0].At-in.Now)/1e6)
		}
		rate := min(f.rate*m*(limited*policy/in.Rate+1-limited), policy)
		if begin >= full {
			rate = min(rate, flow)
		} else {
			next = min(next, full)
		}
		if len(f.course) == mostStretches-1 {
			next = math.Inf(1)
		}
		f.course = append(f.course, stretch{next, rate})
		if math.IsInf(next, 1) {
			return
		}
		begin = max(next, begin+1e-3)
	}
}

func (in *Input) wall() int64 {
	if in.Wall != 0 {
		return in.Wall
	}
	return in.Now
}
