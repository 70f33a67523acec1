package eta

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// seen returns the counts of tickets that the front reached after waits between two times. Each ticket becomes absent after its
// patience, if that is shorter than the wait.
func seen(rng *rand.Rand, n int, from, to float64, patience func() float64) []AgeCount {
	var by [AgeBuckets]AgeCount
	for i := range by {
		by[i].Bucket = i
	}
	for range n {
		age := from + (to-from)*rng.Float64()
		left := patience()
		b := AgeBucket(min(age, left))
		if left < age {
			by[b].Absent++
		} else {
			by[b].Present++
		}
		by[b].Exposure += min(age, left) - AgeEdge(b)
	}
	return by[:]
}

func TestPresence_FollowsTheTimeInTheQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, patience := range map[string]func() float64{
		"nobody leaves": func() float64 { return math.Inf(1) },
		"at any time":   func() float64 { return 300 * rng.ExpFloat64() },
		"a third at once": func() float64 {
			return map[bool]float64{true: 20 + 10*rng.Float64(), false: math.Inf(1)}[rng.IntN(3) == 0]
		},
	} {
		share := func(after float64) (present float64) {
			for range 10_000 {
				if patience() > after {
					present += 1e-4
				}
			}
			return present
		}
		var p presence
		p.learn(seen(rng, 4000, 150, 220, patience), nil, 0)
		for _, after := range []float64{1, 10, 19, 40, 100, 150, 200} {
			if got, want := p.after(after), share(after); math.Abs(got-want) > 0.03 {
				t.Errorf("%s: after %v s %.3f are present, want %.3f", name, after, got, want)
			}
		}
	}
}

// Few tickets are weak evidence, and none have no effect. Ages without tickets continue the known ages, ever more slowly.
func TestPresence_FewHeads(t *testing.T) {
	absent := func(n, of float64) []AgeCount {
		return []AgeCount{{Bucket: AgeBucket(30), Absent: n, Present: of - n, Exposure: of}}
	}
	for _, c := range []struct {
		passed     []AgeCount
		at         float64
		low, above float64
	}{
		{nil, 1000, 1, 1},
		{absent(0, 1000), 1e6, 1, 1},
		{absent(1, 1), 40, 0.75, 1},
		{absent(10, 30), 200, 0.15, 0.3},
		{absent(10, 30), 1000, 0.05, 0.15},
		{absent(300, 900), 20, 0.95, 1},
		{absent(900, 900), math.MaxFloat64, 0.04, 0.06}, // the share of absent tickets is bounded
	} {
		var p presence
		p.learn(c.passed, nil, 0)
		if got := p.after(c.at); got < c.low || got > c.above {
			t.Errorf("%v after %v s: %v, want %v to %v", c.passed, c.at, got, c.low, c.above)
		}
	}
}

// Visitors who joined later are reached sooner after joining, so more of them are present.
func TestTurnout_ByAge(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	passed := seen(rng, 4000, 180, 200, func() float64 { return 200 * rng.ExpFloat64() })
	at := func(order func(int64) int64) float64 {
		in := lived(10, span{900, 10, 1})
		in.Waiting, in.Passed, in.Oldest, in.OrderAt = 1000, passed, in.Now-200e6, order
		return Window{}.Forecast(nil, in).At(999).Seconds
	}
	now := lived(10, span{900, 10, 1}).Now
	old, young := at(func(int64) int64 { return now - 100e6 }), at(func(int64) int64 { return now })
	// 10 visitors/s are admitted, and after t seconds exp(-t/200) of the tickets are present: dn/dt = 10 exp(t/200).
	if want := 200 * math.Log1p(1000./200/10); !near(young, want, 0.03) {
		t.Errorf("1000 who have just joined: %v s, want %v s", young, want)
	}
	if want := 200 * math.Log1p(1000./200/10*math.Exp(-0.5)); !near(old, want, 0.03) {
		t.Errorf("1000 who joined 100 s ago: %v s, want %v s", old, want)
	}
}

