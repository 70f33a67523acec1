package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/jobtrace"
	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
)

const (
	// MaxWorkers is the most workers of one process.
	MaxWorkers = 10_000
	// NoWorkers is a WorkerOptions.Count: this process runs no jobs and only does the housekeeping.
	NoWorkers = -1
)

// WorkerOptions configure how jobs are run. Zero values are the defaults.
type WorkerOptions struct {
	Count         int           // workers: jobs at once; 10. NoWorkers: none
	Min, Max      int           // bounds of autoscaling; both 0: a fixed number
	Batch         int           // most jobs of one pull; 200
	Lease         time.Duration // at most the store's lease, which is the default
	JobTimeout    time.Duration // of one run; 30s
	ShutdownGrace time.Duration // for running jobs; 30s
}

// Options of an Engine. Store is required.
type Options struct {
	Store  store.Sharded // a Store, or a Fleet of several shards
	Worker WorkerOptions
	// DispatchInterval is how often due jobs and ended leases are collected if none is known to be due sooner; 100
	// ms, and at most a sixth of the lease. SetDispatchInterval changes it.
	DispatchInterval time.Duration
	MaxResult        int64 // bytes of a job's result; 64 KiB
	// Retry is the policy of job types without one of their own (SetPolicy).
	Retry Retry
	// ReducerWait is how long a group whose jobs have ended waits for its reducer if no process has it or it fails;
	// then the group ends without the reducer's result. 24 h.
	ReducerWait time.Duration
	// Pace configures rate control of the global rate; SetPace changes it.
	Pace Pace
	// People reports the health of visitors' requests. It is required with Pace.People.
	People People
	// Callback signs a body and sends it to a group's callback_url; nil: other processes send callbacks.
	Callback func(ctx context.Context, url string, body []byte) error
	// CallbackBody returns the body of a callback, the group as the API shows it. It is required with Callback.
	CallbackBody func(g store.Group) ([]byte, error)
	Metrics      *Metrics         // nil: not registered
	Tracer       *jobtrace.Tracer // nil: trace contexts are only passed on
	Log          *slog.Logger     // nil: none
}

// loopStores has the part of the store that each loop uses.
type loopStores struct {
	jobs       source
	acks       ackTaker
	leases     leaseKeeper
	due        mover
	groups     tender
	reductions reductions
	splits     splits
	chains     chains
	callbacks  callbacks
	history    historian
	rate       steerStore
	keeper     keepers
	schedules  runs
	limits     shardLimits
	peers      peers
}

func newLoopStores(s *store.Store) loopStores {
	return loopStores{jobs: s, acks: s, leases: s, due: s, groups: s, reductions: s, callbacks: s, history: s, rate: s, keeper: s, limits: s, peers: s}
}

// Engine runs the jobs of a store in this process; any number of processes can share the store. Register handlers,
// then call Run once.
type Engine struct {
	o        Options
	shards   []loopStores // what the loops use of each shard
	handlers map[string]Handler
	batched  map[string]batchType
	reducers map[string]Reducer
	policies *policies
	recent   *recent
	pool     *pool
	pace     atomic.Pointer[Pace]
	interval atomic.Int64 // of dispatch
	gather   gathering
	mu       sync.Mutex // of handlers, batched and reducers
	started  atomic.Bool
}

// New returns an Engine. It starts nothing.
func New(o Options) (*Engine, error) {
	if o.Store == nil {
		return nil, errors.New("bulk: Options.Store is missing")
	}
	var shards []loopStores
	for _, s := range o.Store.Shards() {
		shards = append(shards, newLoopStores(s))
	}
	fleet := store.FleetOf(o.Store)
	shards[0].rate = fleet
	for n := range shards {
		shards[n].splits, shards[n].chains = fleet, fleet
	}
	shards[0].schedules = schedule.NewRunner(fleet)
	return newEngine(o, shards[0], o.Store.Shards()[0].Settings(), shards[1:]...)
}

