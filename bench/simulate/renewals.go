package main

import (
	"time"

	"github.com/anteroom/anteroom/admission"
)

// renewals calculates how often visitors behind the front are checked with the store. A check holds the presence of a ticket;
// polls do not use the store while the next poll is due at least admission.HoldSlack before the hold ends.
type renewals struct {
	policy admission.Policy
	sums   map[float64][]float64  // by interval: the mean of the largest sum of intervals in a row up to each multiple of interval/grain
	every  map[[2]float64]float64 // by interval and wait: the mean time between two checks, s
}

const (
	// draws is how many intervals represent the advised ones.
	draws = 32
	// grain is the number of steps of one interval.
	grain = 80
)

func newRenewals(p *admission.Policy) *renewals {
	return &renewals{policy: *p, sums: map[float64][]float64{}, every: map[[2]float64]float64{}}
}

// interval returns one of the intervals that are advised for a mean, which differ by ± 15 %; d is from 0 to draws.
func (r *renewals) interval(mean float64, d int) float64 {
	return min(mean*(0.85+0.3*(float64(d)+0.5)/draws), r.policy.LongestPoll().Seconds())
}

// mean returns the mean time in seconds between two checks of a visitor with a polling interval of at least 2 s and a wait. The
// last poll whose successor would be too late uses the store.
func (r *renewals) mean(interval, wait float64) float64 {
	key := [2]float64{interval, wait}
	if every, ok := r.every[key]; ok {
		return every
	}
	every := 0.0
	for d := range draws {
		first := r.interval(interval, d)
		hold := r.policy.Hold(seconds(first), seconds(wait), false)
		every += (first + r.sum(interval, (hold-admission.HoldSlack).Seconds()-first)) / draws
	}
	r.every[key] = every
	return every
}

// sum returns the mean of the largest sum of intervals in a row that is at most x, s.
func (r *renewals) sum(interval, x float64) float64 {
	if x <= 0 {
		return 0
	}
	sums := r.sums[interval]
	step := interval / grain
	at := func(x float64) float64 {
		lo := int(x / step)
		return sums[lo] + (sums[lo+1]-sums[lo])*(x/step-float64(lo))
	}
	for len(sums) < int(x/step)+2 {
		sum, upTo := 0.0, float64(len(sums))*step
		for d := range draws {
			if one := r.interval(interval, d); one <= upTo {
				sum += (one + at(upTo-one)) / draws
			}
		}
		sums = append(sums, sum)
	}
	r.sums[interval] = sums
	return at(x)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
