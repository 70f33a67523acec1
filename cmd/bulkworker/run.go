package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/api"
	"github.com/anteroom/anteroom/bulk/remote"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/internal/sleep"
	"github.com/anteroom/anteroom/internal/tracing"
)

// worker is a running bulk worker.
type worker struct {
	cfg        *config.Bulk // in force
	store      *store.Fleet
	gateways   *admission.Core
	engine     *bulk.Engine
	processors map[string]*processor
	pulled     pulled
	callbacks  *caller
	front      *front
	tls        atomic.Pointer[tls.Config] // of new connections; nil: none
	options    api.Options                // the options of the front
	registry   *prometheus.Registry
	metrics    *bulk.Metrics
	traces     traces
	log        *slog.Logger
	progress
}

// progress is how far the worker has come.
type progress struct {
	answered atomic.Bool // the store has replied at least once
	ending   atomic.Bool
	loads    *lifecycle.Loads // how its reloads ended
}

// pulled leases jobs to workers over HTTP.
type pulled struct {
	*remote.Broker
	types atomic.Pointer[[]string] // of kind pull
}

// serve runs the bulk worker until ctx ends. Then it takes no more jobs, lets running ones end within
// worker.shutdown_grace, and returns the rest. load reads the configuration again, for SIGHUP and for changed files.
func serve(ctx context.Context, cfg *config.Bulk, load func() (*config.Bulk, error), log *slog.Logger) error {
	hup := lifecycle.Hangups()
	opened, err := openServers(ctx, cfg, log)
	if err != nil {
		return err
	}
	// The store is closed last: the other parts need it.
	defer func() {
		if err := opened.Close(); err != nil {
			log.Warn("cannot close the store", "error", err)
		}
	}()
	for _, s := range opened {
		if s.Away != nil {
			log.Error("cannot reach the store; no job is accepted or started until it is back", "store", s.URL, "error", s.Away)
		}
	}

	w, err := newWorker(cfg, opened.clients(), log)
	if err != nil {
		return err
	}
	defer w.closeProcessors()
	w.traces.sent.EndWith(ctx, cfg.Worker.ShutdownGrace)
	defer w.traces.sent.Close()
	defer context.AfterFunc(ctx, func() {
		w.ending.Store(true)
		log.Info("stopping: no more jobs are started", "shutdown_grace", cfg.Worker.ShutdownGrace.String())
	})()

	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return cli.CannotListen("listen", cfg.Listen, err)
	}
	var parts lifecycle.Group
	parts.AddUntilDone(ctx)
	parts.AddReloads(hup, func() { w.loads.Record(w.reload(load)) }, func() []string { return w.cfg.Files() })
	addRun(&parts, func(ctx context.Context) error { return w.prepare(ctx, cfg, opened) })
	addRun(&parts, w.pulled.Run)
	addRun(&parts, w.engine.Run)
	// Until running jobs have ended; interrupted uploads continue with the next process.
	ophttp.Server{Name: "listening", Handler: w.front, TLS: w.tls.Load, MaxHeaderBytes: 32 << 10, EndStreams: w.front.close, Log: log}.AddTo(&parts, listener)
	return parts.Run()
}

// newWorker returns a worker; it starts nothing, and sends nothing to the store.
func newWorker(cfg *config.Bulk, clients []redis.UniversalClient, log *slog.Logger) (*worker, error) {
	w := &worker{cfg: cfg, callbacks: &caller{}, front: &front{}, registry: prometheus.NewRegistry(), log: log}
	w.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	name, _ := cli.BuildVersion(version)
	w.metrics = bulk.NewMetrics(w.registry, name)
	w.loads = lifecycle.NewLoads(w.registry, "bulk_action")
	w.traces.sent.Program = traced(tracing.NewMetrics(w.registry, "bulk_action"), log)
	var err error
	if w.store, err = store.NewFleet(storeOptions(cfg, log, w.metrics), clients...); err != nil {
		return nil, err
	}
	// It reads what gateways publish of their origins; it runs no room.
	w.gateways, err = admission.New(coreOptions(cfg, clients[0], log, w.metrics.ObserveStore))
	if err != nil {
		return nil, err
	}
	return w, w.build()
}

func (w *worker) closeProcessors() {
	for _, p := range w.processors {
		p.replace(nil)
	}
}