// newEngine returns an Engine of the shard s, and of others.
func newEngine(o Options, s loopStores, settings store.Settings, others ...loopStores) (*Engine, error) {
	if err := o.complete(settings); err != nil {
		return nil, fmt.Errorf("bulk: %w", err)
	}
	size := max(0, o.Worker.Count)
	if o.Worker.Max > 0 {
		size = min(max(size, o.Worker.Min), o.Worker.Max)
	}
	e := &Engine{o: o, shards: append([]loopStores{s}, others...), handlers: map[string]Handler{}, batched: map[string]batchType{}, reducers: map[string]Reducer{},
		policies: newPolicies(Policy{Timeout: o.Worker.JobTimeout, Retry: o.Retry}), recent: &recent{}, pool: newPool(size, 2*o.Worker.Batch)}
	parts := float64(len(e.shards))
	e.gather = newGathering(max(1, cmp.Or(settings.Burst, max(1, settings.Global/10))/parts), settings.Global/parts)
	o.Metrics.attach(e.pool)
	if err := e.SetDispatchInterval(o.DispatchInterval); err != nil {
		return nil, fmt.Errorf("bulk: %w", err)
	}
	return e, e.SetPace(o.Pace)
}

// complete sets defaults and checks values.
func (o *Options) complete(settings store.Settings) error {
	w := &o.Worker
	for _, d := range []struct {
		value   *time.Duration
		name    string
		without time.Duration
	}{
		{&w.Lease, "worker.lease", settings.Lease},
		{&w.JobTimeout, "worker.job_timeout", 30 * time.Second},
		{&w.ShutdownGrace, "worker.shutdown_grace", 30 * time.Second},
	} {
		if *d.value < 0 {
			return fmt.Errorf("%s %s: use more than 0", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.without
		}
	}
	if w.Lease > settings.Lease {
		return fmt.Errorf("worker.lease %s: must not exceed the store's lease, %s, or leases end before they are renewed", w.Lease, settings.Lease)
	}
	for _, n := range []struct {
		value   *int
		name    string
		without int
	}{{&w.Count, "worker.count", 10}, {&w.Batch, "worker.batch", 200}} {
		if *n.value == 0 {
			*n.value = n.without
		}
		if n.value == &w.Count && w.Count == NoWorkers {
			continue
		}
		if *n.value < 0 || *n.value > MaxWorkers {
			return fmt.Errorf("%s %d: use 1 to %d", n.name, *n.value, MaxWorkers)
		}
	}
	if w.Min != 0 || w.Max != 0 {
		if w.Count == NoWorkers {
			return fmt.Errorf("worker.max %d: there are no workers to scale; leave worker.min and worker.max at 0", w.Max)
		}
		if w.Min < 1 || w.Max < w.Min || w.Max > MaxWorkers {
			return fmt.Errorf("worker.min %d and worker.max %d: use 1 ≤ min ≤ max ≤ %d, or both 0 for a fixed number", w.Min, w.Max, MaxWorkers)
		}
	}
	if err := o.Retry.complete(Retry{Max: DefaultRetries, Base: time.Second, Most: 15 * time.Minute}); err != nil {
		return fmt.Errorf("Options.%w", err)
	}
	o.ReducerWait = cmp.Or(o.ReducerWait, 24*time.Hour)
	if o.DispatchInterval == 0 {
		o.DispatchInterval = dispatchEvery
	}
	o.MaxResult = cmp.Or(o.MaxResult, 64<<10)
	if o.MaxResult < 0 {
		return fmt.Errorf("limits.result %d: use more than 0", o.MaxResult)
	}
	if o.Callback != nil && o.CallbackBody == nil {
		return errors.New("Options.Callback needs Options.CallbackBody, which writes the group")
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil, "")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Register sets the handler of a job type; RegisterBatch takes precedence. The engine takes only jobs of types with a handler. A job of a type that
// no process has becomes a dead letter after Settings.UnknownTypeAfter. Register panics after Run.
func (e *Engine) Register(jobType string, h Handler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beforeRun("Register")
	e.handlers[jobType] = h
}

// SetPolicy sets the policy of a job type from the next run on; zero fields are the engine's defaults.
func (e *Engine) SetPolicy(jobType string, p Policy) error {
	if err := e.policies.set(jobType, p); err != nil {
		return err
	}
	e.o.Metrics.know([]string{jobType})
	return nil
}

// Policy returns the policy of a job type.
func (e *Engine) Policy(jobType string) Policy { return e.policies.of(jobType) }

// Pulled counts the jobs that a part outside the engine has pulled from the store for other workers.
func (e *Engine) Pulled(p store.Pulled) { e.o.Metrics.pulled(p) }

// Ended counts the run of a job of Pulled with its ack and the ack's effect, as if a worker of this process had run it.
func (e *Engine) Ended(jobType string, a *store.Ack, effect store.AckState) {
	if effect != store.AckStale && a.Verdict != store.Returned {
		e.o.Metrics.ran(jobType, a, "")
		e.recent.ran(a)
	}
	e.o.Metrics.acked(jobType, effect)
}

// RegisterReducer sets the reducer for {"op":"reduce","name":name}. One process that has it is enough. It panics
// after Run.
func (e *Engine) RegisterReducer(name string, r Reducer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beforeRun("RegisterReducer")
	e.reducers[name] = r
}

func (e *Engine) beforeRun(method string) {
	if e.started.Load() {
		panic("bulk: " + method + " after Run")
	}
}

// Types returns the job types with a handler, sorted.
func (e *Engine) Types() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	types := slices.AppendSeq(slices.Collect(maps.Keys(e.handlers)), maps.Keys(e.batched))
	slices.Sort(types)
	return slices.Compact(types)
}

// SetPace changes Options.Pace.
func (e *Engine) SetPace(p Pace) error {
	if p.People != "" && e.o.People == nil {
		return errors.New("bulk: Pace.People needs Options.People")
	}
	p.Policy.MaxErrorRate = MaxErrors
	e.pace.Store(&p)
	return nil
}

// SetDispatchInterval changes Options.DispatchInterval.
func (e *Engine) SetDispatchInterval(d time.Duration) error {
	if d < MinDispatchInterval || d > MaxDispatchInterval {
		return fmt.Errorf("dispatch.interval %s: use %s to %s", d, MinDispatchInterval, MaxDispatchInterval)
	}
	e.interval.Store(int64(d))
	return nil
}

// dispatchEvery returns the interval in force. The store takes rounds a third of a lease apart for an outage, and
// would end no lease.
func (e *Engine) dispatchEvery() time.Duration {
	return min(time.Duration(e.interval.Load()), e.o.Worker.Lease/6)
}

// Resize changes the number of workers, 0 to MaxWorkers; running jobs go on. With autoscaling, n is kept within the
// bounds and scaling continues from there.
func (e *Engine) Resize(n int) error {
	if n < 0 || n > MaxWorkers {
		return fmt.Errorf("worker.count %d: use 0 to %d", n, MaxWorkers)
	}
	if e.o.Worker.Count == NoWorkers {
		return errors.New("worker.count: this process was started without workers; restart it")
	}
	if w := e.o.Worker; w.Max > 0 {
		n = min(max(n, w.Min), w.Max)
	}
	e.pool.resize(n)
	return nil
}

// Workers returns the number of workers and of those that run a job.
func (e *Engine) Workers() (size, active int) {
	l := e.pool.snapshot(false)
	return l.size, l.active
}

// status returns a function that returns this process's entry in the list of processes. The process drains from the
// end of ctx on.
func (e *Engine) status(ctx context.Context, types []string) func() store.ProcessStatus {
	host, _ := os.Hostname() // empty if unknown
	status := store.ProcessStatus{Host: host, StartedAt: time.Now(), Shards: len(e.shards), Chains: true, SplitChains: true}
	if e.o.Worker.Count != NoWorkers {
		status.Types = types
	}
	return func() store.ProcessStatus {
		s := status
		s.Workers, s.Busy = e.Workers()
		s.Draining = ctx.Err() != nil
		return s
	}
}

// needs lists the reducers and callbacks that this process can serve.
func (e *Engine) needs() (all []string) {
	if e.o.Callback != nil {
		all = append(all, needCallback)
	}
	for _, name := range slices.Sorted(maps.Keys(e.reducers)) {
		all = append(all, needReducer+name)
	}
	return all
}

// Run runs jobs until ctx ends, then returns unfinished jobs to their groups and returns nil. It continues after an
// outage of the store. An Engine runs once.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	again := e.started.Swap(true)
	e.mu.Unlock()
	if again {
		return errors.New("bulk: Run was called before; create a new engine")
	}
	o, m, log := &e.o, e.o.Metrics, e.o.Log
	types := e.Types()
	takes := o.Worker.Count != NoWorkers && len(types) > 0
	m.know(types)
	e.pool.ahead.off = len(e.batched) > 0 // a job of a batch waits for others, not for a worker
	base := context.WithoutCancel(ctx)    // loops are stopped one by one below
	var lanes lanes
	for n := range e.shards {
		lanes = append(lanes, e.newLane(ctx, n, types))
	}
	for _, l := range lanes {
		l.begin(base, takes, lanes)
	}
	preferring := begin(base, lanes.prefer)
	steering := begin(base, (&steerer{store: e.shards[0].rate, pace: &e.pace, people: o.People, recent: e.recent, metrics: m, log: log, role: lanes[0].health.role("steerer")}).run)
	lending := begin(base, e.lender(lanes[0]).run)
	placing := begin(base, func(ctx context.Context) { e.place(ctx, lanes[0].health.role("placements")) })
	scaling := begin(base, func(ctx context.Context) {
		if o.Worker.Max > o.Worker.Min {
			(&scaler{pool: e.pool, min: o.Worker.Min, max: o.Worker.Max}).run(ctx)
		}
	})
	switch {
	case o.Worker.Count == NoWorkers:
		log.Info("no jobs run here: worker.count is 0")
	case !takes && len(e.policies.types()) > 0:
		log.Info("no jobs run here: workers pull them", "types", e.policies.types())
	case !takes:
		log.Warn("no jobs run here: no processor is configured and no handler is registered; jobs wait for another process that has their types")
	default:
		log.Info("running jobs", "workers", e.pool.snapshot(false).size, "types", types)
	}
	<-ctx.Done()

	// Shutdown: first take no new jobs, which bounds the following steps.
	lanes.each(func(l *lane) { l.fetching.stop() })
	e.pool.giveBackWaiting()
	scaling.stop()
	for _, l := range lanes {
		l.batches.flush()
	}
	// Running jobs end, or are cancelled and returned. Their leases are renewed until the store has the outcome.
	lanes.each(func(l *lane) { l.work.finish(o.Worker.ShutdownGrace) })
	// Each run's ack is queued by now. The store must receive all of them: a run without an ack counts as a crash.
	flush, cancel := context.WithTimeout(base, flushFor)
	lanes.each(func(l *lane) { l.left = l.acks.flush(flush) })
	cancel()
	lanes.each(func(l *lane) {
		l.acking.stop()
		l.renewing.stop()
		// The loops that serve all processes stop last, so that returned jobs can start elsewhere immediately.
		if l.scheduling != nil {
			l.scheduling.stop()
		}
		l.dispatching.stop()
		l.keeping.stop()
		l.watching.stop()
		l.counting.stop()
	})
	preferring.stop()
	placing.stop()
	lending.stop()
	steering.stop()
	left := 0
	for _, l := range lanes {
		left += l.left
	}
	if left > 0 {
		log.Error("cannot record the last acks; these jobs run again when their leases end", "jobs", left)
	}
	log.Info("stopped")
	return nil
}

// flushFor bounds how long a shutdown waits for the store to record the last acks.
const flushFor = 5 * time.Second
