package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/internal/redisstore"
)

// Settings are passed to the scripts with each call. Every process of one installation should have the same.
type Settings struct {
	Global    float64       // jobs a second over all tenants, up to three decimals
	Burst     float64       // 0: max(1, 100 ms of the rate)
	PerTenant float64       // 0: a guaranteed share, not a cap
	Adaptive  bool          // Global is the initial rate of rate control; see Steer
	Limiter   string        // gcra, fixed_window
	Window    time.Duration // of fixed_window, 1 s to 60 s; 0: 1 s

	Policy   string // fair, score
	Alpha    int64
	Strict   bool
	ByStarts bool // the fair policy shares starts instead of run time
	Gating   bool // false: the classic pipeline, where refused jobs wait one by one

	Congestion              bool // false: always BaseBackoff
	BaseBackoff, MaxBackoff time.Duration
	MaxAge                  time.Duration
	StatsRetention          time.Duration
	ReadyMax                int64
	DispatchBatch           int64 // 500; most due jobs that one round of Dispatch moves, and most ended leases
	Lease                   time.Duration
	MaxCrashes              int64
	PendingPerTenant        int64 // 0: no limit
	KeepJobs, KeepGroups    time.Duration
	KeepDead                time.Duration
	UnsealedAfter           time.Duration        // 24 h; a group is sealed after so long without a new job or outcome
	Types                   map[string]TypeLimit // limits of job types, over all processes
	UnknownTypeAfter        time.Duration        // 24 h; how long a job waits for a process that runs its type
	WaitReplicas, WaitLocal int                  // durability: how many must confirm a write
}

// Defaults returns the default settings.
func Defaults() Settings {
	return Settings{
		Global: 10000, Limiter: "gcra", Window: time.Second, Policy: "fair", Alpha: 10000, Gating: true,
		Congestion: true, BaseBackoff: time.Second, MaxBackoff: 120 * time.Second, MaxAge: 24 * time.Hour, StatsRetention: time.Hour,
		ReadyMax: 10000, DispatchBatch: 500, Lease: 30 * time.Second, MaxCrashes: 20,
		KeepJobs: 24 * time.Hour, KeepGroups: 168 * time.Hour, KeepDead: 720 * time.Hour, UnsealedAfter: 24 * time.Hour, UnknownTypeAfter: 24 * time.Hour,
	}
}

// Options of a Store. Client is required.
type Options struct {
	Client   redisstore.Client
	Prefix   string        // of every key; "wr"
	Timeout  time.Duration // deadline of one call; 1s
	Settings Settings
	Log      *slog.Logger
	Process  string // names this process among its peers; random when empty
	// Observe is called after every call of the store, for metrics.
	Observe func(script string, took time.Duration, err error)
	// Concluded is called with the number of groups that only count and that a call of this process has ended, for
	// metrics.
	Concluded func(status Status, n int64)
	// Refused is called with the wait of each job that the downstream refused, or a rate in the classic pipeline, for
	// metrics.
	Refused func(wait time.Duration)
	// Shard is the number of this shard among Shards, from 0; see Fleet.
	Shard, Shards int
	// Now replaces Redis's clock (µs) in tests.
	Now func() int64
}

// Store is one shard of the bulk engine's data, in one slot of one Redis; see Fleet for several. It starts nothing and
// may be used concurrently.
type Store struct {
	*shard
	groupStore
	partStore
	chainStore
	outcomeStore
	jobStore
	queueStore
	processStore
	rateStore
	upkeepStore
	scheduleStore
}

// The methods of a Store, by what they concern.
type (
	groupStore    struct{ *shard }
	partStore     struct{ groupStore } // of split groups
	outcomeStore  struct{ groupStore }
	jobStore      struct{ outcomeStore }
	queueStore    struct{ *shard }
	processStore  struct{ *shard }
	rateStore     struct{ *shard }
	upkeepStore   struct{ rateStore }
	scheduleStore struct{ *shard }
)

