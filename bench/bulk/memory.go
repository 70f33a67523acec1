package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk/store"
)

// memoryJobs is how many jobs the memory of one is measured with.
const memoryJobs = 100_000

// memories measures what stays in Redis of jobs that have ended, by what their group keeps, and what jobs for later and small
// groups take. It is run only when it is named.
func memories(ctx context.Context, b *bench) ([]table.Row, error) {
	var rows []table.Row
	row := func(what string, n int, f func(s *store.Store) error) error {
		o := newOurs(b.redis, defaultLease)
		if err := b.redis.empty(ctx); err != nil {
			return err
		}
		s, err := o.open()
		if err != nil {
			return err
		}
		if _, err := s.Pull(ctx, 1); err != nil { // loads the scripts that it can
			return err
		}
		before, err := b.redis.figure(ctx, "memory", "used_memory")
		if err != nil {
			return err
		}
		if err := f(s); err != nil {
			return err
		}
		after, err := b.redis.figure(ctx, "memory", "used_memory")
		if err != nil {
			return err
		}
		rows = append(rows, table.Row{What: what, Unit: "bytes", Ours: float64(after-before) / float64(n)})
		say("%s: %.1f bytes", what, float64(after-before)/float64(n))
		return nil
	}
	if err := row("a pending job, 100 bytes of payload", memoryJobs, func(s *store.Store) error {
		return submitted(ctx, s, store.GroupSpec{ID: "g", Tenant: "a", Type: "noop"}, memoryJobs, time.Time{})
	}); err != nil {
		return nil, err
	}
	if err := row("a job for later", memoryJobs, func(s *store.Store) error {
		return submitted(ctx, s, store.GroupSpec{ID: "g", Tenant: "a", Type: "noop"}, memoryJobs, time.Now().Add(24*time.Hour))
	}); err != nil {
		return nil, err
	}
	for _, result := range []int{0, 100} {
		for _, keeps := range []store.Results{store.AllResults, store.FailureResults, store.NoResults} {
			what := fmt.Sprintf("a success with a result of %d bytes, results: %s", result, map[store.Results]string{"": "all"}[keeps]+string(keeps))
			if err := row(what, memoryJobs, func(s *store.Store) error {
				if err := submitted(ctx, s, store.GroupSpec{ID: "g", Tenant: "a", Type: "noop", Results: keeps}, memoryJobs, time.Time{}); err != nil {
					return err
				}
				if err := worked(ctx, s, memoryJobs, []byte(strings.Repeat("r", result))); err != nil {
					return err
				}
				return settled(ctx, s, "g")
			}); err != nil {
				return nil, err
			}
		}
	}
	for _, aggregate := range []string{`{"op":"count"}`, `{"op":"sum","field":"n"}`} {
		what := "a success with a result of 100 bytes, results: failures, while jobs may be added, aggregate " + aggregate
		if err := row(what, memoryJobs, func(s *store.Store) error {
			spec := store.GroupSpec{ID: "g", Tenant: "a", Type: "noop", Results: store.FailureResults, Aggregate: aggregate}
			if err := added(ctx, s, spec, memoryJobs, time.Time{}); err != nil {
				return err
			}
			if err := worked(ctx, s, memoryJobs, []byte(strings.Repeat("r", 100))); err != nil || spec.Counts() {
				return err
			}
			return taken(ctx, s, "g")
		}); err != nil {
			return nil, err
		}
	}
	const groups = 10_000
	if err := row("a group of one job that has ended", groups, func(s *store.Store) error {
		for i := range groups {
			if err := submitted(ctx, s, store.GroupSpec{ID: fmt.Sprintf("%026d", i), Tenant: tenantName(i % 100), Type: "noop"}, 1, time.Time{}); err != nil {
				return err
			}
		}
		if err := worked(ctx, s, groups, nil); err != nil {
			return err
		}
		for i := range groups {
			if err := settled(ctx, s, fmt.Sprintf("%026d", i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return rows, nil
}

// submitted makes a group of n jobs and seals it.
func submitted(ctx context.Context, s *store.Store, spec store.GroupSpec, n int, at time.Time) error {
	if err := added(ctx, s, spec, n, at); err != nil {
		return err
	}
	_, err := s.Seal(ctx, spec.ID)
	return err
}

// added makes a group of n jobs.
func added(ctx context.Context, s *store.Store, spec store.GroupSpec, n int, at time.Time) error {
	g, _, err := s.CreateGroup(ctx, spec)
	if err != nil {
		return err
	}
	var batch []store.Job
	for k := range n {
		batch = append(batch, store.Job{ID: fmt.Sprintf("order-%08d", k), Payload: payload, RunAt: at})
		if len(batch) == store.MaxAdd || k == n-1 {
			if _, err := s.AddJobs(ctx, g.ID, store.Chunk{}, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// worked runs n jobs, all of which succeed.
func worked(ctx context.Context, s *store.Store, n int, result []byte) error {
	for deadline := time.Now().Add(2 * time.Minute); n > 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d jobs are left after two minutes", n)
		}
		p, err := s.Pull(ctx, 200)
		if err != nil {
			return err
		}
		acks := make([]store.Ack, len(p.Jobs))
		for i, j := range p.Jobs {
			acks[i] = store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done, Result: result, Took: time.Millisecond}
		}
		if _, err := s.Ack(ctx, acks); err != nil {
			return err
		}
		n -= len(acks)
	}
	return nil
}

// taken takes in every outcome of a group.
func taken(ctx context.Context, s *store.Store, group string) error {
	r, err := s.BeginReduce(ctx, group)
	if err != nil {
		return err
	}
	for cursor := r.Cursor; ; {
		page, err := s.Outcomes(ctx, &r, cursor, 500)
		if err != nil || len(page.Outcomes) == 0 {
			return err
		}
		cursor = page.Next
		if ok, err := s.CommitReduce(ctx, group, r.Fence, cursor, int64(len(page.Outcomes)), []byte(`{"succeeded":1}`)); err != nil || !ok {
			return fmt.Errorf("commit: %t, %w", ok, err)
		}
	}
}

// settled does the housekeeping of a group that has ended.
func settled(ctx context.Context, s *store.Store, group string) error {
	for {
		if t, err := s.Tend(ctx, group); err != nil || !t.Again {
			return err
		}
	}
}
