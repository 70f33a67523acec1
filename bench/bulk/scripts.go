package main

import (
	"context"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bulk/store"
)

// scripts measures what one call of each hot script costs Redis, by tenants that have jobs and by jobs of a call. It is run
// only when it is named.
func scripts(ctx context.Context, b *bench) ([]table.Row, error) {
	o := newOurs(b.redis, defaultLease)
	s, err := o.open()
	if err != nil {
		return nil, err
	}
	var rows []table.Row
	row := func(what string, calls, jobs int, f func() error) error {
		if err := f(); err != nil { // loads the script
			return err
		}
		var costs []float64
		for range b.rounds {
			before, err := b.redis.cpu(ctx)
			if err != nil {
				return err
			}
			for range calls {
				if err := f(); err != nil {
					return err
				}
			}
			after, err := b.redis.cpu(ctx)
			if err != nil {
				return err
			}
			costs = append(costs, float64((after-before).Microseconds())/float64(calls))
		}
		cost := table.Median(costs)
		unit := "µs of Redis a call"
		if jobs > 0 {
			unit += fmt.Sprintf(" (%.1f a job)", cost/float64(jobs))
		}
		rows = append(rows, table.Row{What: what, Unit: unit, Ours: cost})
		say("%s: %.1f µs a call", what, cost)
		return nil
	}
	if err := b.redis.empty(ctx); err != nil {
		return nil, err
	}
	if err := row("jobs_pull, nothing there", 2000, 0, func() error { _, err := s.Pull(ctx, 10); return err }); err != nil {
		return nil, err
	}
	if _, _, err := s.CreateGroup(ctx, store.GroupSpec{ID: "g", Tenant: "a", Type: "noop"}); err != nil {
		return nil, err
	}
	added := 0
	for _, n := range []int{1, 100, 500} {
		err := row(fmt.Sprintf("jobs_add of %d", n), 10_000/(n+9), n, func() error {
			batch := make([]store.Job, n)
			for i := range batch {
				added++
				batch[i] = store.Job{ID: fmt.Sprintf("%020d", added), Payload: payload}
			}
			_, err := s.AddJobs(ctx, "g", store.Chunk{}, batch)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, tenants := range []int{1, 10, 100, 1000} {
		for _, n := range []int{1, 10, 50, 200} {
			if err := b.redis.empty(ctx); err != nil {
				return nil, err
			}
			calls := min(10_000, 400*n) / n
			if err := o.fill(ctx, evenly((calls*b.rounds+2)*n/1000*1000+1000, tenants)); err != nil {
				return nil, err
			}
			var held []store.Ack
			err := row(fmt.Sprintf("jobs_pull of %d, %d tenants", n, tenants), calls, n, func() error {
				p, err := s.Pull(ctx, n)
				for _, j := range p.Jobs {
					held = append(held, store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done, Took: time.Millisecond})
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			err = row(fmt.Sprintf("jobs_ack of %d, %d tenants", n, tenants), calls, n, func() error {
				if len(held) < n {
					return fmt.Errorf("%d of %d jobs pulled", len(held), n)
				}
				_, err := s.Ack(ctx, held[:n])
				held = held[n:]
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}
