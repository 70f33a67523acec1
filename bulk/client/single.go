package client

import (
	"context"
	"encoding/json"
	"time"
)

// SingleJob is a job that is submitted without a group. Tenant, Type and Payload are required.
type SingleJob struct {
	// ID identifies the job; empty: a random one. The same ID again within 24 h is a duplicate.
	ID        string          `json:"id,omitempty"`
	Tenant    string          `json:"tenant"`
	Type      string          `json:"type"`
	Payload   json.RawMessage `json:"payload"`
	Cost      int64           `json:"cost,omitempty"` // in units of the rates; 0 means 1
	Priority  Priority        `json:"priority,omitempty"`
	StartAt   time.Time       `json:"start_at,omitzero"`
	Delay     Span            `json:"delay,omitempty"`     // from now on, instead of StartAt
	ExpiresAt time.Time       `json:"expires_at,omitzero"` // if it has not started by then, it ends as dead
	Unique    *Unique         `json:"unique,omitempty"`
}

// Submit submits a single job. Its state and result are those of job ID of group Group: see Job, CancelJob and
// RetryJob.
func (c uploads) Submit(ctx context.Context, job SingleJob) (*Submitted, error) {
	if job.ID == "" {
		job.ID = newID("j-") // so that a repeated request is no second job
	}
	return fetch[Submitted](ctx, c.connection, post("v1", "jobs"), job)
}
