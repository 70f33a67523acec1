package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
)

// mostShards is how many servers the measurement of shards starts at most.
const mostShards = 8

// sharded measures what a job costs all shards together, each on a Redis of its own, beside one shard. One process runs all
// jobs, so every call that is made for fewer jobs than with one shard shows.
func sharded(b *bench) (rows []table.Row) {
	var counts []int
	for n := range strings.SplitSeq(b.shards, ",") {
		count, err := strconv.Atoi(n)
		rig.Require(err == nil && count >= 1 && count <= mostShards, "--shards %s: want numbers from 1 to %d", b.shards, mostShards)
		counts = append(counts, count)
	}
	servers := []*rig.Redis{b.redis}
	for len(servers) < mostShards {
		servers = append(servers, b.Redis())
	}
	for _, workers := range []int{50, 200} {
		what := fmt.Sprintf("shards, %d workers", workers)
		runs := table.Turns(b.rounds, len(counts), func(r, i int) shardShot {
			s := b.drainShards(servers[:counts[i]], what, workers)
			rig.Say("%s, round %d of %d: %d shards %8.0f/s  %5.1f µs of Redis in %.4f calls, %5.1f µs of the worker a job",
				what, r, b.rounds, counts[i], s.Rate, s.StoreCPU, s.Calls, s.CPU)
			return s
		})
		one := table.MedianOf(runs[0], func(s shardShot) float64 { return s.StoreCPU })
		for i, n := range counts {
			cpu := table.MedianOf(runs[i], func(s shardShot) float64 { return s.StoreCPU })
			row := table.Row{What: fmt.Sprintf("%s: Redis's processor time, %d shards", what, n), Unit: "µs a job", Ours: cpu}
			if i > 0 {
				row.Bars = []table.Bar{{Limit: 1.1 * one, AtMost: true}}
			}
			rows = append(rows, row,
				table.Row{What: "  script calls", Unit: "a job", Ours: table.MedianOf(runs[i], func(s shardShot) float64 { return s.Calls })},
				table.Row{What: "  jobs", Unit: "/s", Ours: table.MedianOf(runs[i], func(s shardShot) float64 { return s.Rate })})
		}
	}
	return rows
}

type shardShot struct {
	shot
	Calls float64 // of scripts a job
}

// drainShards runs jobs of a group on each server, which are a shard each.
func (b *bench) drainShards(servers []*rig.Redis, what string, workers int) shardShot {
	settings := store.Defaults()
	settings.Global = 1e6
	var clients []redis.UniversalClient
	for _, s := range servers {
		rig.Check(s.Empty(b))
		clients = append(clients, s.Client)
	}
	fleet := rig.Must(store.NewFleet(store.Options{Shards: len(servers), Timeout: 10 * time.Second, Settings: settings}, clients...))
	rig.Check(fleet.Prepare(b))
	for n, shard := range fleet.Shards() {
		id := fmt.Sprintf("g%d", n)
		_, _, err := shard.CreateGroup(b, store.GroupSpec{ID: id, Tenant: tenantName(0), Type: "noop"})
		rig.Check(err)
		rig.Check(addJobs(b, shard, id, b.jobs/len(servers), "%032d", time.Time{}))
		rig.Must(shard.Seal(b, id))
	}
	jobs := int64(b.jobs / len(servers) * len(servers))
	runtime.GC()
	defer b.profile(fmt.Sprintf("%s of %d", what, len(servers)))()
	var ran atomic.Int64
	enough := make(chan struct{})
	e := rig.Must(bulk.New(bulk.Options{Store: fleet, Worker: bulk.WorkerOptions{Count: workers, Batch: b.batch, ShutdownGrace: time.Second}}))
	e.Register("noop", bulk.HandlerFunc(func(context.Context, *bulk.Job) ([]byte, error) {
		if ran.Add(1) == jobs {
			close(enough)
		}
		return nil, nil
	}))
	before, own := statsOf(b, servers), child.OwnCPU()
	ctx, cancel := context.WithCancel(b)
	ended := make(chan struct{})
	go func() {
		_ = e.Run(ctx) // its only error is a second call
		close(ended)
	}()
	defer func() { cancel(); <-ended }()
	select {
	case <-enough:
	case <-time.After(2 * time.Minute):
		rig.Check(fmt.Errorf("%s: %d of %d jobs have run after two minutes", what, ran.Load(), jobs))
	case <-b.Done():
		rig.Check(b.Err())
	}
	for left := int64(1); left > 0; {
		left = 0
		for _, shard := range fleet.Shards() {
			d := rig.Must(shard.Depths(b))
			left += d.Pending + d.Ready + d.NonReady + d.InFlight
		}
	}
	took, n := time.Since(before[0].At).Seconds(), float64(jobs)
	own = child.OwnCPU() - own
	s := shardShot{shot: shot{Rate: n / took, CPU: float64(own.Microseconds()) / n}}
	for i, after := range statsOf(b, servers) {
		d := after.Since(before[i])
		s.StoreCPU += float64(d.CPU.Microseconds()) / n
		s.Calls += float64(d.Calls) / n
	}
	return s
}

func statsOf(b *bench, servers []*rig.Redis) (all []rig.Stats) {
	for _, s := range servers {
		all = append(all, rig.Must(s.Stats(b)))
	}
	return all
}
