// Package congestiontest has the formulas of congestion that only the store's scripts compute, for tests to compare them.
package congestiontest

import (
	"math"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion"
)

// milli converts a rate to thousandths a second, the unit of the store.
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
	r := milli(rate)
	if r < 1 {
		r = 1
	}
	seconds := 1000 * nonReady / r
	if most := math.MaxInt64 / int64(2*time.Second); seconds > most {
		seconds = most
	}
	return min(max, base+time.Duration(seconds)*time.Second)
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
	return min(max, congestion.Retry(2*CrashBase, 2*max, crashes, chance))
}
