package store

import (
	"cmp"
	"encoding/base64"
	"math"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/calendar"
)

// Level is the priority of a group.
type Level string

// The levels multiply the weights in them by 16, 4 and 1.
const (
	High   Level = "high"
	Normal Level = "normal"
	Low    Level = "low"
)

// Status is the state of a group.
type Status = bulktype.Status

// The statuses of a group. Paused is a separate flag.
const (
	Created     = bulktype.Created
	Dispatched  = bulktype.Dispatched
	Running     = bulktype.Running
	Aggregating = bulktype.Aggregating
	Completed   = bulktype.Completed
	Failed      = bulktype.Failed
	Cancelled   = bulktype.Cancelled
)

// Tolerance is how many jobs of a group may fail or die before the group fails: a count, or a share of its jobs in percent.
type Tolerance struct {
	Count   int64
	Percent float64 // 0…100; used where Share is true
	Share   bool
}

// Results selects the outcomes that a group keeps for retention.jobs after they are reduced.
type Results string

// What a group keeps. Dead and failed jobs keep their payload for retention.dead in any case, to be redriven.
const (
	AllResults     Results = ""         // every outcome
	FailureResults Results = "failures" // those of jobs that did not succeed
	NoResults      Results = "none"     // those of jobs that can be redriven
)

// When is what the end of its predecessors has to be for a group to start. It is decided once, when all have ended: if it is
// not met, the group is cancelled.
type When string

// The conditions.
const (
	OnSuccess When = "on_success" // all have completed
	OnFailure When = "on_failure" // one has failed or was cancelled
	OnEnd     When = "on_end"
)

// Predecessor is a group that another waits for, or waited for.
type Predecessor struct {
	ID     string
	Status Status // empty: it has not ended
}

// Unique is a name that a tenant's submissions may use once within a time: a later one is a duplicate of the first.
// Groups and single jobs have names of their own.
type Unique struct {
	Key    string        // 1…200 bytes of printable characters
	Within time.Duration // from the first submission on, 1 s to 720 h
}

// GroupSpec describes a new group.
type GroupSpec struct {
	ID           string         // 1…128 of [A-Za-z0-9._:-]; empty: a random one
	Tenant       string         // 1…64 of [A-Za-z0-9._-]
	Type         string         // of jobs without a type
	Level        Level          `json:",omitzero"`
	Weight       float64        `json:",omitzero"` // 0.01…100; 0 means 1
	BasePriority int64          `json:",omitzero"` // of the score policy, milliseconds
	Rate         float64        `json:",omitzero"` // starts a second of this group, up to three decimals; 0: no limit of its own
	Concurrency  int64          `json:",omitzero"` // most jobs in flight; 0: no limit of its own
	Aggregate    string         `json:",omitzero"` // compact JSON that bulk.ParseAggregate has accepted; empty: count
	Tolerance    Tolerance      `json:",omitzero"`
	StopAt       Tolerance      `json:",omitzero"` // so many failed and dead jobs pause the group; zero: no limit
	Results      Results        `json:",omitempty"`
	CallbackURL  string         `json:",omitzero"`
	StartSealed  bool           `json:",omitzero"`  // no job starts before the seal
	StartAt      time.Time      `json:",omitzero"`  // no job starts before; zero: none
	ExpiresAt    time.Time      `json:",omitzero"`  // jobs that neither run nor have ended by then end as dead; zero: never
	Quiet        calendar.Quiet `json:",omitzero"`  // hours in which no job starts; zero: none
	Unique       Unique         `json:",omitzero"`  // accepted once within its time; zero: no such bound
	After        string         `json:",omitempty"` // ids of the groups that have to end first, separated by blanks
	When         When           `json:",omitempty"` // with After; empty: OnSuccess
	Labels       Labels         `json:",omitempty"` // at most 16, by which groups are found
	Split        int            `json:",omitzero"`  // on how many shards it has parts; 0 and 1: it is whole
	ExpectedJobs int64          `json:",omitzero"`  // jobs; without Split, above splitAbove the Fleet splits the group
	RedriveOf    string         `json:",omitzero"`  // the group whose dead or failed jobs these were
	RedriveWhich string         `json:",omitempty"` // statuses and codes of RedriveOptions; empty: the dead ones
	// Own is set for a tenant's token: Level, Weight and BasePriority then have effect within the tenant only.
	Own bool `json:",omitempty"`
	// Parts are the shards of a split group, which the Fleet chooses, separated by blanks: the first decides for the group. Part is
	// the index in that list of the one that a record is about.
	Parts string `json:",omitempty"`
	Part  int    `json:",omitzero"`

	// Trace is that of the request that created the group; two specs that differ in it alone are the same.
	Trace Trace `json:",omitzero"`

	MaxGroups int64 `json:"-"` // most groups of the tenant, including this one; 0: any number

	predecessors string // After as group_create takes it, if some of them are on other shards
}

