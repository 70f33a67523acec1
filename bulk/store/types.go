package store

import (
	"time"
)

// Level is the priority of a group.
type Level string

// The levels: each multiplies the weight of what it holds, by 16, 4 and 1.
const (
	High   Level = "high"
	Normal Level = "normal"
	Low    Level = "low"
)

// Status is where a group is in its life; docs/bulk.md draws it.
type Status string

// The statuses of a group. Before the seal a group is CREATED even while its jobs run. Paused is a flag beside them.
const (
	Created     Status = "CREATED"     // jobs may still come
	Dispatched  Status = "DISPATCHED"  // sealed: all jobs are in, none has begun
	Running     Status = "RUNNING"     // sealed and begun
	Aggregating Status = "AGGREGATING" // every job has its outcome; results are being reduced
	Completed   Status = "COMPLETED"
	Failed      Status = "FAILED" // more failed than failure_tolerance allows
	Cancelled   Status = "CANCELLED"
)

// Ended says whether a group of this status is at its end.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// Tolerance is how many jobs of a group may fail before the group does: a count, or a share of its jobs in percent.
type Tolerance struct {
	Count   int64
	Percent float64 // 0…100; used where Share is true
	Share   bool
}

// Results says which outcomes a group keeps for retention.jobs once its reducer has taken them in.
type Results string

// What a group keeps. The jobs that died or failed keep their payload for retention.dead in any case, so that they can be redriven.
const (
	AllResults     Results = ""         // every outcome
	FailureResults Results = "failures" // those of jobs that did not succeed
	NoResults      Results = "none"     // those from which a job can be redriven
)

// GroupSpec is what a group is made from.
type GroupSpec struct {
	ID           string    // 1…128 of [A-Za-z0-9._:-]; empty: one is drawn
	Tenant       string    // 1…64 of [A-Za-z0-9._-]
	Type         string    // of its jobs, where a job names none
	Level        Level     `json:",omitzero"`
	Weight       float64   `json:",omitzero"` // 0.01…100; 0 means 1
	BasePriority int64     `json:",omitzero"` // of the score policy, milliseconds
	Rate         float64   `json:",omitzero"` // starts a second of this group, up to three decimals; 0: no limit of its own
	Concurrency  int64     `json:",omitzero"` // most jobs in flight; 0: no limit of its own
	Aggregate    string    `json:",omitzero"` // compact JSON that bulk.ParseAggregate has accepted; empty: count
	Tolerance    Tolerance `json:",omitzero"`
	StopAt       Tolerance `json:",omitzero"` // as many failed and dead jobs pause the group; zero: none do
	Results      Results   `json:",omitempty"`
	CallbackURL  string    `json:",omitzero"`
	StartSealed  bool      `json:",omitzero"`  // no job starts before the seal
	RedriveOf    string    `json:",omitzero"`  // the group whose dead or failed jobs these are
	RedriveWhich string    `json:",omitempty"` // which of them: the statuses and codes of RedriveOptions; empty: the dead ones
	// Own says that a tenant's token asks: Level, Weight and BasePriority then count inside the tenant only.
	Own       bool  `json:",omitempty"`
	MaxGroups int64 `json:"-"` // most groups that the tenant may have with this one; 0: any number
}

// Group is a group as it stands now.
type Group struct {
	GroupSpec
	Status  Status
	Sealed  bool
	Paused  bool
	Stopped bool  // it is paused because of StopAt
	Epoch   int64 // grows with every change of status
	Total   int64
	Pending int64
	Ready   int64
	// NonReady counts jobs that wait out a backoff, a Retry-After or their run_at.
	NonReady                           int64
	InFlight                           int64
	Unserved                           int64 // of the pending, those whose type no process has run for a minute
	Succeeded, Failed, Dead, Cancelled int64
	Throttles                          int64         // refusals by the rate limit or the downstream, of all its jobs
	Rate1                              float64       // jobs finished a second, lately
	Expected                           float64       // jobs a second to expect: Rate1, or the configured rate before there is one; 0: unknown
	Reduced                            int64         // outcomes that the reducer has taken in
	Redriven                           int64         // dead letters that were given to a redrive
	Gone                               int64         // outcomes that went because of Results
	Backoff                            time.Duration // of its tenant, while jobs of this group wait it out
	Gated                              bool          // nothing of it starts for now
	GatedBy                            string        // one of GatedBy…, while Gated
	GatedUntil                         time.Time
	CreatedAt, SealedAt, StartedAt     time.Time // zero while it has not happened
	FinishedAt                         time.Time
	LastAddedAt                        time.Time
	LastOutcomeAt                      time.Time
	ReadAt                             time.Time // the store's clock when it was read
	Result                             []byte    // JSON, when the group has ended
	CallbackState                      string    // "", "pending", "done", "failed"
	CallbackTries                      int64
}

