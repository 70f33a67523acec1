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
			b.add(s, spec, memoryJobs, time.Time{})
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
	b.add(s, spec, n, at)
	rig.Must(s.Seal(b, spec.ID))
}

// add creates a group of n jobs.
func (b *bench) add(s *store.Store, spec store.GroupSpec, n int, at time.Time) {
	g, _, err := s.CreateGroup(b, spec)
	rig.Check(err)
	rig.Check(addJobs(b, s, g.ID, n, "order-%08d", at))
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
