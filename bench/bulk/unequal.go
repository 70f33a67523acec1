package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/table"
)

// unequalTakes is how long a job of each tenant runs.
var unequalTakes = []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}

const (
	unequalWorkers = 20
	unequalWork    = time.Minute // of all tenants together, over all workers
)

// unequalShares measures how evenly tenants share the workers' time when their jobs take 5 to 100 ms.
func unequalShares(ctx context.Context, b *bench) ([]table.Row, error) {
	var found [2][]float64
	err := inTurns(b.rounds, func(r, i int) error {
		index, err := b.unequal(ctx, b.sides[i])
		say("unequal run times, round %d of %d: %-6s Jain by work %.4f", r+1, b.rounds, b.sides[i].name(), index)
		found[i] = append(found[i], index)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []table.Row{{What: "Jain's index of work, jobs of 5 to 100 ms (a queue a tenant)", Unit: "1 at best",
		Peers: []float64{table.Median(found[0])}, Ours: table.Median(found[1]), Bars: []table.Bar{{Limit: 0.99}}}}, nil
}

// unequal runs jobs until unequalWork is done; every tenant has jobs throughout.
func (b *bench) unequal(ctx context.Context, s side) (float64, error) {
	if err := b.redis.empty(ctx); err != nil {
		return 0, err
	}
	jobs, takes := make([]int, len(unequalTakes)), map[string]time.Duration{}
	for i, d := range unequalTakes {
		jobs[i] = int(unequalWork / d)
		takes[tenantName(i)] = d
	}
	if err := s.fill(ctx, jobs); err != nil {
		return 0, err
	}
	var mu sync.Mutex
	worked, all := map[string]float64{}, 0.0
	done := make(chan struct{})
	stop, err := s.start(unequalWorkers, len(jobs), func(ctx context.Context, tenant string) {
		began := time.Now()
		timer := time.NewTimer(takes[tenant])
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
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
	if err != nil {
		return 0, err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	select {
	case <-done:
		mu.Lock()
		defer mu.Unlock()
		return jain(worked, len(jobs)), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: a minute of work is not done", s.name())
	}
}
