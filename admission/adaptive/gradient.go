package adaptive

import (
	"cmp"
	"math"
)

// Constants of the gradient; rates of change are per second. They were found with the plant simulation in plant_test.go, with other
// seeds than the test has.
const (
	growth  = 0.05     // largest growth, as a share of the rate
	ramp    = 1.0 / 30 // and as a share of the range
	quickly = 0.10     // growth as a share of the rate well below the last ceiling, or on the way back to an earlier rate
	slowly  = 0.025    // growth as a share of the rate around the last ceiling
	gently  = 0.015    // the same, where the origin never bore much more than that ceiling
	pickup  = 10.0     // by how much the growth increases beyond the last ceiling, per multiple of the ceiling
	steep   = 0.04     // growth of p95 at which the rate stops growing: seconds a second, or share of the target if that is more
	ahead   = 1.12     // largest rate, as a multiple of what the origin answers
	leap    = 1.3      // the same on the way back
	beyond  = 1.10     // multiple of the last ceiling: an origin that answers so much has recovered
	known   = 0.75     // share of an earlier rate (State.Good) up to which the rate returns quickly
	unfelt  = 1.25     // multiple of the requests per admission: at that many, requests of recent admissions are still to come
	failed  = 1.25     // multiple of the last ceiling: after an overload above it, State.Good is the present rate
	used    = 0.85     // share of the rate that has to be used for it to grow
	eased   = 0.90     // share of the target below which there is room for more
	early   = 0.30     // share of the target by which p95 exceeds the baseline before its growth counts as a queue
	rises   = 0.04     // seconds a second by which p95 grows, twice in succession, where a queue grows
	margin  = 0.97     // rate of an overloaded origin, as a share of what it answers
	drains  = 8.0      // seconds in which the queue should drain
	deepest = 0.20     // largest share of what the origin answers that is withheld for that
	cutMost = 0.35     // share of the rate that a cut leaves at least

	lagging   = 3.0        // seconds by which requests follow their admissions
	learning  = 50         // calls that Each is averaged over; the last 20 count most
	doubtful  = 5.0        // divisor of a call's weight soon after a cut
	creeps    = 120.0      // time constant with which the baseline rises to p95, seconds
	insisting = 0.85       // share of the rate that a repeated cut leaves
	patience  = 12_000_000 // µs after which a cut without effect is repeated
	cooldown  = 8_000_000  // µs until a blind cut has its effect: visitors learn of their admission later, and stay a while
	draining  = 0.93       // share of the ceiling that a blind cut sets
)

// gradient finds the rate from the number of requests that the origin answers. While the origin is healthy, this number is a lower
// bound of its capacity, and the rate grows a little ahead of the number: slowly near the rate of the last overload, and more slowly
// the nearer p95 is to the target. While the origin is overloaded, the number is its capacity. The rate is then set to the capacity,
// and lower while requests that piled up drain.
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

// measure updates how fast p95 grows, and how many requests an admission leads to.
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
	s.Lagged = cmp.Or(s.Lagged, int64(lately))
	s.Lagged = max(1, s.Lagged+int64((lately-float64(s.Lagged))*min(1, dt/lagging)))
	// Requests that came are those answered and those by which a queue grew: slope seconds of waiting a second.
	came := float64(h.Requests) / h.Span.Seconds() * (1 + min(1, max(-0.5, s.slope())))
	s.Learned = min(learning, s.Learned+1)
	weight := 2.5 * dt / float64(s.Learned) // the first calls are soon outweighed: requests of their admissions were still to come
	if s.Level > Healthy {
		weight /= 2
		if math.Abs(lately/float64(s.Lagged)-1) > 0.01 {
			weight /= doubtful // requests of admissions before the cut are still coming
		}
	}
	each := min(1e12, 1e6*came/float64(s.Lagged))
	s.Each += int64((each - float64(s.Each)) * min(1, weight))
	s.Coming = int64(min(1e6, 1000*each/max(1, float64(s.Each))))
	return s
}

// slope returns by how many seconds p95 grows in a second.
func (s State) slope() float64 { return float64(s.Slope) / 1e6 }

// served returns how many admissions the requests that the origin answers are worth, in thousandths a second; 0: unknown. While
// latency leaps and few requests are answered, the estimate from arrivals and the growth of the queue is used if it is larger.
func (s State) served(h Health) float64 {
	good := float64(h.Requests) - float64(h.Errors)
	if s.Each <= 0 || h.Span <= 0 || h.Requests < Enough || !(good > 0) {
		return 0
	}
	return min(1e15, max(1e6*good/h.Span.Seconds()/float64(s.Each), float64(s.Lagged)*min(1/(1+max(0, s.slope())), good/float64(h.Requests))))
}

// feed sets the rate of an overloaded origin to what it answers, less a part that lets its queue drain. If the queue does not
// drain for patience, other load than the last admissions causes the overload, and the rate is cut again.
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

// cutBlindly cuts the rate when the origin's capacity is unknown: nobody was admitted lately, or only the score is bad. It cuts at
// most once in cooldown, after which a cut has its effect.
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

// seek raises the rate of a healthy origin. rising is the growth of p95, µs a second, that the last two calls both found.
func (p Policy) seek(s State, dt float64, rising int64, h Health, u Usage, served float64) State {
	if s.Baseline == 0 || s.P95 < s.Baseline {
		s.Baseline = s.P95
	} else {
		s.Baseline += int64(float64(s.P95-s.Baseline) * dt / creeps)
	}
	rate := float64(s.Rate)
	if u.Wanted && served > 0 && float64(rising)/1e6 > rises && h.P95.Seconds() > float64(s.Baseline)/1e6+early*p.TargetP95.Seconds() {
		s.Rate = int64(min(rate, max(served, 0.9*rate))) // a queue grows, long before p95 is near the target
		return s
	}
	if !u.Wanted || !(u.Rate*1000 >= used*rate) {
		return s // a higher rate would not be used
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

// grow returns by how much the rate grows in a second, thousandths.
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
		case rate < 1.05*ceiling, rate < 1.25*ceiling && room < 0.9: // the slow part ends sooner where p95 shows no load
			step = min(step, near)
		default:
			step = min(step, near*(1+pickup*(rate/ceiling-1.05)))
		}
	}
	return max(1000.0/30, step) * room * p.brake(s) * s.felt()
}

// brake returns 1 while p95 does not grow, and 0 where p95 grows steeply.
func (p Policy) brake(s State) float64 {
	return min(1, max(0, 1-s.slope()/max(steep, p.TargetP95.Seconds()*steep)))
}

// felt returns 1 while an admission leads to as many requests as before, and falls to 0 as the number grows: the requests of the
// last admissions are then still to come.
func (s State) felt() float64 {
	return min(1, max(0, (unfelt-float64(s.Coming)/1000)/0.15))
}

// headroom returns 1 while p95 is near the baseline, and 0 from eased of the target on.
func (p Policy) headroom(s State, h Health) float64 {
	base, most := float64(s.Baseline)/1e6, eased*p.TargetP95.Seconds()
	if base >= most {
		// p95 never was much below the target: only the rest up to the target is left.
		base, most = base*9/10, p.TargetP95.Seconds()
	}
	if h.P95.Seconds() >= most || base >= most {
		return 0
	}
	return min(1, 1.5*(most-h.P95.Seconds())/(most-base))
}
