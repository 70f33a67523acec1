package congestion_test

import (
	"testing"
	"time"

	. "github.com/anteroom/anteroom/bulk/congestion"
)

const s = time.Second

func TestLevel_FollowsBackoff(t *testing.T) {
	for _, c := range []struct {
		backoff time.Duration
		want    string
	}{
		{0, None}, {s, None}, {s + 1, Low}, {2 * s, Low}, {3*s - 1, Low}, {3 * s, Moderate}, {10*s - 1, Moderate},
		{10 * s, High}, {30*s - 1, High}, {30 * s, Critical}, {120 * s, Critical},
	} {
		if got := Level(c.backoff, s); got != c.want {
			t.Errorf("backoff %v over 1s: %s, want %s", c.backoff, got, c.want)
		}
	}
}

func TestEstimate_RoundsUp(t *testing.T) {
	for _, c := range []struct {
		nonReady int64
		rate     float64
		want     time.Duration
	}{
		{0, 10, 0}, {1, 10, s}, {10, 10, s}, {11, 10, 2 * s}, {5000, 10, 500 * s}, {1, 0.001, 1000 * s}, {3, 0.3, 10 * s},
	} {
		if got := Estimate(c.nonReady, c.rate); got != c.want {
			t.Errorf("%d at %v/s: %v, want %v", c.nonReady, c.rate, got, c.want)
		}
	}
}

func TestRepeats_StayInBounds(t *testing.T) {
	const m = 120 * s
	for _, c := range []struct {
		name        string
		least, most time.Duration // with chance 0 and 1
		of          func(chance float64) time.Duration
	}{
		{"after the first try", s / 2, s, func(u float64) time.Duration { return Retry(s, m, 1, u) }},
		{"after the third try", 2 * s, 4 * s, func(u float64) time.Duration { return Retry(s, m, 3, u) }},
		{"after the hundredth try", m / 2, m, func(u float64) time.Duration { return Retry(s, m, 100, u) }},
	} {
		if lo, hi := c.of(0), c.of(1); lo != c.least || hi != c.most {
			t.Errorf("%s: %v to %v, want %v to %v", c.name, lo, hi, c.least, c.most)
		}
	}
}
