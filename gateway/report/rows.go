package report

import "github.com/anteroom/anteroom/admission/series"

// figureNames are the names of figures in exported rows: as the store keeps them, without a conversion.
var figureNames = [series.Count]string{
	series.Waiting: "waiting", series.Parked: "parked", series.Admitted: "admitted_unclaimed", series.Inside: "inside", series.MaxActive: "max_active",
	series.Limit: "limit_thousandths", series.Wanted: "wanted_thousandths", series.Expected: "expected_thousandths",
	series.Joins: "joins_total", series.Admissions: "admissions_total", series.Claims: "claims_total", series.Lapses: "lapses_total", series.Abandons: "abandons_total",
	series.Wait: "wait_ms", series.WaitLow: "wait_low_ms", series.WaitHigh: "wait_high_ms",
	series.P95: "origin_p95_us", series.ErrorRate: "origin_error_millionths", series.InFlight: "origin_in_flight", series.EmptyIn: "empty_in_s",
	series.Reason: "reason", series.Gateways: "gateways", series.Born: "born_s",
}

// Rows are the raw rows of a range, from which anyone can compute the report again.
type Rows struct {
	Room    string   `json:"room"`
	From    Time     `json:"from"`
	To      Time     `json:"to"`
	Step    int64    `json:"step_seconds"`
	Before  *RawRow  `json:"before"` // the row before the range, whose totals are those at its start; null: there is none
	Rows    []RawRow `json:"rows"`
	Changes []Change `json:"changes"`
}

// RawRow is a row as it was recorded.
type RawRow struct {
	At      int64            `json:"at"` // s
	Seconds int64            `json:"seconds"`
	Figures map[string]int64 `json:"figures"` // absent: not known
	Counts  map[string]int64 `json:"counts,omitempty"`
}

// NewRows returns the raw rows of a source.
func NewRows(s Source) *Rows {
	out := &Rows{Room: s.Room, From: Time(s.Range.From * 1e6), To: Time(s.Range.To * 1e6), Step: s.Table.Length.Seconds, Rows: []RawRow{}, Changes: s.Changes}
	if out.Changes == nil {
		out.Changes = []Change{}
	}
	if b := s.Table.Before(); b != nil {
		out.Before = new(rawRow(b))
	}
	for _, r := range s.Table.Rows {
		if r != nil {
			out.Rows = append(out.Rows, rawRow(r))
		}
	}
	return out
}

func rawRow(r *series.Row) RawRow {
	raw := RawRow{At: r.At, Seconds: r.Seconds, Figures: map[string]int64{}, Counts: r.Counts}
	for i, name := range figureNames {
		if v, known := r.Figures.Known(series.Figure(i)); known {
			raw.Figures[name] = v
		}
	}
	return raw
}
