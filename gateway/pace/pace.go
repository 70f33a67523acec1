// Package pace says how often those who wait are told to poll. It is pure: what it knows of a line is passed in.
package pace

import (
	"math"
	"time"
)

// The advised polling interval (DESIGN §4), in seconds.
const (
	shortest = 2.0
	longest  = 60.0
	// unsure is advised while nobody can tell how long the wait is, for those in front of and beyond the first
	// thousand.
	unsureFront, unsureRest = 5.0, 30.0
)

// Front is how many of a line are told to poll often while nobody can tell how long the wait is.
const Front = 1000

// Plan is how a room's polls are spread: those whose wait is beyond cutoff poll as seldom as is allowed, so that the
// room's budget holds.
type Plan struct {
	quarter float64 // of absence: no place may be lost by polling as advised
	cutoff  float64 // seconds of wait; +Inf: the budget is not reached
	crowded bool    // the waits are not known, and the budget is reached
}

// New plans for a line of that many, of whom the last waits for tail seconds (0: not known), and for at most budget
// polls a second (0: any number).
func New(absence time.Duration, budget int, waiting int64, tail float64) Plan {
	p := Plan{quarter: absence.Seconds() / 4, cutoff: math.Inf(1)}
	if budget <= 0 || waiting <= 0 {
		return p
	}
	if tail <= 0 {
		p.crowded = float64(waiting)/min(unsureRest, p.quarter) > float64(budget)
		return p
	}
	// The line in slices of waits, each 1/steps of the tail's wait or finer towards the front, where people poll
	// fastest: slice i lies between tail*q^(i+1) and tail*q^i.
	const steps, q = 96, 0.9
	var polls [steps]float64
	var sum float64
	each := func(i int) (lo, hi, people float64) {
		hi = tail * math.Pow(q, float64(i))
		lo = hi * q
		if i == steps-1 {
			lo = 0
		}
		return lo, hi, float64(waiting) * (hi - lo) / tail
	}
	for i := range steps {
		lo, hi, people := each(i)
		polls[i] = people / p.base((lo+hi)/2)
		sum += polls[i]
	}
	for i := 0; i < steps && sum > float64(budget); i++ { // the far end first
		lo, hi, people := each(i)
		sum += people/p.raised((lo+hi)/2) - polls[i]
		p.cutoff = lo
	}
	return p
}

// base is the interval without regard to the budget.
func (p *Plan) base(wait float64) float64 {
	return min(max(wait/10, shortest), longest, p.quarter)
}

// raised is the longest interval for a wait: nobody's turn is missed by more than half of it, and no place is lost.
func (p *Plan) raised(wait float64) float64 {
	return max(p.base(wait), min(wait/2, p.quarter))
}

// Interval is what somebody is advised, in seconds, before it is spread: with so many ahead, and that many seconds to
// wait where that is known.
func (p *Plan) Interval(ahead int64, wait float64, known bool) float64 {
	switch {
	case known && wait > p.cutoff:
		return p.raised(wait)
	case known:
		return p.base(wait)
	case p.crowded && ahead >= Front:
		return p.quarter
	case ahead >= Front:
		return min(unsureRest, p.quarter)
	}
	return unsureFront
}

// Spread makes whole seconds of an interval, ± 15 %, so that those who came together do not poll together. random lies
// in [0, 1). What is left of a second is rounded up or down by chance, so that the mean is kept.
func (p *Plan) Spread(interval, random float64) int {
	v := interval * (0.85 + 0.3*random)
	whole := math.Floor(v)
	if rest := random*1009 - math.Floor(random*1009); rest < v-whole {
		whole++
	}
	return int(max(1, min(whole, math.Floor(p.quarter))))
}

// First is when a new ticket polls first: within 1 to 3 s.
func First(random float64) int { return 1 + int(random*3) }

// LongestFirst bounds First.
const LongestFirst = 3 * time.Second
