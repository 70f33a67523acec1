package main

import (
	"context"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/bench/table"
)

// manyGroups measures what it costs that there are 10,000 groups, each of a tenant of its own, against 10.
func manyGroups(ctx context.Context, b *bench) ([]table.Row, error) {
	const few, many = 10, 10_000
	const patience = 2_000 // tasks: what asynq takes from so many queues in some seconds
	jobs := max(4*many, b.jobs) / many * many
	rounds := min(b.rounds, 3)
	var rate [2][2]float64 // by number of groups and side
	var pulls [2]float64
	for i, n := range []int{few, many} {
		until := [2]int{jobs / 2, jobs / 2}
		if n == many {
			until[0] = patience
		}
		s, err := b.compared(ctx, fmt.Sprintf("process half of the jobs, 50 workers, %d tenants", n), rounds, 50, evenly(jobs, n), until)
		if err != nil {
			return nil, err
		}
		rate[i] = [2]float64{s[0].Rate, s[1].Rate}
		var costs []float64
		for r := range rounds {
			cost, err := b.pullCost(ctx, evenly(jobs, n), jobs/2)
			if err != nil {
				return nil, err
			}
			say("pull of 50, %d tenants, round %d of %d: %.1f µs of Redis a job", n, r+1, rounds, cost)
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
	}, nil
}

// pullCost takes so many jobs, 50 at a time, and says what each cost Redis.
func (b *bench) pullCost(ctx context.Context, jobs []int, until int) (float64, error) {
	o := newOurs(b.redis, defaultLease)
	if err := b.redis.empty(ctx); err != nil {
		return 0, err
	}
	if err := o.fill(ctx, jobs); err != nil {
		return 0, err
	}
	s, err := o.open()
	if err != nil {
		return 0, err
	}
	before, err := b.redis.cpu(ctx)
	if err != nil {
		return 0, err
	}
	deadline := time.Now().Add(time.Minute)
	taken := 0
	for taken < until && time.Now().Before(deadline) {
		p, err := s.Pull(ctx, 50)
		if err != nil {
			return 0, err
		}
		taken += len(p.Jobs)
	}
	if taken < until {
		return 0, fmt.Errorf("took %d of %d jobs in a minute", taken, until)
	}
	after, err := b.redis.cpu(ctx)
	return float64((after - before).Microseconds()) / float64(taken), err
}
