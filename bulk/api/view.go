package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/bulk/store"
)

// groupView is a group as the API shows it. A field without a known value is absent.
type groupView struct {
	ID       string       `json:"id"`
	Tenant   string       `json:"tenant"`
	Type     string       `json:"type"`
	Status   store.Status `json:"status"`
	Sealed   bool         `json:"sealed"`
	Paused   bool         `json:"paused"`
	Stopped  bool         `json:"stopped,omitempty"` // paused, as so many jobs failed as stop_at says
	Priority store.Level  `json:"priority"`
	Weight   float64      `json:"weight"`
	Base     int64        `json:"base_priority"`

	RateLimit   float64         `json:"rate_limit"` // starts a second, 0: none of its own
	Concurrency int64           `json:"concurrency"`
	Start       string          `json:"start"`
	Results     store.Results   `json:"results"` // which outcomes are kept: all, failures, none
	Aggregate   json.RawMessage `json:"aggregate"`
	Tolerance   json.RawMessage `json:"failure_tolerance"`
	StopAt      json.RawMessage `json:"stop_at,omitempty"`
	CallbackURL string          `json:"callback_url,omitempty"`
	Callback    string          `json:"callback,omitempty"` // pending, done, failed
	RedriveOf   string          `json:"redrive_of,omitempty"`

	Total     int64 `json:"total"`
	Pending   int64 `json:"pending"`
	Ready     int64 `json:"ready"`
	NonReady  int64 `json:"non_ready"`
	Unserved  int64 `json:"unserved,omitempty"` // of the pending: no process runs their type
	InFlight  int64 `json:"in_flight"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`

	Progress   float64    `json:"progress"` // 0…1 of total; 1 only when every job has its outcome
	Rate       float64    `json:"rate"`     // jobs finished a second, lately
	ETA        *eta       `json:"eta,omitempty"`
	Congestion string     `json:"congestion"`
	Throttles  float64    `json:"throttles_per_job"`
	Gated      bool       `json:"gated"`
	GatedUntil *timestamp `json:"gated_until,omitempty"`
	GatedBy    string     `json:"gated_by,omitempty"` // rate, downstream, processor, policy

	CreatedAt   *timestamp `json:"created_at"`
	SealedAt    *timestamp `json:"sealed_at,omitempty"`
	StartedAt   *timestamp `json:"started_at,omitempty"`
	FinishedAt  *timestamp `json:"finished_at,omitempty"`
	LastAddedAt *timestamp `json:"last_added_at,omitempty"`
	Error       string     `json:"error,omitempty"`
}

// timestamp is written in UTC with microseconds.
type timestamp time.Time

// MarshalJSON writes RFC 3339.
func (t timestamp) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

func at(t time.Time) *timestamp {
	if t.IsZero() {
		return nil
	}
	return new(timestamp(t))
}

// CallbackBody gives a group that has ended as GET /v1/groups/{id} does.
func CallbackBody(g store.Group) ([]byte, error) { return json.Marshal(viewOf(g, calm)) }

