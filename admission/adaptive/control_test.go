package adaptive

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPolicyLevel_TakesTheWorse(t *testing.T) {
	p := Policy{TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}
	ms := time.Millisecond
	for _, row := range []struct {
		h    Health
		want Level
	}{
		{Health{}, Unknown},
		{Health{Requests: 19, Errors: 19}, Unknown},
		{Health{Requests: 20, P95: 100 * ms}, Healthy},
		{Health{Requests: 20, P95: 101 * ms}, Strained},
		{Health{Requests: 20, P95: 200 * ms}, Strained},
		{Health{Requests: 20, P95: 201 * ms}, Unhealthy},
		{Health{Requests: 100, Errors: 5}, Healthy},
		{Health{Requests: 100, Errors: 6}, Unhealthy},
		{Health{Scored: true, Score: 1}, Healthy},
		{Health{Scored: true, Score: 0.5}, Strained},
		{Health{Scored: true, Score: 0}, Unhealthy},
		{Health{Scored: true, Score: math.NaN()}, Unhealthy},
		{Health{Requests: 20, P95: 101 * ms, Scored: true, Score: 1}, Strained},
		{Health{Requests: 20, P95: 10 * ms, Scored: true, Score: 0.1}, Unhealthy},
	} {
		if got := p.Level(row.h); got != row.want {
			t.Errorf("%+v is %v, want %v", row.h, got, row.want)
		}
	}
}

func TestNext_StepMode(t *testing.T) {
	p := Policy{Mode: ModeStep, MinRate: 10_000, MaxRate: 50_000, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}
	var s State
	now := int64(0)
	at := func(seconds int, h Health, want int64) {
		t.Helper()
		for range seconds {
			now += 1_000_000
			s = Next(p, s, now, h, Usage{})
		}
		if s.Rate != want {
			t.Fatalf("at %d s the rate is %d, want %d: %+v", now/1_000_000, s.Rate, want, s)
		}
	}
	fast, slow, dead := Health{Requests: 50, P95: 20 * time.Millisecond}, Health{Requests: 50, P95: 150 * time.Millisecond}, Health{Requests: 50, Errors: 50}
	at(1, Health{}, 10_000) // no level yet: it begins at MinRate
	at(1, fast, 50_000)
	at(1, slow, 30_000)
	at(1, dead, 10_000)
	at(60, Health{}, 10_000) // no level: the rate is kept
	at(5, fast, 10_000)
	at(1, fast, 30_000) // one step up at a time, after 5 s each
	at(5, fast, 30_000)
	at(1, fast, 50_000)
	at(1, slow, 30_000) // the origin did not bear the step: the next one comes after 10 s
	at(10, fast, 30_000)
	at(1, fast, 50_000)
	at(1, Health{Requests: 50, P95: 20 * time.Millisecond, Scored: true, Score: 0.8}, 42_000)
}

// With too few requests the rate is kept.
func TestNext_KeepsTheRateWithoutRequests(t *testing.T) {
	for _, mode := range []string{ModeGradient, ModeStep} {
		p := Policy{Mode: mode, MinRate: 1_000, MaxRate: 50_000, TargetP95: time.Second, MaxErrorRate: 0.05}
		s := State{Rate: 20_000, Level: Healthy}
		for now := int64(1_000_000); now < 100_000_000; now += 1_000_000 {
			s = Next(p, s, now, Health{Requests: Enough - 1, Errors: Enough - 1}, Usage{Rate: 100, Wanted: true})
		}
		if s.Rate != 20_000 {
			t.Errorf("%s: %d", mode, s.Rate)
		}
	}
}

// The rate stays within its bounds for any state, measurement and time.
func TestNext_StaysWithinBounds(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1, 1}))
	whole := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-10, 1_000_000_000))
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Mode:    rapid.SampledFrom([]string{"", ModeGradient, ModeStep}).Draw(t, "mode"),
			MinRate: rapid.Int64Range(0, 1_000_000_000).Draw(t, "min"), TargetP95: time.Duration(whole.Draw(t, "target")),
			MaxErrorRate: number.Draw(t, "max errors"),
		}
		p.MaxRate = p.MinRate + rapid.Int64Range(0, 1_000_000_000).Draw(t, "range")
		s := State{Rate: whole.Draw(t, "rate"), Level: Level(rapid.IntRange(0, 3).Draw(t, "level")), At: whole.Draw(t, "at"), Cut: whole.Draw(t, "cut"),
			Ceiling: whole.Draw(t, "ceiling"), Good: whole.Draw(t, "good"), Each: whole.Draw(t, "each"), Learned: whole.Draw(t, "learned"), Coming: whole.Draw(t, "coming"), Lagged: whole.Draw(t, "lagged"),
			P95: whole.Draw(t, "last p95"), Slope: whole.Draw(t, "slope"), Baseline: whole.Draw(t, "baseline"), Better: whole.Draw(t, "better"),
			Raised: whole.Draw(t, "raised"), Hold: whole.Draw(t, "hold")}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			h := Health{Requests: whole.Draw(t, "requests"), Errors: whole.Draw(t, "errors"), Span: time.Duration(whole.Draw(t, "span")), P95: time.Duration(whole.Draw(t, "p95")),
				Score: number.Draw(t, "score"), Scored: rapid.Bool().Draw(t, "scored")}
			s = Next(p, s, whole.Draw(t, "now"), h, Usage{Rate: number.Draw(t, "usage"), Wanted: rapid.Bool().Draw(t, "wanted")})
			if s.Rate < p.MinRate || s.Rate > p.MaxRate {
				t.Fatalf("%d is not within %d and %d: %+v", s.Rate, p.MinRate, p.MaxRate, s)
			}
			text, err := s.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			var again State
			if err := again.UnmarshalText(text); err != nil || again != s {
				t.Fatalf("%s is read as %+v, %v", text, again, err)
			}
		}
	})
}

