package main

import (
	"context"
	"sync"
	"time"
)

// Times of a gateway's end behind balancers. A balancer that requested /readyz within probedLately still sends visitors until it
// has got enoughRefusals, or has learned of the end otherwise; the gateway waits for that, at most longestWait.
const (
	probedLately   = 30 * time.Second
	enoughRefusals = 3
	longestWait    = 5 * time.Second
	// lastRequest is the time for which connections without a request stay open at the end: a request in that time is served,
	// and the connection closed after it.
	lastRequest = time.Second
)

// balancers records the requests for this gateway's readiness.
type balancers struct {
	ready func() bool

	mu       sync.Mutex
	asked    time.Time // last
	leaving  bool      // refusals count; those before did not announce the end
	refusals int
	heard    chan struct{} // closed with enoughRefusals
}

func newBalancers(ready func() bool) *balancers {
	return &balancers{ready: ready, heard: make(chan struct{})}
}

// Ready answers one of them.
func (b *balancers) Ready() bool {
	ready := b.ready()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = time.Now()
	if !ready && b.leaving {
		if b.refusals++; b.refusals == enoughRefusals {
			close(b.heard)
		}
	}
	return ready
}

// wait returns when no balancer sends visitors any more, as far as is known. /readyz must refuse when it is called.
func (b *balancers) wait(ctx context.Context, most time.Duration) {
	b.mu.Lock()
	b.leaving = true
	nobody := b.asked.IsZero() || time.Since(b.asked) > probedLately
	b.mu.Unlock()
	if nobody {
		return
	}
	timer := time.NewTimer(min(most, longestWait))
	defer timer.Stop()
	select {
	case <-b.heard:
	case <-timer.C:
	case <-ctx.Done():
	}
}
