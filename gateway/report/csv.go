package report

import (
	"encoding/csv"
	"io"
	"strconv"
)

// csvFields is the number of fields of each line: those of a step.
const csvFields = 13

// WriteCSV writes the report as sections of one table: section, name, then values. Each value stands in one place.
func (r *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	row := func(words ...string) {
		_ = out.Write(append(words, make([]string, csvFields-len(words))...)) // Flush keeps the error
	}
	row("section", "name", "value")
	for _, p := range [][2]string{{"room", r.Room}, {"from", r.From.String()}, {"to", r.To.String()}, {"made_at", r.Made.String()}, {"step_seconds", whole(r.Step)}, {"seconds_without_record", whole(r.Gaps)}} {
		row("report", p[0], p[1])
	}
	s := &r.Sums
	for _, p := range []struct {
		name  string
		value string
	}{
		{"arrived", whole(s.Arrived)}, {"joined", whole(s.Joined)}, {"admitted", whole(s.Admitted)}, {"claimed", whole(s.Claimed)}, {"lapsed", whole(s.Lapsed)},
		{"left", whole(s.Left)}, {"abandonment", decimal(s.Share)}, {"allowed", decimal(&s.Allowed)}, {"used", decimal(s.Used)}, {"seconds_over_max_active", whole(s.Overruns)},
		{"seconds_recorded", whole(s.Recorded)}, {"highest_waiting", whole(r.Peaks.Waiting)}, {"highest_inside", whole(r.Peaks.Inside)},
		{"wait_p50_seconds", decimal(r.Waits.P50)}, {"wait_p90_seconds", decimal(r.Waits.P90)}, {"wait_p95_seconds", decimal(r.Waits.P95)}, {"wait_p99_seconds", decimal(r.Waits.P99)},
		{"told_count", whole(r.Announced.Count)}, {"told_median_ratio", decimal(r.Announced.Median)}, {"told_coverage", decimal(r.Announced.Coverage)},
		{"origin_p95_seconds_mean", decimal(r.Origin.P95)}, {"origin_p95_seconds_highest", decimal(r.Origin.Highest)}, {"origin_error_rate_mean", decimal(r.Origin.Errors)},
	} {
		row("sum", p.name, p.value)
	}
	for _, f := range r.Funnel {
		row("funnel", f.Stage, whole(f.Count))
	}
	for _, l := range r.Losses {
		row("loss", l.Stage, l.Reason, whole(l.Count))
	}
	for _, c := range r.Reasons {
		row("reason_seconds", c.Code, whole(c.Seconds))
	}
	for _, c := range r.Waits.Admitted {
		row("wait_admitted", decimal(&c.From), decimal(&c.To), whole(c.Count))
	}
	for _, a := range r.Abandonment {
		row("abandonment", decimal(&a.From), decimal(&a.To), whole(a.Left), whole(a.Admitted), decimal(&a.Share))
	}
	for _, t := range r.Announced.ByWait {
		row("told", decimal(&t.From), decimal(&t.To), whole(t.Count), decimal(&t.Announced), decimal(&t.Real), decimal(&t.Coverage))
	}
	for _, g := range r.GuardRows() {
		row("guard", g[0], g[1], g[2])
	}
	for _, c := range append(append([]Change{}, r.Changes...), r.Facts...) {
		row("change", c.At.String(), c.Who, c.Action, text(c.Before), text(c.After))
	}
	row("step", "at", "waiting", "inside", "max_active", "limit", "join_rate", "admitted_rate", "claimed_rate", "wait_seconds", "origin_p95_seconds", "origin_error_rate", "reason")
	for _, p := range r.Steps {
		row("step", p.At.String(), number(p.Waiting), number(p.Inside), number(p.MaxActive), decimal(p.Limit), decimal(p.Joins), decimal(p.Admitted), decimal(p.Claimed),
			decimal(p.Wait), decimal(p.P95), decimal(p.Errors), p.Reason)
	}
	out.Flush()
	return out.Error()
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return whole(*n)
}

func decimal(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}