// Job is one line of a submission.
type Job struct {
	ID      string // 1…128 printable characters without blanks; unique in its group
	Type    string // empty: the group's
	Payload []byte // JSON
	Cost    int64  // of the rates, 1…1,000; 0 means 1
	RunAt   time.Time
}

// Chunk says which part of an upload a call of AddJobs carries.
type Chunk struct {
	Key    string // idempotency key; empty: none
	Offset int64  // of the first job of this call among the chunk's lines, from 0
	Last   bool   // the chunk ends with this call
	Whole  int64  // with Last: only if so many jobs of the chunk are in then; 0: in any case
	// MaxPending is how many jobs the tenant may have to do with this call's; 0: as the settings allow.
	MaxPending int64
	// Rejected and Answer of the whole chunk are stored with the last call, so that a repeated chunk gets its old answer.
	Answer []byte
}

// Added is what became of a call of AddJobs: one entry a job.
type Added struct {
	Accepted   int64
	Duplicates int64
	// Duplicate marks the jobs that were there already.
	Duplicate []bool
	Done      bool // the chunk has ended with this call
	// Before counts what earlier, broken attempts of this chunk had put in.
	Before int64
}

// ChunkState is what is known of a chunk before it is read.
type ChunkState struct {
	Done   bool
	Answer []byte // of a chunk that is done
}

// Leased is a job that this process has to start now.
type Leased struct {
	Key     string // names the job in the store: of Ack and Renew
	ID      string
	Group   string
	Root    string // the group that the job was submitted to: not Group where that is a redrive
	Tenant  string
	Type    string
	Payload []byte
	Cost    int64
	Attempt int64 // from 1; does not grow with refusals and crashes
	Crashes int64
	Fence   int64 // grows with every start of any job; an Ack with an old one is refused
	Until   time.Time
}

// Pulled is the answer to Pull.
type Pulled struct {
	Jobs []Leased
	// Next is when a pull could find more, by rate, gate or backoff; zero where only an event (a submission, an ack, a change)
	// can bring more: Wait hears of it.
	Next time.Duration
	// Limited says that the global rate stopped the pull, and Next is its next slot.
	Limited bool
	// More says that there is work for more workers right now.
	More bool
	// What the fetch did, for metrics: jobs fetched, and in the classic pipeline how they were admitted.
	Fetched, ToReady, ToNonReady, Dropped int64
}

// Verdict is how a run of a job ended.
type Verdict string

// The verdicts.
const (
	Done      Verdict = "done"      // 2xx
	Rejected  Verdict = "failed"    // for good: not tried again
	Retry     Verdict = "retry"     // a failed try; dead after the last
	Throttled Verdict = "throttled" // refused for now by the downstream: the job waits, no try spent
	Held      Verdict = "held"      // as Throttled, and its whole group waits, a minute at most
	Returned  Verdict = "returned"  // given back unrun, at a shutdown: nothing spent
	Buried    Verdict = "dead"      // dead at once
)

// Ack ends the run of a leased job.
type Ack struct {
	Key     string
	Fence   int64
	Verdict Verdict
	Result  []byte        // of Done: JSON or any bytes
	Code    string        // of an error: [a-z0-9_], at most 64; "timeout", "http_500"
	Error   string        // for people
	Retries int64         // of Retry: how many failed tries a job may have before the next one makes it dead
	After   time.Duration // Throttled, Held: the downstream's Retry-After, 0: unknown; Retry: the least backoff
	// Took is how long the handler ran: what fair queuing by time settles with.
	Took time.Duration
	// Down marks a failure of what the processor calls, as a whole: it counts for the breaker of the type.
	Down bool
	// Breaker is how failures count for breakers; the zero value: not at all.
	Breaker Breaker
}

// AckState is what became of an Ack.
type AckState string

// What an Ack leads to. Stale: the lease had ended or the fence is old; another run decides, nothing was changed.
const (
	AckDone      AckState = "done"
	AckFailed    AckState = "failed"
	AckRetry     AckState = "retry"
	AckThrottled AckState = "throttled"
	AckReturned  AckState = "returned"
	AckDead      AckState = "dead"
	AckCancelled AckState = "cancelled"
	AckStale     AckState = "stale"
)

// Dispatched is what one round of the dispatcher did.
type Dispatch struct {
	Moved     int64 // due jobs that went back to the front of their group
	Recovered int64 // orphans: leases that ended
	Dead      int64 // of those and of the refused ones, how many died
	Skipped   int64 // due jobs that could not go back yet
	Woken     int64 // gates that opened
	Next      time.Duration
	More      bool // the round was cut at its bound: call again at once
	// Tend lists groups with housekeeping to do: aggregation, sweeps, retention.
	Tend []string
}

