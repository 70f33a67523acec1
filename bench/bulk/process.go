package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// shot is one run of a side.
type shot struct {
	Rate     float64 // jobs a second
	StoreCPU float64 // microseconds of Redis's processor time a job
	CPU      float64 // … of this process, the side's worker
}

// drain fills a side and runs its jobs until so many have run, and, if these are all, until the store has their acks.
func (b *bench) drain(s side, what string, workers int, jobs []int, until int) shot {
	b.empty()
	rig.Check(s.fill(b, jobs))
	runtime.GC()
	if s == b.sides[1] {
		defer b.profile(what)()
	}
	var ran atomic.Int64
	enough := make(chan struct{})
	before, own := b.stats(), child.OwnCPU()
	stop := b.runUntil(enough, 2*time.Minute, s, workers, len(jobs), func(context.Context, string) {
		if ran.Add(1) == int64(until) {
			close(enough)
		}
	})
	defer stop()
	for left := int64(1); until == total(jobs) && left > 0; {
		var err error
		left, _, err = s.left(b, len(jobs))
		rig.Check(err)
	}
	took := time.Since(before.At)
	own = child.OwnCPU() - own
	n := float64(until)
	return shot{Rate: n / took.Seconds(), StoreCPU: float64(b.stats().Since(before).CPU.Microseconds()) / n, CPU: float64(own.Microseconds()) / n}
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

// compared drains both sides in turns, each until so many jobs have run, and returns the medians of each.
func (b *bench) compared(what string, rounds, workers int, jobs []int, until [2]int) (medians [2]shot) {
	for i, shots := range table.Turns(rounds, 2, func(r, i int) shot {
		s := b.drain(b.sides[i], what, workers, jobs, until[i])
		rig.Say("%s, round %d of %d: %-6s %8.0f/s  %5.1f µs of Redis, %5.1f µs of the worker a job", what, r, rounds, b.sides[i].name(), s.Rate, s.StoreCPU, s.CPU)
		return s
	}) {
		medians[i].Rate = table.MedianOf(shots, func(s shot) float64 { return s.Rate })
		medians[i].StoreCPU = table.MedianOf(shots, func(s shot) float64 { return s.StoreCPU })
		medians[i].CPU = table.MedianOf(shots, func(s shot) float64 { return s.CPU })
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
		s := b.compared(what, b.rounds, c.workers, jobs, [2]int{total(jobs), total(jobs)})
		rows = append(rows, table.Row{What: what, Unit: "/s", Peers: []float64{s[0].Rate}, Ours: s[1].Rate, Bars: []table.Bar{{Limit: 1, Ratio: true}, {Limit: 2, Ratio: true}}},
			table.Row{What: "  the worker's processor time", Unit: "µs a job", Peers: []float64{s[0].CPU}, Ours: s[1].CPU},
			table.Row{What: "  Redis's processor time", Unit: "µs a job", Peers: []float64{s[0].StoreCPU}, Ours: s[1].StoreCPU})
	}
	return rows
}
