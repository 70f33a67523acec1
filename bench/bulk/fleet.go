package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redisurl"
)

const (
	fleetSize = 40
	fleetRate = 1000 // jobs a second, the global rate
	fleetWarm = 4 * time.Second
	fleetTime = 10 * time.Second
)

// fleet measures what many processes cost Redis at one global rate, beside what one does. Each has a store, connections and an engine of
// its own; they run in this program.
func fleet(ctx context.Context, b *bench) ([]table.Row, error) {
	var load, rate [2][]float64
	err := inTurns(b.rounds, func(r, i int) error {
		n := []int{1, fleetSize}[i]
		share, perSecond, err := b.fleetOf(ctx, n)
		if err != nil {
			return err
		}
		say("fleet, round %d of %d: %2d processes: %.1f %% of a Redis core at %.0f jobs/s", r+1, b.rounds, n, share*100, perSecond)
		load[i], rate[i] = append(load[i], share*100), append(rate[i], perSecond)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var ratios []float64
	for i := range load[0] {
		ratios = append(ratios, load[1][i]/load[0][i])
	}
	return []table.Row{
		{What: fmt.Sprintf("Redis's load, %d processes at %d jobs/s", fleetSize, fleetRate), Unit: "% of a core", Ours: table.Median(load[1])},
		{What: "  of one process", Unit: "% of a core", Ours: table.Median(load[0])},
		{What: "  ratio", Unit: "×", Ours: table.Median(ratios), Bars: []table.Bar{{Limit: 1.3, AtMost: true}}},
		{What: "  what they start", Unit: "/s", Ours: table.Median(rate[1]), Bars: []table.Bar{{Limit: 0.98 * fleetRate}}},
	}, nil
}

// fleetOf runs so many processes and gives the share of a core that Redis used, and the jobs a second that ran.
func (b *bench) fleetOf(ctx context.Context, processes int) (share, perSecond float64, err error) {
	if err := b.redis.empty(ctx); err != nil {
		return 0, 0, err
	}
	if err := newOurs(b.redis, defaultLease).fill(ctx, []int{int(fleetRate * 2 * (fleetWarm + fleetTime).Seconds())}); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var ran atomic.Int64
	ended := make(chan error, processes)
	begun := 0
	defer func() {
		cancel()
		for range begun {
			err = errors.Join(err, <-ended)
		}
	}()
	for range processes {
		client, err := redisurl.Open(b.redis.url(), 10*time.Second)
		if err != nil {
			return 0, 0, err
		}
		settings := store.Defaults()
		settings.Global = fleetRate
		s, err := store.New(store.Options{Client: client, Timeout: 10 * time.Second, Settings: settings})
		if err != nil {
			return 0, 0, errors.Join(err, client.Close())
		}
		e, err := bulk.New(bulk.Options{Store: s, Worker: bulk.WorkerOptions{Count: 10, ShutdownGrace: time.Second}})
		if err != nil {
			return 0, 0, errors.Join(err, client.Close())
		}
		e.Register("noop", bulk.HandlerFunc(func(context.Context, *bulk.Job) ([]byte, error) { ran.Add(1); return nil, nil }))
		begun++
		go func() { ended <- errors.Join(e.Run(ctx), client.Close()) }()
	}
	if err := pause(ctx, fleetWarm); err != nil {
		return 0, 0, err
	}
	before, err := b.redis.cpu(ctx)
	if err != nil {
		return 0, 0, err
	}
	first, began := ran.Load(), time.Now()
	if err := pause(ctx, fleetTime); err != nil {
		return 0, 0, err
	}
	after, err := b.redis.cpu(ctx)
	took := time.Since(began).Seconds()
	return (after - before).Seconds() / took, float64(ran.Load()-first) / took, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