// A new leader that reads the state from its text finds the same rates as the former leader would have.
func TestState_TextContinuesTheControl(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{MinRate: 1_000, MaxRate: 100_000, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05, Mode: rapid.SampledFrom([]string{ModeGradient, ModeStep}).Draw(t, "mode")}
		a := State{Rate: 50_000}
		b := a
		for now := int64(1_000_000); now < 60_000_000; now += 1_000_000 {
			h := Health{Requests: 100, Errors: rapid.Int64Range(0, 10).Draw(t, "errors"), Span: 3 * time.Second, P95: time.Duration(rapid.IntRange(1, 400).Draw(t, "p95")) * time.Millisecond}
			a, b = Next(p, a, now, h, Usage{Rate: 100, Wanted: true}), Next(p, b, now, h, Usage{Rate: 100, Wanted: true})
			text, _ := b.MarshalText()
			b = State{}
			if err := b.UnmarshalText(text); err != nil || a != b {
				t.Fatalf("%+v, %+v, %v", a, b, err)
			}
		}
	})
}

func TestHistogram_P95(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole Histogram
		var parts [4]Histogram
		n := rapid.IntRange(1, 300).Draw(t, "n")
		sorted := make([]time.Duration, 0, n)
		for range n {
			d := time.Duration(rapid.OneOf(rapid.Int64Range(64, 1000), rapid.Int64Range(64, 100_000_000)).Draw(t, "us")) * time.Microsecond
			whole.Add(d, false)
			parts[rapid.IntRange(0, 3).Draw(t, "gateway")].Add(d, false)
			sorted = append(sorted, d)
		}
		var merged Histogram
		for i := range parts {
			merged.Merge(&parts[i])
		}
		if merged != whole {
			t.Fatal("the merged parts differ from the whole")
		}
		within, got := 0, whole.P95()
		for _, d := range sorted {
			if float64(d) <= float64(got)*1.125+1000 {
				within++
			}
		}
		below := 0
		for _, d := range sorted {
			if float64(d) < float64(got)/1.125-1000 {
				below++
			}
		}
		if within < (n*95-99)/100 || below > (n*95+99)/100 {
			t.Fatalf("p95 of %v is %v: %d of %d within, %d below", sorted, got, within, n, below)
		}
	})
}

func TestHistogram_BucketsAreContiguous(t *testing.T) {
	for i := range buckets - 1 {
		if lower(i+1) <= lower(i) || bucketOf(lower(i+1)) != i+1 || bucketOf(lower(i+1)-1) != i {
			t.Fatalf("bucket %d begins at %d, the next at %d", i, lower(i), lower(i+1))
		}
	}
	if bucketOf(math.MaxInt64) != buckets-1 {
		t.Fatal("the longest has no bucket")
	}
}

func TestRecorder_LosesNoCount(t *testing.T) {
	var r Recorder
	var all Histogram
	var adding sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		adding.Go(func() {
			for i := range 10_000 {
				r.Add(time.Duration(i)*time.Microsecond, i%10 == 0)
			}
		})
	}
	go func() { adding.Wait(); close(done) }()
	for taking := true; taking; {
		select {
		case <-done:
			taking = false
		default:
		}
		all.Merge(r.Take())
	}
	if all.Requests != 40_000 || all.Errors != 4_000 {
		t.Fatalf("%d requests, %d errors", all.Requests, all.Errors)
	}
	if n := testing.AllocsPerRun(100, func() { r.Add(time.Millisecond, false) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkRecorder(b *testing.B) {
	var r Recorder
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Add(3*time.Millisecond, false)
		}
	})
}

// Add counts one request, as a Recorder does.
func (h *Histogram) Add(latency time.Duration, failed bool) {
	h.Requests++
	if failed {
		h.Errors++
		return
	}
	h.counts[bucketOf(max(0, latency.Microseconds()))]++
}

func FuzzHistogram(f *testing.F) {
	var h Histogram
	h.Add(time.Millisecond, false)
	h.Add(time.Hour, false)
	h.Add(0, true)
	text, _ := h.AppendText(nil)
	for _, s := range []string{string(text), "0 0", "", "1 2", "5 1 3:4", "5 1 3:4 3:1", "5 0 3:", "5 0 :3", "-1 0", "1 0 999:1", "99999999999999999999 0", "01 0", "1 0 1:2"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var h Histogram
		if err := h.UnmarshalText(text); err != nil {
			if !errors.Is(err, ErrText) {
				t.Fatal(err)
			}
			return
		}
		again, err := h.AppendText(nil)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%q is written as %q, %v", text, again, err)
		}
		if p := h.P95(); p < 0 || h.Health(0).ErrorRate() > 1 {
			t.Fatalf("%q: p95 %v", text, p)
		}
	})
}

func FuzzState(f *testing.F) {
	for _, s := range []string{`{"rate":5000,"level":2,"at":7}`, `{}`, `null`, `[]`, `{"rate":1e99}`, `{"level":9}`, `{"rate":-1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s State
		if err := s.UnmarshalText(text); err != nil {
			return
		}
		got := Next(Policy{MinRate: 10, MaxRate: 20, TargetP95: time.Second}, s, 1, Health{Requests: 100, P95: time.Hour}, Usage{})
		if got.Rate < 10 || got.Rate > 20 {
			t.Fatalf("%q leads to %d", text, got.Rate)
		}
	})
}
