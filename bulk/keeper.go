package bulk

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// keepers elects the keeper.
type keepers interface {
	KeepEvery() time.Duration
	Keep(ctx context.Context, status store.ProcessStatus, needs ...string) (store.Kept, error)
	Unkeep(ctx context.Context) error
}

// keeper tracks whether this process is the keeper, the process that does the housekeeping for all, so that the load on
// the store does not grow with the number of processes. Each of the others also does a round of that work every
// turnsEvery, because a round reports to the store which types the process runs. A group that needs a reducer or a callback
// that the keeper lacks is offered to the others; take is called with the groups offered to this process.
type keeper struct {
	store     keepers
	role      *role
	status    func() store.ProcessStatus
	needs     []string // that this process can serve
	take      func(groups []string)
	secondary func() bool  // this process does not prefer the shard; nil: it does
	elected   atomic.Bool  // this process is the keeper
	processes atomic.Int64 // number of processes
}

// turnsEvery is how often a process that is not the keeper does a round of the keeper's work.
const turnsEvery = 5 * time.Second

func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		kept, err := k.store.Keep(ctx, k.status(), k.needs...)
		k.elected.Store(kept.Keeper)
		k.processes.Store(int64(kept.Processes))
		if err != nil {
			k.role.failed(ctx, err)
			continue
		}
		k.role.ok()
		k.take(kept.Groups)
		pause := k.store.KeepEvery()
		if k.secondary != nil && k.secondary() && !kept.Keeper {
			pause *= 3 // a process that prefers the shard becomes the keeper first; this one only stays listed
		}
		sleep.For(ctx, pause)
	}
	k.elected.Store(false)
	_ = k.store.Unkeep(context.WithoutCancel(ctx)) // otherwise the entry expires
}

// turns determines when a process does a round of the keeper's work.
type turns struct {
	keeper *keeper
	last   time.Time
}

// due reports whether this process has to do a round now. If so, the next one is due turnsEvery later.
func (t *turns) due() bool {
	if !t.keeper.elected.Load() && time.Since(t.last) < turnsEvery {
		return false
	}
	t.last = time.Now()
	return true
}
