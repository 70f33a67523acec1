package main

import (
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/anteroom/anteroom/bulk/api"
	"github.com/anteroom/anteroom/bulk/dashboard"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// front serves the API. A reload replaces it, and clients of its streams reconnect.
type front struct{ current atomic.Pointer[api.Server] }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.current.Load().Handler().ServeHTTP(w, r)
}

func (f *front) replace(next *api.Server) {
	if old := f.current.Swap(next); old != nil {
		old.Close()
	}
}

// close ends the streams, for which a shutdown would wait.
func (f *front) close() { f.current.Load().Close() }

// certificates returns the files of the listener's TLS.
func certificates(cfg *config.Bulk) certs.Files { return certs.Files(cfg.TLS) }

// apiOptions returns the options of the API for a configuration.
func apiOptions(cfg *config.Bulk) (api.Options, error) {
	bearers, err := cfg.Bearers()
	if err != nil {
		return api.Options{}, err
	}
	o := api.Options{
		Token: cfg.Admin.Token, RequireToken: !cfg.OnLoopback(), TrustedProxies: cfg.TrustedProxies,
		Limits: api.Limits{Line: int(cfg.Limits.Line), Decompressed: int64(cfg.Limits.Decompressed), Result: int(cfg.Limits.Result)},
	}
	for _, b := range bearers {
		o.Tokens = append(o.Tokens, api.Token{Name: b.Name, Token: b.Token, Tenants: b.Tenants, Most: api.Ceilings{
			Weight: b.Weight, Priority: store.Level(b.Priority), Pending: b.Pending, Groups: b.Groups,
		}})
	}
	workers, err := cfg.WorkerBearers()
	if err != nil {
		return api.Options{}, err
	}
	for _, b := range workers {
		o.WorkerTokens = append(o.WorkerTokens, api.WorkerToken{Name: b.Name, Types: b.Types, Token: b.Token})
	}
	return o, nil
}

// complete adds the options that a reload does not change, and the dashboard, which offers the types that workers lease.
func (w *worker) complete(o api.Options, pulled []string) api.Options {
	name, _ := cli.BuildVersion(version)
	o.Store, o.ParseAggregate, o.Work, o.Log = w.store, w.engine.ParseAggregate, w.pulled.Broker, w.log
	if w.cfg.Worker.Count > 0 { // otherwise other processes run the jobs, and report them
		o.AllowType = func(kind string) bool {
			return w.processors[kind] != nil || slices.Contains(*w.pulled.types.Load(), kind)
		}
	}
	o.CheckCallback, o.Enqueued, o.Tracer = w.callbacks.check, w.metrics.Enqueued, &w.traces.Tracer
	o.Ready = func() bool { return w.answered.Load() && !w.ending.Load() }
	o.Metrics = ophttp.Metrics(w.registry, w.log)
	o.Dashboard = dashboard.Handler(dashboard.Options{Types: slices.Concat(slices.Sorted(maps.Keys(w.processors)), pulled), Version: name})
	return o
}
