package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/bulktype"
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

const (
	pullBatch   = 100 // jobs of a lease
	pullWorkers = 4   // connections, each with a batch
)

// pulled is a bulkworker without workers of its own, whose jobs this process leases over HTTP.
type pulled struct {
	*ours
	url string
}

// startAPI starts a bulkworker that runs no jobs.
func startAPI(r *rig.Run, program string, redis *rig.Redis, lease time.Duration) (*rig.Child, string) {
	return startWorker(r, program, redis, fmt.Sprintf("rate: {global: 1000000}\nworker: {count: 0, lease: %s}\n", lease))
}

// startWorker starts a bulkworker with settings, and returns its URL.
func startWorker(r *rig.Run, program string, redis *rig.Redis, settings string) (*rig.Child, string) {
	addr := r.Port()
	config := r.File("bulkworker.yaml", fmt.Sprintf("listen: %q\nlog: {level: warn}\nstore: {url: %q}\n%s", addr, redis.URL(), settings))
	return r.Start("bulkworker", program, addr, "serve", "--config", config), "http://" + addr
}

func (p *pulled) name() string { return "pulled" }

// start leases jobs on several connections, at most so many each: a batch runs, then its verdicts are sent.
func (p *pulled) start(workers, _ int, handle handler) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range max(1, min(pullWorkers, workers/pullBatch)) {
		all.Go(func() {
			for ctx.Err() == nil {
				rig.Check(p.batch(ctx, min(pullBatch, workers), handle))
			}
		})
	}
	return func() { cancel(); all.Wait() }, nil
}

// batch leases a batch and runs it. A job that blocks holds its lease.
func (p *pulled) batch(ctx context.Context, most int, handle handler) error {
	var leased bulktype.Leased[string]
	if err := p.post(ctx, "lease", map[string]any{"worker": "bench", "types": []string{"noop"}, "max": most, "wait": 10}, &leased); ctx.Err() != nil {
		return nil
	} else if err != nil || len(leased.Jobs) == 0 {
		return err
	}
	type verdict struct {
		Lease string `json:"lease"`
	}
	verdicts := make([]verdict, len(leased.Jobs))
	var running sync.WaitGroup
	for i, j := range leased.Jobs {
		verdicts[i] = verdict{j.Lease}
		running.Go(func() { handle(ctx, j.Tenant) })
	}
	running.Wait()
	var states bulktype.LeaseStates
	err := p.post(context.WithoutCancel(ctx), "ack", map[string]any{"jobs": verdicts}, &states)
	for _, s := range states.Jobs {
		if s.State != "done" && err == nil {
			err = fmt.Errorf("job %s is %s", s.ID, s.State)
		}
	}
	return err
}

func (p *pulled) post(ctx context.Context, path string, body, into any) error {
	_, text, err := rig.Request(ctx, time.Minute, http.MethodPost, p.url+"/v1/work/"+path, rig.Must(json.Marshal(body)),
		"Content-Type", "application/json")
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// pulling compares jobs that are leased over HTTP in batches of 100 with the workers of package bulk, as many at a time.
func pulling(b *bench) []table.Row {
	const workers = pullBatch * pullWorkers
	process, url := startAPI(b.Run, b.bulkworker, b.redis, defaultLease)
	defer process.Stop()
	builtIn := newOurs(b.redis, defaultLease)
	builtIn.batch = pullBatch
	sides := [2]side{builtIn, &pulled{newOurs(b.redis, defaultLease), url}}
	jobs := evenly(b.jobs, 1)
	runs := table.Turns(b.rounds, 2, func(r, i int) shot {
		s := b.drain(sides[i], "pull", workers, jobs, total(jobs))
		rig.Say("pull, round %d of %d: %-6s %8.0f/s  %5.1f µs of Redis a job", r, b.rounds, sides[i].name(), s.Rate, s.StoreCPU)
		return s
	})
	var ratios []float64
	for i := range runs[0] {
		ratios = append(ratios, runs[1][i].Rate/runs[0][i].Rate)
	}
	return []table.Row{
		{What: fmt.Sprintf("pull over HTTP, %d × %d jobs", pullWorkers, pullBatch), Unit: "/s", Ours: median(runs[1]).Rate},
		{What: fmt.Sprintf("  %d workers of a process", workers), Unit: "/s", Ours: median(runs[0]).Rate},
		{What: "  ratio", Unit: "×", Ours: table.Median(ratios), Bars: []table.Bar{{Limit: 0.5}}},
		{What: "  Redis's processor time", Unit: "µs a job", Ours: median(runs[1]).StoreCPU},
	}
}
