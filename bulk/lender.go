package bulk

import (
	"context"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/lend"
	"github.com/anteroom/anteroom/internal/sleep"
)

// lendEvery is how often the lender calls the shards: shares follow the need after two calls.
const lendEvery = 200 * time.Millisecond

// shardLimits is what the lender uses of a shard.
type shardLimits interface {
	LendNumber(ctx context.Context) (int64, error)
	Lend(ctx context.Context, number int64, c lend.Call) (r lend.Reply, superseded bool, err error)
}

// lender divides the limits that hold over all shards, while this process is the keeper of shard 0. Without a lender each
// shard has a fixed part of each limit.
type lender struct {
	shards []shardLimits
	keeper *keeper // of shard 0
	role   *role
	began  time.Time

	lend   *lend.Lender // nil: this process is not the keeper
	number int64
}

func (d *lender) run(ctx context.Context) {
	if len(d.shards) < 2 {
		return
	}
	d.began = time.Now()
	for sleep.For(ctx, lendEvery) {
		if !d.keeper.elected.Load() {
			d.lend = nil
			continue
		}
		if err := d.step(ctx); err != nil {
			d.role.failed(ctx, err)
			continue
		}
		d.role.ok()
	}
}

// now returns the lender's clock.
func (d *lender) now() time.Duration { return time.Since(d.began) }

// step calls every shard once.
func (d *lender) step(ctx context.Context) error {
	if d.lend == nil {
		number, err := d.shards[0].LendNumber(ctx)
		if err != nil {
			return err
		}
		d.number, d.lend = number, lend.New(len(d.shards), d.now())
	}
	d.number++
	calls := d.lend.Calls(d.now())
	type reply struct {
		lend.Reply
		at         time.Duration
		superseded bool
		err        error
	}
	replies := make([]reply, len(d.shards))
	var wg sync.WaitGroup
	for i, s := range d.shards {
		wg.Go(func() {
			r := &replies[i]
			r.Reply, r.superseded, r.err = s.Lend(ctx, d.number, calls[i])
			r.at = d.now()
		})
	}
	wg.Wait()
	for i, r := range replies {
		switch {
		case r.superseded: // another process is the keeper
			d.lend = nil
			return nil
		case r.err != nil: // the loops of its lane report the outage
			d.lend.Failed(i)
		default:
			d.lend.Replied(i, r.at, r.Reply)
		}
	}
	return nil
}
