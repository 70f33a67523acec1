package main

import (
	"reflect"
	"slices"

	"github.com/anteroom/anteroom/bulk/api"
	"github.com/anteroom/anteroom/internal/config"
)

// reload applies the configuration that load returns, as far as it can change while jobs run, or nothing if it has a
// problem. It logs and returns the problem.
func (w *worker) reload(load func() (*config.Bulk, error)) error {
	next, err := load()
	var later []string
	if err == nil {
		later = keepFixed(w.cfg, next)
		err = w.take(next)
	}
	if err != nil {
		w.log.Error("cannot reload the configuration; the old one stays in force", "error", err)
		return err
	}
	if len(later) > 0 {
		w.log.Warn("these settings need a restart; the old values stay in force", "settings", later)
	}
	w.log.Info("configuration reloaded", "types", slices.Concat(next.Active(), next.Pulled()))
	return nil
}

// take builds everything that may fail before it changes anything.
func (w *worker) take(next *config.Bulk) error {
	options, server, err := w.newServer(next)
	if err != nil {
		return err
	}
	pair, err := certificates(next).Load()
	if err != nil {
		return err
	}
	calling, err := newCalling(next)
	if err != nil {
		return err
	}
	handlers, err := newHandlers(next)
	if err != nil {
		return err
	}
	if err = w.store.Configure(storeSettings(next)); err == nil {
		err = w.engine.SetPace(pace(next))
	}
	if err == nil {
		err = w.engine.SetDispatchInterval(next.Dispatch.Interval)
	}
	for jobType := range handlers {
		if err == nil {
			err = w.engine.SetPolicy(jobType, policy(next, jobType))
		}
	}
	if err == nil {
		err = w.setPulled(next)
	}
	if err == nil && next.Worker.Count != w.cfg.Worker.Count {
		err = w.engine.Resize(next.Worker.Count)
	}
	if err == nil {
		err = w.traces.use(next)
	}
	if err != nil {
		closeAll(handlers)
		return err
	}
	for jobType, h := range handlers {
		w.processors[jobType].replace(h)
	}
	w.callbacks.replace(calling)
	w.tls.Store(pair)
	if !reflect.DeepEqual(options, w.options) || !slices.Equal(next.Pulled(), w.cfg.Pulled()) { // a new server ends streams
		w.options = options
		w.front.replace(server)
	}
	w.cfg = next
	return nil
}

// newServer returns the API of a configuration, and its options.
func (w *worker) newServer(cfg *config.Bulk) (api.Options, *api.Server, error) {
	options, err := apiOptions(cfg)
	if err != nil {
		return options, nil, err
	}
	server, err := api.New(w.complete(options, cfg.Pulled()))
	return options, server, err
}

// keepFixed restores in next the settings that need a restart and returns the names of those that differ.
func keepFixed(old, next *config.Bulk) []string {
	var names []string
	for _, s := range []struct {
		name      string
		old, next any // pointers
	}{
		{"listen", &old.Listen, &next.Listen},
		{"log", &old.Log, &next.Log},
		{"store", &old.Store, &next.Store},
		{"shards", &old.Shards, &next.Shards},
		{"durability", &old.Durability, &next.Durability},
		{"worker.min", &old.Worker.Min, &next.Worker.Min},
		{"worker.max", &old.Worker.Max, &next.Worker.Max},
		{"worker.batch", &old.Worker.Batch, &next.Worker.Batch},
		{"worker.lease", &old.Worker.Lease, &next.Worker.Lease},
		{"worker.job_timeout", &old.Worker.JobTimeout, &next.Worker.JobTimeout},
		{"worker.shutdown_grace", &old.Worker.ShutdownGrace, &next.Worker.ShutdownGrace},
		{"limits.result", &old.Limits.Result, &next.Limits.Result},
	} {
		from, to := reflect.ValueOf(s.old).Elem(), reflect.ValueOf(s.next).Elem()
		if !reflect.DeepEqual(from.Interface(), to.Interface()) {
			names = append(names, s.name)
			to.Set(from)
		}
	}
	if (old.TLS == config.TLS{}) != (next.TLS == config.TLS{}) {
		names = append(names, "tls")
		next.TLS = old.TLS
	}
	if from, to := old.Worker.Count, next.Worker.Count; from != to && (from == 0 || to == 0) {
		names = append(names, "worker.count")
		next.Worker.Count = from
	}
	// The engine's types are fixed at its start.
	was, is := old.Active(), next.Active()
	for _, jobType := range was {
		if !slices.Contains(is, jobType) || next.Processors[jobType].Kind != old.Processors[jobType].Kind {
			names = append(names, "processors."+jobType)
			next.Processors[jobType] = old.Processors[jobType]
		}
	}
	for _, jobType := range is {
		if p, b := next.Processors[jobType], old.Processors[jobType].Batching; slices.Contains(was, jobType) && p.Batching != b {
			names = append(names, "processors."+jobType+".batching")
			p.Batching = b
			next.Processors[jobType] = p
		}
		if !slices.Contains(was, jobType) {
			names = append(names, "processors."+jobType)
			if p := old.Processors[jobType]; p.Kind == config.KindPull {
				next.Processors[jobType] = p
			} else {
				delete(next.Processors, jobType)
			}
		}
	}
	return names
}
