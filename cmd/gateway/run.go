package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/gateway/extauthz"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/logs"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/internal/tracing"
	"github.com/anteroom/anteroom/internal/tracing/setup"
)

// serve runs the gateway until ctx ends, then drains within cfg.ShutdownTimeout. load reads the configuration again, at SIGHUP and
// when a file has changed; after an error the old configuration stays in force. log and the access log write to queue.
func serve(ctx context.Context, cfg *config.Config, load func() (*config.Config, error), queue *logs.Queue, log *slog.Logger) error {
	hup, started := lifecycle.Hangups(), cfg
	failures := newLastError(log.Handler())
	log = slog.New(failures)
	s, err := openStore(ctx, cfg.Store, log)
	if err != nil {
		return err
	}
	// Closed last: all other parts use it.
	defer func() {
		if err := s.Close(); err != nil {
			log.Warn("cannot close the store", "error", err)
		}
	}()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "anteroom", Name: "log_lines_dropped_total", Help: "Log lines that nobody read, or not in time.",
	}, func() float64 { return float64(queue.Dropped()) }))
	name, _ := cli.BuildVersion(version)
	m, loads := metrics.New(registry, name), lifecycle.NewLoads(registry, "anteroom")
	core, err := admission.New(coreOptions(cfg, s.Client, m.ObserveStore, log))
	if err != nil {
		return err
	}
	if s.Away == nil {
		if err := core.CheckLayout(ctx); errors.Is(err, admission.ErrLayout) {
			return err
		}
	}
	options, err := gatewayOptions(cfg, s, core, registry, queue, log)
	if err != nil {
		return err
	}
	traced := &setup.Traces{Program: traced(tracing.NewMetrics(registry, "anteroom"), log)}
	traced.EndWith(ctx, cfg.ShutdownTimeout)
	defer traced.Close()
	var g *gateway.Gateway
	if err := traced.Reload(&cfg.Tracing, func(t *tracing.Tracer) (err error) {
		options.Tracer = t
		g, err = gateway.New(options, m)
		return err
	}); err != nil {
		return err
	}
	probes := newBalancers(g.Ready)
	hooks, err := newWebhooks(cfg, g, core, registry, log)
	if err != nil {
		return err
	}
	seen, err := newInsight(cfg, g, core, options.Ring, name, failures, registry)
	if err != nil {
		return err
	}
	operators, err := newOperators(cfg, g, probes.Ready, core, hooks, seen.insight(g), registry, log)
	if err != nil {
		return err
	}
	ring := options.Ring
	// reload puts the configuration that load returns now in force. It logs and returns an error.
	reload := func() error {
		next, err := load()
		var later []string
		if err == nil {
			later = keepFixed(started, next)
			options, err = gatewayOptions(next, s, core, registry, queue, log)
		}
		if err == nil {
			err = operators.reload(next)
		}
		if err == nil {
			if err = traced.Reload(&next.Tracing, func(t *tracing.Tracer) error { options.Tracer = t; return g.Reload(options) }); err != nil {
				err = errors.Join(err, operators.reload(cfg)) // a configuration takes effect as a whole or not at all
			}
		}
		if err != nil {
			log.Error("cannot reload the configuration; the old one stays in force", "error", err)
			return err
		}
		if len(later) > 0 {
			log.Warn("these settings need a restart; the old values stay in force", "settings", later)
		}
		if err := options.Ring.Continues(ring); err != nil {
			log.Warn("the former signing key or tokens.issuer was removed: every place and pass signed with it has ended; to keep them, restore the key beside the new one, without active, for a day, or for session.max of rooms with session.renew: server if that is longer", "error", err)
		}
		ring = options.Ring
		warn(next, log)
		cfg, started.TLS = next, next.TLS
		listen, grpc := started.Check.Listen, started.Check.GRPC
		started.Check = next.Check
		started.Check.Listen, started.Check.GRPC = listen, grpc
		seen.loaded(next, options.Ring)
		log.Info("configuration reloaded", "rooms", len(next.Rooms))
		return nil
	}

	listener, err := listen(cfg.Listen)
	if err != nil {
		return cli.CannotListen("listen", cfg.Listen, err)
	}
	admin, err := net.Listen("tcp", cfg.Admin.Listen)
	if err != nil {
		return errors.Join(cli.CannotListen("admin.listen", cfg.Admin.Listen, err), listener.Close())
	}

	checks, err := listenForChecks(cfg.Check.Listen)
	if err != nil {
		return errors.Join(cli.CannotListen("check.listen", cfg.Check.Listen, err), listener.Close(), admin.Close())
	}
	grpcChecks, err := listenForChecks(cfg.Check.GRPC)
	if err != nil {
		err = errors.Join(cli.CannotListen("check.grpc", cfg.Check.GRPC, err), listener.Close(), admin.Close())
		if checks != nil {
			err = errors.Join(err, checks.Close())
		}
		return err
	}
	authz := extauthz.New(g)

	var parts lifecycle.Group
	parts.AddUntilDone(ctx)
	parts.AddReloads(hup, func() { loads.Record(reload()) }, func() []string { return cfg.Files() })
	addVisitors(&parts, g, listener, authz, probes, cfg.ShutdownTimeout, log)
	addChecks(&parts, g, checks, log)
	addGRPCChecks(&parts, authz, grpcChecks, log)
	operators.add(&parts, admin)
	if s.Away != nil {
		addFit(&parts, func(ctx context.Context) error { return errors.Join(s.Fit(ctx), core.CheckLayout(ctx)) })
	}
	addAuditWatch(&parts, core, log)
	addWebhooks(&parts, hooks)
	addInsight(&parts, seen)
	addCore(&parts, core)
	err = parts.Run()
	log.Info("stopped")
	return err
}

