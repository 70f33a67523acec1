package main

import (
	"fmt"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk/store"
)

// scripts measures what one call of each hot script costs Redis, by tenants with jobs and by jobs a call.
func scripts(b *bench) (rows []table.Row) {
	o := newOurs(b.redis, defaultLease)
	s := o.store
	row := func(what string, calls, jobs int, f func()) {
		f() // loads the script
		var costs []float64
		for range b.rounds {
			before := b.stats()
			for range calls {
				f()
			}
			costs = append(costs, float64(b.stats().Since(before).CPU.Microseconds())/float64(calls))
		}
		cost := table.Median(costs)
		unit := "µs of Redis a call"
		if jobs > 0 {
			unit += fmt.Sprintf(" (%.1f a job)", cost/float64(jobs))
		}
		rows = append(rows, table.Row{What: what, Unit: unit, Ours: cost})
		rig.Say("%s: %.1f µs a call", what, cost)
	}
	b.empty()
	row("jobs_pull, nothing there", 2000, 0, func() { rig.Must(s.Pull(b, 10)) })
	_, _, err := s.CreateGroup(b, store.GroupSpec{ID: "g", Tenant: "a", Type: "noop"})
	rig.Check(err)
	added := 0
	for _, n := range []int{1, 100, 500} {
		row(fmt.Sprintf("jobs_add of %d", n), 10_000/(n+9), n, func() {
			batch := make([]store.Job, n)
			for i := range batch {
				added++
				batch[i] = store.Job{ID: fmt.Sprintf("%020d", added), Payload: payload}
			}
			rig.Must(s.AddJobs(b, "g", store.Chunk{}, batch))
		})
	}
	for _, tenants := range []int{1, 10, 100, 1000} {
		for _, n := range []int{1, 10, 50, 200} {
			b.empty()
			calls := min(10_000, 400*n) / n
			rig.Check(o.fill(b, evenly((calls*b.rounds+2)*n/1000*1000+1000, tenants)))
			var held []store.Ack
			row(fmt.Sprintf("jobs_pull of %d, %d tenants", n, tenants), calls, n, func() {
				for _, j := range rig.Must(s.Pull(b, n)).Jobs {
					held = append(held, store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done, Took: time.Millisecond})
				}
			})
			row(fmt.Sprintf("jobs_ack of %d, %d tenants", n, tenants), calls, n, func() {
				rig.Require(len(held) >= n, "%d of %d jobs pulled", len(held), n)
				rig.Must(s.Ack(b, held[:n]))
				held = held[n:]
			})
		}
	}
	return rows
}
