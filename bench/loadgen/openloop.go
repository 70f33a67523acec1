package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/visitor"
)

// openLoop makes requests at a rate that does not depend on how fast they are answered.
type openLoop struct {
	Rate     float64 // a second, all workers together; 0: each worker as fast as it is answered
	Duration time.Duration
	Workers  int
}

// run calls do(worker, k) for the worker's k-th request. took is measured from when the request was due, if the worker
// was still busy with the one before (so that a slow server cannot hide by slowing the generator), else from when it
// was sent (so that a late timer is not the server's fault).
func (o openLoop) run(ctx context.Context, do func(worker, k int, due time.Time)) (elapsed time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	start := time.Now()
	var wg sync.WaitGroup
	for w := range o.Workers {
		wg.Go(func() {
			timer := time.NewTimer(time.Hour)
			defer timer.Stop()
			for k := 0; ctx.Err() == nil; k++ {
				due := time.Now()
				if o.Rate > 0 {
					planned := start.Add(time.Duration(float64(k*o.Workers+w) / o.Rate * float64(time.Second)))
					if wait := planned.Sub(due); wait > 0 {
						timer.Reset(wait)
						select {
						case <-timer.C:
						case <-ctx.Done():
							return
						}
						due = time.Now()
					} else {
						due = planned
					}
				}
				do(w, k, due)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// pool is a set of credentials dealt out to workers, each of which uses only its own share.
type pool struct {
	waiting []visitor.Credentials
	let     []visitor.Credentials
}

var errNoPass = errors.New("no visitor was let in")

// gather joins until it holds the wanted number of waiting tokens and, where passes are wanted, at least one pass,
// which may take some of the waiting their turn. Waiting tokens are polled until the store has confirmed them, so that
// what is measured later is a poll and not an enrolment.
func gather(ctx context.Context, c *visitor.Client, workers, tokens, passes int) (*pool, error) {
	var mu sync.Mutex
	p := &pool{}
	var failed error
	var failures atomic.Int64
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(p.waiting) >= tokens && (len(p.let) >= passes || len(p.let) > 0 && len(p.waiting) > 0) || failed != nil
	}
	limit := int64(tokens + passes + 100_000) // a room that admits everybody never yields a waiting token
	var joined atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil && !enough() && joined.Load() < limit {
				cr := visitor.Credentials{}
				a, err := c.Join(&cr)
				if err == nil && cr.Token == "" && cr.Pass == "" {
					err = fmt.Errorf("join: %d %s", a.HTTP, a.Status.Code)
				}
				if err == nil && cr.Pass == "" {
					err = confirm(ctx, c, &cr)
				}
				if err != nil {
					if failures.Add(1) > 100 {
						mu.Lock()
						failed = err
						mu.Unlock()
					}
					continue
				}
				joined.Add(1)
				mu.Lock()
				if cr.Pass != "" {
					if len(p.let) < max(passes, 1) {
						p.let = append(p.let, cr)
					}
				} else if len(p.waiting) < tokens {
					p.waiting = append(p.waiting, cr)
				}
				full := len(p.waiting) >= tokens
				mu.Unlock()
				if full && passes > 0 {
					break // what is missing are passes: wait for the front of the line below
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return nil, fmt.Errorf("joining: %w", failed)
	}
	for i := 0; passes > 0 && len(p.let) == 0 && ctx.Err() == nil && len(p.waiting) > 0; i++ {
		cr := &p.waiting[i%len(p.waiting)]
		if _, err := c.Status(cr); err != nil {
			return nil, err
		}
		if cr.Pass != "" {
			p.let = append(p.let, *cr)
			p.waiting = append(p.waiting[:i%len(p.waiting)], p.waiting[i%len(p.waiting)+1:]...)
		}
	}
	switch {
	case passes > 0 && len(p.let) == 0:
		return nil, fmt.Errorf("%w: raise the room's burst above 0, or give it more --prepare time", errNoPass)
	case tokens > 0 && len(p.waiting) == 0:
		return nil, errors.New("nobody has to wait: lower the room's rate and burst, so that there is a line to poll in")
	}
	return p, ctx.Err()
}

// confirm polls until the token carries an epoch, a few times at most.
func confirm(ctx context.Context, c *visitor.Client, cr *visitor.Credentials) error {
	for range 5 {
		if claims, err := visitor.Decode(cr.Token); err != nil {
			return err
		} else if claims.Confirmed() || cr.Pass != "" || ctx.Err() != nil {
			return nil
		}
		if a, err := c.Status(cr); err != nil {
			return err
		} else if a.HTTP != 200 {
			return fmt.Errorf("status: %d %s", a.HTTP, a.Status.Code)
		}
	}
	return nil // a gateway without its store confirms nobody: poll all the same
}
