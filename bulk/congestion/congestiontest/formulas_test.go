package congestiontest_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/congestion"
	. "github.com/anteroom/anteroom/bulk/congestion/congestiontest"
)

const s = time.Second

func TestBackoff_GrowsWithNonReady(t *testing.T) {
	for _, c := range []struct {
		name      string
		base, max time.Duration
		nonReady  int64
		rate      float64
		want      time.Duration
	}{
		{"nobody waits: the base", s, 120 * s, 0, 10, s},
		{"less than a second's worth waits", s, 120 * s, 9, 10, s},
		{"a second's worth waits", s, 120 * s, 10, 10, 2 * s},
		{"ten seconds' worth", s, 120 * s, 100, 10, 11 * s},
		{"never above the most", s, 120 * s, 1_000_000, 10, 120 * s},
		{"the most, exactly", s, 120 * s, 1190, 10, 120 * s},
		{"a short base", 200 * time.Millisecond, 120 * s, 25, 10, 2200 * time.Millisecond},
		{"a rate below one a second", s, 120 * s, 3, 0.1, 31 * s},
		{"thousandths are exact", s, 120 * s, 3, 0.3, 11 * s},
		{"no rate at all", s, 120 * s, 1, 0, 120 * s},
		{"more jobs than seconds fit into a duration", s, 120 * s, math.MaxInt64 / 2000, 0.001, 120 * s},
		{"the most is below the base", s, 500 * time.Millisecond, 0, 10, 500 * time.Millisecond},
	} {
		if got := Backoff(c.base, c.max, c.nonReady, c.rate); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTenantRate_IsShareOrOwn(t *testing.T) {
	for _, c := range []struct {
		name   string
		global float64
		active int64
		own    float64
		want   float64
	}{
		{"alone", 30, 1, 0, 30},
		{"one of three", 30, 3, 0, 10},
		{"whole jobs", 10, 3, 0, 3},
		{"at least one", 10, 1000, 0, 1},
		{"its own limit", 30, 3, 2.5, 2.5},
		{"its own limit above the share", 30, 3, 100, 100},
		{"nobody is active: as if one were", 30, 0, 0, 30},
		{"a global rate below one", 0.5, 1, 0, 1},
	} {
		if got := TenantRate(c.global, c.active, c.own); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestMean_IsIncremental(t *testing.T) {
	mean := 0.0
	for i, v := range []float64{0, 1, 2, 5} {
		mean = Mean(mean, int64(i+1), v)
	}
	if mean != 2 {
		t.Errorf("mean of 0, 1, 2, 5: %v", mean)
	}
}

func TestCrash_StaysInBounds(t *testing.T) {
	const m = 120 * s
	for _, c := range []struct {
		name        string
		least, most time.Duration // with chance 0 and 1
		of          func(chance float64) time.Duration
	}{
		{"first crash, within half a second", 250 * time.Millisecond, 500 * time.Millisecond, func(u float64) time.Duration { return Crash(m, 1, u) }},
		{"second crash", 500 * time.Millisecond, s, func(u float64) time.Duration { return Crash(m, 2, u) }},
		{"fifth crash", 4 * s, 8 * s, func(u float64) time.Duration { return Crash(m, 5, u) }},
		{"twentieth crash", 120 * s, 120 * s, func(u float64) time.Duration { return Crash(m, 20, u) }},
	} {
		if lo, hi := c.of(0), c.of(1); lo != c.least || hi != c.most {
			t.Errorf("%s: %v to %v, want %v to %v", c.name, lo, hi, c.least, c.most)
		}
	}
}

// TestBackoff_ReturnsJobsAtRate tests the purpose of the formula: if jobs are refused one after the other at the same moment, no
// more of them return in a second than can start in it.
func TestBackoff_ReturnsJobsAtRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := int64(rapid.IntRange(1, 500).Draw(t, "rate"))
		refused := int64(rapid.IntRange(1, 5000).Draw(t, "refused"))
		perSecond := map[time.Duration]int64{}
		for n := range refused {
			perSecond[Backoff(s, 1<<30*s, n, float64(rate))/s]++
		}
		for at, n := range perSecond {
			if n > rate {
				t.Fatalf("%d jobs come back in second %d, %d can start", n, at, rate)
			}
		}
		if last := Backoff(s, 1<<30*s, refused-1, float64(rate)); last != congestion.Estimate(refused, float64(rate)) {
			t.Fatalf("the last comes back after %v, the estimate is %v", last, congestion.Estimate(refused, float64(rate)))
		}
	})
}
