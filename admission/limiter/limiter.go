// Package limiter holds the rate limiters of lua/lib/limiter.lua in Go, without a store.
// A gateway uses them while the store is away; the tests use them as models of the scripts.
//
// Levels are in billionths of a token, times in microseconds, rates in thousandths of a token per second, and bursts in
// thousandths of a token. A microsecond times a thousandth per second is exactly a billionth, so nothing is rounded.
package limiter

// billion is one token in the unit of a level.
const billion = 1_000_000_000

// Limiter is the part of a limiter that grants tokens one by one. Call Refill with the current time first.
type Limiter interface {
	// Refill credits the time up to now, µs. A clock that went back credits nothing.
	Refill(now int64)
	// Available returns how many tokens can be taken now, one by one.
	Available() int64
	// Take takes n tokens, at most Available.
	Take(n int64)
}

// Limiters of each strategy.
var (
	_ Limiter = (*TokenBucket)(nil)
	_ Limiter = (*LeakyBucket)(nil)
	_ Limiter = (*FixedWindow)(nil)
)
