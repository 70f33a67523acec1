package store

import (
	"math"
	"testing"
	"time"
)

// TestExpectedRate_BeginsWithTheConfiguredRate: the estimate for a group that takes ten seconds is about ten seconds from the start.
func TestExpectedRate_BeginsWithTheConfiguredRate(t *testing.T) {
	for _, row := range []struct {
		name                    string
		global, perTenant, rate float64
		want                    float64
	}{
		{"the whole worker's", 100, 0, 0, 100},
		{"its tenant's", 1000, 100, 0, 100},
		{"its own", 1000, 500, 100, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, c := open(t, func(set *Settings) { set.Global, set.PerTenant = row.global, row.perTenant })
			create(t, s, GroupSpec{ID: "g", Tenant: "a", Rate: row.rate})
			add(t, s, "g", 0, 1000)
			near := func(when string) {
				t.Helper()
				g, err := s.Group(t.Context(), "g")
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(g.Expected-row.want) > row.want/4 {
					t.Errorf("%s: %v jobs a second, want %v", when, g.Expected, row.want)
				}
			}
			near("before the first start")
			begin := c.us
			for _, at := range []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second} {
				for c.us < begin+at.Microseconds() {
					c.advance(10 * time.Millisecond)
					ack(t, s, Done, pull(t, s, 50).Jobs...)
				}
				near("after " + at.String())
			}
		})
	}
}
