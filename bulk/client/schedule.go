package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// ScheduleSpec describes a new schedule. Tenant, Cron, and either Job or Group and Jobs are required.
type ScheduleSpec struct {
	ID           string `json:"id,omitempty"` // empty: a random one
	Tenant       string `json:"tenant"`
	Cron         string `json:"cron"`                    // minute, hour, day of month, month, day of week; or @daily and the like
	TimeZone     string `json:"time_zone,omitempty"`     // an IANA name; empty: UTC
	Overlap      string `json:"overlap,omitempty"`       // while the run before has not ended: allow, skip or queue
	CatchUp      string `json:"catch_up,omitempty"`      // of runs missed while no process ran: none, one or all
	ExpiresAfter Span   `json:"expires_after,omitempty"` // how long after its time the jobs of a run may start; 0: for any time
	// Template is what each run creates: Job, an object with type, payload, cost and priority; or Group, an object with
	// the fields of a GroupSpec that do not belong to one run, and Jobs, a list of 1 to 500 jobs.
	Template
}

// SchedulePatch changes a schedule; nil leaves a field unchanged. After a change of Cron, TimeZone or Paused it runs next at
// its first time from then on.
type SchedulePatch struct {
	Paused   *bool           `json:"paused,omitempty"`
	Cron     *string         `json:"cron,omitempty"`
	TimeZone *string         `json:"time_zone,omitempty"`
	Overlap  *string         `json:"overlap,omitempty"`
	CatchUp  *string         `json:"catch_up,omitempty"`
	Group    json.RawMessage `json:"group,omitempty"`
	Jobs     json.RawMessage `json:"jobs,omitempty"`
	Job      json.RawMessage `json:"job,omitempty"`
}

// CreateSchedule creates a schedule. Repeated with the same spec and ID, it returns the existing one.
func (c schedules) CreateSchedule(ctx context.Context, spec ScheduleSpec) (*Schedule, error) {
	if spec.ID == "" {
		spec.ID = newID("s-")
	}
	return fetch[Schedule](ctx, c.connection, post("v1", "schedules"), spec)
}

// Schedules returns the schedules of a tenant, or with "" all that the token may see, by id.
func (c schedules) Schedules(ctx context.Context, tenant string) ([]*Schedule, error) {
	k := get("v1", "schedules")
	if tenant != "" {
		k.query = url.Values{"tenant": {tenant}}
	}
	var a bulktype.Schedules[time.Time]
	err := c.do(ctx, k, &a)
	return a.Schedules, err
}

// Schedule returns one schedule.
func (c schedules) Schedule(ctx context.Context, id string) (*Schedule, error) {
	return fetch[Schedule](ctx, c.connection, get("v1", "schedules", id), nil)
}

// PatchSchedule changes a schedule.
func (c schedules) PatchSchedule(ctx context.Context, id string, p SchedulePatch) (*Schedule, error) {
	return fetch[Schedule](ctx, c.connection, call{method: http.MethodPatch, path: []string{"v1", "schedules", id}}, p)
}

// PauseSchedule makes no more runs until ResumeSchedule. Runs of that time are not made up for.
func (c schedules) PauseSchedule(ctx context.Context, id string) (*Schedule, error) {
	return c.PatchSchedule(ctx, id, SchedulePatch{Paused: new(true)})
}

// ResumeSchedule ends a pause.
func (c schedules) ResumeSchedule(ctx context.Context, id string) (*Schedule, error) {
	return c.PatchSchedule(ctx, id, SchedulePatch{Paused: new(false)})
}

// DeleteSchedule deletes a schedule. Its groups stay.
func (c schedules) DeleteSchedule(ctx context.Context, id string) error {
	lost := false // a response
	err := c.retry(ctx, func() error {
		s, err := c.try(ctx, call{method: http.MethodDelete, path: []string{"v1", "schedules", id}})
		if err != nil {
			lost = lost || Passing(err)
			return err
		}
		return s.Close()
	})
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "not_found" && lost {
		return nil // the first attempt deleted it
	}
	return err
}
