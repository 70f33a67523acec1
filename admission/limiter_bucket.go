package admission

import "time"

// TokenBucket is lua/lib/limiter.lua's in Go, for what is decided without the
// store and as the model of its tests. Level is in billionths of a token, At in
// microseconds, Rate in thousandths of a token a second, Burst in thousandths
// of a token; a microsecond times a thousandth a second is exactly a billionth.
// A cost above the burst is never admitted.
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

// Admits says whether that many tokens are there.
func (b *TokenBucket) Admits(cost int64) bool { return b.Rate > 0 && b.Level >= cost*billion }

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

// Rerate keeps what was saved up, as far as the new burst holds it. The time since the last Refill counts at the new rate.
func (b *TokenBucket) Rerate(rate, burst int64) { b.Rate, b.Burst = rate, burst }
