package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
)

const defaultLease = 30 * time.Second

// ours is package bulk in this process.
type ours struct {
	store *store.Store
	batch int // of a pull; 0: the default
	seq   atomic.Int64
	group string // the group of submit
}

// newOurs opens the store as bulkworker opens it, with a rate that limits nothing.
func newOurs(r *rig.Redis, lease time.Duration) *ours { return newLimited(r, lease, 1e6) }

// newLimited opens the store with a global rate.
func newLimited(r *rig.Redis, lease time.Duration, rate float64) *ours {
	settings := store.Defaults()
	settings.Global, settings.Lease = rate, lease
	return &ours{store: rig.Must(store.New(store.Options{Client: r.Client, Timeout: 10 * time.Second, Settings: settings}))}
}

func (o *ours) name() string { return "ours" }

func (o *ours) fill(ctx context.Context, jobs []int) error {
	o.group = ""
	parallel, ctx := errgroup.WithContext(ctx)
	parallel.SetLimit(8)
	for i, n := range jobs {
		parallel.Go(func() error {
			return addGroup(ctx, o.store, store.GroupSpec{ID: tenantName(i), Tenant: tenantName(i), Type: "noop"}, n, "%032d", time.Time{})
		})
	}
	return parallel.Wait()
}

// addGroup creates a group of n jobs, whose IDs are their numbers, and seals it.
func addGroup(ctx context.Context, s *store.Store, spec store.GroupSpec, n int, id string, at time.Time) error {
	g, _, err := s.CreateGroup(ctx, spec)
	if err != nil {
		return err
	}
	if err := addJobs(ctx, s, g.ID, n, id, at); err != nil {
		return err
	}
	_, err = s.Seal(ctx, g.ID)
	return err
}

// addJobs adds n jobs to a group, whose IDs are their numbers.
func addJobs(ctx context.Context, s *store.Store, group string, n int, id string, at time.Time) error {
	batch := make([]store.Job, 0, store.MaxAdd)
	for k := range n {
		batch = append(batch, store.Job{ID: fmt.Sprintf(id, k), Payload: payload, RunAt: at})
		if len(batch) == store.MaxAdd || k == n-1 {
			if _, err := s.AddJobs(ctx, group, store.Chunk{}, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

func (o *ours) start(workers, _ int, handle handler) (stop func(), err error) {
	return startEngine(o.store, workers, o.batch, handle)
}

// startEngine runs the jobs of a store, or of several shards.
func startEngine(s store.Sharded, workers, batch int, handle handler) (stop func(), err error) {
	e, err := bulk.New(bulk.Options{Store: s, Worker: bulk.WorkerOptions{Count: workers, Batch: batch, ShutdownGrace: time.Second}})
	if err != nil {
		return nil, err
	}
	e.Register("noop", bulk.HandlerFunc(func(ctx context.Context, j *bulk.Job) ([]byte, error) {
		handle(ctx, j.Tenant)
		return nil, nil
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) }) // its only error is a second call
	return func() { cancel(); running.Wait() }, nil
}

func (o *ours) left(ctx context.Context, _ int) (left, running int64, err error) {
	d, err := o.store.Depths(ctx)
	return d.Pending + d.Ready + d.NonReady + d.InFlight, d.InFlight, err
}

func (o *ours) submit(ctx context.Context) error {
	if o.group == "" {
		g, _, err := o.store.CreateGroup(ctx, store.GroupSpec{Tenant: tenantName(0), Type: "noop"})
		if err != nil {
			return err
		}
		o.group = g.ID
	}
	_, err := o.store.AddJobs(ctx, o.group, store.Chunk{}, []store.Job{{ID: fmt.Sprint(o.seq.Add(1)), Payload: payload}})
	return err
}
