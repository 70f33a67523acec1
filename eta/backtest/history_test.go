package backtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/eta"
)

func window() []Contender { return []Contender{{Name: "window", Estimator: eta.Window{}}} }

// lines returns the history of a room with 3000 visitors in the queue and 10 joins/s, with the given admissions by minute; -1
// leaves a minute out.
func lines(t testing.TB, room string, minutes ...int) string {
	t.Helper()
	var b strings.Builder
	for i, admitted := range minutes {
		if admitted < 0 {
			continue
		}
		line, err := json.Marshal(Minute{Room: room, At: time.Date(2026, 1, 5, 10, i, 0, 0, time.UTC), Joins: 600, Admissions: int64(admitted), Waiting: 3000, Rate: 10})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

// In a recorded sale a third of the visitors at the front were absent after one to three minutes: an estimator learns that, and a
// visitor who was parked and expired later is counted once.
func TestReadHistory_CountsSilentDeparturesOnce(t *testing.T) {
	var b strings.Builder
	for i := range 50 {
		m := Minute{Room: "sale", At: time.Date(2026, 1, 5, 10, i, 0, 0, time.UTC), Joins: 900, Admissions: 600, Waiting: 4500, Rate: 10,
			Absent: []AgeCount{{63, 300}}, Lapsed: []AgeCount{{255, 20}}}
		if i >= 10 {
			m.Abandoned = 300
		}
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	sales, err := ReadHistory(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if lost := sales[0].Losses(60 * 30); lost != 0 {
		t.Errorf("%v/s left elsewhere, want 0: they were absent at the front", lost)
	}
	scores := Run(sales[0], 1, append(window(), Contender{Name: "blind", Estimator: blind{}}))
	if s := scores[0]; s.Asked < 1000 || s.MAPE() > 0.04 {
		t.Errorf("%d estimates, MAPE %.3f", s.Asked, s.MAPE())
	}
	if s := scores[1]; s.MAPE() < 0.15 {
		t.Errorf("MAPE %.3f of an estimator without the absent counts", s.MAPE())
	}
}

// blind is Window without the absent counts.
type blind struct{}

func (blind) Forecast(prev *eta.Forecast, in eta.Input) *eta.Forecast {
	in.Passed, in.Sample, in.Holds = nil, nil, nil
	return eta.Window{}.Forecast(prev, in)
}

func TestRun_ReplaysRecordedSale(t *testing.T) {
	minutes := make([]int, 30)
	for i := range minutes {
		minutes[i] = 600
	}
	sales, err := ReadHistory(strings.NewReader(lines(t, "sale", minutes...) + "\n" + lines(t, "other", 60, -1, 60, 60)))
	if err != nil {
		t.Fatal(err)
	}
	if len(sales) != 2 || sales[0].Name != "sale" || sales[0].Seconds != 29*60 || sales[0].Initial != 3000 || sales[1].Arrivals(70) != 10 || sales[1].Arrivals(10) != 0 {
		t.Fatalf("%+v", sales)
	}
	score := Run(sales[0], 1, window())[0]
	if score.Asked < 1000 || score.MAPE() > 0.03 {
		t.Errorf("%d estimates, MAPE %.3f; want a small error for a wait of 300 s at an even 10/s", score.Asked, score.MAPE())
	}
}

// The room has an adaptive controller for a while, a share of a budget, and a plan for its fourth minute.
func TestReadHistory_ReadsRates(t *testing.T) {
	var b strings.Builder
	for i := range 6 {
		planned := 10.0
		if i >= 4 {
			planned = 0
		}
		m := Minute{Room: "sale", At: time.Date(2026, 1, 5, 10, i, 0, 0, time.UTC), Waiting: 10, Rate: 10, Planned: &planned, Found: i == 2, Share: float64(4 * (i % 2))}
		if i == 3 {
			m.Rate = 7 // an operator's
		}
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	sales, err := ReadHistory(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, at := range []float64{0, 60, 120, 180} { // minutes 1 to 4
		s := &sales[0]
		var steps []string
		for _, x := range s.Steps(at) {
			steps = append(steps, fmt.Sprintf("%v in %d s", x.Rate, (x.At-s.Start.UnixMicro())/1e6-int64(at)))
		}
		seen = append(seen, fmt.Sprintf("%v of %v, then %v", s.Rate(at), s.Set(at), steps))
	}
	want := "4 of 10, then [0 in 180 s]; 10 of 0, then [0 in 120 s]; 4 of 7, then []; 10 of 10, then []"
	if got := strings.Join(seen, "; "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestReadHistory_RefusesInvalidLines(t *testing.T) {
	good := lines(t, "sale", 600)
	for text, says := range map[string]string{
		"":                                      "eta export",
		"{":                                     "line 1",
		good:                                    "the history has 1 minute, from",
		good + "x":                              "line 2",
		strings.Replace(good, ":600", ":-1", 1): "joins",
		strings.Replace(good, `"rate":10`, `"rate":1e9`, 1):    "rate",
		strings.Replace(good, `"room":"sale"`, `"room":""`, 1): "room",
		strings.Replace(good, "10:00:00", "10:00:07", 1):       "minute",
		strings.Replace(good, "{", `{"paused_seconds":61,`, 1): "paused_seconds",
		strings.Replace(good, "{", `{"active":-1,`, 1):         "active",
		strings.Replace(good, "{", `{"planned":-1,`, 1):        "planned",
		strings.Replace(good, "{", `{"share":1e7,`, 1):         "share",
		strings.Repeat(" ", maxLine+1):                         "line 1",
	} {
		if _, err := ReadHistory(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", text, err, says)
		}
	}
}

func FuzzReadHistory(f *testing.F) {
	f.Add([]byte(lines(f, "sale", 1, 2, 3, 4)))
	f.Add([]byte(lines(f, "sale", 0, 0, -1, 10_000_000) + "{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sales, err := ReadHistory(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		for _, s := range sales {
			for at := 0.0; at < s.Seconds; at += s.Seconds / 7 {
				if s.Arrivals(at) < 0 || s.Flow(at) < 0 || s.Losses(at) < 0 || s.Rate(at) < 0 {
					t.Fatalf("%+v at %v", s, at)
				}
			}
		}
	})
}

func TestRun_DependsOnSeedOnly(t *testing.T) {
	s := Synthetic(3)[6]
	s.Seconds, s.Initial = 400, 1500
	if a, b := Run(s, 5, window())[0], Run(s, 5, window())[0]; a != b || a.Asked == 0 {
		t.Errorf("%+v and %+v", a, b)
	}
	if a, b := Run(s, 5, window())[0], Run(s, 6, window())[0]; a == b {
		t.Error("another seed is the same sale")
	}
}

// In a steady queue the real wait is close to the estimate of Window.
func TestExamples_HaveRealWaits(t *testing.T) {
	s := Synthetic(1)[0]
	s.Seconds, s.Initial = 500, 2000
	examples := Examples(s, 1, time.UTC)
	if len(examples) < 1000 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		if e.X[1] < 10 || e.X[1] > 11 || e.Real < leastWait || e.Window/e.Real > 1.5 || e.Window/e.Real < 0.5 {
			t.Fatalf("%+v", e)
		}
	}
}

func TestTable_PrintsTextAndJSON(t *testing.T) {
	s := Synthetic(1)[0]
	s.Seconds, s.Initial = 300, 1000
	rows := Table([]Sale{s, s}, 1, append(window(), Contender{Name: "model", Estimator: eta.Modelled{}}))
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2: one sale, simulated twice, with two estimators", len(rows))
	}
	var table strings.Builder
	if err := Print(&table, rows); err != nil || rows[0].Score.Fallbacks != 0 || !strings.Contains(table.String(), "steady, model: window replaced the model in") {
		t.Errorf("the table does not report that the model is missing: %v\n%s", err, table.String())
	}
	text, err := json.Marshal(rows[0])
	if err != nil || !strings.Contains(string(text), `"sale":"steady","estimator":"window"`) || strings.Contains(string(text), "after_step") {
		t.Errorf("%s, %v", text, err)
	}
}

// A pause of 90 s over two minutes is one pause, with neither admissions nor estimates. The limit of active visitors is replayed.
func TestReadHistory_ReplaysPauseAndLimit(t *testing.T) {
	var b strings.Builder
	for i := range 12 {
		m := Minute{Room: "sale", At: time.Date(2026, 1, 5, 10, i, 0, 0, time.UTC), Joins: 600, Admissions: 600, Waiting: 1500, Rate: 50, MaxActive: 700, Active: 690}
		switch i {
		case 5:
			m.Paused, m.Admissions = 60, 0
		case 6:
			m.Paused, m.Admissions, m.MaxActive = 30, 300, 0
		}
		if err := json.NewEncoder(&b).Encode(m); err != nil {
			t.Fatal(err)
		}
	}
	sales, err := ReadHistory(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	s := sales[0] // which begins with the second minute
	for at, want := range map[float64]bool{239: false, 240: true, 299: true, 300: true, 329: true, 330: false} {
		if s.Paused(at) != want {
			t.Errorf("paused after %v s: %v", at, !want)
		}
	}
	if limit, active := s.Full(100); limit != 700 || active != 690 || s.Flow(320) != 10 {
		t.Errorf("%d of %d active, %v/s in a minute that is half a pause", active, limit, s.Flow(320))
	}
	if limit, _ := s.Full(310); limit != 0 {
		t.Errorf("a limit of %d where there was none", limit)
	}
	if score := Run(s, 1, window())[0]; score.Unknown < 50 {
		t.Errorf("%d polls without an estimate in a pause of 90 s", score.Unknown)
	}
}
