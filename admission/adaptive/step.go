package adaptive

import "cmp"

// Limits of State.Hold, the time for which an origin must be healthier before a step up, µs. The time doubles while steps up do not
// last.
const (
	shortestHold = 5_000_000
	longestHold  = 160_000_000
)

// lasting is the time after which a step up counts as right, µs.
const lasting = 60_000_000

// step sets one of three rates: min + (max − min) × health, where health is 1, 0.5 or 0, and at most the score. A step down happens
// at once, a step up when the origin was healthier for Hold. A step up that does not last doubles Hold.
func (p Policy) step(s State, h Health, level Level) State {
	if level == Unknown {
		s.Better = 0
		return s
	}
	s.Hold = min(longestHold, max(shortestHold, s.Hold))
	switch {
	case s.Level == Unknown:
		s.Level = level
	case level > s.Level:
		if s.Raised > 0 && s.At-s.Raised < lasting {
			s.Hold = min(longestHold, 2*s.Hold)
		}
		s.Level, s.Better, s.Raised = level, 0, 0
	case level < s.Level:
		s.Better = cmp.Or(s.Better, s.At)
		if s.At-s.Better >= s.Hold {
			s.Level, s.Better, s.Raised = s.Level-1, 0, s.At
		}
	default:
		s.Better = 0
		if s.Raised > 0 && s.At-s.Raised >= lasting {
			s.Raised, s.Hold = 0, shortestHold
		}
	}
	health := [...]float64{Healthy: 1, Strained: 0.5, Unhealthy: 0}[s.Level]
	if h.Scored {
		health = min(health, score(h))
	}
	s.Rate = p.MinRate + int64(float64(p.MaxRate-p.MinRate)*health)
	return s
}
