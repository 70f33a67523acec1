package eta

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func estimate(t testing.TB, e Estimator, in Input, ahead int64) Estimate {
	t.Helper()
	got := e.Forecast(nil, in).At(ahead)
	if !got.Known {
		t.Fatalf("%T has no estimate at %d", e, in.Now)
	}
	return got
}

func TestFixed_Forecast(t *testing.T) {
	for _, row := range []struct {
		name    string
		seconds float64
		in      Input
		want    float64
	}{
		{"one over the rate in force, for any history", 0, lived(10, span{900, 4, 1}), 10},
		{"two seconds a place", 2, lived(10, span{900, 4, 1}), 0.5},
		{"never faster than the rate in force", 0.05, lived(10), 10},
	} {
		if got := (Fixed{row.seconds}).Forecast(nil, row.in).Rate(); !near(got, row.want, 1e-9) {
			t.Errorf("%s: %v/s, want %v/s", row.name, got, row.want)
		}
	}
	full := lived(10, span{900, 4, 1})
	full.MaxActive, full.Active = 50, 50
	if got := (Fixed{}).Forecast(nil, full).Rate(); !near(got, 4, 1e-9) {
		t.Errorf("a full room: %v/s, want the observed 4/s", got)
	}
	if got := (Window{SecondsPerPlace: 0.5}).Forecast(nil, lived(10)).Rate(); !near(got, 2, 1e-9) {
		t.Errorf("window without a history: %v/s, want the 2/s of seconds_per_place", got)
	}
}

func TestEMA_UsesFastHorizonAfterChange(t *testing.T) {
	for _, row := range []struct {
		name string
		in   Input
		want float64
		off  float64
	}{
		{"an even past", lived(20, span{900, 10, 1}), 10, 1e-9},
		{"no past: the rate in force", lived(20), 20, 1e-9},
		{"noise of a few seconds moves the slow one a little", lived(20, span{890, 10, 1}, span{10, 11, 1}), 10.03, 0.01},
		{"a minute at twice the flow is a change", lived(50, span{840, 10, 1}, span{60, 20, 1}), 18.65, 0.02},
		{"a pause is no time", lived(20, span{600, 10, 1}, span{240, 0, 0}, span{60, 10, 1}), 10, 1e-9},
		{"never above the rate in force", lived(10, span{900, 14, 1}), 10, 1e-9},
	} {
		if got := (EMA{}).Forecast(nil, row.in).Rate(); !near(got, row.want, row.off) {
			t.Errorf("%s: %v/s, want %v/s", row.name, got, row.want)
		}
	}
}

func TestParseWeights_RoundTrip(t *testing.T) {
	w := DefaultWeights
	for hour, want := range map[int]float64{0: 0.3, 8: 0.3, 9: 1, 11: 1, 12: 1.5, 17: 1.5, 18: 2, 21: 2, 22: 0.8, 23: 0.8} {
		if w[hour] != want {
			t.Errorf("%d h: %v, want %v", hour, w[hour], want)
		}
	}
	late, err := ParseWeights("9=1 20=2")
	if err != nil || late[0] != 2 || late[8] != 2 || late[9] != 1 || late[20] != 2 {
		t.Errorf("the last one holds until the first: %v, %v", late, err)
	}
	for text, says := range map[string]string{
		"": "empty", "0": "weight", "24=1": "hour", "x=1": "hour", "9=1 9=2": "once", "12=1 9=2": "once", "0=0": "weight", "0=1e9": "weight", "0=NaN": "weight",
	} {
		if _, err := ParseWeights(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseWeights(f *testing.F) {
	f.Add("0=0.3 9=1 12=1.5 18=2 22=0.8")
	f.Add("23=1000 ")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWeights(text)
		if err != nil {
			return
		}
		for _, x := range w {
			if !(x >= leastWeight && x <= mostWeight) {
				t.Fatalf("%q gives the weight %v", text, x)
			}
		}
		if again, err := ParseWeights(w.String()); err != nil || again.String() != w.String() {
			t.Fatalf("%q: %v as text is %q: %v", text, w, w.String(), err)
		}
	})
}

// 3600 people at 1/s and, from the full hour on, 2/s.
func TestHourly_WaitAcrossHours(t *testing.T) {
	weights, err := ParseWeights("0=1 13=2 14=4")
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("this system has no time zones")
	}
	in := lived(100, span{900, 1, 1})
	in.Wall = time.Date(2026, 1, 5, 12, 30, 0, 0, berlin).UnixMicro()
	x := Hourly{Weights: weights, Zone: berlin}
	for ahead, want := range map[int64]float64{
		899:                       900,  // within the hour
		1799:                      1800, // to its end
		3599:                      1800 + 1800./2,
		1800 + 7200 + 4000 - 1:    1800 + 3600 + 4000./4,
		1800 + 7200 + 4*36000 - 1: 1800 + 3600 + 36000, // 14 h holds until midnight
	} {
		if got := estimate(t, x, in, ahead).Seconds; !near(got, want, 1e-6) {
			t.Errorf("%d ahead: %v s, want %v s", ahead, got, want)
		}
	}
	in.Rate = 1.5 // which no hour exceeds
	if got := estimate(t, x, in, 3599).Seconds; !near(got, 1800+1800/1.5, 1e-6) {
		t.Errorf("at a rate in force of 1.5/s: %v s", got)
	}
	// Ten minutes past the border, the last quarter of an hour has both weights in it.
	in = lived(100, span{300, 1, 1}, span{600, 2, 1})
	in.Wall = time.Date(2026, 1, 5, 13, 10, 0, 0, berlin).UnixMicro()
	if got := x.Forecast(nil, in).Rate(); !near(got, 2, 1e-9) {
		t.Errorf("after the border: %v/s, want 2/s", got)
	}
	// The hour changes between two forecasts: the estimate has included that before.
	in = lived(100, span{900, 1, 1})
	in.Wall = time.Date(2026, 1, 5, 12, 59, 59, 900_000_000, berlin).UnixMicro()
	before := x.Forecast(nil, in)
	in.Now, in.Wall = in.Now+250_000, in.Wall+250_000
	if a, b := before.At(3599).Seconds, x.Forecast(before, in).At(3599).Seconds; !near(a, b, 0.002) {
		t.Errorf("over the border: %v s became %v s", a, b)
	}
}

