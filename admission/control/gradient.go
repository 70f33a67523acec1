package control

import "time"

// Of the gradient; rates of change are a second's. Found by the plant simulation beside this file.
const (
	growth    = 0.05      // at most so much of the rate
	ramp      = 1.0 / 30  // nor more than this share of the range
	slowly    = 0.012     // of the rate, around the last ceiling
	quickly   = 0.10      // of the rate, well below it
	cooldown  = 6_000_000 // µs; a cut is felt so late: the window of the measurements and their way
	again     = 2_000_000 // µs from one look at a queue that drains to the next
	used      = 0.85      // share of the rate that has to be used for it to grow
	eased     = 0.85      // share of the target below which there is room for more
	cutLeast  = 0.93      // factors of a cut
	cutMost   = 0.5
	draining  = 0.85 // of the rate that was borne: what piled up has to drain
	improving = 0.9  // the pain is less than so much of what it was
)

// gradient grows additively and cuts multiplicatively, as TCP does and for the same reason: several who share an origin come to
// fair shares. It grows slowly around the rate that was too much last time, and the less the nearer p95 is to the target.
func (p Policy) gradient(s State, dt float64, level Level, h Health, u Usage) State {
	s.Level = level
	switch level {
	case Unknown:
		return s
	case Strained, Unhealthy:
		pain := p.pain(h)
		switch {
		case s.Cut > 0 && s.At-s.Cut < cooldown:
			s.Pain = max(s.Pain, pain) // the last cut is not felt yet
		case s.Pain > 0 && pain < int64(improving*float64(s.Pain)):
			s.Pain, s.Cut = pain, s.At-cooldown+again // what piled up drains
		default:
			s.Ceiling = s.Rate
			if s.Pain > 0 {
				s.Ceiling = 0 // what it bore was less than that, and nobody knows by how much
			}
			s.Cut, s.Pain = s.At, pain
			s.Rate = int64(float64(s.Rate) * p.cut(h))
		}
		return s
	}
	s.Pain = 0
	p95 := h.P95.Microseconds()
	if s.Baseline == 0 || p95 < s.Baseline {
		s.Baseline = p95
	} else {
		s.Baseline += int64(float64(p95-s.Baseline) * dt / 60)
	}
	if !u.Wanted || !(u.Rate*1000 >= used*float64(s.Rate)) {
		return s // more would not be used: nothing is learned
	}
	s.Rate += int64(p.grow(s, h) * dt)
	return s
}

// pain is how far an origin is beyond what it should keep, in thousandths.
func (p Policy) pain(h Health) int64 {
	return int64(1000 * min(1e6, max(float64(h.P95)/float64(p.TargetP95), 20*h.ErrorRate())))
}

// cut is the factor of a cut: by how far p95 is over the target, or what share of the requests was answered.
func (p Policy) cut(h Health) float64 {
	f := cutLeast
	if h.P95 > p.TargetP95 {
		f = min(f, 1-0.07*float64(h.P95)/float64(p.TargetP95))
	}
	if h.Requests >= Enough && h.ErrorRate() > p.MaxErrorRate {
		f = min(f, (1-h.ErrorRate())*draining)
	}
	if h.Scored && score(h) < 0.75 {
		f = min(f, score(h)/0.75)
	}
	return max(cutMost, f)
}

// grow is by how much the rate grows in a second, thousandths.
func (p Policy) grow(s State, h Health) float64 {
	rate := float64(s.Rate)
	step := min(growth*rate, ramp*float64(p.MaxRate-p.MinRate))
	if s.Ceiling > 0 {
		switch ceiling := float64(s.Ceiling); {
		case rate < 0.8*ceiling:
			step = max(step, quickly*rate)
		case rate < 1.05*ceiling:
			step = min(step, slowly*rate)
		}
	}
	return max(1000.0/30, step) * p.headroom(s, h)
}

// headroom is 1 while p95 is near what it is without a load, and 0 from eased of the target on.
func (p Policy) headroom(s State, h Health) float64 {
	base, most := time.Duration(s.Baseline)*time.Microsecond, time.Duration(eased*float64(p.TargetP95))
	if base >= most {
		// It never was much below the target: what is left to it is all the room there is.
		base, most = base*9/10, p.TargetP95
	}
	if h.P95 >= most || base >= most {
		return 0
	}
	return min(1, 1.5*float64(most-h.P95)/float64(most-base))
}
