package control

import "time"

// Of the gradient; rates of change are a second's. Found by the plant simulation beside this file.
const (
	growth    = 0.045     // at most so much of the rate
	ramp      = 1.0 / 30  // nor more than this share of the range
	slowly    = 0.018     // of the rate, around the last ceiling
	steep     = 0.04      // seconds a second (or of the target, where that is longer) by which p95 grows, and the rate no more
	quickly   = 0.10      // of the rate, well below it
	pickup    = 10.0      // by how much faster it grows beyond the last ceiling, for each of its size
	evidence  = 4_000_000 // µs after a cut in which what is measured is still of before: the window, and its way
	cooldown  = 8_000_000 // µs in which a cut is felt: visitors hear of their admission, and stay a while
	again     = 2_000_000 // µs from one look at a queue that drains to the next
	used      = 0.85      // share of the rate that has to be used for it to grow
	eased     = 0.85      // share of the target below which there is room for more
	cutMost   = 0.35      // a cut leaves at least so much
	draining  = 0.93      // of what was borne: what piled up has to drain
	insisting = 0.85      // once more, where a cut was of no use
	improving = 0.9       // the pain is less than so much of what it was
)

// gradient grows additively and cuts multiplicatively, as TCP does and for the same reason: several who share an origin come to
// fair shares. It grows slowly around the rate that was too much last time, and the less the nearer p95 is to the target.
func (p Policy) gradient(s State, dt float64, level Level, h Health, u Usage) State {
	s.Level = level
	p95 := h.P95.Microseconds()
	if level != Unknown && h.Requests >= Enough {
		if dt > 0 && s.P95 > 0 {
			s.Slope = (s.Slope + int64(min(1e9, max(-1e9, float64(p95-s.P95)/dt)))) / 2
		}
		s.P95 = p95
	}
	switch level {
	case Unknown:
		return s
	case Strained, Unhealthy:
		pain := p.pain(h)
		switch since := s.At - s.Cut; {
		case s.Cut > 0 && since < evidence:
			// What is measured is still of the rate before the cut, and may show only now how bad that was.
			s.Pain = max(s.Pain, pain)
			s = p.cutTo(s, h)
		case s.Cut > 0 && since < cooldown:
			s.Pain = max(s.Pain, pain) // the cut is not felt yet
		case s.Pain > 0 && pain < int64(improving*float64(s.Pain)):
			s.Pain, s.Cut = pain, s.At-cooldown+again // what piled up drains
		default:
			s.From = s.Rate
			if s.Pain > 0 && level == Unhealthy {
				s.From = int64(insisting * float64(s.Rate)) // the last one has helped nothing
			}
			s.Cut, s.Pain = s.At, pain
			s = p.cutTo(s, h)
		}
		return s
	}
	s.Pain = 0
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

// cutTo cuts the rate to a share of what it was when the trouble began. What came is to what was borne as 1 + slope is to 1,
// for a queue grows by what is not served: by so many seconds of waiting a second. Errors tell the same of what does not even
// queue. It is also the guess from which rate on there is trouble.
func (p Policy) cutTo(s State, h Health) State {
	borne := 1 / (1 + max(0, float64(s.Slope)/1e6))
	if h.Requests >= Enough && h.ErrorRate() > p.MaxErrorRate {
		borne = min(borne, 1-h.ErrorRate())
	}
	if h.Scored && score(h) < 0.75 {
		borne = min(borne, score(h)/0.75)
	}
	borne = max(cutMost, borne)
	if rate := int64(float64(s.From) * borne * draining); rate < s.Rate {
		s.Rate, s.Ceiling = rate, int64(float64(s.From)*borne)
	}
	return s
}

// grow is by how much the rate grows in a second, thousandths.
func (p Policy) grow(s State, h Health) float64 {
	rate, room := float64(s.Rate), p.headroom(s, h)
	step := min(growth*rate, ramp*float64(p.MaxRate-p.MinRate))
	if s.Ceiling > 0 {
		switch ceiling := float64(s.Ceiling); {
		case rate < 0.8*ceiling:
			step = max(step, quickly*rate)
		case rate < 1.05*ceiling, rate < 1.25*ceiling && room < 0.9: // sooner where nothing shows of the load
			step = min(step, slowly*rate)
		default:
			step = min(step, slowly*rate*(1+pickup*(rate/ceiling-1.05)))
		}
	}
	// A queue that grows says so before p95 is anywhere near the target.
	brake := 1 - float64(s.Slope)/1e6/max(steep, p.TargetP95.Seconds()*steep)
	return max(1000.0/30, step) * room * min(1, max(0, brake))
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
