package main

import (
	"context"
	"sync"
	"time"
)

// How a gateway leaves while balancers look at it. One that has asked /readyz within probedLately still sends visitors
// until it has heard enoughRefusals, or another way of telling it has worked; that is waited for, at most longestWait.
const (
	probedLately   = 30 * time.Second
	enoughRefusals = 3
	longestWait    = 5 * time.Second
	// lastRequest is how long connections without a request stay open at the end: what a visitor sends just then is
	// answered, and told to come back over another connection.
	lastRequest = time.Second
)

// balancers notes who asks whether this gateway is ready.
type balancers struct {
	ready func() bool

	mu       sync.Mutex
	asked    time.Time // last
	leaving  bool      // refusals count; those at the start told balancers nothing that they still know
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

// wait returns when no balancer sends visitors any more, as far as can be known. Nobody may be ready when it is called.
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
