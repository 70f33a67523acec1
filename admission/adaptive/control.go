package adaptive

import (
	"math"
	"time"
)

// Health is how an origin was of late.
type Health struct {
	Requests, Errors int64
	Span             time.Duration // that the requests are of; 0: unknown
	P95              time.Duration // of those that did not fail; 0 without any
	Score            float64       // 0 (unhealthy) to 1, from outside, such as Prometheus
	Scored           bool          // there is a Score
}

// ErrorRate is the share of requests that failed.
func (h Health) ErrorRate() float64 {
	if h.Requests <= 0 {
		return 0
	}
	return float64(h.Errors) / float64(h.Requests)
}

// The modes of a Policy.
const (
	ModeGradient = "gradient"
	ModeStep     = "step"
)

// Policy is between what bounds the rate moves, and what the origin is to keep. Rates are in thousandths a second.
type Policy struct {
	Mode             string // "": gradient
	MinRate, MaxRate int64
	TargetP95        time.Duration
	MaxErrorRate     float64 // share of failed requests above which the origin is unhealthy
}

// Usage is what is made of the rate: to allow more where nobody comes for it teaches nothing of the origin.
type Usage struct {
	Rate   float64 // own admissions a second of late, in units of one (not thousandths)
	Wanted bool    // more would have come
}

// Level is how an origin is, against a Policy.
type Level uint8

// The levels. Unknown means that there were too few requests to tell: the rate is held.
const (
	Unknown Level = iota
	Healthy
	Strained  // p95 above the target
	Unhealthy // p95 above twice the target, or too many errors
)

func (l Level) String() string {
	switch l {
	case Healthy:
		return "healthy"
	case Strained:
		return "strained"
	case Unhealthy:
		return "unhealthy"
	}
	return "unknown"
}

// Enough is how many requests it takes to judge an origin.
const Enough = 20

// Level judges h. A score counts beside the rest: the worst of what is known holds.
func (p Policy) Level(h Health) Level {
	level := Unknown
	if h.Requests >= Enough {
		switch {
		case h.P95 > 2*p.TargetP95, h.ErrorRate() > p.MaxErrorRate:
			level = Unhealthy
		case h.P95 > p.TargetP95:
			level = Strained
		default:
			level = Healthy
		}
	}
	if h.Scored {
		switch s := score(h); {
		case s < 0.25:
			level = max(level, Unhealthy)
		case s < 0.75:
			level = max(level, Strained)
		default:
			level = max(level, Healthy)
		}
	}
	return level
}

func score(h Health) float64 {
	if math.IsNaN(h.Score) {
		return 0
	}
	return min(1, max(0, h.Score))
}

// clean brings what is senseless into order, so that Next need not ask.
func (p Policy) clean() Policy {
	p.MinRate = max(0, p.MinRate)
	p.MaxRate = max(p.MinRate, p.MaxRate)
	p.TargetP95 = max(time.Millisecond, p.TargetP95)
	if !(p.MaxErrorRate >= 0) {
		p.MaxErrorRate = 0
	}
	return p
}

// Next is one step, about once a second: the state at now, microseconds. A state without a rate begins at the least; a caller
// that knows a better beginning sets State.Rate. Where there is nothing to judge by, the rate is held. now may go back; it
// then counts as standing still.
func Next(p Policy, s State, now int64, h Health, u Usage) State {
	p = p.clean()
	s = s.clean(now)
	s.Rate = min(p.MaxRate, max(p.MinRate, s.Rate))
	dt := float64(min(longest, max(0, now-s.At))) / 1e6
	if s.At == 0 {
		dt = 0
	}
	s.At = max(s.At, now)
	level := p.Level(h)
	if p.Mode == ModeStep {
		s = p.step(s, h, level)
	} else {
		s = p.gradient(s, dt, level, h, u)
	}
	s.Rate = min(p.MaxRate, max(p.MinRate, s.Rate))
	return s
}

// longest is the longest time that one call makes up for.
const longest = 2_000_000
