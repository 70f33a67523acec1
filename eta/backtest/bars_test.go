//go:build !race

package backtest

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/internal/short"
)

// contenders returns all estimators, with the model of the example.
func contenders(t testing.TB, names ...string) []Contender {
	t.Helper()
	f, err := os.Open("../example.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := eta.ReadModel(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []Contender
	for _, name := range names {
		e, err := eta.New(name, eta.Options{Model: m, Zone: time.UTC})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, Contender{Name: name, Estimator: e})
	}
	return list
}

// TestBars compares the estimators with the bars in every synthetic sale. make eta prints the same table.
func TestBars(t *testing.T) {
	short.Skip(t, "runs for most of a minute")
	names := []string{"window", "fixed", "ema", "hourly", "model"}
	sales := append(Synthetic(HeldOut), Lumps(), SilentLeavers())
	for i := range sales { // shorter and with half the ticks, to save time; make eta runs them whole
		sales[i].Seconds, sales[i].Tick = min(sales[i].Seconds*5/6, 10*3600), min(2*sales[i].Tick, 1)
	}
	rows := Table(sales, HeldOut, contenders(t, names...))
	var table strings.Builder
	if err := Print(&table, rows); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	var all Score
	byDay := map[string]float64{}
	for _, r := range rows {
		if r.Sale == "time of day" {
			byDay[r.Estimator] = r.Score.MAPE()
		}
		if slices.Contains(r.Misses, "MAPE") {
			t.Errorf("%s in %s: MAPE %s", r.Estimator, r.Sale, percent(r.Score.MAPE(), 1))
		}
		all.Add(r.Score)
		if slices.Contains(r.Misses, "after") && r.Estimator != "fixed" { // fixed uses only the rate in force
			t.Errorf("%s in %s: MAPE %s from a minute after the step", r.Estimator, r.Sale, percent(r.Score.AfterMAPE(), 1))
		}
		if slices.Contains(r.Misses, "jumps") {
			t.Errorf("%s in %s: %s of the figures jump", r.Estimator, r.Sale, percent(r.Score.JumpShare(), 2))
		}
		if c := r.Score.Coverage(); c < LeastCoverage-0.02 || c > MostCoverage+0.02 { // of one short run; of all together below
			t.Errorf("%s in %s: %s within the range", r.Estimator, r.Sale, percent(c, 1))
		}
	}
	if c := all.Coverage(); c < 0.78 || c > 0.82 {
		t.Errorf("over all sales %s lie within the range", percent(c, 1))
	}
	if byDay["model"] >= byDay["window"] || byDay["hourly"] >= byDay["window"] {
		t.Errorf("over a day: %v", byDay)
	}
}
