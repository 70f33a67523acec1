package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission/series"
)

// sale returns the rows of a sale of an hour with a pause of the record, a new store and counts, by minutes.
func sale() Source {
	var rows []series.Row
	joins, admissions := int64(1000), int64(900)
	for i := range int64(62) {
		if i == 20 {
			continue // no gateway ran
		}
		if i == 40 {
			joins, admissions = 0, 0 // a new store
		}
		joins, admissions = joins+50*(i%5), admissions+40
		f := series.NewFigures()
		f[series.Waiting], f[series.Inside], f[series.Admitted], f[series.MaxActive], f[series.Limit] = 100*(i%7), 500+i, 3, 550, 700+i
		f[series.Joins], f[series.Admissions], f[series.Claims], f[series.Lapses] = joins, admissions, admissions-5, 2*i
		f[series.P95], f[series.ErrorRate], f[series.InFlight], f[series.Reason] = 90_000+i*1000, 1000*i, i, i%21
		rows = append(rows, series.Row{At: 1_780_000_020 + (i-1)*60, Seconds: 60 - i%3, Figures: f, Counts: map[string]int64{
			"arrived": 60 + i, "challenged": i, "x": i % 4, fmt.Sprintf("w%d", i%30): 10, fmt.Sprintf("y%d", i%6): i % 4, "refused.full": 1, "proofs.accepted": 2,
			fmt.Sprintf("tn%d", i%7): 4, fmt.Sprintf("ti%d", i%7): 3, fmt.Sprintf("tt%d", i%7): 40, fmt.Sprintf("tr%d", i%7): 44, fmt.Sprintf("e%d", 18+i%4): 4, "above": 1,
		}})
	}
	in := series.Range{From: 1_780_000_020, To: 1_780_000_020 + 3600}
	return Source{
		Room: "sale", Range: in, Made: in.To * 1e6, Table: series.NewTable(series.Minute, in, rows), Method: "lottery",
		Changes: []Change{{At: Time(in.From * 1e6), Who: "alice <b>", Action: "patch", Before: map[string]any{"rate": nil}, After: map[string]any{"rate": 5}}},
		Draws:   []Draw{{Time(in.From * 1e6), strings.Repeat("ab", 32), "/.waiting-room/sale/draw"}},
	}
}

// Whoever has the exported rows can compute the report again. This computation shares no code with the package.
func TestReport_FollowsFromRows(t *testing.T) {
	source := sale()
	text, err := json.Marshal(NewRows(source))
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Step   float64 `json:"step_seconds"`
		Before *struct{ Figures map[string]float64 }
		Rows   []struct {
			At, Seconds     float64
			Figures, Counts map[string]float64
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	sums, counts, waits := map[string]float64{}, map[string]float64{}, map[int]float64{}
	var allowed, longest, inside, over, p95, errors, recorded, admitted float64
	before, at := raw.Before.Figures, raw.Rows[0].At-raw.Step
	for _, r := range raw.Rows {
		for _, total := range []string{"joins_total", "admissions_total", "claims_total", "lapses_total"} {
			grown := r.Figures[total] - before[total]
			if grown < 0 {
				grown = r.Figures[total]
			}
			if r.At-at <= 120 {
				sums[total] += grown
			}
		}
		before, at = r.Figures, r.At
		recorded += r.Seconds
		allowed += r.Figures["limit_thousandths"] / 1000 * raw.Step
		longest, inside = math.Max(longest, r.Figures["waiting"]), math.Max(inside, r.Figures["inside"])
		if r.Figures["inside"] > r.Figures["max_active"] {
			over += r.Seconds
		}
		p95, errors = p95+r.Figures["origin_p95_us"]/1e6, errors+r.Figures["origin_error_millionths"]/1e6
		for name, n := range r.Counts {
			counts[name] += n
			var class int
			if _, err := fmt.Sscanf(name, "w%d", &class); err == nil {
				waits[class] += n
				admitted += n
			}
		}
	}
	median := func(share float64) float64 {
		left := math.Ceil(share * admitted)
		for class := 0; ; class++ {
			if left -= waits[class]; left <= 0 {
				if class == 0 {
					return 0
				}
				return math.Pow(2, (float64(class)+0.5)/4) - 1
			}
		}
	}
	var told, within float64
	for i := range 21 {
		told, within = told+counts[fmt.Sprintf("tn%d", i)], within+counts[fmt.Sprintf("ti%d", i)]
	}
	n := float64(len(raw.Rows))
	r := New(source)
	for _, row := range []struct {
		name      string
		got, want float64
	}{
		{"arrived", float64(r.Sums.Arrived), counts["arrived"]}, {"joined", float64(r.Sums.Joined), sums["joins_total"]},
		{"admitted", float64(r.Sums.Admitted), sums["admissions_total"]}, {"claimed", float64(r.Sums.Claimed), sums["claims_total"]},
		{"lapsed", float64(r.Sums.Lapsed), sums["lapses_total"]}, {"left", float64(r.Sums.Left), counts["x"]},
		{"abandonment", *r.Sums.Share, counts["x"] / (counts["x"] + sums["admissions_total"])}, {"allowed", r.Sums.Allowed, allowed},
		{"used", *r.Sums.Used, sums["admissions_total"] / allowed}, {"over", float64(r.Sums.Overruns), over}, {"recorded", float64(r.Sums.Recorded), recorded},
		{"gaps", float64(r.Gaps), 60}, {"longest", float64(r.Peaks.Waiting), longest}, {"inside", float64(r.Peaks.Inside), inside},
		{"p50", *r.Waits.P50, median(0.5)}, {"p90", *r.Waits.P90, median(0.9)}, {"p99", *r.Waits.P99, median(0.99)},
		{"told", float64(r.Announced.Count), told}, {"coverage", *r.Announced.Coverage, within / told}, {"above", float64(r.Announced.Above), counts["above"]},
		{"p95 of the origin", *r.Origin.P95, p95 / n}, {"errors", *r.Origin.Errors, errors / n}, {"proofs", float64(r.Guard["proofs"].By["accepted"]), counts["proofs.accepted"]},
	} {
		if math.Abs(row.got-row.want) > 0.0011*math.Max(1, math.Abs(row.want)) || row.want == 0 {
			t.Errorf("%s: %v, by the rows %v", row.name, row.got, row.want)
		}
	}
	if len(r.Steps) != 60 || r.Steps[19].Waiting != nil || len(r.Losses) != 3 || len(r.Abandonment) == 0 {
		t.Errorf("%d steps, losses %v, abandonment %v", len(r.Steps), r.Losses, r.Abandonment)
	}
}

func TestForms(t *testing.T) {
	r := New(sale())
	var page, table bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Room sale", "alice &lt;b&gt;", "gateway verify-draw", strings.Repeat("ab", 32), "@media print"} {
		if !strings.Contains(page.String(), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	for _, part := range []string{"<b>", "http://", "https://", "<script", "src=", "ZgotmplZ"} {
		if strings.Contains(page.String(), part) {
			t.Errorf("the page has %q", part)
		}
	}
	if err := r.WriteCSV(&table); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(lines) < 60+30 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	// A report without any row is a report, too.
	empty := New(Source{Room: "none", Table: series.NewTable(series.Minute, series.Range{From: 60, To: 120}, nil)})
	if err := empty.WriteHTML(&page); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(empty); err != nil {
		t.Error(err)
	}
}