func TestPredictor_LearnsHours(t *testing.T) {
	p := NewPredictor(Hourly{Weights: DefaultWeights, Zone: time.UTC}, true)
	day := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for m := range 24 * 60 {
		n := int64(60)
		if m/60 == 20 {
			n = 180
		}
		if m/60 != 3 { // nobody waits at three
			p.AddMinute(day.Add(time.Duration(m)*time.Minute).UnixMicro(), n, 60)
		}
	}
	w := p.hours.weights(DefaultWeights)
	if w == nil || !near(w[20]/w[10], 3, 1e-9) || !near(w[0], w[10], 1e-9) {
		t.Fatalf("%v", w)
	}
	if want := DefaultWeights[3] / mean(DefaultWeights, 3); w[3] <= 0 || !near(w[3], want, 0.01) {
		t.Errorf("an hour without data: %v, want its given weight scaled to the others, %v", w[3], want)
	}
	if NewPredictor(Hourly{Weights: DefaultWeights, Zone: time.UTC}, true).hours.weights(DefaultWeights) != nil {
		t.Error("weights of nothing")
	}
}

func mean(w Weights, without int) (m float64) {
	for h, x := range w {
		if h != without {
			m += x / 23
		}
	}
	return m
}

func TestForecast_SubtractsLeavers(t *testing.T) {
	in := lived(10, span{900, 10, 1})
	var f *Forecast
	in.Came, in.Gone, in.Admitted, in.Waiting = 10_000, 4000, 4000, 6000
	// Half of the tickets that the front reached were absent after 15 s; all waiting tickets are older.
	b := AgeBucket(15)
	in.Passed = []AgeCount{{Bucket: b, Absent: 1000, Exposure: 500 * (AgeEdge(b+1) - AgeEdge(b))}, {Bucket: AgeBucket(3000), Present: 1000}}
	in.Oldest, in.OrderAt = in.Now-100e6, func(int64) int64 { return in.Now - 100e6 }
	f = Window{}.Forecast(f, in)
	if !near(f.absent, 0.5, 0.02) || f.leaving != 0 {
		t.Fatalf("absent %v, leaving %v", f.absent, f.leaving)
	}
	if got := f.At(999).Seconds; !near(got, 50, 0.04) {
		t.Errorf("1000 ahead at 10/s, half of them absent: %v s, want about 50 s", got)
	}
	// In each tick another 2 of 6000 leave the queue: 8/s, a hazard of 1/750 s.
	for range 4800 {
		f = Window{}.Forecast(f, in)
		in.Now += 250_000
		in.Came, in.Gone, in.Admitted = in.Came+7, in.Gone+5, in.Admitted+2
		if in.Now%500_000 == 0 {
			in.Admitted++
		}
		for i := range in.Buckets {
			in.Buckets[i].Second = floorSeconds(in.Now) - int64(len(in.Buckets)-i)
		}
	}
	if !near(f.leaving, 1./750, 0.05) {
		t.Fatalf("leaving %v", f.leaving)
	}
	if got, want := f.At(5999).Seconds, 750*math.Log1p(6000./750/20); !near(got, want, 0.05) {
		t.Errorf("6000 ahead: %v s, want %v s", got, want)
	}
	in.Came, in.Gone, in.Admitted = 0, 0, 0 // a store that lost its data
	in.Now += 250_000
	in.Passed = nil
	if f = (Window{}).Forecast(f, in); f.absent != 0 || f.leaving != 0 {
		t.Errorf("after a loss of data: absent %v, leaving %v; want 0, 0", f.absent, f.leaving)
	}
}