// shard runs scripts over the keys of a shard. Its fields are shared by all methods.
type shard struct {
	o         Options
	scripts   *redisstore.Store
	keys      []string
	settings  atomic.Pointer[string]
	limits    atomic.Pointer[string] // of types, as pulls pass them
	conf      atomic.Pointer[Settings]
	rounds    dispatching
	types     served
	follows   atomic.Bool // the last Keep has found another keeper
	counted   atomic.Bool // the installation has no more shards than Options.Shards, and those beside shard 0 are marked; of shard 0
	noInfo    sync.Once
	start     time.Time
	auditPart int64
	full      atomic.Int64 // when it was last logged that the store is full, in ns
	server    *server      // nil: not of a Fleet
}

// layout is the version of the keys and values. A store with another one is refused.
const layout = 1

// New returns a Store. It does not connect yet.
func New(o Options) (*Store, error) {
	if o.Client == nil {
		return nil, errors.New("bulk/store: Options.Client is missing")
	}
	if o.Prefix == "" {
		o.Prefix = "wr"
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Shards = max(1, o.Shards)
	if o.Process == "" {
		o.Process = newProcess()
	}
	s := &shard{o: o, keys: shardKeys(o.Prefix, o.Shard), start: time.Now(), auditPart: auditPart}
	scripts, err := redisstore.New(redisstore.Options{
		Client: o.Client, LayoutKey: layoutKey(o.Prefix, o.Shard), Layout: layout, Prefix: o.Prefix, Data: "bulk data",
		CallTimeout: max(prepareTimeout, o.Timeout), LoadTimeout: max(prepareTimeout, o.Timeout),
		Outage: ErrStore, Observe: o.Observe, Prepared: groupStore{s}.relist,
	})
	if err != nil {
		return nil, err
	}
	s.scripts = scripts
	if err := s.Configure(o.Settings); err != nil {
		return nil, err
	}
	groups := groupStore{s}
	outcomes, rates := outcomeStore{groups}, rateStore{s}
	return &Store{s, groups, partStore{groups}, chainStore{groups}, outcomes, jobStore{outcomes}, queueStore{s}, processStore{s}, rates, upkeepStore{rates}, scheduleStore{s}}, nil
}

// newProcess returns a random name of a process.
func newProcess() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Configure changes the settings from the next call on.
func (s *shard) Configure(c Settings) error {
	if c.Limiter != "gcra" && c.Limiter != "fixed_window" {
		return fmt.Errorf("limiter %q: must be gcra or fixed_window", c.Limiter)
	}
	c.Window = cmp.Or(c.Window, time.Second)
	if c.Window < time.Second || c.Window > time.Minute {
		return fmt.Errorf("rate.window %s: must be 1s to 1m", c.Window)
	}
	if c.Policy != "fair" && c.Policy != "score" {
		return fmt.Errorf("fair_queue.policy %q: must be fair or score", c.Policy)
	}
	if c.Lease <= 0 || c.BaseBackoff <= 0 || c.MaxBackoff < c.BaseBackoff {
		return fmt.Errorf("worker.lease %s, congestion.base_backoff %s, congestion.max_backoff %s: must be above 0, the last not below the second", c.Lease, c.BaseBackoff, c.MaxBackoff)
	}
	if err := s.checkShards(&c); err != nil {
		return err
	}
	if c.DispatchBatch < 1 || c.DispatchBatch > 2000 {
		return fmt.Errorf("dispatch.batch %d: must be 1 to 2000", c.DispatchBatch)
	}
	packed := []byte(c.Limiter + "\x00" + c.Policy + "\x00")
	for _, n := range []int64{
		c.Alpha, flag(c.Strict), flag(c.Gating), thousandths(c.Global), thousandths(c.Burst), thousandths(c.PerTenant),
		flag(c.Congestion), c.BaseBackoff.Microseconds(), c.MaxBackoff.Microseconds(), c.MaxAge.Microseconds(), c.ReadyMax,
		c.Lease.Microseconds(), c.MaxCrashes, c.PendingPerTenant,
		c.KeepJobs.Microseconds(), c.KeepGroups.Microseconds(), c.KeepDead.Microseconds(), c.UnsealedAfter.Microseconds(),
		c.StatsRetention.Microseconds(), flag(c.Adaptive), c.UnknownTypeAfter.Microseconds(), flag(!c.ByStarts), c.Window.Microseconds(),
		int64(s.o.Shards), int64(s.o.Shard),
	} {
		packed = binary.BigEndian.AppendUint64(packed, math.Float64bits(float64(n)))
	}
	limits, err := typeWords(c.Types)
	if err != nil {
		return err
	}
	s.limits.Store(&limits)
	text := string(packed)
	s.settings.Store(&text)
	s.conf.Store(&c)
	return nil
}

// Settings returns the settings in force in this process.
func (s *shard) Settings() Settings { return *s.conf.Load() }

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// thousandths converts rates and weights for scripts, which take whole numbers only.
func thousandths(f float64) int64 { return int64(math.Round(f * 1000)) }

// Prepare checks the server, the number of shards and the data layout, and loads the scripts. The first call does so by itself.
func (s *shard) Prepare(ctx context.Context) error {
	if err := s.server.check(ctx); err != nil {
		if s.o.Shard > 0 && errors.Is(err, ErrShards) { // a server that replied late: its shards are away
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		return err
	}
	if zero := s.server.placedBy(s); zero != nil && !zero.counted.Load() {
		if err := zero.countShards(ctx); err != nil {
			return err
		}
		if s == zero {
			if err := s.server.claimOthers(ctx); err != nil {
				return err
			}
			s.counted.Store(true)
		}
	}
	return s.scripts.Prepare(ctx)
}

// prepareTimeout bounds the loading of all scripts, a round trip each.
const prepareTimeout = 10 * time.Second

// run runs a script; args follow the time and the settings.
func (s *shard) run(ctx context.Context, name string, args ...any) (reply, error) {
	if err := s.Prepare(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	line := make([]any, 0, 2+len(args))
	line = append(line, s.now(), *s.settings.Load())
	line = append(line, args...)
	r, err := s.scripts.Run(ctx, name, s.keys, line...)
	if err != nil && IsFull(err) {
		s.reportFull(name)
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	}
	if err != nil && s.o.Shards > 1 {
		return nil, shardError(s.o.Shard, err)
	}
	return reply(r), err
}

// reportFull logs that the store's memory is full, once a minute.
func (s *shard) reportFull(script string) {
	now := time.Now().UnixNano()
	if last := s.full.Load(); now-last < int64(time.Minute) && last != 0 || !s.full.CompareAndSwap(last, now) {
		return
	}
	s.o.Log.Error("the store's memory is full: new groups, jobs and redrives are refused, and accepted jobs go on; "+
		"delete groups that have ended, shorten retention.jobs, retention.groups and retention.dead, or raise maxmemory of Redis", "script", script)
}

// write is run for durable writes: it waits until as many nodes as configured have the write.
func (s *shard) write(ctx context.Context, name string, args ...any) (reply, error) {
	r, err := s.run(ctx, name, args...)
	c := s.conf.Load()
	if err != nil || (c.WaitReplicas == 0 && c.WaitLocal == 0) {
		return r, err
	}
	return r, s.confirm(ctx, c.WaitReplicas, c.WaitLocal)
}

func (s *shard) now() int64 {
	if s.o.Now != nil {
		return s.o.Now()
	}
	return 0
}

// reply is a script's reply.
type reply redisstore.Reply

func list(v any) reply { return reply(redisstore.List(v)) }

func (r reply) at(i int) any        { return redisstore.Reply(r).At(i) }
func (r reply) int(i int) int64     { return redisstore.Int(r.at(i)) }
func (r reply) string(i int) string { return redisstore.String(r.at(i)) }

// refusal returns the reason of a refusal, "" for any other reply.
func (r reply) refusal() string {
	if v, ok := r.at(0).(string); ok && v != "" && (v[0] < '0' || v[0] > '9') && v[0] != '-' {
		return v
	}
	return ""
}

func asString(v any) string { return redisstore.String(v) }
func asInt(v any) int64     { return redisstore.Int(v) }

func micros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
