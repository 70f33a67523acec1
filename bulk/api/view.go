package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/calendar"
	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/bulk/store"
)

// The objects that the API writes.
type (
	groupView      = bulktype.Group[timestamp]
	outcomeView    = bulktype.Outcome[timestamp]
	jobView        = bulktype.JobState[timestamp]
	congestionView = bulktype.Congestion[timestamp]
)

// timestamp is written in UTC with microseconds, and null when zero.
type timestamp struct{ time.Time }

// MarshalJSON writes RFC 3339.
func (t timestamp) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

func at(t time.Time) timestamp { return timestamp{t} }

// CallbackBody returns an ended group as GET /v1/groups/{id} does.
func CallbackBody(g store.Group) ([]byte, error) { return json.Marshal(viewOf(g, calm)) }

func viewOf(g store.Group, level string) groupView {
	v := groupView{
		ID: g.ID, Tenant: g.Tenant, Type: g.Type, Status: g.Status, Sealed: g.Sealed, Paused: g.Paused,
		Priority: bulktype.Priority(cmp.Or(g.Level, store.Normal)), Weight: cmp.Or(g.Weight, 1), BasePriority: g.BasePriority, RateLimit: tidy(g.GroupSpec.Rate), Concurrency: g.Concurrency, Start: "early", Results: bulktype.Results(keeps(g)),
		Aggregate: json.RawMessage(cmp.Or(g.Aggregate, `{"op":"count"}`)), FailureTolerance: toleranceJSON(g.Tolerance),
		CallbackURL: g.CallbackURL, Callback: g.CallbackState, RedriveOf: g.RedriveOf, Labels: g.Labels.Map(),
		Total: g.Total, Pending: g.Pending, Ready: g.Ready, NonReady: g.NonReady, Unserved: g.Unserved, InFlight: g.InFlight,
		Succeeded: g.Succeeded, Failed: g.Failed, Dead: g.Dead, Cancelled: g.Cancelled,
		Progress: progress(g), Rate: tidy(g.Rate1), ETA: estimate(g), Congestion: level, Gated: g.Gated,
		CreatedAt: at(g.CreatedAt), SealedAt: at(g.SealedAt), StartedAt: at(g.StartedAt), FinishedAt: at(g.FinishedAt), LastAddedAt: at(g.LastAddedAt),
	}
	if g.StopAt != (store.Tolerance{}) {
		v.StopAt = toleranceJSON(g.StopAt)
	}
	v.StartAt, v.ExpiresAt, v.Expired = at(g.StartAt), at(g.ExpiresAt), g.Expired
	if g.Quiet != (calendar.Quiet{}) {
		v.QuietHours = &bulktype.QuietHours{From: g.Quiet.From, To: g.Quiet.To, TimeZone: g.Quiet.Zone}
	}
	if g.After != "" {
		v.After, v.When = strings.Fields(g.After), string(cmp.Or(g.When, store.OnSuccess))
	}
	for _, p := range g.Predecessors {
		if p.Status == "" && g.GatedBy == store.GatedByAfter {
			v.WaitsFor = append(v.WaitsFor, p.ID)
		}
	}
	if g.Skipped {
		v.Skipped, v.Error = true, "the groups that it waited for did not end as "+v.When+" requires: "+ended(g.Predecessors)
	}
	v.Split, v.Expected, v.Away = g.Split, g.ExpectedJobs, bulktype.Away{Shards: g.Away}
	v.Duplicate, v.RollingUntil = g.Duplicate, at(g.Rolling)
	if g.Stopped {
		v.Stopped = true
		v.Error = fmt.Sprintf("%d of %d jobs failed or died, and stop_at is %s: the group is paused; resume it to go on to its end, or cancel it",
			g.Failed+g.Dead, g.Total, v.StopAt)
	}
	if g.Status == store.Failed {
		v.Error = fmt.Sprintf("%d of %d jobs failed or died; failure_tolerance is %s", g.Failed+g.Dead, g.Total, v.FailureTolerance)
	}
	if len(g.Lost) > 0 {
		v.Error = fmt.Sprintf("the shards %v have lost their data, and with it a part of the group: the outcomes of its jobs are unknown, and the group ends as FAILED. Submit those jobs again in a new group", g.Lost)
	}
	if g.Status.Ended() {
		v.Congestion = calm
	}
	if g.StartSealed {
		v.Start = "sealed"
	}
	if g.Gated {
		v.GatedUntil, v.GatedBy = at(g.GatedUntil), g.GatedBy
	}
	if g.Total > 0 {
		v.ThrottlesPerJob = tidy(float64(g.Throttles) / float64(g.Total))
	}
	return v
}

// ended describes how groups have ended.
func ended(groups []store.Predecessor) string {
	parts := make([]string, len(groups))
	for i, p := range groups {
		parts[i] = p.ID + " is " + string(p.Status)
	}
	return strings.Join(parts, ", ")
}

// keeps returns which outcomes the group keeps.
func keeps(g store.Group) store.Results { return cmp.Or(g.Results, allResults) }

// allResults is empty in the store.
const allResults store.Results = "all"

// tidy rounds to three decimal places.
func tidy(v float64) float64 { return math.Round(v*1000) / 1000 }

func finished(g store.Group) int64 { return g.Succeeded + g.Failed + g.Dead + g.Cancelled }

// progress returns the share of jobs that have their outcome, rounded down to four decimal places.
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

// rateSpread is the assumed error of the expected rate, as a share: low and high of an ETA are at a rate higher and
// lower by it.
const rateSpread = 0.25

// estimate returns remaining jobs ÷ expected rate, nil if unknown: the group has ended, is paused, waits for its
// start_at, the end of its quiet hours or other groups, or finished no job recently. The group's own rate limit bounds low, since each job is at least one start.
func estimate(g store.Group) *bulktype.ETA {
	left := float64(g.Total - finished(g))
	if g.Status.Ended() || g.Paused || g.GatedBy == store.GatedByStart || g.GatedBy == store.GatedByQuiet || g.GatedBy == store.GatedByAfter || left < 0 || left > 0 && g.Expected <= 0 {
		return nil
	}
	if left == 0 {
		if !g.Sealed {
			return nil // more jobs may be added
		}
		return &bulktype.ETA{} // only the reduction remains
	}
	seconds := func(rate float64) float64 { return math.Ceil(min(left/rate, 1e12) - 1e-9) }
	e := &bulktype.ETA{Seconds: seconds(g.Expected), Low: seconds(g.Expected * (1 + rateSpread)), High: seconds(g.Expected * (1 - rateSpread))}
	if limit := g.GroupSpec.Rate; limit > 0 {
		e.Low = max(e.Low, min(seconds(limit), e.Seconds))
	}
	return e
}

// calm is the congestion level of a tenant without waiting jobs.
const calm = "none"

func (s *Server) view(g store.Group) groupView {
	return viewOf(g, congestion.Level(g.Backoff, s.store.Settings().BaseBackoff))
}
