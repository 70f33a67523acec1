package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/internal/storeopen"
)

// servers are the open servers of the shards.
type servers []*storeopen.Store

// openServers opens the store, and starts it without store.url. A server that is down is no error: jobs run when it is
// back.
func openServers(ctx context.Context, cfg *config.Bulk, log *slog.Logger) (all servers, err error) {
	for _, server := range cfg.Store.Servers() {
		s, err := storeopen.Open(ctx, server, log)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, s)
		if s.Away == nil {
			if err := keeps(ctx, cfg, s); errors.Is(err, redisurl.ErrUnsuitable) {
				return nil, errors.Join(err, all.Close())
			}
		}
	}
	return all, nil
}

func (all servers) clients() (clients []redis.UniversalClient) {
	for _, s := range all {
		clients = append(clients, s.Client)
	}
	return clients
}

// away returns the error of the servers that did not reply when they were opened.
func (all servers) away() error {
	var errs []error
	for _, s := range all {
		if s.Away != nil {
			errs = append(errs, fmt.Errorf("cannot reach the store %s: %w", s.URL, s.Away))
		}
	}
	return errors.Join(errs...)
}

// Close closes all.
func (all servers) Close() error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// keeps checks that the store can do what durability promises.
func keeps(ctx context.Context, cfg *config.Bulk, s *storeopen.Store) error {
	if cfg.Durability != "disk" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := redisurl.CheckDisk(ctx, s.Client); err != nil {
		return fmt.Errorf("durability disk: store.url %s: %w", s.URL, err)
	}
	return nil
}

// tryStore is check-config --store.
func tryStore(ctx context.Context, cfg *config.Bulk) error {
	for _, server := range cfg.Store.Servers() {
		if err := tryServer(ctx, cfg, server); err != nil {
			return err
		}
	}
	return tryShards(ctx, cfg)
}

// tryShards checks that the data on each server is that of its shards.
func tryShards(ctx context.Context, cfg *config.Bulk) error {
	var clients []redis.UniversalClient
	for _, server := range cfg.Store.Servers() {
		if server.URL == "" {
			return nil // a server of its own has all shards
		}
		client, err := redisurl.Open(server.URL, server.Timeout)
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }() // nothing is written
		clients = append(clients, client)
	}
	f, err := store.NewFleet(storeOptions(cfg, slog.New(slog.DiscardHandler), nil), clients...)
	if err != nil {
		return err
	}
	return f.Check(ctx)
}

func tryServer(ctx context.Context, cfg *config.Bulk, server config.Store) error {
	if err := storeopen.Check(ctx, server); err != nil {
		return err
	}
	var check func(context.Context, redis.UniversalClient) error
	switch cfg.Durability {
	case "disk":
		check = redisurl.CheckDisk
	case "replica":
		check = redisurl.CheckReplicas
	}
	if check == nil || server.URL == "" {
		return nil
	}
	client, err := redisurl.Open(server.URL, server.Timeout)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if err := check(ctx, client); err != nil {
		return fmt.Errorf("store.url %s: for durability %s: %w", redisurl.Mask(server.URL), cfg.Durability, err)
	}
	return nil
}

// storeSettings returns the settings of the store that the configuration means.
func storeSettings(cfg *config.Bulk) store.Settings {
	s := store.Settings{
		Global: cfg.Rate.Global.PerSecond(), Burst: cfg.Rate.Burst.PerSecond(), PerTenant: cfg.Rate.PerTenant.PerSecond(), Limiter: cfg.Limiter, Window: cfg.Rate.Window,
		Policy: cfg.FairQueue.Policy, Alpha: cfg.FairQueue.Alpha, Strict: cfg.FairQueue.Strict, Gating: cfg.FairQueue.Gating, ByStarts: cfg.FairQueue.By == "starts",
		Congestion: cfg.Congestion.Enabled, BaseBackoff: cfg.Congestion.BaseBackoff, MaxBackoff: cfg.Congestion.MaxBackoff,
		MaxAge: cfg.Congestion.MaxAge, StatsRetention: cfg.Congestion.StatsRetention,
		ReadyMax: cfg.ReadyQueue.MaxSize, DispatchBatch: cfg.Dispatch.Batch, Lease: cfg.Worker.Lease, MaxCrashes: cfg.Worker.MaxCrashes,
		PendingPerTenant: cfg.Limits.PendingPerTenant,
		KeepJobs:         cfg.Retention.Jobs, KeepGroups: cfg.Retention.Groups, KeepDead: cfg.Retention.Dead, UnsealedAfter: cfg.UnsealedAfter,
		UnknownTypeAfter: cfg.UnknownTypeAfter, Types: typeLimits(cfg),
	}
	s.Adaptive = cfg.Adaptive.Enabled || cfg.PeopleFirst.Origin != ""
	switch cfg.Durability {
	case "replica":
		s.WaitReplicas = 1
	case "disk":
		s.WaitLocal = 1
	}
	return s
}

// storeOptions returns the options of the shards' stores; without metrics they report to none.
func storeOptions(cfg *config.Bulk, log *slog.Logger, metrics *bulk.Metrics) store.Options {
	o := store.Options{Shards: cfg.Shards, Prefix: cfg.Store.Prefix, Timeout: cfg.Store.Timeout, Settings: storeSettings(cfg), Log: log}
	if metrics != nil {
		o.Observe, o.Refused, o.Concluded = metrics.ObserveStore, metrics.Refused, metrics.Concluded
	}
	return o
}

// coreOptions returns the options of the core that reads what gateways publish.
func coreOptions(cfg *config.Bulk, client redis.UniversalClient, log *slog.Logger, observe func(script string, took time.Duration, err error)) admission.Options {
	return admission.Options{Client: client, Prefix: cfg.Store.Prefix, Timeout: cfg.Store.Timeout, Log: log, Observe: observe}
}

// pace returns how the global rate is found.
func pace(cfg *config.Bulk) bulk.Pace {
	a := cfg.Adaptive
	return bulk.Pace{
		Policy: adaptive.Policy{MinRate: int64(a.MinRate), MaxRate: int64(a.MaxRate), TargetP95: a.TargetP95},
		Begin:  int64(cfg.Rate.Global), Jobs: a.Enabled, People: cfg.PeopleFirst.Origin,
	}
}
