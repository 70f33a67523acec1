package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/reason"
	"github.com/anteroom/anteroom/admission/series"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/explain"
	"github.com/anteroom/anteroom/gateway/report"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// Insight is what explains the rooms and records their figures. A nil Recorder: neither is served.
type Insight struct {
	Recorder *admission.Recorder
	Fleet    *admission.Fleet
	Explain  func(ctx context.Context, q *explain.Request) (*explain.Explanation, error)
}

// insights are the handlers of Insight.
type insights struct{ *Console }

// routes returns the routes of Insight.
func (c insights) routes() []route {
	if c.o.Insight.Recorder == nil {
		return nil
	}
	const room = "/admin/v1/rooms/{id}"
	return []route{
		inOwnRooms("GET", "/admin/v1/stream", access.Viewer, c.stream),
		inOneRoom("GET", room+"/series", access.Viewer, c.inRoom(c.series)),
		inOneRoom("GET", room+"/figures", access.Viewer, c.inRoom(c.figures)),
		inOneRoom("GET", room+"/report", access.Viewer, c.inRoom(c.report)),
		inOwnRooms("GET", "/admin/v1/fleet", access.Viewer, c.fleet),
		inOwnRooms("POST", "/admin/v1/explain", access.Viewer, c.explain),
	}
}

// reasonView is why a room admits, or does not.
type reasonView struct {
	Code      reason.Code `json:"code"`
	Admitting bool        `json:"admitting"`
	Text      string      `json:"text"`
	Since     *timestamp  `json:"since,omitempty"`
	Until     *timestamp  `json:"until,omitempty"`
	Who       string      `json:"who,omitempty"`
}

// why returns the reason of a room; nil without a Recorder.
func (c insights) why(room Room) *reasonView {
	if c.o.Insight.Recorder == nil {
		return nil
	}
	r := c.o.Insight.Recorder.Reason(room.Queue)
	return &reasonView{r.Code, r.Admitting, r.Text, optional(r.Since), optional(r.Until), r.Who}
}

// parseMoment parses a query parameter: RFC 3339 or seconds since 1970.
func parseMoment(r *http.Request, name string, otherwise int64) (int64, error) {
	values, given := r.URL.Query()[name]
	if !given {
		return otherwise, nil
	}
	if len(values) == 1 {
		if n, err := strconv.ParseInt(values[0], 10, 64); err == nil && n >= 0 && n < 1<<40 {
			return n, nil
		}
		if t, err := time.Parse(time.RFC3339, values[0]); err == nil && t.Unix() >= 0 {
			return t.Unix(), nil
		}
	}
	value := ophttp.Shorten(values[0])
	return 0, ophttp.Invalid(ophttp.Fault{Path: name, Value: []byte(strconv.Quote(value)), Problem: "is not a time, or is given more than once",
		Allowed: "a time such as 2026-11-28T12:00:00Z, or seconds since 1970"})
}

// parseRange parses the parameters from and to; back is how far the range reaches back by default, s.
func parseRange(r *http.Request, now, back int64) (in series.Range, err error) {
	if in.To, err = parseMoment(r, "to", now+1); err != nil {
		return in, err
	}
	if in.From, err = parseMoment(r, "from", in.To-back); err != nil {
		return in, err
	}
	if in.From >= in.To {
		return in, ophttp.Invalid(ophttp.Fault{Path: "from", Value: []byte(strconv.FormatInt(in.From, 10)), Problem: "is not before to", Allowed: "a time before to"})
	}
	return in, nil
}

// table reads the rows of a range. A range is cut to what is kept and to now.
func (c insights) table(r *http.Request, room Room, l series.Length, in series.Range) (series.Table, series.Range, error) {
	now := room.Queue.RedisNow() / 1e6
	in.From, in.To = max(in.From, now-l.Seconds*(l.Rows-1)), min(in.To, now+1)
	if in.From >= in.To {
		in.To = in.From
	}
	rows, err := read(r, func(ctx context.Context) ([]series.Row, error) {
		return c.o.Insight.Recorder.Rows(ctx, room.Queue, l, in)
	})
	if err != nil {
		return series.Table{}, in, err
	}
	return series.NewTable(l, in, rows), in, nil
}

// seriesView is a table by columns.
type seriesView struct {
	Room   string         `json:"room"`
	Step   int64          `json:"step_seconds"`
	At     []int64        `json:"at"`
	Series map[string]any `json:"series"`
}