func TestForecast_FollowsSchedule(t *testing.T) {
	in := lived(10, span{900, 10, 1})
	at := func(s float64) int64 { return in.Now + int64(s*1e6) }
	in.Schedule = []Step{{At: at(-5), Rate: 99}, {At: at(60), Rate: 20}, {At: at(120), Rate: 0}, {At: at(300), Rate: 5}}
	for _, e := range []Estimator{Window{}, Fixed{}, EMA{}, Hourly{Weights: mustWeights("0=1"), Zone: time.UTC}} {
		in := in
		in.Rate = 99
		in.Buckets = lived(99, span{900, 99, 1}).Buckets
		f := e.Forecast(nil, in)
		if got := f.At(60*99 - 1).Seconds; !near(got, 60, 1e-6) {
			t.Errorf("%T: up to the step: %v s, want 60 s", e, got)
		}
		for ahead, want := range map[int64]float64{60*99 + 400 - 1: 80, 60*99 + 1200 + 50 - 1: 310} {
			if got := f.At(ahead).Seconds; !near(got, want, 1e-6) {
				t.Errorf("%T: %d ahead: %v s, want %v s", e, ahead, got, want)
			}
		}
	}
	slow := lived(20, span{900, 4, 1}) // something other than the rate limits it
	slow.Schedule = []Step{{At: slow.Now + 10e6, Rate: 40}}
	if got := estimate(t, Window{}, slow, 399).Seconds; !near(got, 100, 1e-6) {
		t.Errorf("a higher rate that was not the limit: %v s, want 100 s", got)
	}
	closed := lived(0)
	closed.Schedule = []Step{{At: closed.Now + 600e6, Rate: 10}}
	if got := estimate(t, Window{}, closed, 99).Seconds; !near(got, 610, 1e-6) {
		t.Errorf("a room that opens in ten minutes: %v s, want 610 s", got)
	}
	ends := lived(10, span{900, 10, 1})
	ends.Schedule = []Step{{At: ends.Now + 60e6, Rate: 0}}
	if f := (Window{}).Forecast(nil, ends); !f.At(599).Known || f.At(601).Known {
		t.Error("want an estimate up to the end of all admissions, and none after it")
	}
	held := lived(10, span{900, 10, 1})
	held.Hold = held.Now + 5e6
	if got := estimate(t, Window{}, held, 99).Seconds; !near(got, 15, 1e-6) {
		t.Errorf("held for 5 s: %v s, want 15 s", got)
	}
}

// 20/s are admitted until 3000 sessions are active, each of 300 s; from then on 10/s.
func TestForecast_RoomThatWillBeFull(t *testing.T) {
	in := Input{Rate: 20, MaxActive: 3000, Active: 1500}
	c := churn{}.after(&in, 0)
	for range 600 { // 5 go and 5 are admitted each second
		in.Admitted += 5
		c = c.after(&in, 1)
	}
	full, flow := c.full(&in, 20)
	if want := 300 * math.Log(15./10); !near(flow, 10, 0.01) || !near(full, want, 0.01) {
		t.Errorf("full after %v s, then %v/s; want %v s, 10/s", full, flow, want)
	}
	few := churn{ended: 3, exposure: 900}
	if full, flow := few.full(&in, 20); full != 75 || flow != 0 {
		t.Errorf("after three ended sessions: full after %v s, then %v/s; want 75 s, and 0/s for an unknown flow", full, flow)
	}
	if full, _ := few.full(&in, 15); !math.IsInf(full, 1) {
		t.Errorf("a flow below the rate in force: full after %v s, want never", full)
	}
	if full, _ := c.full(&in, 9); !math.IsInf(full, 1) {
		t.Errorf("9/s admitted, 10/s leaving: full after %v s, want never", full)
	}
	f := &Forecast{known: true, rate: 20, memory: memory{churn: c}}
	f.plan(nil, &in)
	if got, want := f.At(6000).Seconds, full+(6001-20*full)/flow; !near(got, want, 0.001) {
		t.Errorf("6000 ahead: %v s, want %v s", got, want)
	}
}

