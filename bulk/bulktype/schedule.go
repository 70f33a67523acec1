package bulktype

import "encoding/json"

// Template is what a schedule creates at each of its times: a group with jobs, or a group of one job.
type Template struct {
	Group json.RawMessage `json:"group,omitempty"`
	Jobs  json.RawMessage `json:"jobs,omitempty"`
	Job   json.RawMessage `json:"job,omitempty"`
}

// Schedule creates groups at the times of a cron expression.
type Schedule[T any] struct {
	ID           string `json:"id"`
	Tenant       string `json:"tenant"`
	Cron         string `json:"cron"`
	TimeZone     string `json:"time_zone"`
	Overlap      string `json:"overlap"`  // allow, skip, queue
	CatchUp      string `json:"catch_up"` // none, one, all
	Paused       bool   `json:"paused"`
	ExpiresAfter string `json:"expires_after,omitempty"` // a duration: 30m0s
	Template
	NextRuns  []T    `json:"next_runs"` // none while it is paused
	LastRun   T      `json:"last_run,omitzero"`
	LastGroup string `json:"last_group,omitempty"`
	Started   int64  `json:"started"`         // groups created
	Skipped   int64  `json:"skipped"`         // runs left out because of Overlap
	Missed    int64  `json:"missed"`          // runs left out because no process ran
	Failed    int64  `json:"failed"`          // runs that were refused
	Error     string `json:"error,omitempty"` // of the last one that was refused
	CreatedAt T      `json:"created_at"`
}

// Schedules is a list of schedules, by id.
type Schedules[T any] struct {
	Schedules []*Schedule[T] `json:"schedules"`
}
