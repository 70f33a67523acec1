package admission

import "time"

// step is a step forward of Redis's clock, as when a replica whose clock is ahead becomes the master: tokens that were signed
// before it end by the clock before it.
type step struct {
	by int64 // µs; 0: none
	at int64 // Redis's clock before it, µs
}

const (
	// leastStep is how far Redis's clock has to step, µs: answers that are late differ by less.
	leastStep = 2_000_000
	// stepLife is for how long a step counts: the longest life of a token.
	stepLife = int64(24 * time.Hour / time.Microsecond)
)

// stepTo returns the step that tokens are judged by at the next anchor. Time in which this machine stood still is none: then its
// own clock has made the step, too.
func (a *anchor) stepTo(next *anchor) step {
	passed := (next.mono - a.mono) / 1000
	by, own := next.wall-a.wall-passed, next.own-a.own-passed
	s := a.step
	switch {
	case by < -leastStep:
		s.by = max(0, s.by+by)
	case by > leastStep && (own < by-leastStep || own > by+leastStep):
		s = step{by: s.by + by, at: a.wall + passed}
	}
	if s.by == 0 || next.wall-s.by-s.at > stepLife {
		return step{}
	}
	return s
}

// Stepped returns by how much Redis's clock stepped forward lately, and its time before that, both in µs. A token that was signed
// before the step ends by RedisNow less the step. Without a step it returns 0, 0.
func (r *Room) Stepped() (by, at int64) {
	a := r.anchor.Load()
	if a == nil {
		return 0, 0
	}
	return a.step.by, a.step.at
}
