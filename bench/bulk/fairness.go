package main

import (
	"context"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

const (
	smallJobs    = 150 // jobs of each small tenant
	smallTenants = 9
	jobTime      = 10 * time.Millisecond
	fairWorkers  = 50
)

// share measures how equally a side divided its workers among the tenants.
type share struct {
	late float64 // when the last small tenant ended, divided by when it would have ended with equal shares
	jain float64 // of the jobs that each tenant had started when the first small one had started all
}

// fairness runs small tenants beside a large one that was first.
func fairness(b *bench) []table.Row {
	large := 5 * b.jobs
	one := newAsynq(b.redis)
	one.oneQueue = true
	rig.Say("fairness: %d jobs of one tenant, then 9 tenants of 150; asynq with one queue", large)
	fifo := b.divide(one, large) // once, since it takes as long as all jobs
	shares := table.Turns(b.rounds, 2, func(r, i int) share {
		s := b.divide(b.sides[i], large)
		rig.Say("fairness, round %d of %d: %-6s %.3f × the fair-share time, Jain %.4f", r, b.rounds, b.sides[i].name(), s.late, s.jain)
		return s
	})
	late := func(i int) float64 { return table.MedianOf(shares[i], func(s share) float64 { return s.late }) }
	jain := func(i int) float64 { return table.MedianOf(shares[i], func(s share) float64 { return s.jain }) }
	bars := []table.Bar{{Limit: 1.2, AtMost: true}}
	return []table.Row{
		{What: "small tenants' end ÷ fair-share time (asynq: one queue)", Unit: "×", Peers: []float64{fifo.late}, Ours: late(1), Bars: bars},
		{What: "  (asynq: an equally weighted queue a tenant)", Unit: "×", Peers: []float64{late(0)}, Ours: late(1), Bars: bars},
		{What: "Jain's index while all have work (a queue a tenant)", Unit: "1 at best", Peers: []float64{jain(0)}, Ours: jain(1), Bars: []table.Bar{{Limit: 0.999}}},
	}
}

// divide runs jobs of 10 ms until the small tenants have ended. With equal shares each of the ten tenants has run 150 jobs by
// then: the time is measured in jobs that have run, so that a slow machine does not matter.
func (b *bench) divide(s side, large int) (result share) {
	b.empty()
	jobs := append([]int{large}, evenly(smallTenants*smallJobs, smallTenants)...)
	rig.Check(s.fill(b, jobs))
	var mu sync.Mutex
	begun, ended, smallEnded, all := map[string]int{}, map[string]int{}, 0, 0
	done := make(chan struct{})
	stop := b.runUntil(done, 3*time.Minute, s, fairWorkers, len(jobs), func(ctx context.Context, tenant string) {
		mu.Lock()
		begun[tenant]++
		if result.jain == 0 && tenant != tenantName(0) && begun[tenant] == smallJobs {
			result.jain = jainIndex(begun, len(jobs))
		}
		mu.Unlock()
		rig.Sleep(ctx, jobTime)
		mu.Lock()
		defer mu.Unlock()
		ended[tenant]++
		all++
		if tenant != tenantName(0) && ended[tenant] == smallJobs {
			if smallEnded++; smallEnded == smallTenants {
				result.late = float64(all) / float64(smallJobs*len(jobs))
				close(done)
			}
		}
	})
	stop()
	return result
}

// unequalTimes are the run times of the jobs of each tenant.
var unequalTimes = []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}

const (
	unequalWorkers = 20
	unequalWork    = time.Minute // of all tenants and workers together
)

// unequalShares measures how equally tenants share the workers' time if their jobs take 5 to 100 ms.
func unequalShares(b *bench) []table.Row {
	found := table.Turns(b.rounds, 2, func(r, i int) float64 {
		index := b.unequal(b.sides[i])
		rig.Say("unequal run times, round %d of %d: %-6s Jain by work %.4f", r, b.rounds, b.sides[i].name(), index)
		return index
	})
	return []table.Row{{What: "Jain's index of work, jobs of 5 to 100 ms (a queue a tenant)", Unit: "1 at best",
		Peers: []float64{table.Median(found[0])}, Ours: table.Median(found[1]), Bars: []table.Bar{{Limit: 0.99}}}}
}

// unequal runs jobs for unequalWork; every tenant has jobs until the end.
func (b *bench) unequal(s side) float64 {
	b.empty()
	jobs, times := make([]int, len(unequalTimes)), map[string]time.Duration{}
	for i, d := range unequalTimes {
		jobs[i], times[tenantName(i)] = int(unequalWork/d), d
	}
	rig.Check(s.fill(b, jobs))
	var mu sync.Mutex
	worked, all := map[string]float64{}, 0.0
	done := make(chan struct{})
	stop := b.runUntil(done, 3*time.Minute, s, unequalWorkers, len(jobs), func(ctx context.Context, tenant string) {
		began := time.Now()
		rig.Sleep(ctx, times[tenant])
		mu.Lock()
		defer mu.Unlock()
		if all >= unequalWork.Seconds() {
			return
		}
		took := time.Since(began).Seconds()
		worked[tenant] += took
		if all += took; all >= unequalWork.Seconds() {
			close(done)
		}
	})
	stop()
	return jainIndex(worked, len(jobs))
}

// jainIndex returns Jain's index of n shares: 1 if all are equal, 1/n if one has everything.
func jainIndex[N int | float64](shares map[string]N, n int) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(n) * squares)
}
