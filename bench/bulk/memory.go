package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk/store"
)

// memoryJobs is the number of jobs with which the memory of one is measured.
const memoryJobs = 100_000

// memories measures the memory of jobs that have ended, by what their group keeps, of jobs for later, and of small groups.
func memories(b *bench) (rows []table.Row) {
	row := func(what string, n int, f func(s *store.Store)) {
		b.empty()
		s := newOurs(b.redis, defaultLease).store
		rig.Must(s.Pull(b, 1)) // loads scripts
		before := b.stats().Memory
		f(s)
		each := float64(b.stats().Memory-before) / float64(n)
		rows = append(rows, table.Row{What: what, Unit: "bytes", Ours: each})
		rig.Say("%s: %.1f bytes", what, each)
	}
	spec := store.GroupSpec{ID: "g", Tenant: "a", Type: "noop"}
	row("a pending job, 100 bytes of payload", memoryJobs, func(s *store.Store) { b.submit(s, spec, memoryJobs, time.Time{}) })
	row("a job for later", memoryJobs, func(s *store.Store) { b.submit(s, spec, memoryJobs, time.Now().Add(24*time.Hour)) })
	for _, result := range []int{0, 100} {
		for _, keeps := range []store.Results{store.AllResults, store.FailureResults, store.NoResults} {
			what := fmt.Sprintf("a success with a result of %d bytes, results: %s", result, map[store.Results]string{"": "all"}[keeps]+string(keeps))
			row(what, memoryJobs, func(s *store.Store) {
				spec := spec
				spec.Results = keeps
				b.submit(s, spec, memoryJobs, time.Time{})
				b.work(s, memoryJobs, []byte(strings.Repeat("r", result)))
				b.tend(s, "g")
			})
		}
	}
	for _, aggregate := range []string{`{"op":"count"}`, `{"op":"sum","field":"n"}`} {
		row("a success with a result of 100 bytes, results: failures, while jobs may be added, aggregate "+aggregate, memoryJobs, func(s *store.Store) {
			spec := spec
			spec.Results, spec.Aggregate = store.FailureResults, aggregate
			g, _, err := s.CreateGroup(b, spec)
			rig.Check(err)
			rig.Check(addJobs(b, s, g.ID, memoryJobs, "order-%08d", time.Time{}))
			b.work(s, memoryJobs, []byte(strings.Repeat("r", 100)))
			if !spec.Counts() {
				b.reduce(s, "g")
			}
		})
	}
	const groups = 10_000
	row("a group of one job that has ended", groups, func(s *store.Store) {
		for i := range groups {
			b.submit(s, store.GroupSpec{ID: fmt.Sprintf("%026d", i), Tenant: tenantName(i % 100), Type: "noop"}, 1, time.Time{})
		}
		b.work(s, groups, nil)
		for i := range groups {
			b.tend(s, fmt.Sprintf("%026d", i))
		}
	})
	return rows
}

// submit creates a group of n jobs and seals it.
func (b *bench) submit(s *store.Store, spec store.GroupSpec, n int, at time.Time) {
	rig.Check(addGroup(b, s, spec, n, "order-%08d", at))
}

// work runs n jobs, which all succeed.
func (b *bench) work(s *store.Store, n int, result []byte) {
	for deadline := time.Now().Add(2 * time.Minute); n > 0; {
		rig.Require(time.Now().Before(deadline), "%d jobs are left after two minutes", n)
		jobs := rig.Must(s.Pull(b, 200)).Jobs
		acks := make([]store.Ack, len(jobs))
		for i, j := range jobs {
			acks[i] = store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done, Result: result, Took: time.Millisecond}
		}
		rig.Must(s.Ack(b, acks))
		n -= len(acks)
	}
}

// reduce reads every outcome of a group.
func (b *bench) reduce(s *store.Store, group string) {
	r := rig.Must(s.BeginReduce(b, group))
	for cursor := r.Cursor; ; {
		page := rig.Must(s.Outcomes(b, &r, cursor, 500))
		if len(page.Outcomes) == 0 {
			return
		}
		cursor = page.Next
		rig.Require(rig.Must(s.CommitReduce(b, group, r.Fence, cursor, int64(len(page.Outcomes)), []byte(`{"succeeded":1}`))), "the fence of the reduce has expired")
	}
}

// tend does the housekeeping of a group that has ended.
func (b *bench) tend(s *store.Store, group string) {
	for rig.Must(s.Tend(b, group)).Again {
	}
}

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