func viewOf(g store.Group, level string) groupView {
	v := groupView{
		ID: g.ID, Tenant: g.Tenant, Type: g.Type, Status: g.Status, Sealed: g.Sealed, Paused: g.Paused,
		Priority: g.Level, Weight: g.Weight, Base: g.BasePriority, RateLimit: tidy(g.GroupSpec.Rate), Concurrency: g.Concurrency, Start: "early", Results: keeps(g),
		Aggregate: json.RawMessage(g.Aggregate), Tolerance: toleranceJSON(g.Tolerance),
		CallbackURL: g.CallbackURL, Callback: g.CallbackState, RedriveOf: g.RedriveOf,
		Total: g.Total, Pending: g.Pending, Ready: g.Ready, NonReady: g.NonReady, Unserved: g.Unserved, InFlight: g.InFlight,
		Succeeded: g.Succeeded, Failed: g.Failed, Dead: g.Dead, Cancelled: g.Cancelled,
		Progress: progress(g), Rate: tidy(g.Rate1), ETA: estimate(g), Congestion: level, Gated: g.Gated,
		CreatedAt: at(g.CreatedAt), SealedAt: at(g.SealedAt), StartedAt: at(g.StartedAt), FinishedAt: at(g.FinishedAt), LastAddedAt: at(g.LastAddedAt),
	}
	if g.StopAt != (store.Tolerance{}) {
		v.StopAt = toleranceJSON(g.StopAt)
	}
	if g.Stopped {
		v.Stopped = true
		v.Error = fmt.Sprintf("%d of %d jobs failed or died, and stop_at is %s: the group is paused; resume it to go on to its end, or cancel it",
			g.Failed+g.Dead, g.Total, bytes.Trim(v.StopAt, `"`))
	}
	if g.Status == store.Failed {
		v.Error = fmt.Sprintf("%d of %d jobs failed or died; failure_tolerance is %s", g.Failed+g.Dead, g.Total, bytes.Trim(v.Tolerance, `"`))
	}
	if g.Status.Ended() {
		v.Congestion = calm
	}
	if g.StartSealed {
		v.Start = "sealed"
	}
	if v.Priority == "" {
		v.Priority = store.Normal
	}
	if v.Weight == 0 {
		v.Weight = 1
	}
	if g.Aggregate == "" {
		v.Aggregate = json.RawMessage(`{"op":"count"}`)
	}
	if g.Gated {
		v.GatedUntil, v.GatedBy = at(g.GatedUntil), g.GatedBy
	}
	if g.Total > 0 {
		v.Throttles = tidy(float64(g.Throttles) / float64(g.Total))
	}
	return v
}

// keeps names which outcomes the group keeps.
func keeps(g store.Group) store.Results { return cmp.Or(g.Results, allResults) }

// allResults is what the store leaves empty.
const allResults store.Results = "all"

// tidy keeps three decimal places.
func tidy(v float64) float64 { return math.Round(v*1000) / 1000 }

func finished(g store.Group) int64 { return g.Succeeded + g.Failed + g.Dead + g.Cancelled }

// progress is the share of the jobs that have their outcome, in ten-thousandths, rounded down.
func progress(g store.Group) float64 {
	done := finished(g)
	switch {
	case done >= g.Total && (g.Total > 0 || g.Sealed):
		return 1
	case g.Total == 0:
		return 0
	}
	return math.Floor(float64(done)/float64(g.Total)*1e4) / 1e4
}

// eta is how long the jobs that are in will take, in seconds.
type eta struct {
	Seconds int64 `json:"seconds"`
	Low     int64 `json:"low"`
	High    int64 `json:"high"`
}

// rateSpread is by how much the expected rate may be off: low and high are at a rate higher and lower by this share.
const rateSpread = 0.25

// estimate returns remaining ÷ expected rate; nil where that is not known: the group has ended, is paused, or
// finished nothing lately. A group's own rate bounds low, since no job costs less than one start.
func estimate(g store.Group) *eta {
	left := float64(g.Total - finished(g))
	if g.Status.Ended() || g.Paused || left < 0 || left > 0 && g.Expected <= 0 {
		return nil
	}
	if left == 0 {
		if !g.Sealed {
			return nil // more may come
		}
		return &eta{} // what is left is to reduce
	}
	seconds := func(rate float64) int64 { return int64(math.Ceil(min(left/rate, 1e12) - 1e-9)) }
	e := &eta{Seconds: seconds(g.Expected), Low: seconds(g.Expected * (1 + rateSpread)), High: seconds(g.Expected * (1 - rateSpread))}
	if limit := g.GroupSpec.Rate; limit > 0 {
		e.Low = max(e.Low, min(seconds(limit), e.Seconds))
	}
	return e
}

// calm is the level of who waits for nothing.
const calm = "none"

func (s *Server) view(g store.Group) groupView {
	return viewOf(g, congestion.Level(g.Backoff, s.store.Settings().BaseBackoff))
}