// listen opens the visitors' socket, without multipath TCP, whose sockets cannot stop accepting.
func listen(addr string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), "tcp", addr)
}

// addVisitors serves visitors. Its stop first fails /readyz until balancers have noticed, then drains, then closes. authz, whose checks g
// decides, is drained before g ends.
func addVisitors(parts *lifecycle.Group, g *gateway.Gateway, ln net.Listener, authz *extauthz.Server, probes *balancers, timeout time.Duration, log *slog.Logger) {
	ended := make(chan struct{})
	parts.Add(func() error {
		g.Settle()
		log.Info("listening", "addr", ln.Addr().String())
		err := g.Serve(ln)
		<-ended // Serve returns when the socket closes, before the last request has ended
		return err
	}, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		log.Info("draining", "shutdown_timeout", timeout.String())
		g.NotReady()
		probes.wait(ctx, timeout/3)
		drainChecks(ctx, authz, timeout/3, log)
		if err := g.Shutdown(ctx); err != nil {
			log.Warn("requests were cut at shutdown_timeout", "error", err)
		}
	})
}

// listenForChecks opens the socket for checks of other proxies; nil without an address.
func listenForChecks(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	return listen(addr)
}

// addChecks answers the checks of other proxies. The shutdown of the visitors' part ends it too.
func addChecks(parts *lifecycle.Group, g *gateway.Gateway, ln net.Listener, log *slog.Logger) {
	if ln == nil {
		return
	}
	parts.Add(func() error {
		log.Info("check listening", "addr", ln.Addr().String())
		return g.ServeCheck(ln)
	}, func() { _ = ln.Close() })
}

// addGRPCChecks answers the checks of Envoy over gRPC. The shutdown of the visitors' part drains it.
func addGRPCChecks(parts *lifecycle.Group, authz *extauthz.Server, ln net.Listener, log *slog.Logger) {
	if ln == nil {
		return
	}
	parts.Add(func() error {
		log.Info("gRPC check listening", "addr", ln.Addr().String())
		return authz.Serve(ln)
	}, authz.Close)
}

// drainChecks waits until the checks over gRPC that have begun are answered, for at most atMost: a proxy that does not close its
// connections must not take the time of the visitors.
func drainChecks(ctx context.Context, authz *extauthz.Server, atMost time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	if err := authz.Shutdown(ctx); err != nil {
		log.Warn("checks over gRPC were cut: a proxy kept its connection", "waited", atMost.String())
	}
}

// addFit ends the gateway if a store that was away at the start replies and cannot be used.
func addFit(parts *lifecycle.Group, fit func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	parts.Add(func() error {
		again := time.NewTicker(time.Second)
		defer again.Stop()
		for {
			err := fit(ctx)
			if errors.Is(err, redisurl.ErrUnsuitable) || errors.Is(err, admission.ErrLayout) {
				return err
			}
			if err == nil {
				<-ctx.Done()
				return nil
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return nil
			}
		}
	}, cancel)
}

// addCore ticks the rooms. It ends last and sends the remaining heartbeats.
func addCore(parts *lifecycle.Group, core *admission.Core) {
	ctx, cancel := context.WithCancel(context.Background())
	parts.Add(func() error { return core.Run(ctx) }, cancel)
}
