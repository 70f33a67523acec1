package console

import (
	"context"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const maxReason = 200 // characters

// levers serves the requests that act on a whole room at once: evacuations, simulations and ramps.
type levers struct{ *Console }

// evacuate ends every session of a room, for a reason that goes into the audit log.
func (l levers) evacuate(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	body, err := readObject(r, false)
	if err != nil {
		return err
	}
	reason, faults := onlyText(body, "reason")
	if n := utf8.RuneCountInString(strings.TrimSpace(reason)); n == 0 || n > maxReason || strings.ContainsFunc(reason, unicode.IsControl) {
		faults = append(faults, ophttp.Fault{Path: "reason", Problem: "does not say why everybody inside has to wait again", Allowed: "text of 1 to 200 characters without control characters"})
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	if asked, err := approvals(l).askSecond(w, r, who, room, "evacuate", body); asked || err != nil {
		return err
	}
	return l.change(w, r, who, room, "evacuate", func(ctx context.Context) error {
		return room.Queue.Evacuate(ctx, who.Name, strings.TrimSpace(reason))
	})
}

// outcomeView is the future of a queue under a plan. Unknown values are absent.
type outcomeView struct {
	Rate      thousandth `json:"rate"`
	MaxActive int64      `json:"max_active"`
	Paused    bool       `json:"paused"`
	Wait      *etaView   `json:"wait,omitempty"`
	Last      *etaView   `json:"last,omitempty"`
	EmptyIn   *int64     `json:"empty_in_seconds,omitempty"`
	EmptyAt   *timestamp `json:"empty_at,omitempty"`
	Inside    int64      `json:"inside"`
}

func viewOutcome(o *eta.Outcome, now int64) outcomeView {
	v := outcomeView{
		Rate: thousandth(o.Plan.Rate*1000 + 0.5), MaxActive: o.Plan.MaxActive, Paused: o.Plan.Paused, Wait: viewEstimate(o.Newcomer), Last: viewEstimate(o.Last), Inside: seconds(o.Inside),
	}
	if o.Empties && finite(o.Seconds) {
		v.EmptyIn, v.EmptyAt = new(seconds(o.Seconds)), new(timestamp(now+seconds(o.Seconds)*1e6))
	}
	return v
}

// viewEstimate returns nil for an unknown estimate.
func viewEstimate(e eta.Estimate) *etaView {
	if !e.Known || !finite(e.Seconds) || !finite(e.Low) || !finite(e.High) {
		return nil
	}
	return &etaView{Seconds: seconds(e.Seconds), Low: seconds(e.Low), High: seconds(e.High)}
}

// simulate responds with the effect of a change that is not made.
func (l levers) simulate(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	body, err := readObject(r, true)
	if err != nil {
		return err
	}
	change, faults := decodeChange(body)
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	var now, with eta.Outcome
	known := false
	if room.Simulate != nil {
		now, with, known = room.Simulate(change)
	}
	if !known {
		return ophttp.NewProblem(http.StatusConflict, "not_simulated", "nobody is admitted from a queue of this room now: it is open or closed, its lottery has not opened, or the gateway has not read the store yet")
	}
	at := room.Queue.RedisNow()
	return ophttp.OK(w, struct {
		Now  outcomeView `json:"now"`
		With outcomeView `json:"with"`
	}{viewOutcome(&now, at), viewOutcome(&with, at)})
}

// decodeChange decodes the body of simulate and returns all its faults.
func decodeChange(body []byte) (change Change, faults []ophttp.Fault) {
	faults = unknownFields(body, "rate", "max_active", "pause")
	var live admission.Live
	ophttp.Members(body, func(name, value []byte) bool {
		var wrong, allowed string
		switch string(name) {
		case "rate", "max_active":
			f := fieldAt[string(name)]
			wrong, allowed = f.set(&live, value), f.allowed
		case "pause":
			wrong, allowed = setBool(&change.Paused, value), "true or false"
		}
		if wrong != "" {
			faults = append(faults, ophttp.Fault{Path: string(name), Value: ophttp.Excerpt(value), Problem: wrong, Allowed: allowed})
		}
		return true
	})
	if live.Rate != nil {
		change.Rate = new(float64(*live.Rate) / 1000)
	}
	change.MaxActive = live.MaxActive
	return change, faults
}
