package wire

import (
	"math"
	"time"
)

// Schedule says when requests are due: the rate rises evenly from nothing over Ramp and then stays for Duration.
type Schedule struct {
	Rate           float64 // a second
	Ramp, Duration time.Duration
}

// climb is how many requests are due within the ramp.
func (s Schedule) climb() float64 { return s.Rate * s.Ramp.Seconds() / 2 }

// Total is how many are due in all.
func (s Schedule) Total() int { return int(s.climb() + s.Rate*s.Duration.Seconds()) }

// Due is when the k-th is, counted from zero, after the start.
func (s Schedule) Due(k int) time.Duration {
	n, climb := float64(k), s.climb()
	if n < climb {
		return time.Duration(math.Sqrt(2*n*s.Ramp.Seconds()/s.Rate) * float64(time.Second))
	}
	return s.Ramp + time.Duration((n-climb)/s.Rate*float64(time.Second))
}