// columns are the figures of a table by name, with the units in which they are shown; 0: a total, shown as a rate.
var columns = []struct {
	name   string
	figure series.Figure
	unit   float64
}{
	{"waiting", series.Waiting, 1}, {"parked", series.Parked, 1}, {"admitted", series.Admitted, 1}, {"inside", series.Inside, 1},
	{"max_active", series.MaxActive, 1}, {"limit", series.Limit, 1e3}, {"wanted", series.Wanted, 1e3}, {"expected", series.Expected, 1e3},
	{"join_rate", series.Joins, 0}, {"admitted_rate", series.Admissions, 0}, {"claimed_rate", series.Claims, 0}, {"lapsed_rate", series.Lapses, 0},
	{"abandon_rate", series.Abandons, 0}, {"wait_seconds", series.Wait, 1e3}, {"wait_low_seconds", series.WaitLow, 1e3},
	{"wait_high_seconds", series.WaitHigh, 1e3}, {"origin_p95_seconds", series.P95, 1e6}, {"origin_error_rate", series.ErrorRate, 1e6},
	{"origin_in_flight", series.InFlight, 1}, {"empty_in_seconds", series.EmptyIn, 1}, {"gateways", series.Gateways, 1},
}

func (c insights) series(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	l, err := parseStep(r)
	if err != nil {
		return err
	}
	in, err := parseRange(r, room.Queue.RedisNow()/1e6, l.Seconds*l.Rows)
	if err != nil {
		return err
	}
	t, _, err := c.table(r, room, l, in)
	if err != nil {
		return err
	}
	v := seriesView{Room: room.Queue.ID(), Step: l.Seconds, At: make([]int64, len(t.Rows)), Series: map[string]any{}}
	for i := range t.Rows {
		v.At[i] = t.At(i)
	}
	for _, col := range columns {
		list := make([]*float64, len(t.Rows))
		for i := range t.Rows {
			if list[i] = report.PerSecond(&t, i, col.figure); col.unit > 0 {
				list[i] = report.Scaled(&t, i, col.figure, col.unit)
			}
		}
		v.Series[col.name] = list
	}
	reasons := make([]*string, len(t.Rows))
	for i := range t.Rows {
		if code := report.ReasonOf(&t, i); code != "" {
			reasons[i] = &code
		}
	}
	v.Series["reason"] = reasons
	return ophttp.OK(w, v)
}

func parseStep(r *http.Request) (series.Length, error) {
	name := r.URL.Query().Get("step")
	for _, l := range series.Lengths {
		if l.Name == name || name == "" {
			return l, nil
		}
	}
	return series.Length{}, ophttp.Invalid(ophttp.Fault{Path: "step", Value: []byte(strconv.Quote(ophttp.Shorten(name))), Problem: "is not one of them", Allowed: "1s, 1m or 10m"})
}

// figuresView is the figures of a range.
type figuresView struct {
	Room string      `json:"room"`
	From report.Time `json:"from"`
	To   report.Time `json:"to"`
	Step int64       `json:"step_seconds"`
	report.Figures
}

func (c insights) figures(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	now := room.Queue.RedisNow() / 1e6
	in, err := parseRange(r, now, 3600)
	if err != nil {
		return err
	}
	l := series.Reaching(in.From, now, series.Minute)
	t, in, err := c.table(r, room, l, in)
	if err != nil {
		return err
	}
	return ophttp.OK(w, figuresView{room.Queue.ID(), report.Time(in.From * 1e6), report.Time(in.To * 1e6), l.Seconds, report.NewFigures(&t)})
}

// explainView is the body of a request to the URL tester.
func (c insights) explain(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	q, err := readQuestion(r)
	if err != nil {
		return err
	}
	e, err := c.o.Insight.Explain(r.Context(), q)
	if bad, is := errors.AsType[*explain.Fault](err); is {
		return ophttp.Invalid(ophttp.Fault{Path: "headers", Problem: "make a request that the gateway refuses with " + bad.Code + ": " + bad.Detail, Allowed: "a well-formed request"})
	}
	if err != nil {
		return err
	}
	if e.Room != "" && !who.May(access.Viewer, e.Room) {
		return ophttp.NewProblem(http.StatusForbidden, "room_not_allowed", "%q does not have the role %s in the room that this request leads to", who.Name, access.Viewer)
	}
	return ophttp.OK(w, e)
}
