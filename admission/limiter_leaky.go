package admission

// LeakyBucket is lua/lib/limiter.lua's in Go: a token bucket that saves nothing up. What is there and not taken when something
// is taken is lost, so that tokens leave evenly spaced; Burst is what may come due between two looks.
type LeakyBucket struct{ TokenBucket }

// Take takes n tokens; the caller has looked at Available.
func (b *LeakyBucket) Take(n int64) {
	if n > 0 {
		b.TokenBucket.Take(n)
		b.Level %= billion
	}
}

// Rest loses what was not taken, but for one token: whoever comes after a quiet time is let out at once.
func (b *LeakyBucket) Rest() { b.Level = min(b.Level, billion) }
