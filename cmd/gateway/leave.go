package main

import (
	"context"
	"sync"
	"time"
)

// Limits of a shutdown behind balancers. A balancer that requested /readyz within probedLately sends visitors until it has received
// enoughRefusals; the gateway waits for these, at most longestWait.
const (
	probedLately   = 30 * time.Second
	enoughRefusals = 3
	longestWait    = 5 * time.Second
	// lastRequest is how long idle connections stay open at shutdown: a request in that time is served, and its connection is
	// closed afterwards.
	lastRequest = time.Second
)

// balancers records the requests for /readyz.
type balancers struct {
	ready func() bool

	mu       sync.Mutex
	asked    time.Time // of the last request
	leaving  bool      // the shutdown has begun: refusals count
	refusals int
	refused  chan struct{} // closed after enoughRefusals
}

func newBalancers(ready func() bool) *balancers {
	return &balancers{ready: ready, refused: make(chan struct{})}
}

// Ready returns the reply to a request for /readyz, and records the request.
func (b *balancers) Ready() bool {
	ready := b.ready()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = time.Now()
	if !ready && b.leaving {
		if b.refusals++; b.refusals == enoughRefusals {
			close(b.refused)
		}
	}
	return ready
}

// wait waits until balancers have noticed the shutdown, at most for the given time. /readyz must fail before the call.
func (b *balancers) wait(ctx context.Context, most time.Duration) {
	b.mu.Lock()
	b.leaving = true
	unused := b.asked.IsZero() || time.Since(b.asked) > probedLately
	b.mu.Unlock()
	if unused {
		return
	}
	timer := time.NewTimer(min(most, longestWait))
	defer timer.Stop()
	select {
	case <-b.refused:
	case <-timer.C:
	case <-ctx.Done():
	}
}
