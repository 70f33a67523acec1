package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// shot is one run of a side.
type shot struct {
	Rate     float64 // jobs a second
	StoreCPU float64 // microseconds of the store's processor time a job
	CPU      float64 // … of the side's workers
	Calls    float64 // of scripts a job
}

// median returns the medians of the figures.
func median(shots []shot) shot {
	return shot{
		Rate:     table.MedianOf(shots, func(s shot) float64 { return s.Rate }),
		StoreCPU: table.MedianOf(shots, func(s shot) float64 { return s.StoreCPU }),
		CPU:      table.MedianOf(shots, func(s shot) float64 { return s.CPU }),
		Calls:    table.MedianOf(shots, func(s shot) float64 { return s.Calls }),
	}
}

// drain fills a side and runs its jobs until so many have run, and, if these are all, until the store has their acks.
func (b *bench) drain(s side, what string, workers int, jobs []int, until int) shot {
	b.emptyOf(s)
	rig.Check(s.fill(b, jobs))
	runtime.GC()
	if _, is := s.(*shards); is || s == b.sides[1] {
		defer b.profile(what)()
	}
	var ran atomic.Int64
	enough := make(chan struct{})
	before, began := b.used(s), time.Now()
	stop := b.runUntil(enough, 2*time.Minute, s, workers, len(jobs), func(context.Context, string) {
		if ran.Add(1) == int64(until) {
			close(enough)
		}
	})
	defer stop()
	for pending := int64(1); until == total(jobs) && pending > 0; {
		pending, _ = left(b, s, len(jobs))
	}
	took, after := time.Since(began), b.used(s)
	n := float64(until)
	return shot{Rate: n / took.Seconds(), StoreCPU: float64((after.store - before.store).Microseconds()) / n,
		CPU: float64((after.worker - before.worker).Microseconds()) / n, Calls: float64(after.calls-before.calls) / n}
}

// left returns how many jobs of a side have not ended, and how many of them are running.
func left(ctx context.Context, s side, tenants int) (pending, running int64) {
	pending, running, err := s.left(ctx, tenants)
	rig.Check(err)
	return pending, running
}

// profile begins a processor profile if one is wanted. The profile of the last round is kept.
func (b *bench) profile(name string) (end func()) {
	if b.profiles == "" {
		return func() {}
	}
	file := rig.Must(os.Create(filepath.Join(b.profiles, strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-")+".pb")))
	rig.Check(pprof.StartCPUProfile(file))
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}
}

// compared drains sides in turns, each until so many jobs have run, and returns the medians of each.
func (b *bench) compared(what string, rounds, workers int, jobs []int, sides []side, until []int) (medians []shot) {
	for _, shots := range table.Turns(rounds, len(sides), func(r, i int) shot {
		s := b.drain(sides[i], what, workers, jobs, until[i])
		rig.Say("%s, round %d of %d: %-6s %8.0f/s  %5.1f µs of the store, %5.1f µs of the worker a job", what, r, rounds, sides[i].name(), s.Rate, s.StoreCPU, s.CPU)
		return s
	}) {
		medians = append(medians, median(shots))
	}
	return medians
}

// processing measures no-op jobs from the queue to their ack.
func processing(b *bench) (rows []table.Row) {
	for shape := range strings.SplitSeq(b.shapes, ",") {
		var c struct{ workers, tenants int }
		_, err := fmt.Sscanf(shape, "%dx%d", &c.workers, &c.tenants)
		rig.Require(err == nil && c.workers > 0 && c.tenants > 0, "--shapes %s: want <workers>x<tenants>, such as 10x1", shape)
		what := strings.TrimSuffix(fmt.Sprintf("process, %d workers, %d tenants", c.workers, c.tenants), "s")
		if c.tenants > 1 {
			what += "s"
		}
		jobs := evenly(b.jobs, c.tenants)
		sides := b.sides[:]
		for _, p := range b.peers {
			if c.tenants == 1 { // they have no tenants
				sides = append(slices.Clip(sides), p)
			}
		}
		s := b.compared(what, b.rounds, c.workers, jobs, sides, slices.Repeat([]int{total(jobs)}, len(sides)))
		row := func(what, unit string, figure func(shot) float64, bars ...table.Bar) {
			r := table.Row{What: what, Unit: unit, Ours: figure(s[1]), Bars: bars}
			for _, peer := range slices.Delete(slices.Clone(s), 1, 2) {
				r.Peers = append(r.Peers, figure(peer))
			}
			rows = append(rows, r)
		}
		row(what, "/s", func(s shot) float64 { return s.Rate }, table.Bar{Limit: 1, Ratio: true}, table.Bar{Limit: 2, Ratio: true})
		row("  the worker's processor time", "µs a job", func(s shot) float64 { return s.CPU })
		row("  the store's processor time", "µs a job", func(s shot) float64 { return s.StoreCPU })
	}
	return rows
}

// manyGroups measures the cost of 10,000 groups, each of a tenant of its own, beside 10.
func manyGroups(b *bench) []table.Row {
	const few, many = 10, 10_000
	const asynqTasks = 2_000 // what asynq takes from so many queues in some seconds
	jobs := max(4*many, b.jobs) / many * many
	rounds := min(b.rounds, 3)
	var rate [2][2]float64 // by number of groups and side
	var pulls [2]float64
	for i, n := range []int{few, many} {
		until := []int{jobs / 2, jobs / 2}
		if n == many {
			until[0] = asynqTasks
		}
		s := b.compared(fmt.Sprintf("process half of the jobs, 50 workers, %d tenants", n), rounds, 50, evenly(jobs, n), b.sides[:], until)
		rate[i] = [2]float64{s[0].Rate, s[1].Rate}
		var costs []float64
		for r := range rounds {
			cost := b.pullCost(evenly(jobs, n), jobs/2)
			rig.Say("pull of 50, %d tenants, round %d of %d: %.1f µs of Redis a job", n, r+1, rounds, cost)
			costs = append(costs, cost)
		}
		pulls[i] = table.Median(costs)
	}
	return []table.Row{
		{What: "process, 50 workers, 10,000 tenants", Unit: "/s", Peers: []float64{rate[1][0]}, Ours: rate[1][1]},
		{What: "  rate with 10 tenants ÷ rate with 10,000", Unit: "×", Peers: []float64{rate[0][0] / rate[1][0]}, Ours: rate[0][1] / rate[1][1]},
		{What: "pull alone, 10 tenants", Unit: "µs of Redis a job", Ours: pulls[0]},
		{What: "pull alone, 10,000 tenants", Unit: "µs of Redis a job", Ours: pulls[1]},
		{What: "  10,000 ÷ 10", Unit: "×", Ours: pulls[1] / pulls[0], Bars: []table.Bar{{Limit: 1.5, AtMost: true}}},
	}
}

// pullCost pulls jobs, 50 at a time, and returns what each cost Redis.
func (b *bench) pullCost(jobs []int, until int) float64 {
	o := newOurs(b.redis, defaultLease)
	b.empty()
	rig.Check(o.fill(b, jobs))
	s := o.store
	before := b.stats()
	taken := 0
	for deadline := time.Now().Add(time.Minute); taken < until && time.Now().Before(deadline); {
		taken += len(rig.Must(s.Pull(b, 50)).Jobs)
	}
	rig.Require(taken >= until, "took %d of %d jobs in a minute", taken, until)
	return float64(b.stats().Since(before).CPU.Microseconds()) / float64(taken)
}
