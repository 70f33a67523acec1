package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/ramp"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// rampView is a ramp of the rate.
type rampView struct {
	State   ramp.State  `json:"state"`
	Reason  string      `json:"reason,omitempty"`
	Rate    thousandth  `json:"rate"`
	From    thousandth  `json:"from"`
	Step    thousandth  `json:"step"`
	Every   duration    `json:"every"`
	Until   thousandth  `json:"until"`
	While   rampWhile   `json:"while"`
	Breach  ramp.Breach `json:"on_breach"`
	Steps   int64       `json:"steps"`
	Next    *timestamp  `json:"next_at,omitempty"`
	Started timestamp   `json:"started_at"`
	By      string      `json:"started_by"`
	Ended   *timestamp  `json:"ended_at,omitempty"`
}

// rampWhile is the condition of a ramp.
type rampWhile struct {
	P95    int64   `json:"p95_ms,omitempty"`
	Errors float64 `json:"errors,omitempty"`
}

func viewRamp(r *ramp.Ramp) *rampView {
	v := &rampView{
		State: r.State, Reason: r.Reason, Rate: thousandth(r.Rate), From: thousandth(r.From), Step: thousandth(r.Step), Every: duration(r.Every), Until: thousandth(r.Until),
		While: rampWhile{P95: r.P95.Milliseconds(), Errors: r.Errors}, Breach: r.Breach, Steps: r.Steps, Started: timestamp(r.Started), By: r.By, Ended: optional(r.Ended),
	}
	if !r.Over() {
		v.Next = optional(r.Next)
	}
	return v
}

// shownAfterEnd is for how long after its end a ramp is part of its room, µs.
const shownAfterEnd = 3600 * 1_000_000

// recentRamp returns the ramp of a room that runs or has ended lately; nil without one.
func recentRamp(queue *admission.Room) *rampView {
	r, ok := queue.Ramp()
	if !ok || r.Over() && queue.RedisNow()-r.Ended > shownAfterEnd {
		return nil
	}
	return viewRamp(&r)
}

func (l levers) showRamp(w http.ResponseWriter, _ *http.Request, _ *access.Person, room Room) error {
	r, ok := room.Queue.Ramp()
	if !ok {
		return ophttp.NewProblem(http.StatusNotFound, "no_ramp", "the room has had no ramp")
	}
	return ophttp.OK(w, viewRamp(&r))
}

func (l levers) startRamp(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	body, err := readObject(r, false)
	if err != nil {
		return err
	}
	spec, faults := decodeRamp(body, room.Queue.Snapshot().Policy.Rate)
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	now, err := read(r, func(ctx context.Context) (ramp.Ramp, error) { return room.Queue.StartRamp(ctx, who.Name, spec) })
	switch {
	case errors.Is(err, admission.ErrRamp):
		return ophttp.NewProblem(http.StatusConflict, "ramp_running", "a ramp runs in this room; DELETE it first")
	case err != nil:
		return err
	}
	l.log.InfoContext(r.Context(), "room changed", "who", who.Name, "room", room.Queue.ID(), "action", "ramp")
	ophttp.WriteJSON(w, http.StatusCreated, "application/json", viewRamp(&now))
	return nil
}

func (l levers) stopRamp(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	now, err := read(r, func(ctx context.Context) (ramp.Ramp, error) { return room.Queue.StopRamp(ctx, who.Name) })
	switch {
	case errors.Is(err, admission.ErrNoRamp):
		return ophttp.NewProblem(http.StatusNotFound, "no_ramp", "no ramp runs in this room")
	case err != nil:
		return err
	}
	l.log.InfoContext(r.Context(), "room changed", "who", who.Name, "room", room.Queue.ID(), "action", "ramp stop")
	return ophttp.OK(w, viewRamp(&now))
}

// Bounds of a ramp.
const (
	minEvery, maxEvery = time.Second, 24 * time.Hour
	maxP95             = 3_600_000 // ms
)

// rampDecoder decodes the body of a ramp.
type rampDecoder struct {
	spec   ramp.Spec
	given  []string
	faults []ophttp.Fault
}