// Outcome is what became of one job.
type Outcome struct {
	ID       string
	Status   string // succeeded, failed, dead, cancelled
	Attempts int64
	Result   []byte
	Code     string
	Error    string
	// Payload and Cost are there for dead and failed jobs that were not given to a redrive, and their Type; that of a job that
	// succeeded is empty where it is the group's.
	Payload []byte
	Type    string
	Cost    int64
	At      time.Time
	// CreatedAt is when the job was taken into its group, StartedAt when its last run began, as far as the run's length tells. They
	// are zero where they are not known: of a cancelled job, of one that did not run, and of one of an earlier version.
	CreatedAt, StartedAt time.Time
	Cursor               string // of Results: behind this outcome

	place int64
}

// JobState is one job as it stands.
type JobState struct {
	Outcome           // its Status also pending, waiting or running
	Next    time.Time // of waiting: until then
	Process string    // of running: which runs it
	// Cancelling says of running that its process is told to end it.
	Cancelling bool
}

// Page is a part of a group's outcomes.
type Page struct {
	Outcomes []Outcome
	Next     string // "" at the end
}

// What a group is gated by.
const (
	GatedByRate       = "rate"       // a limit of the group or its tenant
	GatedByDownstream = "downstream" // a Retry-After; Release lifts it
	GatedByProcessor  = "processor"  // a limit of its type, or a breaker
	GatedByPolicy     = "policy"     // a change of fair_queue.policy, for a second
)

// Patch changes a group; nil leaves a field as it is.
type Patch struct {
	Weight       *float64
	Rate         *float64
	Concurrency  *int64
	Level        *Level
	BasePriority *int64
	Paused       *bool
	StopAt       *Tolerance // zero: no share or count stops the group
	// Own says that a tenant's token asks: Weight, Level and BasePriority then count inside the tenant only, and those that an
	// operator has set are refused.
	Own bool
}

// Congestion is a tenant's state of backpressure.
type Congestion struct {
	Tenant       string
	Concurrency  int64 // most jobs in flight; 0: any number
	NonReady     int64
	Pending      int64
	InFlight     int64
	Rate         float64 // jobs a second that it may start: its own limit, or its share
	Backoff      time.Duration
	Level        string // none, low, moderate, high, critical
	AvgThrottles float64
	Finished     int64
	Estimate     time.Duration // to work off what waits
	At           time.Time
}

// Limits are the rates in force, live over configured.
type Limits struct {
	Global, PerTenant, Burst float64
	Live                     bool // an operator set them
	Adaptive                 bool // Global is one that was found (Settings.Adaptive), not set by an operator
	Types                    map[string]TypeLimits
}

// LimitsPatch names the rates to change: those that are given. A given nil goes back to the configuration, and what is not given stays as
// it is, live or configured.
type LimitsPatch struct {
	Global, PerTenant           *float64
	GlobalGiven, PerTenantGiven bool
	Types                       map[string]TypeLimitPatch
}

// Tenant is what operators may set for a tenant.
type Tenant struct {
	Name   string
	Weight float64
	Rate   float64 // 0: the configured
	// Concurrency is how many of its jobs may be in flight at once; 0: any number.
	Concurrency int64
	// Figures, read only.
	Groups, InFlight, Served int64
}

// Depths are the figures for gauges: of the whole shard, cheap to read.
type Depths struct {
	Groups                             map[Level]int64 // groups that wait in the fair queue
	Pending, Ready, NonReady, InFlight int64
	ActiveTenants, GatedGroups         int64
	OpenGroups                         int64   // that have not ended
	Jain                               float64 // of what active tenants were served by weight, lately; 1 where fewer than two
	RateAccuracy                       float64 // starts a second over the rate in force, lately; 0 where there was no demand
	MaxCongestion                      string
	MaxBackoff                         time.Duration
	BackoffLimit                       time.Duration // what MaxBackoff grows to at most: congestion.max_backoff of this process
	AvgThrottles                       float64
	Unserved                           int64    // jobs whose type no process has run for a minute
	UnservedTypes                      []string // their types
	Types                              map[string]TypeLimits
	Breakers                           []OpenBreaker
	SavedSpins                         int64 // repeats that a gate or a longer backoff spared, since the beginning
}

// Tended is what one step of housekeeping of a group leaves to do.
type Tended struct {
	Again bool // there is more to do at once
	// Reduce says that outcomes wait for the reducer.
	Reduce bool
	// Callback says that the group has ended and its callback is due.
	Callback bool
	Removed  bool  // the group is gone
	DeadGone int64 // dead letters that went with their retention
	Sealed   bool  // this step sealed it, because it was silent for Settings.UnsealedAfter
}

// Reduction is where a group's reducer stands.
type Reduction struct {
	Group  Group
	Fence  int64  // of this reducer; a commit with an old one is refused
	Cursor string // of Results
	State  []byte
	Silent time.Duration // since the last job came or ended

	short  string // the group's name in the store
	widest int64  // bytes of the largest outcome that there is
}

// Violation is an invariant that does not hold.
type Violation struct {
	Invariant string // short name, as in docs/bulk.md
	What      string // which job, group or tenant, and how
}
