package limiter

// LeakyBucket grants evenly spaced tokens. Taking any token drops the other whole tokens; Burst bounds what comes due
// between two calls.
type LeakyBucket struct{ TokenBucket }

// Take takes n tokens, at most Available, and drops the whole tokens that remain.
func (b *LeakyBucket) Take(n int64) {
	if n > 0 {
		b.TokenBucket.Take(n)
		b.Level %= billion
	}
}