// 100 visitors fill the room at 50/s, and each stays for 30 s. There is no estimate before the first of them have left. From then on as
// many are admitted as leave, and after max_active was halved, half as many, once the room is down to that.
func TestForecast_FullRoomFollowsSessions(t *testing.T) {
	for _, name := range []string{"window", "ema", "fixed"} {
		e, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var f *Forecast
		in := Input{Now: start*1e6 + 500_000, Since: start * 1e6, Rate: 50, Waiting: 1000, MaxActive: 100}
		play := func(until int64) {
			for second := floorSeconds(in.Now) - start; second < until; second++ {
				let := int64(0)
				if n := len(in.Buckets); n >= 30 {
					in.Active -= in.Buckets[n-30].Admitted
				}
				let = max(0, min(50, in.MaxActive-in.Active))
				in.Buckets = append(in.Buckets, Bucket{Second: start + second, Admitted: let, Busy: 1})
				in.Active, in.Admitted, in.Gone, in.Came = in.Active+let, in.Admitted+let, in.Gone+let, in.Came+let
				f = e.Forecast(f, in) // in the middle of a second, whose bucket is not whole
				in.Now += 1e6
			}
		}
		play(25)
		if got := f.At(99); got.Known {
			t.Errorf("%s, before anybody has left: %+v", name, got)
		}
		play(150)
		if got := f.At(99).Seconds; !near(got, 30, 0.35) {
			t.Errorf("%s, full: 100 in %v s, want about 30 s", name, got)
		}
		in.MaxActive = 50
		f = e.Forecast(f, in)
		if got := f.At(99).Seconds; !near(got, 60+30*math.Ln2, 0.35) {
			t.Errorf("%s, with half the places: 100 in %v s, want about 80 s", name, got)
		}
	}
}

func TestEstimators_Invariants(t *testing.T) {
	model := readModel(t)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Names()).Draw(t, "estimator")
		e, err := New(name, Options{Model: model, SecondsPerPlace: rapid.SampledFrom([]float64{0, 0, 3}).Draw(t, "seconds")})
		if err != nil {
			t.Fatal(err)
		}
		p := NewPredictor(e, rapid.Bool().Draw(t, "learn"))
		now := rapid.Int64Range(1, 2_000_000_000).Draw(t, "second") * 1e6
		count := rapid.Int64Range(-10, 1e6)
		for range rapid.IntRange(1, 6).Draw(t, "forecasts") {
			now += rapid.Int64Range(-1e6, 90e6).Draw(t, "later")
			in := Input{Now: now, Wall: now + rapid.Int64Range(0, 1e12).Draw(t, "apart"), Since: now - 3600e6,
				Hold: now + rapid.Int64Range(-10e6, 10e6).Draw(t, "hold"), Rate: rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.001, 1e5)).Draw(t, "rate"),
				Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0, Waiting: count.Draw(t, "waiting"), MaxActive: rapid.Int64Range(0, 50).Draw(t, "max"),
				Active: rapid.Int64Range(0, 60).Draw(t, "active"), Came: count.Draw(t, "came"), Gone: count.Draw(t, "gone"), Admitted: count.Draw(t, "admitted"),
				Oldest: now - rapid.Int64Range(0, 100e6).Draw(t, "oldest"), Ahead: func(order int64) int64 { return max(0, (order-now)/1e5+2000) }}
			for s := range rapid.Int64Range(0, 3).Draw(t, "steps") {
				in.Schedule = append(in.Schedule, Step{At: now + s*100e6 - 50e6, Rate: rapid.OneOf(rapid.Just(0.0), rapid.Float64(), rapid.Float64Range(0.1, 100)).Draw(t, "then")})
			}
			for s := range rapid.Int64Range(0, 300).Draw(t, "buckets") {
				in.Buckets = append(in.Buckets, Bucket{Second: now/1e6 - 300 + s, Admitted: rapid.Int64Range(0, 30).Draw(t, "let"), Busy: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "busy")})
			}
			f := p.Forecast(in)
			if f.At(0).Known && in.Paused {
				t.Fatal("known, though the room is paused")
			}
			last, ended := Estimate{}, false
			for _, ahead := range []int64{-1, 0, 1, 5, 30, 200, 1000, 5000, 100_000, 10_000_000, math.MaxInt64} {
				got := f.At(ahead)
				if !got.Known {
					ended = true
					continue
				}
				if ended {
					t.Fatalf("%d ahead has an estimate, and fewer ahead had none", ahead)
				}
				for _, v := range []float64{got.Seconds, got.Low, got.High} {
					if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
						t.Fatalf("ahead %d: %+v", ahead, got)
					}
				}
				const dust = 1e-9
				if got.Low > got.Seconds*(1+dust) || got.Seconds > got.High*(1+dust) {
					t.Fatalf("ahead %d: not in order: %+v", ahead, got)
				}
				if got.Seconds < last.Seconds*(1-dust) || got.Low < last.Low*(1-dust) || got.High < last.High*(1-dust) {
					t.Fatalf("ahead %d: %+v after %+v", ahead, got, last)
				}
				last = got
			}
		}
	})
}
