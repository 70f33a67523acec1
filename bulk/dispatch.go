package bulk

import (
	"context"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// Bounds of Options.DispatchInterval.
const (
	MinDispatchInterval = 10 * time.Millisecond
	MaxDispatchInterval = 10 * time.Second
)

const (
	dispatchEvery = 100 * time.Millisecond
	// A process that is not the keeper looks once in standbyEvery whether it has become it.
	standbyEvery = 100 * time.Millisecond
	// dispatchRest gathers what falls due one by one. The fetcher opens gates by itself and needs no dispatcher for it.
	dispatchRest = 10 * time.Millisecond
)

// mover returns due jobs to their groups.
type mover interface {
	Dispatch(ctx context.Context) (store.Dispatch, error)
}

// dispatcher returns due jobs and orphans to their groups, every interval or when the next is due, while this process is the keeper.
// The store notices from the rounds themselves when it was away, and ends no lease for that.
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
			sleep(ctx, standbyEvery)
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
		if did.More { // much falls due at once: others' calls go between
			sleep(ctx, min(restTimes*time.Since(began), restMost))
			continue
		}
		sleep(ctx, next(did.Next, dispatchRest, d.every()))
	}
}
