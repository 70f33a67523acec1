// Package pace computes how often waiting visitors are advised to poll. It is pure: the state of the queue is passed in.
package pace

import (
	"math"
	"time"
)

// The advised polling interval, in seconds.
const (
	shortest = 2.0
	longest  = 60.0
	// These are advised while the wait is unknown, to the first thousand and to the others.
	unsureFront, unsureRest = 5.0, 30.0
)

// Front is the number of visitors at the front who are advised to poll often while the wait is unknown.
const Front = 1000

// Plan is the distribution of a room's polls: visitors whose wait is beyond cutoff poll as seldom as is allowed, so that the
// room's budget holds.
type Plan struct {
	limit   float64 // the longest interval: polling as advised keeps the place and the admission
	cutoff  float64 // seconds of wait; +Inf: the budget is not reached
	crowded bool    // the waits are not known, and the budget is reached
	first   float64 // first polls a second that the budget has room for; 0: there is none
}

// New returns a plan for a queue of waiting visitors, the last of whom waits for tail seconds (0: not known), and for arriving others, who will
// poll for the first time soon; for at most budget polls a second (0: any number). No interval is longer than longestPoll.
func New(longestPoll time.Duration, budget int, waiting, arriving int64, tail float64) Plan {
	p := Plan{limit: longestPoll.Seconds(), cutoff: math.Inf(1)}
	if budget <= 0 {
		return p
	}
	all := float64(budget)
	// First polls may take half of it; the plan assumes that they do.
	least := p.plan(all-min(all/2, float64(arriving)/soonest), waiting, tail)
	p.first = max(all/4, all-least)
	return p
}

// plan sets cutoff and returns the polls a second that result.
func (p *Plan) plan(budget float64, waiting int64, tail float64) (sum float64) {
	if waiting <= 0 {
		return 0
	}
	if tail <= 0 {
		ahead := float64(min(waiting, Front)) / min(unsureFront, p.limit)
		rest := float64(max(0, waiting-Front))
		if p.crowded = ahead+rest/min(unsureRest, p.limit) > budget; p.crowded {
			return ahead + rest/p.mean(p.limit, p.limit)
		}
		return ahead + rest/min(unsureRest, p.limit)
	}
	// The queue in slices of waits, each 1/steps of the tail's wait or finer towards the front, where visitors poll most often:
	// slice i is between tail*q^(i+1) and tail*q^i.
	const steps, q = 192, 0.95
	var polls [steps]float64
	each := func(i int) (lo, wait, people float64) {
		hi := tail * math.Pow(q, float64(i))
		lo = hi * q
		if i == steps-1 {
			lo = 0
		}
		return lo, (lo + hi) / 2, float64(waiting) * (hi - lo) / tail
	}
	for i := range steps {
		_, wait, people := each(i)
		polls[i] = people / p.mean(p.base(wait), p.most(wait))
		sum += polls[i]
	}
	for i := 0; i < steps && sum > budget; i++ { // the far end first
		lo, wait, people := each(i)
		sum += people/p.mean(p.raised(wait), p.most(wait)) - polls[i]
		p.cutoff = lo
	}
	return sum
}

// base returns the interval without a budget.
func (p *Plan) base(wait float64) float64 {
	return min(max(wait/10, shortest), longest, p.limit)
}

// most returns the longest interval for a wait. Such an interval delays no admission by more than half of the wait, and keeps the
// ticket present.
func (p *Plan) most(wait float64) float64 { return min(max(wait/2, shortest), p.limit) }

// raised returns the interval beyond the budget.
func (p *Plan) raised(wait float64) float64 { return max(p.base(wait), p.most(wait)) }

// mean returns the mean of Spread for an interval of at most most.
func (p *Plan) mean(interval, most float64) float64 {
	lo, hi := interval*(1-jitter), interval*(1+jitter)
	if hi <= most {
		return interval
	}
	cut := min(max(most, lo), hi)
	return ((lo+cut)/2*(cut-lo) + most*(hi-cut)) / (hi - lo)
}

// Interval returns the advised interval in seconds, before Spread, for a visitor with so many ahead and, if known, that many
// seconds to wait.
func (p *Plan) Interval(ahead int64, wait float64, known bool) float64 {
	switch {
	case known && wait > p.cutoff:
		return p.raised(wait)
	case known:
		return p.base(wait)
	case p.crowded && ahead >= Front:
		return p.limit
	case ahead >= Front:
		return min(unsureRest, p.limit)
	}
	return min(unsureFront, p.limit)
}

// Most returns the limit of the interval for Spread.
func (p *Plan) Most(wait float64, known bool) float64 {
	if !known {
		return p.limit
	}
	return p.most(wait)
}

// jitter is the share by which polls are spread, so that visitors who joined together do not poll together.
const jitter = 0.15

// Spread returns an interval in whole seconds, ± 15 % and at most most. random is in [0, 1). A fraction of a second is rounded
// at random, so that the mean is kept.
func Spread(interval, most, random float64) int {
	v := min(interval*(1-jitter+2*jitter*random), most)
	whole := math.Floor(v)
	if rest := random*1009 - math.Floor(random*1009); rest < v-whole {
		whole++
	}
	return int(max(1, min(whole, math.Floor(most))))
}

const (
	soonest = 3.0
	latest  = 60.0
)

// LongestFirst is the longest First if few arrive.
const LongestFirst = soonest * time.Second

// First returns the seconds until the first poll of a new ticket, which enrols it: one to three. If more arrive than the budget
// allows, each first poll is due after those of all who came before (arriving: the number that is still due). It is never later
// than a minute: until then arrivals count as ahead.
func (p *Plan) First(arriving int64, wait float64, known bool, random float64) int {
	usual := 1 + int(random*soonest)
	if p.first <= 0 || float64(arriving) <= soonest*p.first {
		return usual
	}
	most := min(latest, p.limit)
	if known {
		most = min(most, max(wait/2, soonest))
	}
	due := 1 + float64(arriving)/p.first // earlier arrivals take the seconds from 1 on
	if due > most {                      // their order is random then
		return int(most * (1 - 2*jitter*random))
	}
	return Spread(due, most, random)
}
