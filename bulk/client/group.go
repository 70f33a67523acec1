package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// GroupSpec is what a group is made from. Tenant and Type are required.
type GroupSpec struct {
	ID           string   `json:"id,omitempty"` // empty: one is drawn
	Tenant       string   `json:"tenant"`
	Type         string   `json:"type,omitempty"` // of the jobs that name none
	Priority     Priority `json:"priority,omitempty"`
	Weight       float64  `json:"weight,omitempty"`        // 0.01…100; 0 means 1
	BasePriority int64    `json:"base_priority,omitempty"` // of the score policy, milliseconds
	Rate         float64  `json:"rate,omitempty"`          // starts a second, up to three decimals; 0: no limit of its own
	Concurrency  int64    `json:"concurrency,omitempty"`   // most jobs in flight; 0: no limit of its own
	// Aggregate says how results are reduced, as JSON: "count", "concat", "sum:a.b" (or min, max, mean).
	Aggregate json.RawMessage `json:"aggregate,omitempty"`
	// FailureTolerance is how many jobs may fail before the group does: a number, or a share such as "5%".
	FailureTolerance Tolerance `json:"failure_tolerance,omitzero"`
	// StopAt pauses the group when as many of its jobs have failed or died: a number, or a share such as "5%".
	StopAt Tolerance `json:"stop_at,omitzero"`
	// Results says which outcomes are kept once the aggregate has taken them in; empty: AllResults.
	Results     Results `json:"results,omitempty"`
	CallbackURL string  `json:"callback_url,omitempty"`
	Start       Start   `json:"start,omitempty"`
}

// CreateGroup makes a group. The same spec with the same ID again answers with the group that exists.
func (c *Client) CreateGroup(ctx context.Context, spec GroupSpec) (*Group, error) {
	if spec.ID == "" {
		spec.ID = newID("g-")
	}
	return c.group(ctx, post("v1", "groups"), spec)
}

// Group reads a group.
func (c *Client) Group(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, get("v1", "groups", id), nil)
}

// Seal ends a group's submission: no more jobs, it may complete. Sealing again is no error. A group with a chunk that is half in is
// refused with chunk_open.
func (c *Client) Seal(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "seal"), nil)
}

// SealAbandoning is Seal also where chunks are half in, as of a sender that is gone: what of them is in runs, the rest is refused.
func (c *Client) SealAbandoning(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "seal"), map[string]bool{"abandon_chunks": true})
}

// Pause starts no more jobs of a group until Resume; what runs goes on.
func (c *Client) Pause(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "pause"), nil)
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "resume"), nil)
}

// Release lets what a group waits for on behalf of its downstream start at once: the group after a Retry-After, and its jobs that
// were refused or are to be tried again. It takes the operators' token. Limits, breakers and run_at hold.
func (c *Client) Release(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "release"), nil)
}

// Cancel ends a group: none of its jobs starts from now on. A group that has ended is refused with wrong_state.
func (c *Client) Cancel(ctx context.Context, id string) (*Group, error) {
	return c.group(ctx, post("v1", "groups", id, "cancel"), nil)
}

// Delete removes an ended group and all that is kept of it: outcomes, payloads of dead letters, its result. It returns when nothing is
// left. A group that has not ended, or whose callback or redrive is under way, is refused with wrong_state.
func (c *Client) Delete(ctx context.Context, id string) error {
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

// Patch changes a group while it runs; nil leaves a field as it is.
type Patch struct {
	Weight       *float64  `json:"weight,omitempty"`
	Rate         *float64  `json:"rate,omitempty"`
	Concurrency  *int64    `json:"concurrency,omitempty"`
	Priority     *Priority `json:"priority,omitempty"`
	BasePriority *int64    `json:"base_priority,omitempty"`
	// StopAt replaces the group's; one that was resumed beyond the former is stopped by the new one.
	StopAt *Tolerance `json:"stop_at,omitempty"`
}

// Patch changes weight, rate, concurrency, priority and stop_at of a group at once.
func (c *Client) Patch(ctx context.Context, id string, p Patch) (*Group, error) {
	return c.group(ctx, call{method: http.MethodPatch, path: []string{"v1", "groups", id}}, p)
}

// Redriving selects the jobs of a redrive. With neither statuses nor codes they are the dead ones, with codes alone the dead and
// the failed ones of these codes.
type Redriving struct {
	Rate     float64  `json:"rate,omitempty"` // jobs a second; 0: the group's
	Statuses []string `json:"statuses,omitempty"`
	Codes    []string `json:"codes,omitempty"`
}

// Redrive is RedriveJobs of the dead jobs, at rate jobs a second (0: the group's).
func (c *Client) Redrive(ctx context.Context, id string, rate float64) (*Group, error) {
	return c.RedriveJobs(ctx, id, Redriving{Rate: rate})
}

// RedriveJobs makes a new, sealed group of the selected jobs of a group. Each job goes to one redrive; a group without such jobs is
// refused with wrong_state.
func (c *Client) RedriveJobs(ctx context.Context, id string, r Redriving) (*Group, error) {
	k, err := post("v1", "groups", id, "redrive").with(r)
	if err != nil {
		return nil, err
	}
	var g Group
	lost := false // an answer was
	err = c.retry(ctx, func() error {
		err := c.ask(ctx, k, &g)
		lost = lost || Passing(err)
		return err
	})
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "wrong_state" && lost {
		return c.redriveOf(ctx, id, p) // it was made the first time, and there is nothing left for another
	}
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// redriveOf finds the newest redrive of a group; instead is the error where there is none.
func (c *Client) redriveOf(ctx context.Context, id string, instead error) (*Group, error) {
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

func (c *Client) group(ctx context.Context, k call, body any) (*Group, error) {
	if body != nil {
		var err error
		if k, err = k.with(body); err != nil {
			return nil, err
		}
	}
	var g Group
	if err := c.do(ctx, k, &g); err != nil {
		return nil, err
	}
	return &g, nil
}

// Filter chooses groups.
type Filter struct {
	Tenant string // "": all that the token may see
	Status Status // "": all
}

// Groups lists groups, the newest first, page by page as it is ranged over. After an error it ends.
func (c *Client) Groups(ctx context.Context, f Filter) iter.Seq2[*Group, error] {
	return func(yield func(*Group, error) bool) {
		k := get("v1", "groups")
		k.query = url.Values{}
		if f.Tenant != "" {
			k.query.Set("tenant", f.Tenant)
		}
		if f.Status != "" {
			k.query.Set("status", string(f.Status))
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
