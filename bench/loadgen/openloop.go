package main

import (
	"context"
	"sync"
	"time"
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
