package pace

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestInterval(t *testing.T) {
	p := New(10*time.Minute, 20000, 500, 100)
	for _, row := range []struct {
		seconds int64
		want    float64
	}{{0, 2}, {10, 2}, {20, 2}, {50, 5}, {300, 30}, {600, 60}, {7200, 60}} {
		if got := p.Interval(5, float64(row.seconds), true); got != row.want {
			t.Errorf("a wait of %d s: %v", row.seconds, got)
		}
	}
	if got := p.Interval(5, 0, false); got != unsureFront {
		t.Errorf("an unknown wait at the front: %v", got)
	}
	if got := p.Interval(5000, 0, false); got != unsureRest {
		t.Errorf("an unknown wait farther back: %v", got)
	}
}

// Polling as advised keeps every place, misses no turn by more than half of the wait, and holds the budget where these
// two allow it; those who are near wait no longer for it than without a budget.
func TestPaceHoldsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		absence := time.Duration(rapid.IntRange(180, 3600).Draw(t, "absence")) * time.Second
		budget := rapid.IntRange(100, 50000).Draw(t, "budget")
		waiting := rapid.Int64Range(1, 3_000_000).Draw(t, "waiting")
		tail := rapid.Float64Range(1, 20000).Draw(t, "tail")
		p := New(absence, budget, waiting, tail)
		free := New(absence, 0, waiting, tail)
		var polls, least float64
		const n = 4000
		last := 0.0
		for i := range n {
			at := (float64(i) + .5) / n * tail
			w := math.Floor(at)
			v := p.Interval(1<<20, w, true)
			if v < last {
				t.Fatalf("who waits %v s polls more often (%v) than who waits less (%v)", at, v, last)
			}
			last = v
			if v > absence.Seconds()/4 || v > max(at/2, p.base(at)) {
				t.Fatalf("a wait of %v s: %v", at, v)
			}
			if at < p.cutoff && v != free.Interval(1<<20, w, true) {
				t.Fatalf("a wait of %v s, before the cutoff at %v: %v", at, p.cutoff, v)
			}
			polls += float64(waiting) / n / v
			least += float64(waiting) / n / p.raised(float64(int64(at)))
		}
		if polls > float64(budget)*1.15 && polls > least*1.15 {
			t.Fatalf("%v polls/s over a budget of %d, %v were possible", polls, budget, least)
		}
	})
}

func TestSpread(t *testing.T) {
	p := New(10*time.Minute, 0, 0, 0)
	sum := 0.0
	const n = 20000
	for i := range n {
		random := float64(i) / n
		s := p.Spread(20, random)
		if s < 17 || s > 23 {
			t.Fatalf("20 s became %d", s)
		}
		sum += float64(s)
		if f := First(random); f < 1 || f > 3 {
			t.Fatalf("the first poll after %d s", f)
		}
	}
	if mean := sum / n; mean < 19.8 || mean > 20.2 {
		t.Errorf("the mean of 20 s is %v", mean)
	}
	if s := p.Spread(150, 0.99); s != 150 {
		t.Errorf("beyond a quarter of absence: %d", s)
	}
}
