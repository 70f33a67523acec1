package bulk

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// keepers chooses the keeper among the processes.
type keepers interface {
	KeepEvery() time.Duration
	Keep(ctx context.Context, status store.ProcessStatus, needs ...string) (store.Kept, error)
	Unkeep(ctx context.Context) error
}

// keeper knows whether this process is the one that does what one of all has to do, so that the load on the store does not grow with
// their number. The others have a turn once in turnsEvery, in which they tell the store which types they run. A group that needs a
// reducer or a callback which one process lacks is offered to the others: take is told which of those offers this process has got.
type keeper struct {
	store  keepers
	role   *role
	status func() store.ProcessStatus
	needs  []string // that this process meets
	take   func(groups []string)
	is     atomic.Bool
	of     atomic.Int64 // processes
}

// turnsEvery is how often a process that is not the keeper has a turn all the same.
const turnsEvery = 5 * time.Second

func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		kept, err := k.store.Keep(ctx, k.status(), k.needs...)
		k.is.Store(kept.Keeper)
		k.of.Store(int64(kept.Processes))
		if err != nil {
			k.role.failed(ctx, err)
			continue
		}
		k.role.ok()
		k.take(kept.Groups)
		sleep(ctx, k.store.KeepEvery())
	}
	k.is.Store(false)
	_ = k.store.Unkeep(context.WithoutCancel(ctx)) // otherwise it is forgotten soon
}

// turns says when a process that is not the keeper has its turn.
type turns struct {
	keeper *keeper
	last   time.Time
}

// due reports whether it is this process's turn now.
func (t *turns) due() bool {
	if !t.keeper.is.Load() && time.Since(t.last) < turnsEvery {
		return false
	}
	t.last = time.Now()
	return true
}