// decodeRamp decodes the body of POST ramp and returns all its faults. rate is the rate in force, with which the ramp begins by default.
func decodeRamp(body []byte, rate int64) (ramp.Spec, []ophttp.Fault) {
	d := rampDecoder{spec: ramp.Spec{From: rate, Breach: ramp.Hold}}
	ophttp.Members(body, func(name, value []byte) bool {
		d.member(string(name), value)
		return true
	})
	for _, name := range []string{"step", "every", "until"} {
		if !slices.Contains(d.given, name) {
			d.fault(name, nil, "is missing", "a ramp has step, every and until")
		}
	}
	if len(d.faults) == 0 {
		d.checkDirection()
	}
	return d.spec, d.faults
}

func (d *rampDecoder) fault(path string, raw []byte, problem, allowed string) {
	d.faults = append(d.faults, ophttp.Fault{Path: path, Value: ophttp.Excerpt(raw), Problem: problem, Allowed: allowed})
}

const rateAllowed = "a number from 0 to 1000000 with at most three decimal places"

func (d *rampDecoder) member(name string, value []byte) {
	d.given = append(d.given, name)
	var wrong, allowed string
	switch name {
	case "from":
		wrong, allowed = rampRate(&d.spec.From, value, 0), rateAllowed
	case "until":
		wrong, allowed = rampRate(&d.spec.Until, value, 0), rateAllowed
	case "step":
		if wrong, allowed = rampRate(&d.spec.Step, value, -maxRate), "a number other than 0 with at most three decimal places"; wrong == "" && d.spec.Step == 0 {
			wrong = "is 0"
		}
	case "every":
		wrong, allowed = d.every(value), `a duration from 1s to 24h, such as "1m"`
	case "while":
		if !isObject(value) {
			wrong, allowed = "is not an object", "an object with p95_ms, errors"
			break
		}
		ophttp.Members(value, func(name, value []byte) bool {
			d.condition(string(name), value)
			return true
		})
	case "on_breach":
		v, _ := text(value)
		if d.spec.Breach = ramp.Breach(v); v != string(ramp.Hold) && v != string(ramp.Back) && v != string(ramp.Stop) {
			wrong, allowed = "is not one of them", "hold, back or stop"
		}
	default:
		wrong, allowed = "is not a field of this request", "from, step, every, until, while, on_breach"
	}
	if wrong != "" {
		d.fault(name, value, wrong, allowed)
	}
}

func (d *rampDecoder) every(value []byte) (wrong string) {
	v, isText := text(value)
	every, err := time.ParseDuration(v)
	switch {
	case !isText || err != nil:
		return "is not a duration"
	case every < minEvery || every > maxEvery:
		return errRange.Error()
	}
	d.spec.Every = every
	return ""
}

func (d *rampDecoder) condition(name string, value []byte) {
	var v *int64
	switch name {
	case "p95_ms":
		if wrong := setExact(&v, value, 0, 1, maxP95); wrong != "" {
			d.fault("while.p95_ms", value, wrong, "a whole number from 1 to 3600000")
			return
		}
		d.spec.P95 = time.Duration(*v) * time.Millisecond
	case "errors":
		if wrong := setExact(&v, value, 6, 1, 1_000_000); wrong != "" {
			d.fault("while.errors", value, wrong, "a share above 0 and at most 1, with at most six decimal places")
			return
		}
		d.spec.Errors = float64(*v) / 1e6
	default:
		d.fault("while."+name, value, "is not a condition", "p95_ms, errors")
	}
}

// rampRate sets a rate or a difference of rates.
func rampRate(to *int64, value []byte, least int64) (wrong string) {
	var v *int64
	if wrong = setExact(&v, value, 3, least, maxRate); wrong == "" {
		*to = *v
	}
	return wrong
}

// checkDirection checks that the steps lead from From to Until.
func (d *rampDecoder) checkDirection() {
	switch s := &d.spec; {
	case s.Step > 0 && s.Until < s.From:
		d.fault("until", nil, "is below from ("+thousandth(s.From).String()+"), and step is positive", "a negative step, or a higher until")
	case s.Step < 0 && s.Until > s.From:
		d.fault("until", nil, "is above from ("+thousandth(s.From).String()+"), and step is negative", "a positive step, or a lower until")
	}
}
