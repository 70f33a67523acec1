package adaptive

import "math"

// Of the gradient; rates of change are a second's. Found by the plant simulation beside this file, with other seeds than its
// test has.
const (
	growth  = 0.05     // at most so much of the rate
	ramp    = 1.0 / 30 // nor more than this share of the range
	quickly = 0.10     // of the rate: well below what was borne last, or on the way back to what was borne before
	slowly  = 0.025    // of the rate, around the last ceiling
	gently  = 0.015    // or so much, where the origin never bore much more than that
	pickup  = 10.0     // by how much faster it grows beyond the last ceiling, for each of its size
	steep   = 0.04     // seconds a second (or of the target, where that is longer) by which p95 grows, and the rate no more
	ahead   = 1.12     // the rate is at most so much of what the origin answers
	leap    = 1.3      // or so much, on the way back
	beyond  = 1.10     // of the last ceiling: who answers so much has recovered
	known   = 0.75     // of what was borne before, up to which there is a way back
	unfelt  = 1.25     // of the requests that an admission led to so far: where it leads to so much, more are to come
	failed  = 1.25     // of the last ceiling: who cannot bear a rate beyond that does not bear what it did before
	used    = 0.85     // share of the rate that has to be used for it to grow
	eased   = 0.90     // share of the target below which there is room for more
	early   = 0.30     // share of the target above the baseline from which on a queue that grows is one
	rises   = 0.04     // seconds a second by which p95 grows, twice in succession, where a queue grows
	margin  = 0.97     // of what the origin answers: what it is given where it is overloaded
	drains  = 8.0      // seconds in which what piled up should drain
	deepest = 0.20     // the share of what the origin answers that is kept from it for that, at most
	cutMost = 0.35     // a cut leaves at least so much

	lagging   = 3.0        // seconds by which requests come later than the admissions that they are of
	learning  = 50         // looks, of which the last 20 count for most
	doubtful  = 5.0        // by how much less a look teaches soon after a cut
	creeps    = 120.0      // seconds in which the baseline rises to what p95 is
	insisting = 0.85       // once more, where a cut was of no use
	patience  = 12_000_000 // µs after which it was of none
	cooldown  = 8_000_000  // µs in which a blind cut is felt: visitors hear of their admission, and stay a while
	draining  = 0.93       // of what was borne, after a blind cut
)

// gradient finds the rate by what the origin answers. While it is well, that is a lower bound of what it bears, and the rate
// grows a little ahead of it: slowly near the rate at which there was trouble last, the less the nearer p95 is to the target. Once
// it is overloaded, it is what it bears, and the rate goes there, and lower for as long as what piled up has to drain.
func (p Policy) gradient(s State, dt float64, level Level, h Health, u Usage) State {
	before, suffers := s.Slope, s.Level > Healthy
	s.Level = level
	s = s.measure(dt, h, u)
	served := s.served(h)
	switch {
	case level == Unknown:
	case level == Healthy:
		s = p.seek(s, dt, min(s.Slope, before), h, u, served)
	default:
		if served == 0 || h.Scored && score(h) < 0.75 {
			s = p.cutBlindly(s, h)
		}
		if h.Scored = false; served > 0 && p.Level(h) > Healthy {
			s = p.feed(s, h, served, suffers)
		}
	}
	return s
}

// measure learns how fast p95 grows, and how many requests an admission leads to.
func (s State) measure(dt float64, h Health, u Usage) State {
	s.Coming = 0
	if h.Requests < Enough {
		return s
	}
	p95 := h.P95.Microseconds()
	if dt > 0 && s.P95 > 0 {
		s.Slope = (s.Slope + int64(min(1e9, max(-1e9, float64(p95-s.P95)/dt)))) / 2
	}
	s.P95 = p95
	lately := min(1e12, u.Rate*1000)
	if !(lately > 0) || h.Span <= 0 {
		return s
	}
	if s.Lagged == 0 {
		s.Lagged = int64(lately)
	}
	s.Lagged = max(1, s.Lagged+int64((lately-float64(s.Lagged))*min(1, dt/lagging)))
	// What is answered came, but for what a queue grew by: by so many seconds of waiting a second.
	came := float64(h.Requests) / h.Span.Seconds() * (1 + min(1, max(-0.5, s.slope())))
	s.Learned = min(learning, s.Learned+1)
	weight := 2.5 * dt / float64(s.Learned) // the first looks, of which requests were still to come, are soon forgotten
	if s.Level > Healthy {
		weight /= 2
		if math.Abs(lately/float64(s.Lagged)-1) > 0.01 {
			weight /= doubtful // requests are still of more admissions
		}
	}
	each := min(1e12, 1e6*came/float64(s.Lagged))
	s.Each += int64((each - float64(s.Each)) * min(1, weight))
	s.Coming = int64(min(1e6, 1000*each/max(1, float64(s.Each))))
	return s
}

// slope is by how many seconds p95 grows in a second.
func (s State) slope() float64 { return float64(s.Slope) / 1e6 }

// served is how many admissions' worth of requests a second the origin answers, thousandths; 0: unknown. Where answers falter,
// as they do while latency leaps, what came and the growth of the queue say it better.
func (s State) served(h Health) float64 {
	good := float64(h.Requests) - float64(h.Errors)
	if s.Each <= 0 || h.Span <= 0 || h.Requests < Enough || !(good > 0) {
		return 0
	}
	return min(1e15, max(1e6*good/h.Span.Seconds()/float64(s.Each), float64(s.Lagged)*min(1/(1+max(0, s.slope())), good/float64(h.Requests))))
}

