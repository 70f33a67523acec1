package remote

import (
	"context"
	"errors"
	"slices"
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

// Away is the state of a verdict whose shard does not reply while others do: it may not be recorded, and has to be sent again.
const Away store.AckState = "away"

// End records verdicts, at most store.MaxPull with at most store.VisitBytes together, in one step for each shard. It returns one
// state for each verdict, or an error if no shard has recorded its verdicts. With check, a verdict whose lease names another type than
// its job has is stale: its sender may only end jobs of some types, and has changed the lease.
func (b *Broker) End(ctx context.Context, verdicts []Verdict, check bool) ([]store.AckState, error) {
	acks := make([]store.Ack, len(verdicts))
	for i := range verdicts {
		acks[i] = b.ack(&verdicts[i])
	}
	held := make([]Handle, len(verdicts))
	for i := range verdicts {
		held[i] = verdicts[i].Lease
	}
	states, errs := onShards(ctx, b, held, Away, store.AckStale, checking(ctx, held, check, store.AckStale, func(s *shard, part []int) ([]store.AckState, error) {
		of := make([]store.Ack, len(part))
		for k, i := range part {
			of[k] = acks[i]
		}
		return s.leases.Ack(ctx, of)
	}))
	for _, err := range errs {
		if err != nil && !errors.Is(err, store.ErrStore) {
			return nil, err
		}
	}
	if err := errors.Join(errs...); err != nil && !slices.ContainsFunc(states, func(s store.AckState) bool { return s != Away }) {
		return nil, err
	}
	for i, s := range states {
		if s != Away {
			b.o.Engine.Ended(verdicts[i].Lease.Type, &acks[i], s)
		}
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

// Extend extends at most store.MaxPull leases: each then lasts LeaseFor from now. It returns one state for each. If a shard does
// not reply, it returns an error after it has extended the leases of the others. check is that of End: such a lease is lost.
func (b *Broker) Extend(ctx context.Context, held []Handle, check bool) ([]store.LeaseState, error) {
	states, errs := onShards(ctx, b, held, store.LeaseLost, store.LeaseLost, checking(ctx, held, check, store.LeaseLost, func(s *shard, part []int) ([]store.LeaseState, error) {
		of := make([]store.Lease, len(part))
		for k, i := range part {
			of[k] = store.Lease{Key: held[i].Key, Fence: held[i].Fence}
		}
		return s.leases.Renew(ctx, of)
	}))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return states, nil
}

// checking returns do for onShards. With check, it leaves out the handles that name another type than their job has, whose result is
// changed. A job that has ended has no type, and its lease no effect.
func checking[T any](ctx context.Context, held []Handle, check bool, changed T, do func(s *shard, part []int) ([]T, error)) func(s *shard, part []int) ([]T, error) {
	if !check {
		return do
	}
	return func(s *shard, part []int) ([]T, error) {
		keys := make([]string, len(part))
		for k, i := range part {
			keys[k] = held[i].Key
		}
		types, err := s.leases.Types(ctx, keys)
		if err != nil {
			return nil, err
		}
		all, at, rest := slices.Repeat([]T{changed}, len(part)), make([]int, 0, len(part)), make([]int, 0, len(part))
		for k, i := range part {
			if types[k] == "" || types[k] == held[i].Type {
				at, rest = append(at, k), append(rest, i)
			}
		}
		if len(rest) == 0 {
			return all, nil
		}
		got, err := do(s, rest)
		if err != nil {
			return nil, err
		}
		for k, state := range got {
			all[at[k]] = state
		}
		return all, nil
	}
}
