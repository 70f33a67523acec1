package bulktype

import "encoding/json"

// Leased are jobs that a worker has to run now.
type Leased[T any] struct {
	Jobs []LeasedJob[T] `json:"jobs"`
	// LeaseSeconds is the length of a lease, from the moment at which it was taken or extended.
	LeaseSeconds float64 `json:"lease_seconds"`
}

// LeasedJob is one run of a job.
type LeasedJob[T any] struct {
	Lease          string          `json:"lease"` // names this run in verdicts and extensions
	ID             string          `json:"id"`
	Group          string          `json:"group"`
	Tenant         string          `json:"tenant"`
	Type           string          `json:"type"`
	Attempt        int64           `json:"attempt"` // from 1; refusals by the downstream and crashes do not count
	Fence          int64           `json:"fence"`   // increases with every start of any job
	Cost           int64           `json:"cost"`
	IdempotencyKey string          `json:"idempotency_key"` // the same for every run of the job, including redrives
	LeaseUntil     T               `json:"lease_until"`
	TraceParent    string          `json:"traceparent,omitempty"` // W3C trace context that the worker continues
	TraceState     string          `json:"tracestate,omitempty"`  // of the same
	Payload        json.RawMessage `json:"payload"`
}

// LeaseState is the effect of a verdict or of an extension.
type LeaseState struct {
	ID    string `json:"id"` // of the job
	State string `json:"state"`
}

// LeaseStates are in the order of the request.
type LeaseStates struct {
	Jobs []LeaseState `json:"jobs"`
	// LeaseSeconds is the length of the extended leases, 0 in the response to verdicts.
	LeaseSeconds float64 `json:"lease_seconds,omitempty"`
}
