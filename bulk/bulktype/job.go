package bulktype

import "encoding/json"

// Outcome is the outcome of a job, or a dead letter.
type Outcome[T any] struct {
	ID     string `json:"id"`
	Status string `json:"status,omitempty"` // succeeded, failed, dead, cancelled; empty in a dead letter
	// Type, Payload and Cost are those of a dead letter; Type is also that of a JobState.
	Type     string          `json:"type,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	Cost     int64           `json:"cost,omitempty"`
	Attempts int64           `json:"attempts"`
	Result   json.RawMessage `json:"result,omitempty"`
	Binary   []byte          `json:"result_base64,omitempty"` // replaces Result when that is neither JSON nor text
	Code     string          `json:"code,omitempty"`          // of the error: timeout, http_500, …
	Error    string          `json:"error,omitempty"`         // for people
	At       T               `json:"at,omitzero"`
	// CreatedAt is when the group accepted the job, StartedAt and Duration (milliseconds) are of its last run, as far as they are known.
	CreatedAt T      `json:"created_at,omitzero"`
	StartedAt T      `json:"started_at,omitzero"`
	Duration  *int64 `json:"duration_ms,omitempty"`
	// Cursor continues after this outcome. It is the last field: clients cut it from lines that they pass on.
	Cursor string `json:"cursor,omitempty"`
}

// JobState is the state of a job. Its Status can also be pending, waiting or running.
type JobState[T any] struct {
	Outcome[T]
	NextAt     T      `json:"next_at,omitzero"`     // waiting: until then
	Process    string `json:"process,omitempty"`    // running: the process that runs it
	ExpiresAt  T      `json:"expires_at,omitzero"`  // of a job that has not ended
	Cancelling bool   `json:"cancelling,omitempty"` // running, and its process is asked to stop it
	Group      string `json:"group,omitempty"`      // of a retry: the group that now has the job
}

// Submitted is a single job that was accepted, or the first one if Duplicate is set.
type Submitted[T any] struct {
	ID        string `json:"id"`
	Group     string `json:"group"`
	Tenant    string `json:"tenant"`
	Duplicate bool   `json:"duplicate,omitempty"`
	StartAt   T      `json:"start_at,omitzero"`
	ExpiresAt T      `json:"expires_at,omitzero"`
}

// Process is one of the processes that share the store, or a worker that pulls jobs.
type Process[T any] struct {
	ID        string   `json:"id"`
	Host      string   `json:"host,omitempty"`  // of a worker that pulls: its address
	Pulls     bool     `json:"pulls,omitempty"` // a worker that pulls; its Workers is 0
	Keeper    bool     `json:"keeper"`          // does the housekeeping for all processes
	State     string   `json:"state"`           // running; draining: takes no more jobs
	Workers   int      `json:"workers"`
	Busy      int      `json:"busy"`
	Types     []string `json:"types"` // of jobs that it runs
	StartedAt T        `json:"started_at,omitzero"`
	SeenAt    T        `json:"seen_at"`
}

// RunningJob is a job that a process runs now.
type RunningJob[T any] struct {
	Group     string `json:"group"`
	Tenant    string `json:"tenant"`
	ID        string `json:"id"`
	Type      string `json:"type"`
	Status    string `json:"status"` // running
	Process   string `json:"process"`
	Attempts  int64  `json:"attempts"` // including this one
	StartedAt T      `json:"started_at"`
}

// Workers are the processes and the jobs that run now.
type Workers[T any] struct {
	Processes []Process[T]    `json:"processes"` // empty for a tenant's token
	Running   int64           `json:"running"`   // number of running jobs
	Jobs      []RunningJob[T] `json:"jobs"`      // the longest running ones
	Away
}
