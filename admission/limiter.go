package admission

// billion is one token in the unit of a level.
const billion = 1_000_000_000

// Strategy names how a room's limiter counts; lua/lib/limiter.lua has one of each name.
type Strategy string

// The strategies. In any interval dt a token bucket grants at most rate·dt + burst, a fixed window at most
// rate in each aligned second, so up to twice that in one that is not aligned, a leaky bucket one token at a time and a burst
// only of what came due between two looks.
const (
	StrategyTokenBucket Strategy = "token_bucket"
	StrategyFixedWindow Strategy = "fixed_window"
	StrategyLeakyBucket Strategy = "leaky_bucket"
	StrategyAdaptive    Strategy = "adaptive" // of rooms: a token bucket whose rate follows the origin's health
)

// Meter is a limiter without the store. Refill comes first, with the time of the call: the others judge by it.
type Meter interface {
	// Refill brings the meter to now, microseconds. A clock that went back credits nothing.
	Refill(now int64)
	// Available returns how many tokens can be taken one by one now.
	Available() int64
	// Take takes n tokens; the caller has looked at Available.
	Take(n int64)
}
