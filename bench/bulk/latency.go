package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/table"
)

// latency measures from the submission of one job to its start, while nothing else is to do.
func latency(ctx context.Context, b *bench) ([]table.Row, error) {
	if err := b.redis.empty(ctx); err != nil {
		return nil, err
	}
	const samples = 100
	o := newOurs(b.redis, defaultLease)
	say("latency of single jobs")
	mine, err := starts(ctx, o, samples, 100*time.Millisecond)
	if err != nil {
		return nil, err
	}
	// asynq looks once a second: ten servers, each with a queue of its own, take its samples at the same time.
	theirs := make([][]time.Duration, 10)
	parallel, inner := errgroup.WithContext(ctx)
	for i := range theirs {
		a := newAsynq(b.redis)
		a.own = fmt.Sprintf("latency%d", i)
		parallel.Go(func() (err error) {
			theirs[i], err = starts(inner, a, samples/len(theirs), time.Second)
			return err
		})
	}
	if err := parallel.Wait(); err != nil {
		return nil, err
	}
	all := slices.Concat(theirs...)
	return []table.Row{
		{What: "submit to start, idle, p50", Unit: "ms", Peers: []float64{percentile(all, 50)}, Ours: percentile(mine, 50)},
		{What: "submit to start, idle, p99", Unit: "ms", Peers: []float64{percentile(all, 99)}, Ours: percentile(mine, 99)},
	}, nil
}

// starts submits n jobs one after another, at most gap after the one before has run.
func starts(ctx context.Context, s side, n int, gap time.Duration) ([]time.Duration, error) {
	began := make(chan time.Time, 1)
	stop, err := s.start(10, 1, func(context.Context, string) { began <- time.Now() })
	if err != nil {
		return nil, err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var all []time.Duration
	for i := range n + 1 { // the first loads scripts
		timer := time.NewTimer(rand.N(gap)) //nolint:gosec // where in asynq's second a job comes
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
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

// percentile in milliseconds.
func percentile(all []time.Duration, p int) float64 {
	s := slices.Sorted(slices.Values(all))
	return float64(s[min(len(s)-1, len(s)*p/100)].Microseconds()) / 1000
}
