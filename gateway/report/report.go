package report

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/anteroom/anteroom/admission/reason"
	"github.com/anteroom/anteroom/admission/series"
	"github.com/anteroom/anteroom/gateway/facts"
)

// Source is what a report is computed from.
type Source struct {
	Room    string
	Range   series.Range
	Made    int64 // µs of Redis's clock
	Table   series.Table
	Changes []Change // of the range, oldest first
	Method  string   // of the queue
	Draws   []Draw
}

// Change is an entry of the audit log.
type Change struct {
	At     Time           `json:"at"`
	Who    string         `json:"who"`
	Action string         `json:"action"`
	Before map[string]any `json:"before"`
	After  map[string]any `json:"after"`
}

// Draw is a lottery whose opening is in the range.
type Draw struct {
	OpensAt    Time   `json:"opens_at"`
	Commitment string `json:"commitment"`
	Published  string `json:"published"` // path of what anyone can verify
}

// Time is µs since 1970, written as RFC 3339 in UTC.
type Time int64

// MarshalJSON writes the time.
func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + t.String() + `"`), nil }

func (t Time) String() string {
	return time.UnixMicro(int64(t)).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// Report is what happened in a room in a range of time.
type Report struct {
	Room  string `json:"room"`
	From  Time   `json:"from"`
	To    Time   `json:"to"`
	Made  Time   `json:"made_at"`
	Step  int64  `json:"step_seconds"`
	Gaps  int64  `json:"seconds_without_record"`
	Sums  Sums   `json:"sums"`
	Peaks Peaks  `json:"peaks"`
	Figures
	Abandonment []Abandonment  `json:"abandonment"`
	Origin      Origin         `json:"origin"`
	Reasons     []ReasonTime   `json:"reasons"`
	Steps       []Step         `json:"steps"`
	Changes     []Change       `json:"changes"`
	Facts       []Change       `json:"facts"`
	Order       map[string]any `json:"order"`
}

// Sums are sums of the range.
type Sums struct {
	Arrived   int64    `json:"arrived"`
	Joined    int64    `json:"joined"`
	Admitted  int64    `json:"admitted"`
	Claimed   int64    `json:"claimed"`
	Lapsed    int64    `json:"lapsed"`
	Left      int64    `json:"left"`
	Share     *float64 `json:"abandonment,omitempty"` // left of left and admitted
	Allowed   float64  `json:"allowed"`               // ∫ limit dt
	Used      *float64 `json:"used,omitempty"`        // admitted of allowed
	Overruns  int64    `json:"seconds_over_max_active"`
	Recorded  int64    `json:"seconds_recorded"`
	FirstWait *Time    `json:"first_waiting_at,omitempty"`
	LastWait  *Time    `json:"last_waiting_at,omitempty"`
}

// Peaks are the highest values of the range.
type Peaks struct {
	Waiting  int64   `json:"waiting"`
	Inside   int64   `json:"inside"`
	Joins    float64 `json:"joins_per_second"`
	Admitted float64 `json:"admitted_per_second"`
	Wait     float64 `json:"wait_seconds"` // as announced to newcomers
}

// Abandonment is the share of visitors who left among those with a wait.
type Abandonment struct {
	From     float64 `json:"from_seconds"`
	To       float64 `json:"to_seconds"`
	Left     int64   `json:"left"`
	Admitted int64   `json:"admitted"`
	Share    float64 `json:"share"`
}

// Origin is the health of the origin; nil: not measured.
type Origin struct {
	P95     *float64 `json:"p95_seconds_mean,omitempty"`
	Highest *float64 `json:"p95_seconds_highest,omitempty"`
	Errors  *float64 `json:"error_rate_mean,omitempty"`
	Worst   *float64 `json:"error_rate_highest,omitempty"`
	Flight  int64    `json:"in_flight_highest"`
}

// ReasonTime is for how long a room admitted, or did not, for a reason.
type ReasonTime struct {
	Code    string `json:"code"`
	Seconds int64  `json:"seconds"`
}

// Step is one row of the plots.
type Step struct {
	At        Time     `json:"at"`
	Waiting   *int64   `json:"waiting"`
	Inside    *int64   `json:"inside"`
	MaxActive *int64   `json:"max_active"`
	Limit     *float64 `json:"limit"`
	Joins     *float64 `json:"join_rate"`
	Admitted  *float64 `json:"admitted_rate"`
	Claimed   *float64 `json:"claimed_rate"`
	Wait      *float64 `json:"wait_seconds"`
	P95       *float64 `json:"origin_p95_seconds"`
	Errors    *float64 `json:"origin_error_rate"`
	Reason    string   `json:"reason,omitempty"`
}

// New returns the report of a source.
func New(s Source) *Report {
	t := &s.Table
	r := &Report{
		Room: s.Room, From: Time(s.Range.From * 1e6), To: Time(s.Range.To * 1e6), Made: Time(s.Made), Step: t.Length.Seconds,
		Figures: NewFigures(t), Abandonment: []Abandonment{}, Reasons: []ReasonTime{}, Steps: make([]Step, 0, len(t.Rows)), Changes: []Change{}, Facts: []Change{},
	}
	r.readSteps(t)
	r.sum(t)
	r.abandon()
	r.origin(t)
	for _, c := range s.Changes {
		if c.Action == facts.ActionFacts || c.Action == facts.ActionNotice {
			r.Facts = append(r.Facts, c)
		} else {
			r.Changes = append(r.Changes, c)
		}
	}
	r.Order = map[string]any{"method": s.Method, "verify": verify(s.Method)}
	if len(s.Draws) > 0 {
		r.Order["draws"] = s.Draws
	}
	return r
}

func verify(method string) string {
	if method == "lottery" {
		return "Save the document at the path published after the opening and run: gateway verify-draw FILE. It computes the order of each ticket from the seed, which the commitment fixed before the opening."
	}
	return "Each waiting token carries its order (claim ord, µs); nobody with a larger order is admitted before a present visitor with a smaller one. Compare admitted_at of two status objects with their joined_at."
}

func (r *Report) readSteps(t *series.Table) {
	for i := range t.Rows {
		s := Step{At: Time(t.At(i) * 1e6)}
		whole := func(f series.Figure) *int64 {
			if v, known := t.Value(i, f); known {
				return &v
			}
			return nil
		}
		s.Waiting, s.Inside, s.MaxActive = whole(series.Waiting), whole(series.Inside), whole(series.MaxActive)
		s.Limit, s.Wait = Scaled(t, i, series.Limit, 1e3), Scaled(t, i, series.Wait, 1e3)
		s.P95, s.Errors = Scaled(t, i, series.P95, 1e6), Scaled(t, i, series.ErrorRate, 1e6)
		s.Joins, s.Admitted, s.Claimed = PerSecond(t, i, series.Joins), PerSecond(t, i, series.Admissions), PerSecond(t, i, series.Claims)
		s.Reason = ReasonOf(t, i)
		r.Steps = append(r.Steps, s)
	}
}

// Scaled returns a figure of a step divided by its unit; nil if it is not known.
func Scaled(t *series.Table, i int, f series.Figure, unit float64) *float64 {
	v, known := t.Value(i, f)
	if !known {
		return nil
	}
	return new(round(float64(v) / unit))
}

// PerSecond returns the rate of a total in a step; nil if it is not known.
func PerSecond(t *series.Table, i int, f series.Figure) *float64 {
	n, seconds, known := t.Delta(i, f)
	if !known || seconds <= 0 {
		return nil
	}
	return new(round(float64(n) / float64(seconds)))
}

// ReasonOf returns the code of the reason of a step; empty if it is not known.
func ReasonOf(t *series.Table, i int) string {
	v, known := t.Value(i, series.Reason)
	if !known || v < 0 || v >= int64(len(reason.Codes)) {
		return ""
	}
	return string(reason.Codes[v])
}

func (r *Report) sum(t *series.Table) {
	counts := t.Counts()
	s := &r.Sums
	s.Arrived, s.Left = counts["arrived"], counts["x"]
	s.Joined, s.Admitted, s.Claimed, s.Lapsed = t.Total(series.Joins), t.Total(series.Admissions), t.Total(series.Claims), t.Total(series.Lapses)
	if all := s.Left + s.Admitted; all > 0 {
		s.Share = new(round(float64(s.Left) / float64(all)))
	}
	reasons := map[string]int64{}
	for i, row := range t.Rows {
		if row == nil {
			r.Gaps += t.Length.Seconds
			continue
		}
		step := &r.Steps[i]
		s.Recorded += row.Seconds
		reasons[step.Reason] += row.Seconds
		if step.Limit != nil {
			s.Allowed += *step.Limit * float64(t.Length.Seconds)
		}
		if step.Waiting != nil {
			r.Peaks.Waiting = max(r.Peaks.Waiting, *step.Waiting)
			if *step.Waiting > 0 {
				s.FirstWait = cmp.Or(s.FirstWait, &step.At)
				s.LastWait = &step.At
			}
		}
		if step.Inside != nil {
			r.Peaks.Inside = max(r.Peaks.Inside, *step.Inside)
			if step.MaxActive != nil && *step.MaxActive > 0 && *step.Inside > *step.MaxActive {
				s.Overruns += row.Seconds
			}
		}
		for _, p := range []struct{ to, v *float64 }{{&r.Peaks.Joins, step.Joins}, {&r.Peaks.Admitted, step.Admitted}, {&r.Peaks.Wait, step.Wait}} {
			if p.v != nil {
				*p.to = max(*p.to, *p.v)
			}
		}
	}
	s.Allowed = round(s.Allowed)
	if s.Allowed > 0 {
		s.Used = new(round(float64(s.Admitted) / s.Allowed))
	}
	for _, c := range reason.Codes {
		if n := reasons[string(c)]; n > 0 {
			r.Reasons = append(r.Reasons, ReasonTime{string(c), n})
		}
	}
}

// abandon joins the waits of both groups by octave.
func (r *Report) abandon() {
	for i := range octaves {
		a := Abandonment{From: round(lower(i, 1)), To: round(lower(i+1, 1))}
		for _, c := range r.Waits.Left {
			if c.From == a.From {
				a.Left += c.Count
			}
		}
		for _, c := range r.Waits.Admitted {
			if c.From >= a.From && c.From < a.To {
				a.Admitted += c.Count
			}
		}
		if n := a.Left + a.Admitted; n > 0 {
			a.Share = round(float64(a.Left) / float64(n))
			r.Abandonment = append(r.Abandonment, a)
		}
	}
}

func (r *Report) origin(t *series.Table) {
	mean := func(f series.Figure, unit float64) (average, highest *float64) {
		var sum, most float64
		n := 0
		for i := range t.Rows {
			if v := Scaled(t, i, f, unit); v != nil {
				sum, most, n = sum+*v, max(most, *v), n+1
			}
		}
		if n == 0 {
			return nil, nil
		}
		return new(round(sum / float64(n))), &most
	}
	r.Origin.P95, r.Origin.Highest = mean(series.P95, 1e6)
	r.Origin.Errors, r.Origin.Worst = mean(series.ErrorRate, 1e6)
	for i := range t.Rows {
		if v, known := t.Value(i, series.InFlight); known {
			r.Origin.Flight = max(r.Origin.Flight, v)
		}
	}
}

// MarshalJSON writes the sum, or the sums by outcome.
func (c Count) MarshalJSON() ([]byte, error) {
	if c.By == nil {
		return json.Marshal(c.Sum)
	}
	return json.Marshal(c.By)
}
