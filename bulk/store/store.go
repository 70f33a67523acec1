package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/lua"
)

// Settings is what the scripts are told with each call. Every process of one installation should have the same.
type Settings struct {
	Global    float64 // jobs a second over all tenants, up to three decimals
	Burst     float64 // 0: max(1, 100 ms of the rate)
	PerTenant float64 // 0: a guaranteed share, not a cap
	Limiter   string  // gcra, fixed_window

	Policy string // fair, score
	Alpha  int64
	Strict bool
	Gating bool // false: the classic pipeline, where refused jobs wait one by one

	Congestion              bool // false: always BaseBackoff
	BaseBackoff, MaxBackoff time.Duration
	MaxAge                  time.Duration
	StatsRetention          time.Duration
	ReadyMax                int64
	Lease                   time.Duration
	MaxRetries, MaxCrashes  int64
	PendingPerTenant        int64 // 0: no limit
	KeepJobs, KeepGroups    time.Duration
	KeepDead                time.Duration
	UnsealedSilence         time.Duration // 24 h
	WaitReplicas, WaitLocal int           // durability: how many must have the write
}

// Defaults are the settings of CONTRACT's configuration.
func Defaults() Settings {
	return Settings{
		Global: 10000, Limiter: "gcra", Policy: "fair", Alpha: 10000, Gating: true,
		Congestion: true, BaseBackoff: time.Second, MaxBackoff: 120 * time.Second, MaxAge: 24 * time.Hour, StatsRetention: time.Hour,
		ReadyMax: 10000, Lease: 30 * time.Second, MaxRetries: 3, MaxCrashes: 20,
		KeepJobs: 24 * time.Hour, KeepGroups: 168 * time.Hour, KeepDead: 720 * time.Hour, UnsealedSilence: 24 * time.Hour,
	}
}

// Options of a Store. Client is required.
type Options struct {
	Client   redis.UniversalClient
	Prefix   string        // of every key; "wr"
	Timeout  time.Duration // deadline of one call; 1s
	Settings Settings
	Log      *slog.Logger
	Process  string // names this process among its peers; random when empty
	// Observe is told of every store call, for metrics.
	Observe func(script string, took time.Duration, err error)
	// Now replaces Redis's clock (µs) in tests.
	Now func() int64
}

// Store is the bulk engine's data. It starts nothing and may be shared.
type Store struct {
	o       Options
	scripts *lua.Set
	runner  *lua.Runner
	keys    []string
}

var errNotYet = errors.New("not there yet")

// CreateGroup makes a group. Doing it again with the same id and the same content is no error; created is false then.
func (s *Store) CreateGroup(ctx context.Context, g GroupSpec) (group Group, created bool, err error) {
	return Group{}, false, errNotYet
}

// ChunkState looks a chunk up before its lines are read. key is the chunk's idempotency key.
func (s *Store) ChunkState(ctx context.Context, group, key string) (ChunkState, error) {
	return ChunkState{}, errNotYet
}

// AddJobs puts up to MaxAdd jobs into a group, in their order: all or none of them.
func (s *Store) AddJobs(ctx context.Context, group string, c Chunk, jobs []Job) (Added, error) {
	return Added{}, errNotYet
}

// MaxAdd bounds the jobs of one AddJobs; MaxAddBytes bounds the sum of their payloads.
const (
	MaxAdd      = 500
	MaxAddBytes = 1 << 20
)

// Seal ends the submission: no more jobs, the group may complete. Sealing again is no error.
func (s *Store) Seal(ctx context.Context, group string) (Group, error) { return Group{}, errNotYet }

// Group reads one group.
func (s *Store) Group(ctx context.Context, group string) (Group, error) { return Group{}, errNotYet }

// Filter chooses groups for Groups.
type Filter struct {
	Tenants []string // none: all
	Status  Status   // "": all
	Limit   int      // 1…1000
	Cursor  string   // of the page before
}

// Groups lists groups, the newest first, with a cursor for the next page ("" at the end).
func (s *Store) Groups(ctx context.Context, f Filter) (groups []Group, next string, err error) {
	return nil, "", errNotYet
}

// Patch changes a group's live fields; pause and resume are Patches too.
func (s *Store) Patch(ctx context.Context, group string, p Patch) (Group, error) {
	return Group{}, errNotYet
}

// Cancel ends a group: no job of it starts from now on. Cancelling again is no error; an ended group is refused.
func (s *Store) Cancel(ctx context.Context, group string) (Group, error) { return Group{}, errNotYet }

// Redrive makes a new group of the dead jobs of group, at the given rate (0: the group's), sealed at once. It takes bounded
// steps; one that broke off goes on where it stopped when it is called again before the source has other redrives.
func (s *Store) Redrive(ctx context.Context, group string, rate float64) (Group, error) {
	return Group{}, errNotYet
}

// Results reads outcomes in the order in which they came, from cursor ("" is the beginning).
func (s *Store) Results(ctx context.Context, group, cursor string, limit int) (Page, error) {
	return Page{}, errNotYet
}

// Dead reads the dead letters of a group with their payloads.
func (s *Store) Dead(ctx context.Context, group, cursor string, limit int) (Page, error) {
	return Page{}, errNotYet
}

// Pull takes up to want jobs through the fair queue and both limits, under leases of this process.
func (s *Store) Pull(ctx context.Context, want int) (Pulled, error) { return Pulled{}, errNotYet }

