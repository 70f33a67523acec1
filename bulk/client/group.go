package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// GroupSpec describes a new group. Tenant and Type are required.
type GroupSpec struct {
	ID           string   `json:"id,omitempty"` // empty: a random one
	Tenant       string   `json:"tenant"`
	Type         string   `json:"type,omitempty"` // of jobs without a type
	Priority     Priority `json:"priority,omitempty"`
	Weight       float64  `json:"weight,omitempty"`        // 0.01…100; 0 means 1
	BasePriority int64    `json:"base_priority,omitempty"` // of the score policy, milliseconds
	Rate         float64  `json:"rate,omitempty"`          // starts a second, up to three decimals; 0: no limit of its own
	Concurrency  int64    `json:"concurrency,omitempty"`   // most jobs in flight; 0: no limit of its own
	// Aggregate is how results are aggregated, as JSON: "count", "concat", "sum:a.b" (or min, max, mean).
	Aggregate json.RawMessage `json:"aggregate,omitempty"`
	// FailureTolerance is how many jobs may fail or die before the group fails: a number, or a share such as "5%".
	FailureTolerance Tolerance `json:"failure_tolerance,omitzero"`
	// StopAt pauses the group when so many jobs have failed or died: a number, or a share such as "5%".
	StopAt Tolerance `json:"stop_at,omitzero"`
	// Results selects the outcomes that are kept after they are aggregated; empty: AllResults.
	Results     Results `json:"results,omitempty"`
	CallbackURL string  `json:"callback_url,omitempty"`
	Start       Start   `json:"start,omitempty"`
	// StartAt: no job starts before. ExpiresAt: jobs that have not started by then end as dead, with the code expired.
	StartAt   time.Time `json:"start_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// QuietHours are hours of each day in which no job starts.
	QuietHours *QuietHours `json:"quiet_hours,omitempty"`
	// After are groups that have to end before this one starts; When is what their end has to be, OnSuccess if empty. If
	// it is not, the group is cancelled.
	After []string `json:"after,omitempty"`
	When  When     `json:"when,omitempty"`
	// Labels are at most 16 keys of a-z 0-9 . _ - with values, by which Groups finds the group.
	Labels map[string]string `json:"labels,omitempty"`
	// Split is on how many shards the group has parts; 0: one, unless Expected jobs are too many for it. No job count is checked.
	Split    int   `json:"split,omitempty"`
	Expected int64 `json:"expected,omitempty"`
	// Unique is a name that may be used once within a time: a second group of the tenant with it is a Duplicate.
	Unique *Unique `json:"unique,omitempty"`
}

// When is what the end of other groups has to be for a group to start.
type When string

// The conditions.
const (
	OnSuccess When = "on_success" // all have completed
	OnFailure When = "on_failure" // one has failed or was cancelled
	OnEnd     When = "on_end"
)

// Unique is a name that a tenant's submissions may use once within a time.
type Unique struct {
	Key string `json:"key"`
	For Span   `json:"for"` // from the first submission on, 1 s to 720 h
}

// Span is a duration, in JSON as Go writes it: "1h30m0s".
type Span time.Duration

// MarshalText writes the duration.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads a duration.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err //nolint:wrapcheck // it names the text
}

// newID returns an id for a group. One that waits for others is on the shard of the first of them, which saves calls between shards.
func (s *GroupSpec) newID() string {
	id := newID("g-")
	if len(s.After) > 0 {
		first, _, _ := strings.Cut(s.After[0], "::")
		if !strings.HasPrefix(first, "schedule:") && !strings.HasPrefix(first, "jobs:") && len(first)+2+len(id) <= 128 {
			return first + "::" + id
		}
	}
	return id
}

// CreateGroup creates a group. Repeated with the same spec and ID, it returns the existing group.
func (c groups) CreateGroup(ctx context.Context, spec GroupSpec) (*Group, error) {
	if spec.ID == "" {
		spec.ID = spec.newID()
	}
	return c.group(ctx, post("v1", "groups"), spec)
}

// Group returns a group.
func (c groups) Group(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, get("v1", "groups", id), nil)
}

// Seal ends the submission of jobs, so that the group can complete. Sealing again is no error. A group with an open
// chunk is refused with chunk_open.
func (c groups) Seal(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "seal"), nil)
}

// SealAbandoning is Seal for a group with open chunks whose sender is gone: their accepted jobs run, later ones are
// refused.
func (c groups) SealAbandoning(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "seal"), map[string]bool{"abandon_chunks": true})
}

// Pause starts no more jobs of a group until Resume. Running jobs go on.
func (c groups) Pause(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "pause"), nil)
}

// Resume ends a pause.
func (c groups) Resume(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "resume"), nil)
}

// Release lifts the delays that a downstream asked for: those of the group after a Retry-After, and of jobs that were
// refused or wait for a retry. Limits, breakers and run_at stay in force. It needs the operators' token.
func (c groups) Release(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "release"), nil)
}

// Cancel ends a group: no more of its jobs start. A group that has ended is refused with wrong_state.
func (c groups) Cancel(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "cancel"), nil)
}

// Delete deletes an ended group with its outcomes, dead letters and result. It returns when nothing is left. A group
// that has not ended, or whose callback or redrive is in progress, is refused with wrong_state.
func (c groups) Delete(ctx context.Context, id string) error {
	k, begun := call{method: http.MethodDelete, path: []string{"v1", "groups", id}}, false
	for {
		gone := false
		err := c.retry(ctx, func() error {
			s, err := c.try(ctx, k)
			if err != nil {
				begun = begun || Passing(err)
				return err
			}
			gone = s.status == http.StatusNoContent
			return s.Close()
		})
		if p, ok := errors.AsType[*Problem](err); ok && p.Code == "not_found" && begun {
			return nil
		}
		if err != nil || gone {
			return err
		}
		begun = true
	}
}

// Patch changes a group; nil leaves a field unchanged.
type Patch struct {
	Weight       *float64  `json:"weight,omitempty"`
	Rate         *float64  `json:"rate,omitempty"`
	Concurrency  *int64    `json:"concurrency,omitempty"`
	Priority     *Priority `json:"priority,omitempty"`
	BasePriority *int64    `json:"base_priority,omitempty"`
	// StopAt replaces the group's. A group that was resumed despite the old one is stopped by the new one.
	StopAt *Tolerance `json:"stop_at,omitempty"`
	// StartAt and ExpiresAt replace the group's.
	StartAt   *time.Time `json:"start_at,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// QuietHours replaces the group's.
	QuietHours *QuietHours `json:"quiet_hours,omitempty"`
}

