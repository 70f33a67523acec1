package bulk

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// lane has the loops of this process for one shard. Lanes share only the workers, so a shard that is away does not delay
// the others.
type lane struct {
	shard  int // its number
	e      *Engine
	stores loopStores
	types  []string
	pool   *pool
	runs   *registry
	work   *workers

	batches *batches
	acks    *acker
	keep    *keeper
	watch   *watcher
	health  *health
	log     *slog.Logger

	preference preference
	laneLoops
}

// laneLoops are the running loops of a lane.
type laneLoops struct {
	acking, renewing, watching, keeping, dispatching, counting, fetching *loop

	scheduling *loop // of shard 0, which has the schedules
	left       int   // acks that a shutdown could not record
}

type lanes []*lane

// each calls do for all lanes at the same time.
func (all lanes) each(do func(l *lane)) {
	if len(all) == 1 {
		do(all[0])
		return
	}
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() { do(l) })
	}
	wg.Wait()
}

// newLane returns the lane of a shard. It starts nothing.
func (e *Engine) newLane(ctx context.Context, n int, types []string) *lane {
	o, m := &e.o, e.o.Metrics
	l := &lane{shard: n, e: e, stores: e.shards[n], types: types, pool: e.pool, runs: newRegistry(), log: o.Log}
	if len(e.shards) > 1 {
		l.log = o.Log.With("shard", n)
	}
	if n > 0 {
		l.pool = e.pool.lane()
	}
	l.health = newHealth(l.log, func(up bool) { m.up(n, up) })
	l.acks = newAcker(l.stores.acks, l.pool, l.runs, m, l.log, l.health.role("acker"), max(leastAcks, o.Worker.Batch))
	l.work = &workers{recent: e.recent, handlers: e.handlers, pool: l.pool, runs: l.runs, acks: l.acks, metrics: m, tracer: e.o.Tracer, log: l.log,
		policies: e.policies, maxResult: o.MaxResult}
	l.watch = newWatcher(l.stores.groups,
		&reducing{store: l.stores.reductions, splits: l.stores.splits, reducers: e.reducers, metrics: m, patience: o.ReducerWait},
		&calling{store: l.stores.callbacks, send: o.Callback, body: o.CallbackBody, tracer: o.Tracer, metrics: m, log: l.log, slots: make(chan struct{}, callbackAtOnce)},
		m, l.log, l.health)
	l.watch.shard = n
	l.watch.chains = &chaining{chains: l.stores.chains, shard: n, slots: make(chan struct{}, chainAtOnce)}
	l.keep = &keeper{store: l.stores.keeper, role: l.health.role("keeper"), status: e.status(ctx, types), needs: e.needs(), take: l.watch.name,
		secondary: l.preference.secondary.Load}
	return l
}

// begin starts the loops. The fetcher only works if runsJobs is set.
func (l *lane) begin(base context.Context, runsJobs bool, all lanes) {
	o, m, h := &l.e.o, l.e.o.Metrics, l.health
	l.work.ctx, l.work.cancel = context.WithCancel(base)
	l.batches = newBatches(l.work, l.e.batched)
	l.acking = begin(base, l.acks.run)
	l.renewing = begin(base, (&renewer{store: l.stores.leases, runs: l.runs, lease: o.Worker.Lease, metrics: m, log: l.log, role: h.role("renewer")}).run)
	l.watching = begin(base, l.watch.run)
	l.keeping = begin(base, l.keep.run)
	l.dispatching = begin(base, (&dispatcher{store: l.stores.due, turns: turns{keeper: l.keep}, every: l.e.dispatchEvery, tend: l.watch.name, metrics: m, role: h.role("dispatcher")}).run)
	l.counting = begin(base, (&stats{shard: l.shard, store: l.stores.history, turns: turns{keeper: l.keep}, metrics: m, log: l.log, role: h.role("stats")}).run)
	if l.shard == 0 { // which has the schedules
		l.scheduling = begin(base, (&scheduler{runs: l.stores.schedules, turns: turns{keeper: l.keep}, metrics: m, log: l.log, role: h.role("scheduler")}).run)
	}
	l.fetching = begin(base, func(ctx context.Context) {
		if !runsJobs {
			return
		}
		gather := l.e.gather
		gather.processes = l.keep.processes.Load
		f := &fetcher{store: l.stores.jobs, pool: l.pool, batch: o.Worker.Batch, types: l.types, runs: l.runs, acks: l.acks,
			starting: starting{start: l.batches.start, giveBack: l.work.giveBack, later: l.work.later, limited: l.batches.limited},
			metrics:  m, role: h.role("fetcher"), gather: gather, events: newListener(l.stores.jobs, h.role("listener"))}
		if len(all) > preferredShards {
			f.preference = &l.preference
			f.turn = func(ctx context.Context) bool { return all.turn(ctx, l) }
			f.gather.processes = func() int64 { return cmp.Or(l.preference.processes.Load(), l.keep.processes.Load()) }
		}
		f.run(ctx)
	})
}

// placementsReader reads which shards new groups use.
type placementsReader interface {
	RefreshPlacements(ctx context.Context) error
}

var _ placementsReader = (*store.Fleet)(nil)

// place keeps the placements of a fleet up to date.
func (e *Engine) place(ctx context.Context, r *role) {
	fleet, ok := e.o.Store.(placementsReader)
	if !ok || len(e.shards) == 1 {
		return
	}
	for sleep.For(ctx, store.PlaceEvery) {
		if err := fleet.RefreshPlacements(ctx); err != nil {
			r.failed(ctx, err)
			continue
		}
		r.ok()
	}
}

// lender returns the lender of this process.
func (e *Engine) lender(first *lane) *lender {
	d := &lender{keeper: first.keep, role: first.health.role("lender")}
	for _, s := range e.shards {
		d.shards = append(d.shards, s.limits)
	}
	return d
}
