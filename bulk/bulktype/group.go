package bulktype

import (
	"encoding/json"
	"strconv"
)

// Priority is the level of a group. A level multiplies the weights in it: high by 16, normal by 4, low by 1.
type Priority string

// Status is the state of a group, see docs/bulk.md.
type Status string

// The statuses. Until the seal a group is CREATED, even while its jobs run.
const (
	Created     Status = "CREATED"     // jobs may still be added
	Dispatched  Status = "DISPATCHED"  // sealed, no job has started
	Running     Status = "RUNNING"     // sealed, a job has started
	Aggregating Status = "AGGREGATING" // every job has its outcome; results are reduced
	Completed   Status = "COMPLETED"
	Failed      Status = "FAILED" // more failed than failure_tolerance allows
	Cancelled   Status = "CANCELLED"
)

// Ended reports whether the group has ended.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// Start is when the jobs of a group may start: early or sealed.
type Start string

// Results selects the outcomes that a group keeps for retention.jobs.
type Results string

// Tolerance is a count ("12") or a share of the jobs ("5%").
type Tolerance string

// MarshalJSON writes a count as a number and a share as a string.
func (t Tolerance) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseInt(string(t), 10, 64); err == nil {
		return strconv.AppendInt(nil, n, 10), nil
	}
	return json.Marshal(string(t))
}

// UnmarshalJSON reads both forms.
func (t *Tolerance) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	var n json.Number
	err := json.Unmarshal(b, &n)
	*t = Tolerance(n)
	return err
}

// QuietHours are hours of each day in which no job of a group starts.
type QuietHours struct {
	From     string `json:"from"` // "22:00"
	To       string `json:"to"`   // "08:00", not included
	TimeZone string `json:"time_zone,omitempty"`
}

// Group is the state of a group.
type Group[T any] struct {
	ID           string   `json:"id"`
	Tenant       string   `json:"tenant"`
	Type         string   `json:"type"` // of jobs without a type of their own
	Status       Status   `json:"status"`
	Sealed       bool     `json:"sealed"`
	Paused       bool     `json:"paused"`
	Stopped      bool     `json:"stopped,omitempty"` // paused because of StopAt; Error has the counts
	Priority     Priority `json:"priority"`
	Weight       float64  `json:"weight"`
	BasePriority int64    `json:"base_priority"` // milliseconds, of the score policy

	RateLimit   float64     `json:"rate_limit"`  // of the group, starts a second; 0: none
	Concurrency int64       `json:"concurrency"` // most jobs in flight; 0: any number
	Start       Start       `json:"start"`
	StartAt     T           `json:"start_at,omitzero"`     // no job starts before
	ExpiresAt   T           `json:"expires_at,omitzero"`   // jobs that have not started by then end as dead
	Expired     bool        `json:"expired,omitempty"`     // ExpiresAt has passed before all jobs had ended
	QuietHours  *QuietHours `json:"quiet_hours,omitempty"` // of each day, in which no job starts
	// After are the groups that have to end first, When what their end has to be: on_success, on_failure, on_end.
	// WaitsFor are those that have not ended. Skipped is set if the group was cancelled because of how they ended.
	After    []string `json:"after,omitempty"`
	When     string   `json:"when,omitempty"`
	WaitsFor []string `json:"waits_for,omitempty"`
	Skipped  bool     `json:"skipped,omitempty"`
	// Duplicate is set in the response to a submission whose unique key was used before: this is the first group.
	Duplicate bool `json:"duplicate,omitempty"`
	// RollingUntil is when a group of single jobs is sealed.
	RollingUntil     T               `json:"rolling_until,omitzero"`
	Results          Results         `json:"results"`
	Aggregate        json.RawMessage `json:"aggregate"`
	FailureTolerance Tolerance       `json:"failure_tolerance"`
	StopAt           Tolerance       `json:"stop_at,omitzero"`
	CallbackURL      string          `json:"callback_url,omitempty"`
	Callback         string          `json:"callback,omitempty"` // pending, done, failed
	RedriveOf        string          `json:"redrive_of,omitempty"`
	// Labels are those that its sender has set.
	Labels   map[string]string `json:"labels,omitempty"`
	Split    int               `json:"split,omitempty"`    // on how many shards it has parts
	Expected int64             `json:"expected,omitempty"` // jobs, as its sender declared
	// The counts of parts on these shards are missing.
	Away

	Total     int64 `json:"total"`
	Pending   int64 `json:"pending"`
	Ready     int64 `json:"ready"`
	NonReady  int64 `json:"non_ready"`          // jobs that wait for a backoff, a Retry-After or their run_at
	Unserved  int64 `json:"unserved,omitempty"` // pending jobs of a type that no process runs
	InFlight  int64 `json:"in_flight"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`

	Progress        float64 `json:"progress"` // 0…1 of Total; 1 only when every job has its outcome
	Rate            float64 `json:"rate"`     // jobs finished a second, recently
	ETA             *ETA    `json:"eta,omitempty"`
	Congestion      string  `json:"congestion"` // of the tenant: none, low, moderate, high, critical
	ThrottlesPerJob float64 `json:"throttles_per_job"`
	Gated           bool    `json:"gated"` // no job of the group may start now
	GatedUntil      T       `json:"gated_until,omitzero"`
	GatedBy         string  `json:"gated_by,omitempty"` // rate, downstream, processor, policy, start_at, quiet_hours, after

	CreatedAt   T      `json:"created_at"`
	SealedAt    T      `json:"sealed_at,omitzero"`
	StartedAt   T      `json:"started_at,omitzero"`
	FinishedAt  T      `json:"finished_at,omitzero"`
	LastAddedAt T      `json:"last_added_at,omitzero"`
	Error       string `json:"error,omitempty"` // why the group failed or was stopped
}

// Done returns the number of jobs that have their outcome.
func (g *Group[T]) Done() int64 { return g.Succeeded + g.Failed + g.Dead + g.Cancelled }

// ETA is the estimated time until a group ends, in seconds from now.
type ETA struct {
	Seconds float64 `json:"seconds"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
}

// Groups is a page of a list of groups.
type Groups[T any] struct {
	Groups []*Group[T] `json:"groups"`
	Next   string      `json:"next,omitempty"` // cursor of the next page
	Away
}

// Away lists the shards of the store that did not reply to a request about all of them. Their data is missing in the
// response.
type Away struct {
	Shards []int `json:"shards_away,omitempty"`
}

// Rejection is a line of an upload that is not a valid job. The other lines are accepted.
type Rejection struct {
	Line   int64  `json:"line"` // from 1, blank lines included
	Reason string `json:"reason"`
}

// Tally counts the lines of an upload.
type Tally struct {
	Accepted      int64       `json:"accepted"`
	Duplicates    int64       `json:"duplicates"`     // were in the group already
	Rejected      []Rejection `json:"rejected"`       // the first 1,000
	RejectedTotal int64       `json:"rejected_total"` // all of them
}

// BulkAnswer is a group that one request created, filled and sealed.
type BulkAnswer[T any] struct {
	Group[T]
	Tally
}
