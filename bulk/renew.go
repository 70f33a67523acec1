package bulk

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

const maxRenew = 1000 // leases a call

// leaseKeeper renews leases.
type leaseKeeper interface {
	Renew(ctx context.Context, leases []store.Lease) ([]store.LeaseState, error)
}

// renewer renews each lease after a third of it, until the job's ack is recorded. When a lease is lost, another
// process runs the job or will: its context ends here and its ack is dropped. The context of a cancelled job ends too;
// its ack counts.
type renewer struct {
	store   leaseKeeper
	runs    *registry
	lease   time.Duration
	metrics *Metrics
	log     *slog.Logger
	role    *role
}

func (n *renewer) run(ctx context.Context) {
	for sleep.For(ctx, n.lease/12) {
		due := n.due(time.Now())
		if len(due) == 0 {
			n.role.ok() // no failed lease is left
		}
		for len(due) > 0 && ctx.Err() == nil {
			part := whole(due)
			if err := n.renew(ctx, part); err != nil {
				n.role.failed(ctx, err)
				break // list again: some runs have ended
			}
			n.role.ok()
			due = due[len(part):]
		}
	}
}

// whole returns the runs of the next call: the jobs of a pull, whose fences follow each other, together, because the store then renews one
// lease for them.
func whole(due []*run) []*run {
	n := len(due)
	if n > maxRenew {
		for n = maxRenew; n > 1 && due[n].leased.Fence == due[n-1].leased.Fence+1; n-- {
		}
	}
	if n == 1 {
		n = min(len(due), maxRenew)
	}
	return due[:n]
}

// due returns the runs whose lease is a third over, by fence.
func (n *renewer) due(now time.Time) []*run {
	n.runs.mu.Lock()
	defer n.runs.mu.Unlock()
	var due []*run
	for _, r := range n.runs.runs {
		if now.Sub(r.renewed) >= n.lease/3 && !r.lost.Load() {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *run) int { return cmp.Compare(a.leased.Fence, b.leased.Fence) })
	return due
}

func (n *renewer) renew(ctx context.Context, runs []*run) error {
	leases := make([]store.Lease, len(runs))
	for i, r := range runs {
		leases[i] = store.Lease{Key: r.leased.Key, Fence: r.leased.Fence}
	}
	began := time.Now()
	states, err := n.store.Renew(ctx, leases)
	if err != nil {
		return err
	}
	for i, r := range runs {
		held := states[i] != store.LeaseLost
		n.runs.mu.Lock()
		_, open := n.runs.runs[r.leased.Fence]
		if held {
			r.renewed = began
		}
		n.runs.mu.Unlock()
		if states[i] == store.LeaseCalled && !r.called.Swap(true) {
			r.cancel()
		}
		if held || !open || r.over.Load() { // over: its ack may have ended the lease
			continue
		}
		r.lost.Store(true)
		r.cancel()
		n.metrics.leasesLost.Inc()
		n.log.Warn("lost a lease; stopping the job here, as another process runs it or will", "group", r.leased.Group, "job", r.leased.ID)
	}
	return nil
}