// feed gives an overloaded origin what it answers, less what lets the queue drain. Where that is of no use for long, the load is
// not, or not only, of those who were admitted of late, and less than that are.
func (p Policy) feed(s State, h Health, served float64, suffers bool) State {
	if !suffers || s.Level < Unhealthy || s.slope() < -rises {
		s.Cut = s.At
	} else if s.At-s.Cut > patience {
		s.Cut, s.Rate = s.At, int64(insisting*float64(s.Rate))
	}
	rate := float64(s.Rate)
	over := max(0, h.P95.Seconds()-0.6*p.TargetP95.Seconds()) / drains
	if h.ErrorRate() > p.MaxErrorRate {
		over = deepest
	}
	if to := served * margin * (1 - min(deepest, over)); to < rate {
		if s.Ceiling > 0 && rate > failed*float64(s.Ceiling) {
			s.Good = s.Rate
		}
		s.Rate, s.Ceiling = int64(max(to, cutMost*rate)), 0
	}
	s.Ceiling = max(s.Ceiling, int64(served))
	return s
}

// cutBlindly is for when nothing tells what the origin bears: nobody was admitted lately, or a score says that something is wrong
// which answers do not show. It waits until a cut is felt.
func (p Policy) cutBlindly(s State, h Health) State {
	if s.Cut > 0 && s.At-s.Cut < cooldown {
		return s
	}
	borne := 1 / (1 + max(0, s.slope()))
	if h.Requests >= Enough && h.ErrorRate() > p.MaxErrorRate {
		borne = min(borne, 1-h.ErrorRate())
	}
	if h.Scored && score(h) < 0.75 {
		borne = min(borne, score(h)/0.75)
	}
	borne = max(cutMost, borne)
	s.Cut, s.Ceiling = s.At, int64(float64(s.Rate)*borne)
	s.Rate = int64(float64(s.Ceiling) * draining)
	return s
}

// seek looks for more, as long as the origin is well. rising is what p95 has grown by twice in succession, µs a second.
func (p Policy) seek(s State, dt float64, rising int64, h Health, u Usage, served float64) State {
	if s.Baseline == 0 || s.P95 < s.Baseline {
		s.Baseline = s.P95
	} else {
		s.Baseline += int64(float64(s.P95-s.Baseline) * dt / creeps)
	}
	rate := float64(s.Rate)
	if u.Wanted && served > 0 && float64(rising)/1e6 > rises && h.P95.Seconds() > float64(s.Baseline)/1e6+early*p.TargetP95.Seconds() {
		s.Rate = int64(min(rate, max(served, 0.9*rate))) // a queue grows: it says so before p95 is near the target
		return s
	}
	if !u.Wanted || !(u.Rate*1000 >= used*rate) {
		return s // more would not be used: nothing is learned
	}
	room, most := p.headroom(s, h), math.Inf(1)
	step := p.grow(s, room)
	if served > 0 {
		s.Good = max(s.Good, int64(min(served, rate)))
		most = ahead * served
		if ceiling := float64(s.Ceiling); ceiling > 0 && room > 0.9 && min(rate, served) > beyond*ceiling && rate < known*float64(s.Good) {
			step, most = max(step, quickly*rate*p.brake(s)*s.felt()), leap*served
		}
	}
	s.Rate = int64(max(rate, min(most, rate+step*dt)))
	return s
}

// grow is by how much the rate grows in a second, thousandths.
func (p Policy) grow(s State, room float64) float64 {
	rate := float64(s.Rate)
	step := min(growth*rate, ramp*float64(p.MaxRate-p.MinRate))
	if s.Ceiling > 0 {
		ceiling, near := float64(s.Ceiling), slowly*rate
		if ceiling > known*float64(s.Good) {
			near = gently * rate
		}
		switch {
		case rate < 0.8*ceiling:
			step = max(step, quickly*rate)
		case rate < 1.05*ceiling, rate < 1.25*ceiling && room < 0.9: // sooner where nothing shows of the load
			step = min(step, near)
		default:
			step = min(step, near*(1+pickup*(rate/ceiling-1.05)))
		}
	}
	return max(1000.0/30, step) * room * p.brake(s) * s.felt()
}

// brake is 1 while p95 does not grow, and 0 where it grows steeply.
func (p Policy) brake(s State) float64 {
	return min(1, max(0, 1-s.slope()/max(steep, p.TargetP95.Seconds()*steep)))
}

// felt is 1 while an admission leads to as many requests as it did, and 0 while it leads to more and more: those admitted before
// still make theirs, and what they do to the origin is still to come.
func (s State) felt() float64 {
	return min(1, max(0, (unfelt-float64(s.Coming)/1000)/0.15))
}

// headroom is 1 while p95 is near what it is without a load, and 0 from eased of the target on.
func (p Policy) headroom(s State, h Health) float64 {
	base, most := float64(s.Baseline)/1e6, eased*p.TargetP95.Seconds()
	if base >= most {
		// It never was much below the target: what is left to it is all the room there is.
		base, most = base*9/10, p.TargetP95.Seconds()
	}
	if h.P95.Seconds() >= most || base >= most {
		return 0
	}
	return min(1, 1.5*(most-h.P95.Seconds())/(most-base))
}
