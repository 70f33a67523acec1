package bulk

import (
	"context"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

const (
	dispatchEvery = 100 * time.Millisecond
	// dispatchRest gathers what falls due one by one. The fetcher opens gates by itself and needs no dispatcher for it.
	dispatchRest = 10 * time.Millisecond
)

// mover returns due jobs to their groups.
type mover interface {
	Dispatch(ctx context.Context, gap time.Duration) (store.Dispatch, error)
}

// dispatcher returns due jobs and orphans to their groups, every 100 ms or when the next is due. It tells the store how long
// this process was without it, so that no lease ends for a gap in the store's own service.
type dispatcher struct {
	store   mover
	tend    func(groups []string)
	metrics *Metrics
	role    *role
}

func (d *dispatcher) run(ctx context.Context) {
	last, broken := time.Now(), false
	for ctx.Err() == nil {
		var gap time.Duration
		if broken {
			gap = time.Since(last)
		}
		did, err := d.store.Dispatch(ctx, gap)
		if err != nil {
			broken = true
			d.role.failed(ctx, err)
			continue
		}
		d.role.ok()
		last, broken = time.Now(), false
		d.metrics.dispatched(did)
		d.tend(did.Tend)
		if !did.More {
			sleep(ctx, next(did.Next, dispatchRest, dispatchEvery))
		}
	}
}