// Group is the state of a group.
type Group struct {
	GroupSpec
	Status  Status
	Sealed  bool
	Paused  bool
	Stopped bool // paused because of StopAt
	// Away are the shards that did not reply: the counts of their parts are missing. Lost are those that have lost their part.
	Away, Lost []int
	// Duplicate is set by CreateGroup: this is the group that was created first under the Unique key.
	Duplicate bool
	// Predecessors are those of After, with how they ended. Skipped is set if the group was cancelled because they did
	// not end as When requires.
	Predecessors []Predecessor
	Skipped      bool
	Rolling      time.Time // of a group of single jobs: when it is sealed at the latest
	Expired      bool      // ExpiresAt has passed before all jobs had ended
	Epoch        int64     // increases with every change of status
	Total        int64
	Pending      int64
	Ready        int64
	// NonReady counts jobs that wait for a backoff, a Retry-After or their run_at.
	NonReady                           int64
	InFlight                           int64
	Unserved                           int64 // pending jobs whose type no process has run for a minute
	Succeeded, Failed, Dead, Cancelled int64
	Throttles                          int64         // refusals by the rate limit or the downstream, of all its jobs
	Rate1                              float64       // jobs finished a second, recently
	Expected                           float64       // expected jobs a second: Rate1, or the configured rate without one; 0: unknown
	Reduced                            int64         // reduced outcomes
	Redriven                           int64         // redriven dead letters
	Gone                               int64         // outcomes dropped because of Results
	partRate, partSlots                int64         // its rate, in thousandths, and concurrency in this shard
	waits                              bool          // for groups, or as a part for the first one to begin
	lentRate, lentSlots                bool          // Rate, Concurrency are those of the whole group, although this is a part
	swept                              int64         // of a cancelled one: 1 when all its jobs have their outcome, 2 with its result
	Backoff                            time.Duration // of its tenant, while jobs of this group wait for it
	Gated                              bool          // no job of it may start now
	GatedBy                            string        // one of GatedBy…, while Gated
	GatedUntil                         time.Time
	CreatedAt, SealedAt, StartedAt     time.Time // zero if it has not happened
	FinishedAt                         time.Time
	LastAddedAt                        time.Time
	LastOutcomeAt                      time.Time
	ReadAt                             time.Time // the store's time of reading
	Result                             []byte    // JSON, when the group has ended
	CallbackState                      string    // "", "pending", "done", "failed"
	CallbackTries                      int64
}

// Job is one line of a submission.
type Job struct {
	ID      string // 1…128 printable characters without blanks; unique in its group
	Type    string // empty: the group's
	Payload []byte // JSON
	Cost    int64  // in units of the rates, 1…1,000; 0 means 1
	RunAt   time.Time
	// ExpiresAt: the job ends as dead if its turn comes later; zero: never.
	ExpiresAt time.Time
}

// Trace is the trace and the span of a submission, which the store keeps with its jobs and with a group that it creates. The zero value is none.
type Trace struct {
	ID    [16]byte
	Span  [8]byte
	State string // tracestate of W3C Trace Context, up to MaxTraceState bytes
}

// MaxTraceState is the longest tracestate that is kept, in bytes: the length that the specification asks for. A longer one is left out.
const MaxTraceState = 512

