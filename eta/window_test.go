package eta

import (
	"math"
	"strings"
	"testing"
)

// span is a stretch of a room's past in which every second was alike.
type span struct {
	seconds  int
	admitted int64
	busy     float64
}

// start is the room time at which the rooms of these tests begin, s.
const start = int64(1_000_000)

// lived returns the input of a room that began at start and has lived through the spans.
func lived(rate float64, past ...span) Input {
	second := start
	in := Input{Since: start * 1e6, Rate: rate, Waiting: 1000}
	for _, s := range past {
		for range s.seconds {
			in.Buckets = append(in.Buckets, Bucket{Second: second, Admitted: s.admitted, Busy: s.busy})
			second++
		}
	}
	in.Buckets = in.Buckets[max(0, len(in.Buckets)-MaxBuckets):]
	in.Now = second * 1e6
	return in
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*want }

func TestWindow_Rate(t *testing.T) {
	for _, row := range []struct {
		name string
		in   Input
		want float64 // visitors per second
	}{
		{"no past: the policy's rate", lived(10), 10},
		{"never a queue: the policy's rate", lived(10, span{1000, 3, 0}), 10},
		{"30 s at the policy's rate", lived(10, span{30, 10, 1}), 10},
		{"8 s of a minute's evidence: the rest is prior", lived(10, span{8, 6, 1}), (52*10 + 8*6) / 60.},
		{"30 s, fewer than would be due, but by chance: half prior", lived(1, span{8, 0, 1}, span{22, 1, 1}), 0.5 + 0.5*22/30},
		{"15 s, fewer than chance allows: no prior", lived(10, span{15, 6, 1}), 6},
		{"a minute: the prior is gone", lived(10, span{60, 6, 1}), 6},
		{"two minutes, the older one is too old for the only window", lived(20, span{60, 8, 1}, span{60, 10, 1}), 10},
		{"six minutes: 0.5 and 0.3, scaled up", lived(20, span{300, 10, 1}, span{60, 11, 1}), (0.5*11 + 0.3*(60*11+240*10)/300) / 0.8},
		{"fifteen minutes: 0.5, 0.3 and 0.2", lived(20, span{840, 10, 1}, span{60, 11, 1}),
			0.5*11 + 0.3*(60*11.+240*10)/300 + 0.2*(60*11.+840*10)/900},
		{"an hour is like fifteen minutes", lived(20, span{3600, 10, 1}, span{60, 11, 1}),
			0.5*11 + 0.3*(60*11.+240*10)/300 + 0.2*(60*11.+840*10)/900},
		{"five minutes less a second: one window", lived(20, span{239, 10, 1}, span{60, 11, 1}), 11},

		{"a pause is left out", lived(20, span{600, 10, 1}, span{240, 0, 0}, span{60, 10, 1}), 10},
		{"time without a queue is left out, with its admissions", lived(20, span{600, 10, 1}, span{240, 2, 0}, span{60, 10, 1}), 10},
		{"a second with a queue for a quarter of it", lived(20, span{900, 2, 0.25}), 8},
		{"nothing but a pause in the last minute: the longer windows", lived(20, span{840, 10, 1}, span{60, 0, 0}), 10},
		{"nothing but a pause in fifteen minutes: the policy's rate", lived(20, span{900, 10, 1}, span{900, 0, 0}), 20},

		{"the last minute is twice as fast: it alone counts", lived(50, span{840, 10, 1}, span{60, 20, 1}), 20},
		{"the last minute is half as fast", lived(50, span{840, 10, 1}, span{60, 5, 1}), 5},
		{"few admissions due at a slow rate are no evidence", lived(1, span{840, 0, 0}, span{30, 0, 1}), 0.5},
		{"a burst does not last: never above the policy's rate", lived(10, span{1, 500, 1}, span{99, 10, 1}), 10},
	} {
		f := Window{}.Forecast(nil, row.in)
		if got := f.Rate(); !near(got, row.want, 1e-9) {
			t.Errorf("%s: %v/s, want %v/s", row.name, got, row.want)
		}
	}
}

