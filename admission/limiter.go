package admission

import (
	"context"
	"fmt"
	"time"
)

// billion is one token in the unit of a bucket's level.
const billion = 1_000_000_000

// TokenBucket is lua/lib/limiter.lua in Go, for what is decided without the
// store and as the model of its tests. Level is in billionths of a token, At in
// microseconds, Rate in thousandths of a token a second, Burst in thousandths
// of a token; a microsecond times a thousandth a second is exactly a billionth.
type TokenBucket struct{ Level, At, Rate, Burst int64 }

// Refill credits the time since At. A clock that went back credits nothing.
func (b *TokenBucket) Refill(now int64) {
	full := b.Burst * 1_000_000
	if dt := now - b.At; dt > 0 {
		if b.Rate > 0 {
			// By time first: dt·Rate may not fit for a long dt.
			if float64(dt) >= float64(full-b.Level)/float64(b.Rate) {
				b.Level = full
			} else {
				b.Level += dt * b.Rate
			}
		}
		b.At = now
	}
	b.Level = max(0, min(b.Level, full))
}

// Available is how many whole tokens can be taken now; none at rate 0, which
// means "nobody" whatever was saved up before.
func (b *TokenBucket) Available() int64 {
	if b.Rate <= 0 {
		return 0
	}
	return b.Level / billion
}

// Take takes n tokens; the caller has looked at Available.
func (b *TokenBucket) Take(n int64) { b.Level -= n * billion }

// Wait is the time until n tokens are there; negative when they never are.
func (b *TokenBucket) Wait(n int64) time.Duration {
	missing := n*billion - b.Level
	switch {
	case b.Rate <= 0 || n*1000 > b.Burst:
		return -1
	case missing <= 0:
		return 0
	}
	return time.Duration((missing+b.Rate-1)/b.Rate) * time.Microsecond
}

// Limiter is a token bucket in the store that stands alone, for what is not a
// room: an origin's budget, a tenant of the bulk engine.
type Limiter struct {
	c   *Core
	key string
}

// Limiter gives the limiter of that key (LimiterKey).
func (c *Core) Limiter(key string) *Limiter { return &Limiter{c: c, key: key} }

// Grant is the answer to Take: how many of the wanted tokens were taken, and
// the time until one more is there (negative: never).
type Grant struct {
	Taken int64
	Wait  time.Duration
}

// Take takes up to n tokens of a bucket of that rate and burst (thousandths).
// A bucket that the store does not know starts full.
func (l *Limiter) Take(ctx context.Context, n, rate, burst int64) (Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.o.Timeout)
	defer cancel()
	res, err := l.c.runner.Run(ctx, l.c.scripts.Script("limiter_take"), []string{l.key}, l.c.now(), "token_bucket", rate, burst, n)
	if err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	v, ok := res.([]any)
	if !ok || len(v) != 2 {
		return Grant{}, fmt.Errorf("limiter_take answered %v", res)
	}
	return Grant{Taken: asInt(v[0]), Wait: time.Duration(asInt(v[1])) * time.Microsecond}, nil
}
