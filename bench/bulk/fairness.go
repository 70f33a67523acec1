package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/table"
)

const (
	small      = 150 // jobs of each small tenant
	smalls     = 9
	jobTakes   = 10 * time.Millisecond
	fairWorker = 50
)

// share is how a side divided its workers.
type share struct {
	late float64 // when the last small tenant ended, over when it had ended with even shares
	jain float64 // of what each had started when the first small one was through
}

// fairness runs small tenants beside a large one that came first.
func fairness(ctx context.Context, b *bench) ([]table.Row, error) {
	large := 5 * b.jobs
	one := newAsynq(b.redis)
	one.oneQueue = true
	say("fairness: %d jobs of one tenant, then 9 tenants of 150; asynq with one queue", large)
	fifo, err := b.divide(ctx, one, large) // once: it takes as long as all jobs
	if err != nil {
		return nil, err
	}
	var late, jain [2][]float64
	err = inTurns(b.rounds, func(r, i int) error {
		s, err := b.divide(ctx, b.sides[i], large)
		say("fairness, round %d of %d: %-6s %.3f × the fair-share time, Jain %.4f", r+1, b.rounds, b.sides[i].name(), s.late, s.jain)
		late[i], jain[i] = append(late[i], s.late), append(jain[i], s.jain)
		return err
	})
	if err != nil {
		return nil, err
	}
	bars := []table.Bar{{Limit: 1.2, AtMost: true}}
	return []table.Row{
		{What: "small tenants' end ÷ fair-share time (asynq: one queue)", Unit: "×", Peers: []float64{fifo.late}, Ours: table.Median(late[1]), Bars: bars},
		{What: "  (asynq: an equally weighted queue a tenant)", Unit: "×", Peers: []float64{table.Median(late[0])}, Ours: table.Median(late[1]), Bars: bars},
		{What: "Jain's index while all have work (a queue a tenant)", Unit: "1 at best", Peers: []float64{table.Median(jain[0])}, Ours: table.Median(jain[1]), Bars: []table.Bar{{Limit: 0.999}}},
	}, nil
}

// divide runs jobs of 10 ms until the small tenants are through. With even shares each of the ten has run 150 by then: the
// share of time is read from how many have run in all, so that a slow machine does not count.
func (b *bench) divide(ctx context.Context, s side, large int) (share, error) {
	if err := b.redis.empty(ctx); err != nil {
		return share{}, err
	}
	jobs := []int{large}
	for range smalls {
		jobs = append(jobs, small)
	}
	if err := s.fill(ctx, jobs); err != nil {
		return share{}, err
	}
	var mu sync.Mutex
	started, ended, through, all := map[string]int{}, map[string]int{}, 0, 0
	var result share
	done := make(chan struct{})
	stop, err := s.start(fairWorker, len(jobs), func(ctx context.Context, tenant string) {
		mu.Lock()
		started[tenant]++
		if result.jain == 0 && tenant != tenantName(0) && started[tenant] == small {
			result.jain = jain(started, len(jobs))
		}
		mu.Unlock()
		timer := time.NewTimer(jobTakes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		ended[tenant]++
		all++
		if tenant != tenantName(0) && ended[tenant] == small {
			if through++; through == smalls {
				result.late = float64(all) / float64(small*len(jobs))
				close(done)
			}
		}
	})
	if err != nil {
		return share{}, err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	select {
	case <-done:
		mu.Lock()
		defer mu.Unlock()
		return result, nil
	case <-ctx.Done():
		return share{}, fmt.Errorf("%s: the small tenants are not through", s.name())
	}
}

// jain is Jain's index of the shares of n: 1 where all are equal, 1/n where one has everything.
func jain[N int | float64](shares map[string]N, n int) float64 {
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
