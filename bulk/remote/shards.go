package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// shard is a part of the store. One that does not reply is not asked for jobs until reclaim has returned those of its lost pulls.
type shard struct {
	number int
	queue  queue
	leases leases
	lost   lostPulls
}

// found is the result of a pull over the shards.
type found struct {
	jobs []Job
	next time.Duration // as store.Pulled.Next, of the first shard; 0: only an event can bring more
	more bool          // another request may find jobs now
}

// quietFor is how long a shard in which a pull has found no more jobs is asked last, unless there is an event: less than
// longestWait, so that a request that waits asks it each time.
const quietFor = longestWait - 100*time.Millisecond

// pull pulls from one shard after the other until there are as many jobs as the request wants. Each request begins with another
// shard, so that all get their turn. Shards that were empty a moment ago are asked last, and only by the first pull of a
// request without jobs. An error means that no shard has replied.
func (b *Broker) pull(ctx context.Context, r *Request, owner string, place *place, first bool) (*found, error) {
	order, quiet := place.turns()
	f := &found{}
	var errs []error
	replies, skipped := 0, 0
	for i, n := range order {
		s := b.shards[n]
		if len(f.jobs) >= r.Max || len(b.shards) > 1 && i >= len(order)-quiet && (!first || len(f.jobs) > 0) {
			skipped += len(order) - i
			break
		}
		if len(b.shards) > 1 && s.lost.any() {
			continue // it is away; errors of all are found below
		}
		p, err := s.queue.PullFor(ctx, owner, r.Max-len(f.jobs), r.Types...)
		if err != nil {
			s.lost.add(owner)
			errs = append(errs, err)
			continue
		}
		replies++
		b.o.Engine.Pulled(p)
		f.add(n, &p, r.Max-len(f.jobs), place)
	}
	switch {
	case replies+skipped > 0:
		return f, nil
	case len(errs) == 0:
		return nil, errAllAway
	}
	return nil, errors.Join(errs...)
}

// errAllAway is returned while every shard is away.
var errAllAway = fmt.Errorf("%w: no shard replies", store.ErrStore)

// add adds the result of a pull from shard n.
func (f *found) add(n int, p *store.Pulled, want int, place *place) {
	now := time.Now()
	for i := range p.Jobs {
		f.jobs = append(f.jobs, Job{p.Jobs[i], newHandle(n, &p.Jobs[i], now)})
	}
	switch {
	case p.More || len(p.Jobs) == want:
		f.more = true
		place.noteShard(n, 0)
	case p.Next > 0:
		place.noteShard(n, min(p.Next, quietFor))
	default:
		place.noteShard(n, quietFor)
	}
	if p.Next > 0 && (f.next == 0 || p.Next < f.next) {
		f.next = p.Next
	}
}

// reclaimLost returns the jobs of a request without a response to their groups. A shard that is away does so when it is back,
// unless it is the only one.
func (b *Broker) reclaimLost(ctx context.Context, owner string) error {
	errs := make([]error, len(b.shards))
	var all sync.WaitGroup
	for n, s := range b.shards {
		if len(b.shards) > 1 && s.lost.any() {
			s.lost.add(owner)
			continue
		}
		all.Go(func() {
			if _, errs[n] = s.queue.ReclaimFrom(ctx, owner, nil); errs[n] != nil && len(b.shards) > 1 && errors.Is(errs[n], store.ErrStore) {
				s.lost.add(owner)
				errs[n] = nil
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// byShard returns the indexes below n by shard.
func byShard(n int, shardOf func(i int) int) map[int][]int {
	parts := map[int][]int{}
	for i := range n {
		parts[shardOf(i)] = append(parts[shardOf(i)], i)
	}
	return parts
}

// exists reports whether another process can have leased jobs of a shard that this process does not have. If it can, or if that is not
// known, err is the reason why this process cannot reach the shard.
func (b *Broker) exists(ctx context.Context, number int) (exists bool, err error) {
	count, err := b.count(ctx)
	switch {
	case err != nil:
		return true, err
	case number < count:
		return true, fmt.Errorf("%w: shard %d was added; restart this process with shards: %d", store.ErrStore, number, count)
	}
	return false, nil
}

// onShards calls do for each shard with the indexes of the handles that belong to it, all at once, and returns the results in order.
// Those of a shard with an error are otherwise, and those of a shard that does not exist unknown.
func onShards[T any](ctx context.Context, b *Broker, held []Handle, otherwise, unknown T, do func(s *shard, part []int) ([]T, error)) (all []T, errs []error) {
	all, errs = make([]T, len(held)), make([]error, len(b.shards))
	parts := byShard(len(held), func(i int) int { return held[i].Shard })
	for number, part := range parts {
		if number < len(b.shards) {
			continue
		}
		delete(parts, number)
		exists, err := b.exists(ctx, number)
		errs = append(errs, err)
		for _, i := range part {
			if all[i] = otherwise; !exists {
				all[i] = unknown
			}
		}
	}
	var calls sync.WaitGroup
	for number, part := range parts {
		calls.Go(func() {
			got, err := do(b.shards[number], part)
			errs[number] = err
			for k, i := range part {
				if all[i] = otherwise; err == nil {
					all[i] = got[k]
				}
			}
		})
	}
	calls.Wait()
	return all, errs
}
