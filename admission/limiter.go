package admission

import (
	"context"
	"fmt"
	"time"
)

// billion is one token in the unit of a level.
const billion = 1_000_000_000

// Strategy names how a limiter counts; lua/lib/limiter.lua has one of each name.
type Strategy string

// The strategies. In any interval dt a token bucket and a GCRA grant at most rate·dt + burst, a fixed window at most
// rate in each aligned second, so up to twice that in one that is not aligned, a leaky bucket one token at a time and a burst
// only of what came due between two looks.
const (
	StrategyTokenBucket Strategy = "token_bucket"
	StrategyGCRA        Strategy = "gcra"
	StrategyFixedWindow Strategy = "fixed_window"
	StrategyLeakyBucket Strategy = "leaky_bucket"
	StrategyAdaptive    Strategy = "adaptive" // of rooms: a token bucket whose rate follows the origin's health
)

// Meter is a limiter's state and rule, without a store. Refill comes first, with the time of the call: the others judge by
// it. Costs are whole tokens. At rate 0 nothing is granted, whatever was saved up before.
type Meter interface {
	// Refill brings the meter to now, microseconds. A clock that went back credits nothing.
	Refill(now int64)
	// Available is how many tokens can be taken one by one now.
	Available() int64
	// Admits says whether a cost can be taken as a whole now.
	Admits(cost int64) bool
	// Take takes n tokens; the caller has looked at Available or Admits.
	Take(n int64)
	// Wait is the time until a cost is admitted, exact to the microsecond while the clock does not go back; negative: never.
	Wait(cost int64) time.Duration
	// Rerate changes rate and burst, in thousandths; each strategy says what becomes of its state.
	Rerate(rate, burst int64)
}

var (
	_ Meter = (*TokenBucket)(nil)
	_ Meter = (*GCRA)(nil)
	_ Meter = (*FixedWindow)(nil)
	_ Meter = (*LeakyBucket)(nil)
)

// NewMeter is a meter that has granted nothing yet: rate in thousandths of a token a second, burst in thousandths of a
// token. An unknown strategy is a programming error and panics.
func NewMeter(s Strategy, rate, burst int64) Meter {
	switch s {
	case StrategyTokenBucket, StrategyAdaptive:
		return &TokenBucket{Level: burst * 1_000_000, Rate: rate, Burst: burst}
	case StrategyLeakyBucket:
		return &LeakyBucket{TokenBucket{Level: burst * 1_000_000, Rate: rate, Burst: burst}}
	case StrategyGCRA:
		return &GCRA{Rate: rate, Burst: burst}
	case StrategyFixedWindow:
		return &FixedWindow{Rate: rate}
	}
	panic(fmt.Sprintf("admission: no limiter strategy %q", s))
}

// DefaultBurst is what burst 0 stands for in the bulk engine: 100 ms of the rate, and at least one token (thousandths, both).
// With no tolerance at all each late wake of a worker would be lost for good.
func DefaultBurst(rate int64) int64 { return max(1000, rate/10) }

// Limiter is a limiter in the store that stands alone, for what is not a
// room: an origin's budget, a tenant of the bulk engine.
type Limiter struct {
	c        *Core
	key      string
	strategy Strategy
}

// Limiter gives the token bucket of that key (LimiterKey).
func (c *Core) Limiter(key string) *Limiter { return c.LimiterOf(key, StrategyTokenBucket) }

// LimiterOf gives the limiter of that key (LimiterKey) and strategy. A key keeps its strategy for life.
func (c *Core) LimiterOf(key string, s Strategy) *Limiter {
	return &Limiter{c: c, key: key, strategy: s}
}

// Grant is the answer to Take and TakeCost: how many of the wanted tokens were taken, and the time until it is worth asking
// again (negative: never).
type Grant struct {
	Taken int64
	Wait  time.Duration
}

// Take takes up to n tokens at that rate and burst (thousandths); Wait is the time until one more is there.
// A limiter that the store does not know has granted nothing yet.
func (l *Limiter) Take(ctx context.Context, n, rate, burst int64) (Grant, error) {
	return l.take(ctx, n, rate, burst, 0)
}

// TakeCost takes a cost as a whole or not at all; Wait is the time until such a cost is admitted (again).
func (l *Limiter) TakeCost(ctx context.Context, cost, rate, burst int64) (Grant, error) {
	return l.take(ctx, cost, rate, burst, 1)
}

func (l *Limiter) take(ctx context.Context, n, rate, burst int64, whole int) (Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.o.Timeout)
	defer cancel()
	res, err := l.c.runner.Run(ctx, l.c.scripts.Script("limiter_take"), []string{l.key}, l.c.now(), string(l.strategy), rate, burst, n, whole)
	if err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	v, ok := res.([]any)
	if !ok || len(v) != 2 {
		return Grant{}, fmt.Errorf("limiter_take answered %v", res)
	}
	return Grant{Taken: asInt(v[0]), Wait: time.Duration(asInt(v[1])) * time.Microsecond}, nil
}