// Wait blocks until something may have come to the queue, or for at most d. It holds a connection meanwhile.
func (s *Store) Wait(ctx context.Context, d time.Duration) error { return errNotYet }

// Ack ends runs, all of them in one step; the answer has one entry for each.
func (s *Store) Ack(ctx context.Context, acks []Ack) ([]AckState, error) { return nil, errNotYet }

// Lease names a running job for Renew.
type Lease struct {
	Key   string
	Fence int64
}

// Renew extends leases by a full one. The answer has false where the lease is lost: what runs under it should stop.
func (s *Store) Renew(ctx context.Context, leases []Lease) ([]bool, error) { return nil, errNotYet }

// Dispatch does one bounded round: due jobs back to their groups, orphans recovered, gates opened. gap is how long this
// process was without the store just now (0: it was not): after a gap no lease ends before a full one has passed.
func (s *Store) Dispatch(ctx context.Context, gap time.Duration) (Dispatch, error) {
	return Dispatch{}, errNotYet
}

// Tended is what one step of housekeeping of a group leaves to do.
type Tended struct {
	Again bool // there is more to do at once
	// Reduce says that outcomes wait for the reducer.
	Reduce bool
	// Callback says that the group has ended and its callback is due.
	Callback bool
	Removed  bool // the group is gone
	DeadGone int64
}

// Tend does one bounded step of housekeeping of a group: sweeps what was cancelled, drops what is past its retention.
func (s *Store) Tend(ctx context.Context, group string) (Tended, error) { return Tended{}, errNotYet }

// Reduction is where a group's reducer stands.
type Reduction struct {
	Group  Group
	Fence  int64  // of this reducer; a commit with an old one is refused
	Cursor string // of Results
	State  []byte
}

// BeginReduce takes over the reduction of a group: earlier reducers are fenced off.
func (s *Store) BeginReduce(ctx context.Context, group string) (Reduction, error) {
	return Reduction{}, errNotYet
}

// CommitReduce writes (state, cursor) together. n is how many outcomes were taken in since the last commit. ok is false
// where another reducer has taken over.
func (s *Store) CommitReduce(ctx context.Context, group string, fence int64, cursor string, n int64, state []byte) (ok bool, err error) {
	return false, errNotYet
}

// Finish ends an AGGREGATING group whose outcomes are all reduced: COMPLETED, or FAILED by its tolerance, with its result.
// ok is false where it cannot: another reducer, or outcomes that are not reduced yet.
func (s *Store) Finish(ctx context.Context, group string, fence int64, result []byte) (g Group, ok bool, err error) {
	return Group{}, false, errNotYet
}

// CallbackDone notes how the callback of an ended group went; when it failed, at the next attempt's time it is due again.
func (s *Store) CallbackDone(ctx context.Context, group string, ok, last bool, again time.Duration) error {
	return errNotYet
}

// Lock takes the watcher's lock of a group for d, which only saves work; ok is false where another process has it.
func (s *Store) Lock(ctx context.Context, group string, d time.Duration) (unlock func(), ok bool, err error) {
	return nil, false, errNotYet
}

// Snapshot writes one entry of every tenant's congestion history, at most one a second whoever calls.
func (s *Store) Snapshot(ctx context.Context) error { return errNotYet }

// Congestion reads the state of the tenants that have groups; with a name, of that tenant only.
func (s *Store) Congestion(ctx context.Context, tenant string) ([]Congestion, error) {
	return nil, errNotYet
}

// History reads a tenant's snapshots since then, the oldest first.
func (s *Store) History(ctx context.Context, tenant string, since time.Time) ([]Congestion, error) {
	return nil, errNotYet
}

// Limits reads the rates in force, and SetLimits changes them live (nil: back to the configuration).
func (s *Store) Limits(ctx context.Context) (Limits, error) { return Limits{}, errNotYet }
func (s *Store) SetLimits(ctx context.Context, global, perTenant *float64) (Limits, error) {
	return Limits{}, errNotYet
}

// Tenant reads a tenant, SetTenant changes weight and rate live (0: back to what is configured).
func (s *Store) Tenant(ctx context.Context, name string) (Tenant, error) { return Tenant{}, errNotYet }
func (s *Store) SetTenant(ctx context.Context, t Tenant) (Tenant, error) { return Tenant{}, errNotYet }

// Depths are the figures for gauges: of the whole shard, cheap to read.
type Depths struct {
	Groups                             map[Level]int64 // groups that wait in the fair queue
	Pending, Ready, NonReady, InFlight int64
	ActiveTenants, GatedGroups         int64
	Jain                               float64 // of what active tenants were served by weight, lately; 1 where fewer than two
	RateAccuracy                       float64 // starts a second over the rate in force, lately; 0 where there was no demand
	MaxCongestion                      string
	MaxBackoff                         time.Duration
	AvgThrottles                       float64
	SavedSpins                         int64 // pulls that a gate spared, since the beginning
}

// Depths reads the figures for gauges.
func (s *Store) Depths(ctx context.Context) (Depths, error) { return Depths{}, errNotYet }

// Violation is an invariant that does not hold.
type Violation struct {
	Invariant string // short name, as in docs/bulk.md
	What      string // which job, group or tenant, and how
}

// Audit checks every invariant. It reads in bounded steps beside the running engine and looks a second time at whatever
// seems broken before it reports it.
func (s *Store) Audit(ctx context.Context) ([]Violation, error) { return nil, errNotYet }
