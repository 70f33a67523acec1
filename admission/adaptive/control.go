package adaptive

import (
	"math"
	"time"
)

// Health is what was measured of an origin in the last seconds.
type Health struct {
	Requests, Errors int64
	Span             time.Duration // in which the requests came; 0: unknown
	P95              time.Duration // of the requests that did not fail; 0: there were none
	Score            float64       // 0 (unhealthy) to 1, from outside, such as Prometheus
	Scored           bool          // Score is set
}

// ErrorRate returns the share of requests that failed.
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

// Policy holds the bounds of the rate and the targets of the origin. Rates are in thousandths a second.
type Policy struct {
	Mode             string // "": gradient
	MinRate, MaxRate int64
	TargetP95        time.Duration
	MaxErrorRate     float64 // share of failed requests above which the origin is unhealthy
}

// Usage is how much of the rate is used. A rate that is not used shows nothing about the origin.
type Usage struct {
	Rate   float64 // own admissions a second in the last seconds, in units of one (not thousandths)
	Wanted bool    // more would have been admitted
}

// Level is the health of an origin as measured against a Policy.
type Level uint8

// The levels. Unknown means that there were too few requests: the rate is kept.
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

// Enough is the smallest number of requests from which a Level is computed.
const Enough = 20

// Level returns the level of h: the worse of the level by requests and the level by score.
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

// clean returns the policy with invalid values replaced by valid ones.
func (p Policy) clean() Policy {
	p.MinRate = max(0, p.MinRate)
	p.MaxRate = max(p.MinRate, p.MaxRate)
	p.TargetP95 = max(time.Millisecond, p.TargetP95)
	if !(p.MaxErrorRate >= 0) {
		p.MaxErrorRate = 0
	}
	return p
}

// Next returns the state at now, µs. The caller calls it about once a second. A state without a rate begins at MinRate; a caller
// with a better first rate sets State.Rate. While the level is Unknown the rate is kept. A clock that went back counts as
// standing still.
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

// longest is the longest time, µs, that one call counts.
const longest = 2_000_000
