package bulk

import (
	"context"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// Bounds of Options.DispatchInterval.
const (
	MinDispatchInterval = 10 * time.Millisecond
	MaxDispatchInterval = 10 * time.Second
)

const (
	dispatchEvery = 100 * time.Millisecond
	// standbyEvery is how often a process that is not the keeper checks whether it has become the keeper.
	standbyEvery = 100 * time.Millisecond
	// dispatchRest collects jobs that become due one by one. The fetcher opens gates without the dispatcher.
	dispatchRest = 10 * time.Millisecond
)

// mover returns due jobs to their groups.
type mover interface {
	Dispatch(ctx context.Context) (store.Dispatch, error)
}

// dispatcher returns due jobs and orphans to their groups, every interval or when the next is due, while this process
// is the keeper. The store detects an outage by the pause between rounds, and then ends no lease.
type dispatcher struct {
	store   mover
	turns   turns
	every   func() time.Duration
	tend    func(groups []string)
	metrics *Metrics
	role    *role
}

func (d *dispatcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !d.turns.due() {
			sleep.For(ctx, standbyEvery)
			continue
		}
		began := time.Now()
		did, err := d.store.Dispatch(ctx)
		if err != nil {
			d.role.failed(ctx, err)
			continue
		}
		d.role.ok()
		d.metrics.dispatched(did)
		d.tend(did.Tend)
		if did.More { // many jobs are due: let other calls run between rounds
			sleep.For(ctx, min(restTimes*time.Since(began), restMost))
			continue
		}
		sleep.For(ctx, next(did.Next, dispatchRest, d.every()))
	}
}
