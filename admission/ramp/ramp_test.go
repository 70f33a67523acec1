package ramp

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const minute = int64(60_000_000)

var good, slow = Health{Measured: true, P95: 100 * time.Millisecond}, Health{Measured: true, P95: 400 * time.Millisecond}

func spec(b Breach) Spec {
	return Spec{From: 50_000, Step: 30_000, Every: time.Minute, Until: 120_000, P95: 300 * time.Millisecond, Breach: b}
}

func TestRamp_Steps(t *testing.T) {
	for _, row := range []struct {
		name   string
		breach Breach
		health []Health // at each minute
		rate   int64
		state  State
		steps  int64
	}{
		{"it waits for its first step", Hold, nil, 50_000, Running, 0},
		{"a step", Hold, []Health{good}, 80_000, Running, 1},
		{"the last step ends at until", Hold, []Health{good, good, good}, 120_000, Done, 3},
		{"nothing follows the end", Hold, []Health{good, good, good, good}, 120_000, Done, 3},
		{"a breach holds", Hold, []Health{good, slow, slow}, 80_000, Held, 1},
		{"it goes on after a breach", Hold, []Health{good, slow, good}, 110_000, Running, 2},
		{"a breach steps back", Back, []Health{good, good, slow}, 80_000, Held, 3},
		{"not beyond the first rate", Back, []Health{good, slow, slow, slow}, 50_000, Held, 2},
		{"a breach stops", Stop, []Health{good, slow, good}, 80_000, Stopped, 1},
		{"a pause holds, whatever a breach does", Stop, []Health{good, {Paused: true}, {Paused: true}}, 80_000, Held, 1},
		{"an origin without requests holds", Back, []Health{good, {}, {}}, 80_000, Held, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := New(spec(row.breach), "ann", 0)
			if half := r.After(minute/2, good); half != r {
				t.Errorf("before its time it became %+v", half)
			}
			for i, h := range row.health {
				r = r.After(minute*int64(i+1), h)
			}
			if r.Rate != row.rate || r.State != row.state || r.Steps != row.steps || (r.Ended > 0) != r.Over() || (r.Reason != "") != (r.State == Held || r.State == Stopped) {
				t.Errorf("%+v, want rate %d, %s after %d steps", r, row.rate, row.state, row.steps)
			}
		})
	}
}

func TestRamp_WithoutConditionStepsDown(t *testing.T) {
	r := New(Spec{From: 100_000, Step: -40_000, Every: time.Second, Until: 10_000}, "ann", 0)
	for now := int64(1); !r.Over() && now < 10; now++ {
		r = r.After(now*1e6, Health{})
	}
	if r.Rate != 10_000 || r.State != Done || r.Steps != 3 {
		t.Errorf("%+v", r)
	}
}

// The rate stays within from and until, moves by one step at most, and not before a step is due. Text and Parse are inverse.
func TestRamp_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{
			From: rapid.Int64Range(0, 1e6).Draw(t, "from"), Until: rapid.Int64Range(0, 1e6).Draw(t, "until"), Step: rapid.Int64Range(1, 3e5).Draw(t, "step"),
			Every: time.Duration(rapid.IntRange(1, 100).Draw(t, "every")) * time.Second, P95: rapid.SampledFrom([]time.Duration{0, 300 * time.Millisecond}).Draw(t, "p95"),
			Errors: rapid.SampledFrom([]float64{0, 0.05}).Draw(t, "errors"), Breach: rapid.SampledFrom([]Breach{Hold, Back, Stop}).Draw(t, "breach"),
		}
		if s.Until < s.From {
			s.Step = -s.Step
		}
		r, now := New(s, "ann", 0), int64(0)
		for range 50 {
			now += rapid.Int64Range(0, 200e6).Draw(t, "µs")
			h := Health{
				Paused: rapid.Bool().Draw(t, "paused"), Measured: rapid.Bool().Draw(t, "measured"),
				P95: time.Duration(rapid.IntRange(0, 600).Draw(t, "ms")) * time.Millisecond, ErrorRate: rapid.Float64Range(0, 0.1).Draw(t, "share"),
			}
			next := r.After(now, h)
			low, high := min(s.From, s.Until), max(s.From, s.Until)
			moved := max(next.Rate-r.Rate, r.Rate-next.Rate)
			if next.Rate < low || next.Rate > high || moved > max(s.Step, -s.Step) || moved > 0 && (now < r.Next || next.Steps != r.Steps+1) || r.Over() && next != r {
				t.Fatalf("at %d with %+v: %+v became %+v", now, h, r, next)
			}
			if back, err := Parse(next.Text()); err != nil || back != next {
				t.Fatalf("%+v was read back as %+v (%v)", next, back, err)
			}
			r = next
		}
	})
}

func FuzzParse(f *testing.F) {
	r := New(spec(Hold), "ann", 5)
	f.Add(r.Text())
	f.Add(`{"state":1}`)
	f.Fuzz(func(_ *testing.T, text string) { _, _ = Parse(text) })
}
