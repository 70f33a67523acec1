package limiter

import "time"

// TokenBucket grants at most Rate·dt + Burst in any interval dt. A cost above the burst is never granted.
type TokenBucket struct{ Level, At, Rate, Burst int64 }

// Refill credits the time since At. A clock that went back credits nothing.
func (b *TokenBucket) Refill(now int64) {
	full := b.Burst * 1_000_000
	if dt := now - b.At; dt > 0 {
		if b.Rate > 0 {
			// Compare times first: dt·Rate overflows for a long dt.
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

// Available returns how many whole tokens can be taken now: none at rate 0, whatever was saved before.
func (b *TokenBucket) Available() int64 {
	if b.Rate <= 0 {
		return 0
	}
	return b.Level / billion
}

// Admits reports whether the bucket holds cost tokens.
func (b *TokenBucket) Admits(cost int64) bool { return b.Rate > 0 && b.Level >= cost*billion }

// Take takes n tokens, at most Available.
func (b *TokenBucket) Take(n int64) { b.Level -= n * billion }

// Wait returns the time until the bucket holds n tokens, or a negative time when it never will.
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

// Rerate changes rate and burst. The new rate counts from the last Refill.
func (b *TokenBucket) Rerate(rate, burst int64) { b.Rate, b.Burst = rate, burst }
