package bulk

import (
	"context"
	"errors"

	"github.com/anteroom/anteroom/bulk/store"
)

// chainAtOnce is how many groups of a shard hand their ends over at the same time.
const chainAtOnce = 8

// chains passes the ends of groups from one shard to another.
type chains interface {
	Chain(ctx context.Context, shard int, group string, t store.Tended) error
}

var _ chains = (*store.Fleet)(nil)

// chaining passes the end of a group of a shard to groups on other shards that wait for it, and asks other shards for the ends that
// a group waits for. It has slots of its own, so that a shard that is away does not delay other housekeeping.
type chaining struct {
	chains
	shard int
	slots chan struct{}
}

// pass does what a step of the housekeeping has named. A shard that is away is reported by its own lane, and the group is named again.
func (c *chaining) pass(ctx context.Context, group string, t store.Tended) error {
	if !t.Chained {
		return nil
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil
	}
	if err := c.Chain(ctx, c.shard, group, t); !errors.Is(err, store.ErrStore) {
		return err
	}
	return nil
}
