package congestion

import (
	"math"
	"time"
)

// The levels, by the ratio of a tenant's backoff to the base.
const (
	None     = "none"     // ≤ 1: no job waits, or not longer than the base
	Low      = "low"      // < 3
	Moderate = "moderate" // < 10
	High     = "high"     // < 30
	Critical = "critical" // ≥ 30
)

// milli converts a rate to thousandths a second, the unit of the store. Rates have three decimals, so quotients of
// them are exact.
func milli(rate float64) int64 { return int64(math.Round(rate * 1000)) }

// TenantRate returns how many jobs a second a tenant may start: own if it has a limit of its own, otherwise its share
// of the global rate, in whole jobs and at least one, so that each tenant makes progress.
func TenantRate(global float64, activeTenants int64, own float64) float64 {
	if own > 0 {
		return own
	}
	return float64(max(1, milli(global)/(1000*max(1, activeTenants))))
}

// Backoff returns how long a refused job waits when nonReady jobs of its tenant already wait and rate of them can
// start each second: base, plus a second for each second's worth of jobs before it, at most max. So waiting jobs
// return at the rate at which they can start.
//
//	min(max, base + floor(nonReady/rate)·1 s)
//
// rate is TenantRate's; 0 or less counts as 0.001.
func Backoff(base, max time.Duration, nonReady int64, rate float64) time.Duration {
	return min(max, base+seconds(1000*nonReady/atLeastOne(milli(rate))))
}

// Estimate returns how long it takes to start nonReady jobs at rate a second: ceil(nonReady/rate)·1 s.
func Estimate(nonReady int64, rate float64) time.Duration {
	r := atLeastOne(milli(rate))
	return seconds((1000*nonReady + r - 1) / r)
}

func atLeastOne(n int64) int64 { return max(1, n) }

func seconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(2*time.Second))) * time.Second
}

// Level returns the level of a backoff.
func Level(backoff, base time.Duration) string {
	switch {
	case backoff <= base:
		return None
	case backoff < 3*base:
		return Low
	case backoff < 10*base:
		return Moderate
	case backoff < 30*base:
		return High
	}
	return Critical
}

// Mean returns the mean of n values from the mean of the first n-1 and the last (n from 1), without their sum, which
// could overflow.
func Mean(mean float64, n int64, value float64) float64 { return mean + (value-mean)/float64(n) }

// CrashBase is the shortest wait after a job's first crash.
const CrashBase = 250 * time.Millisecond

// Crash returns how long a job waits after its crash number crashes (from 1): CrashBase·2^(crashes−1), plus up to as
// much again by chance (0 ≤ chance < 1), which separates a poison job from its neighbours; at most max. The first
// retry comes within half a second.
func Crash(max time.Duration, crashes int64, chance float64) time.Duration {
	d := double(CrashBase, max, crashes)
	return min(max, d+time.Duration(chance*float64(d)))
}

// Retry returns the shortest wait after a job's failed try number tries (from 1): half of base·2^(tries−1), at most
// max, plus up to as much again by chance (0 ≤ chance < 1), so that jobs that failed together do not return together.
// The fixed half makes a number of tries span a known time.
func Retry(base, max time.Duration, tries int64, chance float64) time.Duration {
	half := double(base, max, tries) / 2
	return half + time.Duration(chance*float64(half))
}

// double returns base·2^(n−1), at most max.
func double(base, max time.Duration, n int64) time.Duration {
	for ; n > 1 && base < max; n-- {
		base *= 2
	}
	return min(base, max)
}
