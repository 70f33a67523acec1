package client

import (
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// Objects that the server returns.
type (
	Group      = bulktype.Group[time.Time]
	ETA        = bulktype.ETA
	BulkAnswer = bulktype.BulkAnswer[time.Time]
	Rejection  = bulktype.Rejection
	Outcome    = bulktype.Outcome[time.Time]
	JobState   = bulktype.JobState[time.Time]
	QuietHours = bulktype.QuietHours
	Schedule   = bulktype.Schedule[time.Time]
	Template   = bulktype.Template
	Submitted  = bulktype.Submitted[time.Time]
	Process    = bulktype.Process[time.Time]
	RunningJob = bulktype.RunningJob[time.Time]
	Workers    = bulktype.Workers[time.Time]
	Breaker    = bulktype.Breaker[time.Time]
	Congestion = bulktype.Congestion[time.Time]
	Limits     = bulktype.Limits
	Tenant     = bulktype.Tenant

	ProcessorLimits = bulktype.ProcessorLimits
	Tolerance       = bulktype.Tolerance
)

// Priority is the level of a group. A level multiplies the weights in it: High by 16, Normal by 4, Low by 1.
type Priority = bulktype.Priority

// The priorities.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Status is the state of a group. A group is Created until it is sealed, even while its jobs run.
type Status = bulktype.Status

// The statuses.
const (
	Created     = bulktype.Created
	Dispatched  = bulktype.Dispatched
	Running     = bulktype.Running
	Aggregating = bulktype.Aggregating
	Completed   = bulktype.Completed
	Failed      = bulktype.Failed
	Cancelled   = bulktype.Cancelled
)

// Start is when the jobs of a group may start.
type Start = bulktype.Start

// The starts.
const (
	Early  Start = "early"  // as soon as they are accepted
	Sealed Start = "sealed" // after the seal
)

// Results selects the outcomes that a group keeps for retention.jobs. Dead and failed jobs can be redriven in any case.
type Results = bulktype.Results

// The choices.
const (
	AllResults     Results = "all"
	FailureResults Results = "failures" // those of jobs that did not succeed
	NoResults      Results = "none"     // those of dead and failed jobs, while they can be redriven
)
