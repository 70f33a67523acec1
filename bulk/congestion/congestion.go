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
