package remote

import (
	"context"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
)

// Verdict ends the run of a leased job.
type Verdict struct {
	Lease  Handle
	Result []byte // of a run that succeeded; a note replaces it above Options.MaxResult
	// Failure is set if the run failed. Returned is set if the worker returns the job without running it: no try is counted.
	Failure  *bulk.Failure
	Returned bool
	// Took is how long the job ran; 0: from its lease until now.
	Took time.Duration
}

// longestRun bounds Took.
const longestRun = 24 * time.Hour

// End records verdicts in one step, at most store.MaxPull with at most store.VisitBytes together. It returns one state for
// each.
func (b *Broker) End(ctx context.Context, verdicts []Verdict) ([]store.AckState, error) {
	acks := make([]store.Ack, len(verdicts))
	for i := range verdicts {
		acks[i] = b.ack(&verdicts[i])
	}
	states, err := b.leases.Ack(ctx, acks)
	if err != nil {
		return nil, err
	}
	for i, s := range states {
		b.o.Engine.Ended(verdicts[i].Lease.Type, &acks[i], s)
	}
	return states, nil
}

func (b *Broker) ack(v *Verdict) store.Ack {
	a := store.Ack{Verdict: store.Done, Result: bulk.Fitting(v.Result, b.o.MaxResult)}
	switch {
	case v.Returned:
		a = store.Ack{Verdict: store.Returned}
	case v.Failure != nil:
		a = b.o.Engine.Policy(v.Lease.Type).Failed(v.Lease.Attempt, v.Failure)
	}
	a.Key, a.Fence = v.Lease.Key, v.Lease.Fence
	switch {
	case v.Returned: // it did not run
	case v.Took > 0:
		a.Took = min(v.Took, longestRun)
	default: // the clocks of two processes may differ
		a.Took = min(max(time.Since(v.Lease.Began), time.Millisecond), longestRun)
	}
	return a
}

// Extend extends at most store.MaxPull leases: each then lasts LeaseFor from now. It returns one state for each.
func (b *Broker) Extend(ctx context.Context, held []Handle) ([]store.LeaseState, error) {
	all := make([]store.Lease, len(held))
	for i := range held {
		all[i] = store.Lease{Key: held[i].Key, Fence: held[i].Fence}
	}
	return b.leases.Renew(ctx, all)
}
