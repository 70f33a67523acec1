package main

import (
	"fmt"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

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
