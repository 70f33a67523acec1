package main

import (
	"context"
	"fmt"
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
func newOurs(r *rig.Redis, lease time.Duration) *ours {
	settings := store.Defaults()
	settings.Global, settings.Lease = 1e6, lease
	return &ours{store: rig.Must(store.New(store.Options{Client: r.Client, Timeout: 10 * time.Second, Settings: settings}))}
}

func (o *ours) name() string { return "ours" }

func (o *ours) fill(ctx context.Context, jobs []int) error {
	o.group = ""
	parallel, ctx := errgroup.WithContext(ctx)
	parallel.SetLimit(8)
	for i, n := range jobs {
		parallel.Go(func() error {
			g, _, err := o.store.CreateGroup(ctx, store.GroupSpec{ID: tenantName(i), Tenant: tenantName(i), Type: "noop"})
			if err != nil {
				return err
			}
			if err := addJobs(ctx, o.store, g.ID, n, "%032d", time.Time{}); err != nil {
				return err
			}
			_, err = o.store.Seal(ctx, g.ID)
			return err
		})
	}
	return parallel.Wait()
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
	e, err := bulk.New(bulk.Options{Store: o.store, Worker: bulk.WorkerOptions{Count: workers, Batch: o.batch, ShutdownGrace: time.Second}})
	if err != nil {
		return nil, err
	}
	e.Register("noop", bulk.HandlerFunc(func(ctx context.Context, j *bulk.Job) ([]byte, error) {
		handle(ctx, j.Tenant)
		return nil, nil
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		_ = e.Run(ctx) // its only error is a second call
		close(done)
	}()
	return func() { cancel(); <-done }, nil
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