// checkStart builds everything that serve builds and starts nothing, so that check-config and a reload refuse
// whatever the start refuses.
func checkStart(cfg *config.Bulk) error {
	client := redis.NewClient(&redis.Options{}) // no command is sent, so it does not connect
	defer func() { _ = client.Close() }()
	w, err := newWorker(cfg, []redis.UniversalClient{client}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	w.front.close()
	w.closeProcessors()
	w.traces.sent.Close()
	return nil
}

// build creates the parts and starts none.
func (w *worker) build() error {
	cfg := w.cfg
	calling, err := newCalling(cfg)
	if err != nil {
		return err
	}
	w.callbacks.replace(calling)
	o := engineOptions(cfg)
	o.Store, o.People, o.Metrics, o.Tracer, o.Log = w.store, w.gateways, w.metrics, &w.traces.Tracer, w.log
	o.Callback, o.CallbackBody = w.callbacks.post, api.CallbackBody
	w.engine, err = bulk.New(o)
	if err != nil {
		return err
	}
	w.pulled.Broker, err = remote.New(remote.Options{Store: w.store, Engine: w.engine, MaxResult: int(cfg.Limits.Result), Metrics: &w.metrics.Leases, Log: w.log})
	if err != nil {
		return err
	}
	if err := w.setPulled(cfg); err != nil {
		return err
	}
	handlers, err := newHandlers(cfg)
	if err != nil {
		return err
	}
	w.processors = make(map[string]*processor)
	for jobType, h := range handlers {
		w.processors[jobType] = &processor{}
		w.processors[jobType].replace(h)
		if b := cfg.Processors[jobType].Batching; b.Max > 0 {
			if err := w.engine.RegisterBatch(jobType, w.processors[jobType], batching(b)); err != nil {
				return err
			}
		} else {
			w.engine.Register(jobType, w.processors[jobType])
		}
		if err := w.engine.SetPolicy(jobType, policy(cfg, jobType)); err != nil {
			return err
		}
	}
	options, server, err := w.newServer(cfg)
	if err != nil {
		return err
	}
	pair, err := certificates(cfg).Load()
	if err != nil {
		return err
	}
	if err := w.traces.use(cfg); err != nil {
		return err
	}
	w.tls.Store(pair)
	w.options = options
	w.front.replace(server)
	return nil
}

// setPulled sets the types of jobs that workers lease over HTTP, and their policies.
func (w *worker) setPulled(cfg *config.Bulk) error {
	types := cfg.Pulled()
	for _, jobType := range types {
		if err := w.engine.SetPolicy(jobType, policy(cfg, jobType)); err != nil {
			return err
		}
	}
	w.pulled.types.Store(&types)
	return nil
}

// engineOptions returns the engine's options from the configuration.
func engineOptions(cfg *config.Bulk) bulk.Options {
	least, most := cfg.Worker.Autoscale()
	count := cfg.Worker.Count
	if count == 0 {
		count = bulk.NoWorkers
	}
	return bulk.Options{
		Worker: bulk.WorkerOptions{
			Count: count, Min: least, Max: most, Batch: cfg.Worker.Batch, Lease: cfg.Worker.Lease,
			JobTimeout: cfg.Worker.JobTimeout, ShutdownGrace: cfg.Worker.ShutdownGrace,
		},
		Pace:        pace(cfg),
		ReducerWait: cfg.UnknownTypeAfter,
		MaxResult:   int64(cfg.Limits.Result),

		DispatchInterval: cfg.Dispatch.Interval,
	}
}

// prepare waits for the store's first reply, then until each server was found suitable, then for the end.
func (w *worker) prepare(ctx context.Context, cfg *config.Bulk, opened servers) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		again, err := w.claim(ctx, cfg, opened)
		if err == nil && !again {
			break
		}
		if !again {
			return err
		}
		if !sleep.For(ctx, pause) {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// claim prepares the store, and reports whether to try again. A server that was away at the start is found unsuitable
// only now. The first server has to reply; others may be away while their shards' jobs wait.
func (w *worker) claim(ctx context.Context, cfg *config.Bulk, opened servers) (again bool, err error) {
	for i, s := range opened {
		if s.Away == nil {
			continue
		}
		if err = s.Fit(ctx); err == nil {
			err = keeps(ctx, cfg, s)
		}
		switch {
		case errors.Is(err, redisurl.ErrUnsuitable):
			return false, err
		case err == nil:
			s.Away = nil
		case i == 0:
			return true, err
		default:
			again = true
		}
	}
	if w.answered.Load() {
		return again, nil
	}
	if err = w.store.Prepare(ctx); err != nil {
		return errors.Is(err, store.ErrStore), err
	}
	w.answered.Store(true)
	if unused := w.store.Unused(); len(unused) > 0 {
		w.log.Warn("shards are configured that hold no group yet; bulkworker shards open starts to use one", "shards", unused)
	}
	return again, nil
}

// addRun adds a part that runs until its context ends.
func addRun(parts *lifecycle.Group, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	parts.Add(func() error { return run(ctx) }, cancel)
}
