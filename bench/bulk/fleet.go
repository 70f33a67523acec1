package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk"
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
	var load, rate [2][]float64
	table.Turns(b.rounds, 2, func(r, i int) error {
		n := []int{1, fleetSize}[i]
		share, perSecond := b.fleetOf(n)
		rig.Say("fleet, round %d of %d: %2d processes: %.1f %% of a Redis core at %.0f jobs/s", r, b.rounds, n, share*100, perSecond)
		load[i], rate[i] = append(load[i], share*100), append(rate[i], perSecond)
		return nil
	})
	var ratios []float64
	for i := range load[0] {
		ratios = append(ratios, load[1][i]/load[0][i])
	}
	return []table.Row{
		{What: fmt.Sprintf("Redis's load, %d processes at %d jobs/s", fleetSize, fleetRate), Unit: "% of a core", Ours: table.Median(load[1])},
		{What: "  of one process", Unit: "% of a core", Ours: table.Median(load[0])},
		{What: "  ratio", Unit: "×", Ours: table.Median(ratios), Bars: []table.Bar{{Limit: 1.3, AtMost: true}}},
		{What: "  what they start", Unit: "/s", Ours: table.Median(rate[1]), Bars: []table.Bar{{Limit: 0.98 * fleetRate}}},
	}
}

// fleetOf runs processes and returns the share of a core that Redis used, and the jobs a second.
func (b *bench) fleetOf(processes int) (share, perSecond float64) {
	b.empty()
	rig.Check(newOurs(b.redis, defaultLease).fill(b, []int{int(fleetRate * 2 * (fleetWarm + fleetTime).Seconds())}))
	ctx, cancel := context.WithCancel(b)
	var ran atomic.Int64
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range processes {
		settings := store.Defaults()
		settings.Global = fleetRate
		s := rig.Must(store.New(store.Options{Client: b.OpenRedis(b.redis.Addr).Client, Timeout: 10 * time.Second, Settings: settings}))
		e := rig.Must(bulk.New(bulk.Options{Store: s, Worker: bulk.WorkerOptions{Count: 10, ShutdownGrace: time.Second}}))
		e.Register("noop", bulk.HandlerFunc(func(context.Context, *bulk.Job) ([]byte, error) { ran.Add(1); return nil, nil }))
		running.Go(func() { _ = e.Run(ctx) }) // its only error is a second call
	}
	b.Wait(fleetWarm)
	before, first := b.stats(), ran.Load()
	b.Wait(fleetTime)
	d := b.stats().Since(before)
	took := time.Since(before.At).Seconds()
	return d.CPU.Seconds() / took, float64(ran.Load()-first) / took
}