func TestTurnout_GrowsWithAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := lived(10, span{900, 10, 1})
		in.Waiting = rapid.Int64Range(0, 1e6).Draw(t, "waiting")
		in.Oldest = in.Now - rapid.Int64Range(-10e6, 1e12).Draw(t, "oldest")
		for range rapid.IntRange(0, 6).Draw(t, "passed") {
			number := rapid.Float64Range(-1, 1e6)
			count := AgeCount{Bucket: rapid.IntRange(-1, AgeBuckets).Draw(t, "bucket"), Present: number.Draw(t, "present"),
				Absent: number.Draw(t, "absent"), Exposure: number.Draw(t, "exposure")}
			if rapid.Bool().Draw(t, "of the sample") {
				in.Sample = append(in.Sample, count)
			} else {
				in.Passed = append(in.Passed, count)
			}
		}
		for range rapid.IntRange(0, 20).Draw(t, "holds") {
			in.Holds = append(in.Holds, Hold{Seconds: rapid.Float64Range(0, 300).Draw(t, "hold"), Silent: rapid.Bool().Draw(t, "silent")})
		}
		f, all := Window{}.Forecast(nil, in), in
		all.Passed, all.Sample, all.Holds = nil, nil, nil
		g, last := Window{}.Forecast(nil, all), 0.0
		places := []int64{0, 1, 2, 10, 500, 99_999, max(in.Waiting-1, 0), in.Waiting, in.Waiting + 1, 10_000_000}
		slices.Sort(places)
		for _, n := range places {
			e, most := f.At(n), g.At(n)
			if !e.Known || math.IsNaN(e.Seconds) || e.Seconds > most.Seconds*(1+1e-9) || e.Seconds < most.Seconds*(1-mostAbsent)*0.999 {
				t.Fatalf("%d ahead: %v s, and %v s if all are present", n, e.Seconds, most.Seconds)
			}
			if e.Seconds < last*(1-1e-9) {
				t.Fatalf("%d ahead: %v s after %v s", n, e.Seconds, last)
			}
			last = e.Seconds
		}
	})
}

// By their holds some waiting visitors are absent, some missed a poll, and some cannot become absent before their turn.
func TestTurnout_UsesHolds(t *testing.T) {
	in := lived(10, span{900, 10, 1})
	in.Waiting, in.Oldest = 500, in.Now-50e6
	for i := range 300 {
		switch i % 3 {
		case 0:
			in.Holds = append(in.Holds, Hold{Seconds: 0})
		case 1:
			in.Holds = append(in.Holds, Hold{Seconds: 5, Silent: true})
		default:
			in.Holds = append(in.Holds, Hold{Seconds: 25})
		}
	}
	f := Window{}.Forecast(nil, in)
	// In 5 s 50 are admitted: those of the first 75 who are not absent. Of the others every third is present.
	for ahead, want := range map[int64]float64{74: 5, 149: 7.5, 299: 12.5, 499: 32.5} {
		if got := f.At(ahead).Seconds; !near(got, want, 0.07) {
			t.Errorf("%d ahead: %.1f s, want %v s", ahead, got, want)
		}
	}
}

// In a crowd that joined at once, the sample shows the absence at ages that no ticket at the front has reached yet.
func TestPresence_LearnsFromSample(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	patience := func() float64 { return 30 + 300*rng.ExpFloat64() }
	var p presence
	p.learn(seen(rng, 100, 10, 20, patience), seen(rng, 4000, 90, 100, patience), 4000)
	if got := p.after(95); math.Abs(got-math.Exp(-65./300)) > 0.04 {
		t.Errorf("after 95 s %.3f are present, want %.3f", got, math.Exp(-65./300))
	}
	if p.absent != 0 {
		t.Errorf("%.3f of the tickets at the front were absent, want 0", p.absent)
	}
	// Each waiting ticket counts once, however often it was sampled.
	few := presence{}
	few.learn([]AgeCount{{Bucket: AgeBucket(95), Present: 1000}}, seen(rng, 4000, 90, 100, patience), 10)
	if got := few.after(95); got < 0.97 {
		t.Errorf("ten waiting tickets outweigh a thousand at the front: %.3f are present after 95 s", got)
	}
}