func TestWindow_UnknownWithoutFlow(t *testing.T) {
	paused := lived(10, span{900, 10, 1})
	paused.Paused = true
	for _, row := range []struct {
		name string
		in   Input
	}{
		{"paused", paused},
		{"rate 0", lived(0, span{900, 10, 1})},
		{"a negative rate", lived(-1)},
		{"a rate that is no number", lived(math.NaN())},
		{"an infinite rate", lived(math.Inf(1))},
		{"a minute without an admission", lived(10, span{840, 10, 1}, span{60, 0, 1})},
		{"no admission yet", lived(10, span{900, 0, 1})},
	} {
		f := Window{}.Forecast(nil, row.in)
		if got := f.At(100); got != (Estimate{}) || f.Rate() != 0 {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
	var none *Forecast
	if none.At(1).Known || none.Rate() != 0 {
		t.Error("a nil forecast has an estimate")
	}
}

func TestWindow_FullRoom(t *testing.T) {
	in := lived(100, span{20, 2, 1})
	in.MaxActive, in.Active = 50, 50
	if got := (Window{}).Forecast(nil, in).Rate(); !near(got, 2, 1e-9) {
		t.Errorf("full: %v/s, want the observed 2/s", got)
	}
	in.Active = 49
	if got := (Window{}).Forecast(nil, in).Rate(); !near(got, 2, 1e-9) {
		t.Errorf("with a place free: %v/s, want the observed 2/s", got)
	}
}

func TestForecast_At(t *testing.T) {
	f := Window{}.Forecast(nil, lived(10, span{900, 10, 1}))
	if got := f.At(1233); !got.Known || !near(got.Seconds, 123.4, 1e-9) || got.Low < 105 || got.High > 145 || got.Low > 122 || got.High < 125 {
		t.Errorf("1233 ahead at 10/s: %+v", got)
	}
	if got := f.At(0).Seconds; !near(got, 0.1, 1e-9) {
		t.Errorf("the next: %v s, want 0.1", got)
	}
	if f.At(-5) != f.At(0) {
		t.Error("a negative number ahead differs from 0 ahead")
	}
	young := Window{}.Forecast(nil, lived(10))
	if a, b := young.At(1233), f.At(1233); a.High-a.Low < 2*(b.High-b.Low) {
		t.Errorf("without a history the range is %v..%v; want at least twice the width of %v..%v", a.Low, a.High, b.Low, b.High)
	}
	if got := f.At(0); got.High/got.Seconds < 1+quantile || got.High/got.Seconds > 1.01+quantile {
		t.Errorf("0 ahead: high/seconds is %v, want 1+z", got.High/got.Seconds)
	}
}

// width is high/seconds far back in the queue, where only the error of the rate matters.
func width(in Input) float64 {
	e := Window{}.Forecast(nil, in).At(1e9)
	return e.High / e.Seconds
}

func TestWindow_RangeWidth(t *testing.T) {
	even := width(lived(20, span{900, 10, 1}))
	var few []span
	for range 90 {
		few = append(few, span{9, 0, 1}, span{1, 1, 1})
	}
	for _, row := range []struct {
		name string
		in   Input
	}{
		{"few admissions", lived(20, few...)},
		{"windows that differ", lived(20, span{840, 10, 1}, span{60, 11, 1})},
		{"no past", lived(20)},
	} {
		if got := width(row.in); got < even*1.02 {
			t.Errorf("%s: width %.3f, want 2 %% more than the %.3f of an even history", row.name, got, even)
		}
	}
	var gaps []span
	for range 45 {
		gaps = append(gaps, span{10, 10, 1}, span{10, 0, 0})
	}
	whole, broken := Window{}.Forecast(nil, lived(20, span{900, 10, 1})).At(0), Window{}.Forecast(nil, lived(20, gaps...)).At(0)
	if !near(broken.High, whole.High, 0.001) {
		t.Errorf("gaps without a queue changed the range: %+v, without gaps %+v", broken, whole)
	}
}

func TestWindow_RangeNarrowsGradually(t *testing.T) {
	young, old := lived(10), lived(10, span{900, 10, 1})
	young.Now = old.Now - 250_000
	first := Window{}.Forecast(nil, young)
	f := Window{}.Forecast(first, old)
	if ratio := (f.At(1e6).High - f.At(1e6).Seconds) / (first.At(1e6).High - first.At(1e6).Seconds); ratio < 0.95 || ratio > 1 {
		t.Errorf("in 250 ms the width became %.2f of what it was", ratio)
	}
	for range 400 {
		old.Now += 250_000
		for i := range old.Buckets {
			old.Buckets[i].Second = floorSeconds(old.Now) - int64(len(old.Buckets)-i)
		}
		f = Window{}.Forecast(f, old)
	}
	if got, want := f.At(1e9).High/f.At(1e9).Seconds, width(old); !near(got, want, 0.001) {
		t.Errorf("after 100 s: %.4f, want %.4f", got, want)
	}
}

func TestWindow_LumpyAdmissionsWidenRange(t *testing.T) {
	var lumps []span
	for range 30 {
		lumps = append(lumps, span{1, 300, 1}, span{29, 0, 1})
	}
	even, lumpy := Window{}.Forecast(nil, lived(20, span{900, 10, 1})), Window{}.Forecast(nil, lived(20, lumps...))
	a, b := even.At(100), lumpy.At(100)
	if !near(b.Seconds, a.Seconds, 1e-9) || b.High-b.Low < 3*(a.High-a.Low) {
		t.Errorf("even %+v, lumpy %+v", a, b)
	}
}

func TestWindow_NewRateActsAtOnce(t *testing.T) {
	limited := lived(20, span{900, 8, 1}) // something other than the rate limits the flow to 8/s
	saturated := lived(20, span{900, 20, 1})
	for _, row := range []struct {
		name string
		in   Input
		to   float64
		want float64
	}{
		{"doubled", saturated, 40, 40},
		{"halved", saturated, 10, 10},
		{"nearly stopped", saturated, 0.5, 0.5},
		{"stopped", saturated, 0, 0},
		{"doubled, though the rate was not the limit", limited, 40, 8},
		{"halved, but still above the flow", limited, 10, 8},
		{"cut below the flow", limited, 4, 4},
	} {
		before := Window{}.Forecast(nil, row.in)
		after := row.in
		after.Now += 250_000
		after.Rate = row.to
		f := Window{}.Forecast(before, after)
		if got := f.Rate(); !near(got, row.want, 1e-3) {
			t.Errorf("%s: %v/s, want %v/s", row.name, got, row.want)
		}
	}
}

func TestWindow_RateChangedDuringPause(t *testing.T) {
	in := lived(20, span{900, 20, 1})
	f := Window{}.Forecast(nil, in)
	in.Now, in.Paused = in.Now+250_000, true
	f = Window{}.Forecast(f, in)
	in.Now, in.Rate = in.Now+250_000, 5
	f = Window{}.Forecast(f, in)
	if f.At(0).Known {
		t.Fatal("paused, but known")
	}
	in.Now, in.Paused = in.Now+250_000, false
	if got := (Window{}).Forecast(f, in).Rate(); !near(got, 5, 1e-3) {
		t.Errorf("%v/s, want 5/s", got)
	}
}

func TestForecast_IgnoresAnotherTimeline(t *testing.T) {
	old := Window{}.Forecast(nil, lived(50, span{900, 50, 1}))
	in := lived(50, span{900, 5, 1})
	for name, jump := range map[string]int64{"back": -1, "an hour on": 3600e6} {
		moved := in
		moved.Now += jump
		moved.Since += jump
		moved.Buckets = nil
		for _, b := range in.Buckets {
			b.Second += floorSeconds(moved.Now) - floorSeconds(in.Now)
			moved.Buckets = append(moved.Buckets, b)
		}
		if got := (Window{}).Forecast(old, moved).Rate(); !near(got, 5, 1e-9) {
			t.Errorf("%s: %v/s, want 5/s", name, got)
		}
	}
}

func TestForecast_DoesNotChangeInput(t *testing.T) {
	in := lived(10, span{900, 10, 1})
	first := Window{}.Forecast(nil, in)
	copyOfFirst := *first
	changes := append([]change(nil), first.memory.changes...)
	for i := range 5 {
		next := in
		next.Now += int64(i) * 100_000 // within one second: changes are merged
		next.Rate = float64(11 + i)
		Window{}.Forecast(first, next)
	}
	if first.rate != copyOfFirst.rate || len(first.memory.changes) != len(changes) || first.memory.changes[0] != changes[0] {
		t.Errorf("%+v became %+v", copyOfFirst, *first)
	}
}

func TestForecast_BoundsChanges(t *testing.T) {
	in := lived(10, span{900, 10, 1})
	var f *Forecast
	for i := range 5000 { // an adaptive room whose rate always changes, with four forecasts a second
		in.Now += 250_000
		in.Rate = 10 + float64(i%7)/20
		next := Window{}.Forecast(f, in)
		if f.At(1000).Known && next.At(1000).Seconds > f.At(1000).Seconds*1.005 {
			t.Fatalf("a small change of the rate made %+v of %+v", next.At(1000), f.At(1000))
		}
		f = next
	}
	if n := len(f.memory.changes); n > MaxBuckets+1 {
		t.Errorf("%d changes are kept of %d seconds", n, MaxBuckets)
	}
}

func TestNew_ByName(t *testing.T) {
	e, err := New("window", Options{})
	if _, ok := e.(Window); !ok || err != nil {
		t.Errorf("%T, %v", e, err)
	}
	if _, err := New("oracle", Options{}); err == nil || !strings.Contains(err.Error(), `"oracle"`) || !strings.Contains(err.Error(), "window") {
		t.Errorf("an unknown name: %v", err)
	}
}

func BenchmarkForecast(b *testing.B) {
	in := lived(10, span{900, 10, 1})
	f := Window{}.Forecast(nil, in)
	b.ReportAllocs()
	for b.Loop() {
		f = Window{}.Forecast(f, in)
	}
}

func BenchmarkAt(b *testing.B) {
	f := Window{}.Forecast(nil, lived(10, span{900, 10, 1}))
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		f.At(i)
	}
}