// MarshalText returns the trace as text: that of ID, Span and State in base64url; empty without one.
func (t Trace) MarshalText() ([]byte, error) {
	if t.ID == ([16]byte{}) {
		return nil, nil
	}
	raw := append(t.ID[:], t.Span[:]...)
	if len(t.State) <= MaxTraceState {
		raw = append(raw, t.State...)
	}
	return base64.RawURLEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText reads the text of MarshalText. Other text is none: no job fails because of its trace.
func (t *Trace) UnmarshalText(text []byte) error {
	*t = Trace{}
	raw, err := base64.RawURLEncoding.DecodeString(string(text))
	ids := len(t.ID) + len(t.Span)
	if err != nil || len(raw) < ids {
		return nil
	}
	copy(t.ID[:], raw)
	copy(t.Span[:], raw[len(t.ID):])
	t.State = string(raw[ids:])
	return nil
}

// word returns the trace as records have it: a t and its text; empty without one.
func (t Trace) word() string {
	text, _ := t.MarshalText()
	if len(text) == 0 {
		return ""
	}
	return "t" + string(text)
}

// traceOf returns the trace in the first line of a record; zero without one.
func traceOf(head string) (t Trace) {
	at := strings.LastIndex(head, " t")
	if at < 0 {
		return t
	}
	_ = t.UnmarshalText([]byte(head[at+2:]))
	return t
}

// Chunk is the part of an upload that a call of AddJobs carries.
type Chunk struct {
	Key    string // idempotency key; empty: none
	Offset int64  // of the first job of this call among the chunk's lines, from 0
	Last   bool   // the chunk ends with this call
	Whole  int64  // with Last: only if the group then has so many jobs of the chunk; 0: in any case
	// MaxPending is how many unfinished jobs the tenant may have including this call's; 0: as the settings allow.
	MaxPending int64
	// Answer is stored with the last call as the response to repetitions of the chunk.
	Answer []byte
	// Created is when the group was created: another group of the same id is refused as unknown. Zero: any group.
	Created time.Time
	Trace   Trace // of the submission

	elsewhere int64 // open jobs of the tenant in other shards
}

// Added is the result of AddJobs.
type Added struct {
	Accepted   int64
	Duplicates int64
	// Duplicate marks the jobs that the group had already.
	Duplicate []bool
	Done      bool // the chunk is complete
	// Before counts the jobs that earlier attempts of this chunk added.
	Before int64
}

// ChunkState is the state of a chunk before it is read.
type ChunkState struct {
	Done   bool
	Answer []byte // of a complete chunk
}

// Leased is a job that this process must start now.
type Leased struct {
	Key     string // identifies the job in Ack and Renew
	ID      string
	Group   string
	Root    string // the group that the job was submitted to; not Group if that is a redrive
	Tenant  string
	Type    string
	Payload []byte
	Cost    int64
	Attempt int64 // from 1; refusals and crashes do not count
	Crashes int64
	Fence   int64 // increases with every start of any job; an Ack with an old one is refused
	Until   time.Time
	Trace   Trace // of the submission; of a redriven job none
	// Level is that of its group among tenants. Waited is the time from the acceptance of the job until this lease; negative if the job
	// has a record of earlier runs. A returned job may have none, and counts as new.
	Level  Level
	Waited time.Duration
}

// IdempotencyKey is the same for every run of the job, including redrives.
func (l *Leased) IdempotencyKey() string { return cmp.Or(l.Root, l.Group) + "/" + l.ID }

// Hold is a limit that lets no further job of a type, tenant and group start; an empty field stands for any.
type Hold struct {
	Type, Tenant, Group string
	For                 time.Duration // UntilEvent: until a run ends or the limit changes
}

// UntilEvent is longer than any time.
const UntilEvent = time.Duration(math.MaxInt64)

// Covers reports whether the limit holds for a job.
func (h *Hold) Covers(l *Leased) bool {
	return (h.Type == "" || h.Type == l.Type) && (h.Tenant == "" || h.Tenant == l.Tenant) && (h.Group == "" || h.Group == l.Group)
}

// Pulled is the result of Pull.
type Pulled struct {
	Jobs []Leased
	// Next is when a pull could find more, because of rates, gates or backoffs; zero if only an event (a submission,
	// an ack, a change) can bring more, for which Wait waits.
	Next time.Duration
	// Limited reports that the global rate stopped the pull; Next is its next slot.
	Limited bool
	// More reports that more jobs could start now.
	More bool
	// Held lists limits that let no further job start: of the groups and tenants of Jobs, and of the types that the pull has met.
	Held []Hold
	// Counts for metrics: jobs fetched, and in the classic pipeline how they were admitted.
	Fetched, ToReady, ToNonReady, Dropped int64
}

// Verdict is the result of a run of a job.
type Verdict string

// The verdicts.
const (
	Done      Verdict = "done"      // 2xx
	Rejected  Verdict = "failed"    // not retried
	Retry     Verdict = "retry"     // a failed try; the job is dead after the last one
	Throttled Verdict = "throttled" // refused for now by the downstream: the job waits, the try does not count
	Held      Verdict = "held"      // as Throttled, and its whole group waits, a minute at most
	Returned  Verdict = "returned"  // returned without a run, at a shutdown; does not count
	Buried    Verdict = "dead"      // dead immediately
)

// Ack ends the run of a leased job.
type Ack struct {
	Key     string
	Fence   int64
	Verdict Verdict
	Result  []byte        // of Done: JSON or any bytes
	Code    string        // of an error: [a-z0-9_], at most 64; "timeout", "http_500"
	Error   string        // for people
	Retries int64         // of Retry: how many failed tries a job may have before the next one is the last
	After   time.Duration // Throttled, Held: the downstream's Retry-After, 0: unknown; Retry: the shortest backoff
	// Took is how long the handler ran, for fair queuing by time.
	Took time.Duration
	// Down marks a failure of the whole service that the processor calls: it counts for the breaker of the type.
	Down bool
	// Breaker is how failures count for breakers; the zero value: not at all.
	Breaker Breaker
}

// AckState is the effect of an Ack.
type AckState string

// The effects of an Ack. Stale: the lease had ended or the fence is old; nothing was changed.
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

// Dispatch is the result of one round of the dispatcher.
type Dispatch struct {
	Moved     int64 // due jobs returned to the front of their group
	Recovered int64 // orphans: jobs whose lease ended
	Dead      int64 // recovered and refused jobs that died
	Skipped   int64 // due jobs that could not be returned yet
	Woken     int64 // gates that opened
	Next      time.Duration
	More      bool // the round reached its bound: call again immediately
	// Tend lists groups with housekeeping to do: aggregation, sweeps, retention.
	Tend []string
}

// Outcome is the outcome of one job.
type Outcome struct {
	ID       string
	Status   string // succeeded, failed, dead, cancelled
	Attempts int64
	Result   []byte
	Code     string
	Error    string
	// Payload, Cost and Type exist for dead and failed jobs that were not redriven. The Type of a succeeded job is
	// empty if it is the group's.
	Payload []byte
	Type    string
	Cost    int64
	At      time.Time
	// CreatedAt is when the group accepted the job, StartedAt when its last run began. They are zero if unknown: of a
	// cancelled job, of one that did not run, and of one of an earlier version.
	CreatedAt, StartedAt time.Time
	Cursor               string // of Results: after this outcome

	place int64
}

// JobState is the state of one job.
type JobState struct {
	Outcome           // Status can also be pending, waiting or running
	Next    time.Time // while waiting: until then
	// ExpiresAt is the job's own, while it has not ended.
	ExpiresAt time.Time
	Process   string // while running: the process that runs it
	// Cancelling is set for a running job whose process is asked to stop it.
	Cancelling bool
}

// Page is a part of a group's outcomes.
type Page struct {
	Outcomes []Outcome
	Next     string // "" at the end
}

// Values of Group.GatedBy.
const (
	GatedByRate       = "rate"       // a limit of the group or its tenant
	GatedByDownstream = "downstream" // a Retry-After; Release lifts it
	GatedByProcessor  = "processor"  // a limit of its type, or a breaker
	GatedByStart      = "start_at"   // its start_at
	GatedByQuiet      = "quiet_hours"
	GatedByAfter      = "after"  // groups that have to end first
	GatedByPolicy     = "policy" // a change of fair_queue.policy, for a second
)

// Patch changes a group; nil leaves a field unchanged.
type Patch struct {
	Weight       *float64
	Rate         *float64
	Concurrency  *int64
	Level        *Level
	BasePriority *int64
	Paused       *bool
	StopAt       *Tolerance      // zero: no share or count stops the group
	StartAt      *time.Time      // zero: no longer bound to a time
	Quiet        *calendar.Quiet // zero: none
	ExpiresAt    *time.Time      // zero: never; refused once it has passed
	// Own is set for a tenant's token: Weight, Level and BasePriority then have effect within the tenant only, and
	// changing those that an operator has set is refused.
	Own bool

	whole *wholePatch // of a split group whose limits change: Rate and Concurrency are those of a part
}

// wholePatch is a change of the limits of a split group.
type wholePatch struct {
	shards      string // of the parts, separated by blanks
	Rate        *float64
	Concurrency *int64
}

// Congestion is the congestion of a tenant.
type Congestion struct {
	Tenant       string
	Concurrency  int64 // most jobs in flight; 0: any number
	NonReady     int64
	Pending      int64
	InFlight     int64
	Rate         float64 // jobs a second that the tenant may start: its own limit or its share
	Backoff      time.Duration
	Level        string // none, low, moderate, high, critical
	AvgThrottles float64
	Finished     int64
	Estimate     time.Duration // time to finish the waiting jobs
	At           time.Time
}

// Limits are the rates in force, live over configured.
type Limits struct {
	Global, PerTenant, Burst float64
	Live                     bool // an operator has set them
	Adaptive                 bool // Global was found by rate control (Settings.Adaptive)
	Types                    map[string]TypeLimits
}

// LimitsPatch changes the given rates. A given nil returns to the configuration.
type LimitsPatch struct {
	Global, PerTenant           *float64
	GlobalGiven, PerTenantGiven bool
	Types                       map[string]TypeLimitPatch
}

// Tenant is the settings and counts of a tenant.
type Tenant struct {
	Name   string
	Weight float64
	Rate   float64 // 0: the configured
	// Concurrency is how many of its jobs may be in flight; 0: any number.
	Concurrency int64
	// Counts, read only.
	Groups, InFlight, Served int64
}

// Depths are the counts of a shard for metrics, cheap to read.
type Depths struct {
	Groups                             map[Level]int64 // groups that wait in the fair queue
	Pending, Ready, NonReady, InFlight int64
	ActiveTenants, GatedGroups         int64
	OpenGroups                         int64   // groups that have not ended
	Jain                               float64 // Jain's index of what active tenants were served by weight, recently; 1 for fewer than two
	RateAccuracy                       float64 // starts a second over the rate in force, recently; 0 without demand
	MaxCongestion                      string
	MaxBackoff                         time.Duration
	BackoffLimit                       time.Duration // highest MaxBackoff: congestion.max_backoff of this process
	AvgThrottles                       float64
	// Oldest is the age of the oldest job of each level that waits for its turn or a limit; none without such a job.
	Oldest        map[Level]time.Duration
	Unserved      int64    // jobs whose type no process has run for a minute
	UnservedTypes []string // their types
	Types         map[string]TypeLimits
	Breakers      []OpenBreaker
	SavedSpins    int64 // pulls that a gate or a longer backoff saved so far
}

// Tended is the result of one step of housekeeping of a group.
type Tended struct {
	Again bool // another step is due immediately
	// Reduce reports that outcomes wait for the reducer.
	Reduce bool
	// Callback reports that the group has ended and its callback is due.
	Callback bool
	Removed  bool  // the group was deleted
	DeadGone int64 // dead letters dropped after their retention
	Sealed   bool  // this step sealed it after Settings.UnsealedAfter
	// Part is set for a split group: with Reduce, Fleet.Join decides what to do.
	Part bool
	// Chained reports that Fleet.Chain has to pass the end of a group from one shard to another.
	Chained bool

	chain chainStep
}

// Reduction is the state of a group's reducer.
type Reduction struct {
	Group  Group
	Fence  int64  // of this reducer; a commit with an old one is refused
	Cursor string // of Results
	State  []byte
	Silent time.Duration // since the last job was added or ended

	short  string // the group's short name
	widest int64  // bytes of the largest outcome
}

// Violation is a broken invariant.
type Violation struct {
	Invariant string // short name, as in docs/bulk.md
	What      string // which job, group or tenant, and how
}
