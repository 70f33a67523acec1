package eta

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

func readModel(t testing.TB) *Model {
	t.Helper()
	f, err := os.Open("example.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := ReadModel(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// small is a model with one split: before noon waits are twice as long as Window's estimate, later half as long.
const small = `{"format":"anteroom-eta-model","version":1,"trained_at":"2026-01-05T00:00:00Z",
"features":["log_seconds","hour","hour_then","minute","five","quarter","used","full","gone"],
"low":[0,0,0,-3,-3,-3,0,0,0],"high":[9,24,24,3,3,3,1,1,0.2],"base":0,"most":1.5,
"trees":[{"feature":[1,-1,-1],"value":[12,0.6931471805599453,-0.6931471805599453],"left":[1,0,0],"right":[2,0,0]}]}`

func TestModelled_CorrectsWindow(t *testing.T) {
	m, err := ReadModel(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	in := lived(10, span{900, 10, 1})
	x := Modelled{Model: m, MaxAge: 24 * time.Hour, Zone: time.UTC}
	at := func(hour int) { in.Wall = time.Date(2026, 1, 5, hour, 0, 0, 0, time.UTC).UnixMicro() }
	for hour, want := range map[int]float64{9: 200, 15: 50} {
		at(hour)
		f := x.Forecast(nil, in)
		if got := f.At(999).Seconds; !near(got, want, 1e-6) || f.Fallback() != FallbackNone {
			t.Errorf("at %d h: %v s and %q, want %v s", hour, got, f.Fallback(), want)
		}
	}
	at(9)
	before := x.Forecast(nil, in)
	in.Now, in.Wall = in.Now+250_000, time.Date(2026, 1, 5, 12, 30, 0, 0, time.UTC).UnixMicro()
	if got := x.Forecast(before, in).At(999).Seconds; got < 195 {
		t.Errorf("a tree's step is taken in one tick: %v s", got)
	}

	at(15)
	f := x.Forecast(nil, in)
	at(9) // before noon: the factor is 2 and no longer 0.5. The shown wait must grow no faster than time passes.
	for range 40 {
		in.Now += 250_000
		next := x.Forecast(f, in)
		if was, is := f.At(999).Seconds, next.At(999).Seconds; is <= was || is > was*math.Exp(0.25/80) {
			t.Fatalf("%v s became %v s in 250 ms", was, is)
		}
		f = next
	}

	plain := Window{}.Forecast(nil, in).At(999)
	for _, row := range []struct {
		name, why string
		change    func(*Modelled, *Input)
	}{
		{"no model", FallbackMissing, func(x *Modelled, _ *Input) { x.Model = nil }},
		{"a day later", FallbackOld, func(_ *Modelled, in *Input) { in.Wall += 25 * 3600e6 }},
		{"more absence than in the training", FallbackRange, func(x *Modelled, _ *Input) {
			strange := *m
			strange.low[8] = 0.1
			x.Model = &strange
		}},
	} {
		x, in := x, in
		row.change(&x, &in)
		f := x.Forecast(nil, in)
		if f.Fallback() != row.why || f.At(999) != plain {
			t.Errorf("%s: %q, %+v; want %q and window's %+v", row.name, f.Fallback(), f.At(999), row.why, plain)
		}
	}
	x.MaxAge = 0
	in.Wall += 1000 * 24 * 3600e6
	if why := x.Forecast(nil, in).Fallback(); why != FallbackNone {
		t.Errorf("with no limit of age: %q", why)
	}
}

func TestReadModel_RefusesFaults(t *testing.T) {
	change := func(from, to string) string {
		if !strings.Contains(small, from) {
			t.Fatalf("no %q", from)
		}
		return strings.Replace(small, from, to, 1)
	}
	for text, says := range map[string]string{
		"":                                                     "EOF",
		small + "{}":                                           "after the model",
		change(`"version":1`, `"version":2`):                   "version 2",
		change(`"base":0`, `"base":0,"x":1`):                   "unknown field",
		change(`"base":0`, `"base":9`):                         "base 9",
		change(`"most":1.5`, `"most":0`):                       "most 0",
		change(`"hour",`, `"minutes",`):                        "train it again",
		change(`"low":[0,`, `"low":[`):                         "low and high",
		change(`"high":[9,`, `"high":[-9,`):                    "log_seconds",
		change(`"left":[1,`, `"left":[0,`):                     "do not follow it",
		change(`"right":[2,`, `"right":[3,`):                   "do not follow it",
		change(`"left":[1,0,0]`, `"left":[]`):                  "one entry for each",
		change(`"feature":[1,`, `"feature":[9,`):               "no feature 9",
		change(`,0.6931471805599453,`, `,7,`):                  "a leaf of 7",
		change(`2026-01-05T00:00:00Z`, `0001-01-05T00:00:00Z`): "trained_at",
		strings.Repeat(" ", maxModelBytes+1):                   "bytes",
	} {
		if _, err := ReadModel(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80q: %v, want %q", text, err, says)
		}
	}
}

func FuzzReadModel(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(strings.Replace(small, `"left":[1,0,0]`, `"left":[1,2,2]`, 1)))
	f.Add([]byte(`{"trees":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ReadModel(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, v := range []float64{0, 1, -1, 1e300, math.Inf(1), math.NaN()} {
			x := [features]float64{v, v, v, v, v, v, v, v, v}
			if got := m.Predict(x); !(math.Abs(got) <= maxLog) {
				t.Fatalf("%v predicts %v of %v", string(data), got, v)
			}
		}
	})
}

func TestExampleModel_IsReadable(t *testing.T) {
	data, err := os.ReadFile("example.json")
	if err != nil {
		t.Fatal(err)
	}
	var f modelFile
	if err := json.Unmarshal(data, &f); err != nil || len(data) > 50<<10 || len(f.Trees) == 0 {
		t.Errorf("%d bytes, %d trees, %v", len(data), len(f.Trees), err)
	}
}

func TestForecast_AtDoesNotAllocate(t *testing.T) {
	in := lived(10, span{900, 10, 1})
	p := NewPredictor(Modelled{Model: readModel(t), Zone: time.UTC}, false)
	in.Wall = time.Date(2026, 1, 5, 10, 30, 0, 0, time.UTC).UnixMicro()
	in.Ahead = func(int64) int64 { return 1000 }
	f := p.Forecast(in)
	hours := Hourly{Weights: DefaultWeights, Zone: time.UTC}.Forecast(nil, in)
	if n := testing.AllocsPerRun(100, func() { f.At(1000); hours.At(100_000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
