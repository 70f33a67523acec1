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
	redis *rig.Redis
	lease time.Duration
	batch int // of a pull; 0: the default
	seq   atomic.Int64
	once  sync.Once
	store *store.Store
	err   error
	group string // the group of submit
}

func newOurs(r *rig.Redis, lease time.Duration) *ours { return &ours{redis: r, lease: lease} }

func (o *ours) name() string { return "ours" }

// open returns the store as bulkworker opens it, with a rate that limits nothing.
func (o *ours) open() (*store.Store, error) {
	o.once.Do(func() {
		settings := store.Defaults()
		settings.Global, settings.Lease = 1e6, o.lease
		o.store, o.err = store.New(store.Options{Client: o.redis.Client, Timeout: 10 * time.Second, Settings: settings})
	})
	return o.store, o.err
}

func (o *ours) fill(ctx context.Context, jobs []int) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	o.group = ""
	parallel, ctx := errgroup.WithContext(ctx)
	parallel.SetLimit(8)
	for i, n := range jobs {
		parallel.Go(func() error {
			g, _, err := s.CreateGroup(ctx, store.GroupSpec{ID: tenantName(i), Tenant: tenantName(i), Type: "noop"})
			if err != nil {
				return err
			}
			if err := addJobs(ctx, s, g.ID, n, "%032d", time.Time{}); err != nil {
				return err
			}
			_, err = s.Seal(ctx, g.ID)
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
	s, err := o.open()
	if err != nil {
		return nil, err
	}
	e, err := bulk.New(bulk.Options{Store: s, Worker: bulk.WorkerOptions{Count: workers, Batch: o.batch, ShutdownGrace: time.Second}})
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
	s, err := o.open()
	if err != nil {
		return 0, 0, err
	}
	d, err := s.Depths(ctx)
	return d.Pending + d.Ready + d.NonReady + d.InFlight, d.InFlight, err
}

func (o *ours) submit(ctx context.Context) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	if o.group == "" {
		g, _, err := s.CreateGroup(ctx, store.GroupSpec{Tenant: tenantName(0), Type: "noop"})
		if err != nil {
			return err
		}
		o.group = g.ID
	}
	_, err = s.AddJobs(ctx, o.group, store.Chunk{}, []store.Job{{ID: fmt.Sprint(o.seq.Add(1)), Payload: payload}})
	return err
}
