package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk/store"
)

const (
	fleetSize = 40
	fleetRate = 1000 // jobs a second, the global rate
	fleetWarm = 4 * time.Second
	fleetTime = 10 * time.Second
)

// fleet measures what many processes cost Redis at one global rate, beside one. Each has a store, connections and an engine of
// its own; they run in this program.
func fleet(b *bench) []table.Row {
	runs := table.Turns(b.rounds, 2, func(r, i int) shot {
		n := []int{1, fleetSize}[i]
		s := b.fleetOf(n)
		rig.Say("fleet, round %d of %d: %2d processes: %.1f %% of a Redis core at %.0f jobs/s", r, b.rounds, n, s.load(), s.Rate)
		return s
	})
	var ratios []float64
	for i := range runs[0] {
		ratios = append(ratios, runs[1][i].load()/runs[0][i].load())
	}
	return []table.Row{
		{What: fmt.Sprintf("Redis's load, %d processes at %d jobs/s", fleetSize, fleetRate), Unit: "% of a core", Ours: table.MedianOf(runs[1], shot.load)},
		{What: "  of one process", Unit: "% of a core", Ours: table.MedianOf(runs[0], shot.load)},
		{What: "  ratio", Unit: "×", Ours: table.Median(ratios), Bars: []table.Bar{{Limit: 1.3, AtMost: true}}},
		{What: "  what they start", Unit: "/s", Ours: median(runs[1]).Rate, Bars: []table.Bar{{Limit: 0.98 * fleetRate}}},
	}
}

// load returns the processor time of the store, in percent of a core.
func (s shot) load() float64 { return s.StoreCPU * s.Rate / 1e4 }

// fleetOf runs processes for a time.
func (b *bench) fleetOf(processes int) shot {
	b.empty()
	rig.Check(newOurs(b.redis, defaultLease).fill(b, []int{int(fleetRate * 2 * (fleetWarm + fleetTime).Seconds())}))
	var ran atomic.Int64
	for range processes {
		o := newLimited(b.OpenRedis(b.redis.Addr), defaultLease, fleetRate)
		defer rig.Must(o.start(10, 1, func(context.Context, string) { ran.Add(1) }))()
	}
	b.Wait(fleetWarm)
	before, first := b.stats(), ran.Load()
	b.Wait(fleetTime)
	d := b.stats().Since(before)
	n := float64(ran.Load() - first)
	return shot{Rate: n / time.Since(before.At).Seconds(), StoreCPU: float64(d.CPU.Microseconds()) / n}
}

// mostShards is how many servers the measurement of shards starts at most.
const mostShards = 8

// shards is package bulk in this process over several shards, each on a Redis of its own.
type shards struct {
	servers []*rig.Redis
	fleet   *store.Fleet
	batch   int
}

func (s *shards) name() string { return fmt.Sprintf("%d shards", len(s.servers)) }

func (s *shards) empty(ctx context.Context) error {
	settings := store.Defaults()
	settings.Global = 1e6
	var clients []redis.UniversalClient
	for _, server := range s.servers {
		if err := server.Empty(ctx); err != nil {
			return err
		}
		clients = append(clients, server.Client.(redis.UniversalClient))
	}
	var err error
	if s.fleet, err = store.NewFleet(store.Options{Shards: len(clients), Timeout: 10 * time.Second, Settings: settings}, clients...); err != nil {
		return err
	}
	return s.fleet.Prepare(ctx)
}

// fill divides the jobs of one tenant among the shards, in a group each.
func (s *shards) fill(ctx context.Context, jobs []int) error {
	for n, shard := range s.fleet.Shards() {
		spec := store.GroupSpec{ID: fmt.Sprintf("g%d", n), Tenant: tenantName(0), Type: "noop"}
		if err := addGroup(ctx, shard, spec, jobs[0]/len(s.servers), "%032d", time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *shards) start(workers, _ int, handle handler) (stop func(), err error) {
	return startEngine(s.fleet, workers, s.batch, handle)
}

func (s *shards) left(ctx context.Context, _ int) (left, running int64, err error) {
	for _, shard := range s.fleet.Shards() {
		n, busy, err := (&ours{store: shard}).left(ctx, 1)
		if err != nil {
			return 0, 0, err
		}
		left, running = left+n, running+busy
	}
	return left, running, nil
}

func (s *shards) used(ctx context.Context) (sum usage, err error) {
	for _, server := range s.servers {
		u, err := shared(ctx, server)
		if err != nil {
			return u, err
		}
		sum = usage{sum.store + u.store, u.worker, sum.calls + u.calls}
	}
	return sum, nil
}

// sharded measures what a job costs all shards together, beside one shard. One process runs all jobs, so every call that is
// made for fewer jobs than with one shard shows.
func sharded(b *bench) (rows []table.Row) {
	servers := []*rig.Redis{b.redis}
	for len(servers) < mostShards {
		servers = append(servers, b.Redis())
	}
	var sides []side
	var jobs [][]int
	for n := range strings.SplitSeq(b.shards, ",") {
		count, err := strconv.Atoi(n)
		rig.Require(err == nil && count >= 1 && count <= mostShards, "--shards %s: want numbers from 1 to %d", b.shards, mostShards)
		sides, jobs = append(sides, &shards{servers: servers[:count], batch: b.batch}), append(jobs, []int{b.jobs / count * count})
	}
	for _, workers := range []int{50, 200} {
		what := fmt.Sprintf("shards, %d workers", workers)
		runs := table.Turns(b.rounds, len(sides), func(r, i int) shot {
			s := b.drain(sides[i], what+" of "+sides[i].name(), workers, jobs[i], jobs[i][0])
			rig.Say("%s, round %d of %d: %s %8.0f/s  %5.1f µs of Redis in %.4f calls, %5.1f µs of the worker a job",
				what, r, b.rounds, sides[i].name(), s.Rate, s.StoreCPU, s.Calls, s.CPU)
			return s
		})
		one := median(runs[0]).StoreCPU
		for i := range sides {
			m := median(runs[i])
			row := table.Row{What: fmt.Sprintf("%s: Redis's processor time, %s", what, sides[i].name()), Unit: "µs a job", Ours: m.StoreCPU}
			if i > 0 {
				row.Bars = []table.Bar{{Limit: 1.1 * one, AtMost: true}}
			}
			rows = append(rows, row, table.Row{What: "  script calls", Unit: "a job", Ours: m.Calls}, table.Row{What: "  jobs", Unit: "/s", Ours: m.Rate})
		}
	}
	return rows
}
