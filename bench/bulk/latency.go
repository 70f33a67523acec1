package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// latency measures the time from the submission of one job to its start, while there is nothing else to do.
func latency(b *bench) []table.Row {
	b.empty()
	const samples = 100
	rig.Say("latency of single jobs")
	mine := rig.Must(starts(b, newOurs(b.redis, defaultLease), samples, 100*time.Millisecond))
	// asynq polls once a second: ten servers, each with a queue of its own, take its samples at the same time.
	theirs := make([][]time.Duration, 10)
	parallel, ctx := errgroup.WithContext(b)
	for i := range theirs {
		a := newAsynq(b.redis)
		a.own = fmt.Sprintf("latency%d", i)
		parallel.Go(func() (err error) {
			theirs[i], err = starts(ctx, a, samples/len(theirs), time.Second)
			return err
		})
	}
	rig.Check(parallel.Wait())
	peers := [][]time.Duration{slices.Concat(theirs...)}
	for _, p := range b.peers {
		b.emptyOf(p)
		peers = append(peers, rig.Must(starts(b, p, samples, 100*time.Millisecond)))
	}
	var rows []table.Row
	for _, percent := range []int{50, 99} {
		percentile := func(all []time.Duration) float64 { return table.Quantile(all, float64(percent)/100).Seconds() * 1000 }
		row := table.Row{What: fmt.Sprintf("submit to start, idle, p%d", percent), Unit: "ms", Ours: percentile(mine)}
		for _, all := range peers {
			row.Peers = append(row.Peers, percentile(all))
		}
		rows = append(rows, row)
	}
	return rows
}

// starts submits n jobs one after another, each within gap after the one before has started.
func starts(ctx context.Context, s submitter, n int, gap time.Duration) (all []time.Duration, err error) {
	began := make(chan time.Time, 1)
	stop, err := s.start(10, 1, func(context.Context, string) { began <- time.Now() })
	if err != nil {
		return nil, err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range n + 1 { // the first loads scripts
		rig.Sleep(ctx, rand.N(gap)) //nolint:gosec // any time within asynq's second
		at := time.Now()
		if err := s.submit(ctx); err != nil {
			return nil, err
		}
		select {
		case start := <-began:
			if i > 0 {
				all = append(all, start.Sub(at))
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: a single job does not start", s.name())
		}
	}
	return all, nil
}
