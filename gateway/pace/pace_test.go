package pace

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestInterval(t *testing.T) {
	p := New(150*time.Second, 20000, 500, 0, 100)
	for _, row := range []struct {
		seconds, want, most float64
	}{{0, 2, 2}, {3, 2, 2}, {10, 2, 5}, {20, 2, 10}, {50, 5, 25}, {300, 30, 150}, {600, 60, 150}, {7200, 60, 150}} {
		if got, most := p.Interval(5, row.seconds, true), p.Most(row.seconds, true); got != row.want || most != row.most {
			t.Errorf("a wait of %v s: %v, at most %v", row.seconds, got, most)
		}
	}
	if got := p.Interval(5, 0, false); got != unsureFront {
		t.Errorf("an unknown wait at the front: %v", got)
	}
	if got := p.Interval(5000, 0, false); got != unsureRest {
		t.Errorf("an unknown wait farther back: %v", got)
	}
}

// polls is how many polls a second a queue makes that does as it is advised, how many at least (as seldom as is allowed), and
// checks each interval. The wait grows evenly from the head to tail seconds at the end; tail 0: nobody knows it.
func polls(t *rapid.T, p *Plan, free *Plan, waiting int64, tail float64) (sum, least float64) {
	const parts, draws = 3000, 8
	last := 0.0
	for i := range parts {
		at := (float64(i) + .5) / parts
		wait, known := math.Floor(at*tail), tail > 0
		ahead := int64(at * float64(waiting))
		v, most := p.Interval(ahead, wait, known), p.Most(wait, known)
		if v < last {
			t.Fatalf("who waits %v s polls more often (%v) than who waits less (%v)", wait, v, last)
		}
		last = v
		if limit := max(shortest, wait/2); most > p.limit || known && most > limit {
			t.Fatalf("a wait of %v s: at most %v", wait, most)
		}
		if before := free.Interval(ahead, wait, known); known && wait <= p.cutoff && v != before {
			t.Fatalf("a wait of %v s, before the cutoff at %v: %v, %v without a budget", wait, p.cutoff, v, before)
		}
		mean := 0.0
		for d := range draws {
			s := Spread(v, most, (float64(d)+.5)/draws)
			if float64(s) > most || s < 1 || float64(s) < v*(1-jitter)-1 {
				t.Fatalf("%v s, at most %v, became %d", v, most, s)
			}
			mean += min(max(v*(1-jitter+2*jitter*(float64(d)+.5)/draws), 1), most) / draws
		}
		sum += float64(waiting) / parts / mean
		longest := p.mean(p.limit, p.limit)
		if known {
			longest = p.mean(p.raised(wait), p.most(wait))
		} else if ahead < Front {
			longest = unsureFront
		}
		least += float64(waiting) / parts / longest
	}
	return sum, least
}

// Polling as advised keeps every place, misses no turn by more than half of the wait, and holds the budget where these
// two allow it, together with first polls; those who are near wait no longer for it than without a budget.
func TestPaceHoldsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		absence := time.Duration(rapid.IntRange(180, 3600).Draw(t, "absence")) * time.Second
		budget := rapid.IntRange(100, 50000).Draw(t, "budget")
		waiting := rapid.Int64Range(1, 10_000_000).Draw(t, "waiting")
		arriving := rapid.SampledFrom([]int64{0, 0, 100, 1000, 100_000, 1_000_000}).Draw(t, "arriving")
		tail := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1, 200_000)).Draw(t, "tail")
		p, free := New(absence/4, budget, waiting, arriving, tail), New(absence/4, 0, waiting, 0, tail)
		sum, least := polls(t, &p, &free, waiting, tail)
		firsts := min(p.first, float64(arriving)/soonest)
		// Waits are told in whole seconds, which the plan does not know: half a second counts where all of a queue waits for a few.
		slack := 1.05
		if tail > 0 {
			slack += 0.5 / tail
		}
		if sum+firsts > float64(budget)*slack && sum > least*slack {
			t.Fatalf("%v polls/s and %v first ones over a budget of %d, %v were possible", sum, firsts, budget, least)
		}
	})
}

// However fast they arrive, first polls come at the rate that the budget leaves, until the last would be later than a minute.
func TestFirstPollsHoldTheBudget(t *testing.T) {
	for _, row := range []struct {
		name       string
		rate, last int64 // arrivals a second, and for how many seconds
		budget     int
		most       int // first polls in any second
	}{
		{"arrivals within the budget", 5000, 20, 20_000, 8000},
		{"a million in ten seconds", 100_000, 10, 20_000, 24_000},
		{"ten times as many in one", 1_000_000, 1, 20_000, 24_000},
		{"more than a minute can take: as even as can be", 1_000_000, 5, 20_000, 280_000},
	} {
		polled := map[int64]int{}
		var arriving, enrolled int64
		const part = 100 // of a second
		var p Plan
		for at := int64(0); at < row.last*part; at++ {
			if at%(part/4) == 0 { // a snapshot
				p = New(150*time.Second, row.budget, enrolled, arriving, float64(enrolled)/10)
			}
			for i := range row.rate / part {
				random := float64(i)*0.6180339887 + float64(at)*0.41421356
				after := p.First(arriving, 0, false, random-math.Floor(random))
				if after < 1 || after > int(latest) {
					t.Fatalf("%s: the first poll after %d s", row.name, after)
				}
				polled[at/part+int64(after)]++
				arriving++
			}
			due := int64(polled[at/part]) / part
			arriving, enrolled = arriving-due, enrolled+due
		}
		for second, n := range polled {
			if n > row.most {
				t.Errorf("%s: %d first polls in second %d, want at most %d", row.name, n, second, row.most)
			}
		}
	}
	p := New(150*time.Second, 20_000, 0, 1_000_000, 0)
	if v := p.First(1_000_000, 20, true, 0.5); v > 10 {
		t.Errorf("who is let in after 20 s polls first after %d", v)
	}
}

func TestSpread(t *testing.T) {
	p := New(150*time.Second, 0, 0, 0, 0)
	for _, row := range []struct{ interval, most float64 }{{20, 150}, {150, 150}, {10, 10}, {2, 2}, {145, 150}} {
		sum, exact := 0.0, 0.0
		const n = 20000
		for i := range n {
			random := float64(i) / n
			s := Spread(row.interval, row.most, random)
			if float64(s) < math.Floor(row.interval*0.85) || float64(s) > min(row.most, math.Ceil(row.interval*1.15)) {
				t.Fatalf("%v s became %d", row, s)
			}
			sum += float64(s)
			exact += min(row.interval*(0.85+0.3*random), row.most)
			if f := p.First(1_000_000, 0, false, random); f < 1 || f > 3 {
				t.Fatalf("without a budget the first poll after %d s", f)
			}
		}
		if want := p.mean(row.interval, row.most); math.Abs(sum/n-want) > want/50 || math.Abs(exact/n-want) > want/1000 {
			t.Errorf("the mean of %v is %v, before it was rounded %v, planned %v", row, sum/n, exact/n, want)
		}
	}
}
