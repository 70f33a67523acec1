package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// queue leases jobs.
type queue interface {
	PullFor(ctx context.Context, owner string, want int, types ...string) (store.Pulled, error)
	ReclaimFrom(ctx context.Context, owner string, known []int64) (int64, error)
	Listen(ctx context.Context, d time.Duration) (event bool, err error)
	Ring(ctx context.Context) error
}

// leases ends and extends the runs of leased jobs.
type leases interface {
	Ack(ctx context.Context, acks []store.Ack) ([]store.AckState, error)
	Renew(ctx context.Context, leases []store.Lease) ([]store.LeaseState, error)
	Types(ctx context.Context, keys []string) ([]string, error)
}

// registry lists workers for all processes.
type registry interface {
	Serve(types []string)
	NotePullers(ctx context.Context, all []store.Puller) error
}

// Engine has the policies for failed jobs and counts runs; *bulk.Engine implements it.
type Engine interface {
	Policy(jobType string) bulk.Policy
	Pulled(p store.Pulled)
	Ended(jobType string, a *store.Ack, effect store.AckState)
}

var _ Engine = (*bulk.Engine)(nil)

// Options of a Broker. Store and Engine are required.
type Options struct {
	Store     store.Sharded
	Engine    Engine
	MaxResult int                // bytes of a job's result; 64 KiB
	Waiting   int                // largest number of requests that wait for jobs; 4,096
	Metrics   *bulk.LeaseMetrics // nil: not registered
	Log       *slog.Logger       // nil: none
}

// Broker leases jobs to workers outside this process and records their verdicts. While Run runs, requests wait for jobs
// and workers are listed. Otherwise Lease returns at once.
type Broker struct {
	o        Options
	shards   []*shard
	count    func(ctx context.Context) (int, error) // of the installation's shards
	presence *presence
	parking  *parking

	mu       sync.Mutex // orders begin and stop
	stopping bool
	requests sync.WaitGroup // requests for jobs in progress
}

// New returns a Broker. It starts nothing.
func New(o Options) (*Broker, error) {
	if o.Store == nil || o.Engine == nil {
		return nil, errors.New("remote: Options.Store and Options.Engine are required")
	}
	o.MaxResult = cmp.Or(o.MaxResult, 64<<10)
	if o.Waiting == 0 {
		o.Waiting = 4096
	}
	if o.Metrics == nil {
		o.Metrics = &bulk.NewMetrics(nil, "").Leases
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Metrics.Most.Set(float64(o.Waiting))
	b := &Broker{o: o, count: o.Store.Shards()[0].ShardCount, presence: &presence{workers: map[string]*puller{}}}
	for n, s := range o.Store.Shards() {
		b.shards = append(b.shards, &shard{number: n, queue: s, leases: s})
		b.presence.registries = append(b.presence.registries, s)
	}
	b.parking = newParking(o.Waiting, len(b.shards), o.Metrics)
	return b, nil
}

// LeaseFor returns the length of a lease.
func (b *Broker) LeaseFor() time.Duration { return b.o.Store.Shards()[0].Settings().Lease }

// Waiting returns how many requests wait for jobs.
func (b *Broker) Waiting() int {
	b.parking.mu.Lock()
	defer b.parking.mu.Unlock()
	return b.parking.requests
}

// Run lists workers, listens for events of the queue and returns the jobs of lost pulls until ctx ends. Then waiting
// requests end without jobs, new ones get ErrStopping, and Run returns nil when those in progress have ended.
func (b *Broker) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() {
		for sleep.For(ctx, store.PullersEvery) {
			if err := b.presence.report(ctx, time.Now()); err != nil {
				b.o.Log.Warn("cannot list the workers that pull jobs; trying again", "error", err)
			}
		}
	})
	for _, s := range b.shards {
		loops.Go(func() { b.listen(ctx, s) })
		loops.Go(func() {
			for sleep.For(ctx, reclaimEvery) {
				if s.lost.any() && b.reclaim(ctx, s) {
					b.parking.event(s.number) // the shard replies again
				}
			}
		})
	}
	b.parking.open()
	<-ctx.Done()
	b.stop()
	b.parking.close()
	loops.Wait()
	b.finish(base)
	return nil
}

// begin counts a request for jobs, unless the Broker stops.
func (b *Broker) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopping {
		b.requests.Add(1)
	}
	return !b.stopping
}

func (b *Broker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
}

// finishFor bounds how long Run waits for requests in progress: a call of the store and the write of a response.
const finishFor = 5 * time.Second

func (b *Broker) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishFor)
	defer cancel()
	done := make(chan struct{})
	go func() {
		b.requests.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	for _, s := range b.shards {
		b.reclaim(ctx, s)
	}
}

// listen passes events of a shard's queue to waiting requests.
func (b *Broker) listen(ctx context.Context, s *shard) {
	failures := 0
	for b.parking.occupied(ctx, s.number) {
		event, err := s.queue.Listen(ctx, longestWait)
		if err != nil {
			if failures++; ctx.Err() == nil && failures == 1 {
				b.o.Log.Error("cannot listen for jobs; requests wait and try again", "shard", s.number, "error", err)
			}
			sleep.For(ctx, min(time.Second, 50*time.Millisecond<<min(failures, 5)))
			continue
		}
		failures = 0
		if event && !b.parking.event(s.number) {
			// No request waits here any more: another process may have one.
			if err := s.queue.Ring(context.WithoutCancel(ctx)); err != nil {
				b.o.Log.Warn("cannot pass an event of the queue on; jobs may start a second later", "error", err)
			}
		}
	}
}