// Patch changes live fields of a group. The change takes effect immediately.
func (c groups) Patch(ctx context.Context, id string, p Patch) (*Group, error) {
	return c.group(ctx, call{method: http.MethodPatch, path: []string{"v1", "groups", id}}, p)
}

// Redriving selects the jobs of a redrive. Without statuses and codes it selects the dead ones, with codes alone the
// dead and failed ones with these codes.
type Redriving struct {
	Rate     float64  `json:"rate,omitempty"` // jobs a second; 0: the group's
	Statuses []string `json:"statuses,omitempty"`
	Codes    []string `json:"codes,omitempty"`
}

// Redrive redrives the dead jobs of a group at rate jobs a second (0: the group's rate).
func (c groups) Redrive(ctx context.Context, id string, rate float64) (*Group, error) {
	return c.RedriveJobs(ctx, id, Redriving{Rate: rate})
}

// RedriveJobs creates a new, sealed group from the selected jobs of a group. A job can be redriven once. A group
// without such jobs is refused with wrong_state.
func (c groups) RedriveJobs(ctx context.Context, id string, r Redriving) (*Group, error) {
	k, err := post("v1", "groups", id, "redrive").with(r)
	if err != nil {
		return nil, err
	}
	var g Group
	lost := false // a response
	err = c.retry(ctx, func() error {
		err := c.ask(ctx, k, &g)
		lost = lost || Passing(err)
		return err
	})
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "wrong_state" && lost {
		return c.redriveOf(ctx, id, p) // the first attempt created it
	}
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// redriveOf returns the newest redrive of a group, or the error instead if there is none.
func (c groups) redriveOf(ctx context.Context, id string, instead error) (*Group, error) {
	source, err := c.Group(ctx, id)
	if err != nil {
		return nil, err
	}
	for g, err := range c.Groups(ctx, Filter{Tenant: source.Tenant}) {
		switch {
		case err != nil:
			return nil, err
		case g.RedriveOf == id:
			return g, nil
		case g.CreatedAt.Before(source.CreatedAt):
			return nil, instead
		}
	}
	return nil, instead
}

func (c groups) group(ctx context.Context, k call, body any) (*Group, error) {
	return fetch[Group](ctx, c.connection, k, body)
}

// Filter selects groups.
type Filter struct {
	Tenant string            // "": all the token may see
	Status Status            // "": all
	Labels map[string]string // groups that have all of them
}

// Groups lists groups, newest first, and requests pages as needed. It ends after an error.
func (c groups) Groups(ctx context.Context, f Filter) iter.Seq2[*Group, error] {
	return func(yield func(*Group, error) bool) {
		k := get("v1", "groups")
		k.query = url.Values{}
		if f.Tenant != "" {
			k.query.Set("tenant", f.Tenant)
		}
		if f.Status != "" {
			k.query.Set("status", string(f.Status))
		}
		for key, value := range f.Labels {
			k.query.Add("label", key+"="+value)
		}
		for {
			var page bulktype.Groups[time.Time]
			if err := c.do(ctx, k, &page); err != nil {
				yield(nil, err)
				return
			}
			for _, g := range page.Groups {
				if !yield(g, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			k.query.Set("cursor", page.Next)
		}
	}
}
