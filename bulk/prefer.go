package bulk

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// preferredShards is how many shards each process prefers at least, and how many processes prefer each shard at least, if
// there are so many.
const preferredShards = 2

const (
	preferEvery = 2 * time.Second
	// stealEvery is how often a process whose preferred shards have no jobs pulls from each of the others.
	stealEvery = time.Second
	// stealCheck is how often a process checks whether its preferred shards have no jobs.
	stealCheck = 50 * time.Millisecond
)

// peers lists the processes of a shard.
type peers interface {
	Process() string
	Peers(ctx context.Context) ([]string, error)
}

// preference is whether this process prefers a shard. It takes jobs from other shards only while those that it prefers
// have none, so that the calls of a process do not grow with the number of shards.
type preference struct {
	secondary atomic.Bool  // the shard is not preferred
	processes atomic.Int64 // number of processes that prefer the shard; 0: unknown
	busy      atomic.Bool  // the last pull left jobs in the shard, or a limit stopped it
	emptyAt   time.Time    // when a pull last emptied the shard, if it is not preferred; only the fetcher uses it
}

// preferredBy returns for each shard the processes that prefer it: those with the highest affinity for the shard, and every
// process that has the shard among its own highest affinities. So each shard has some, however affinities are distributed.
func preferredBy(shards int, processes []string) [][]string {
	all := make([][]string, shards)
	atLeast := max(preferredShards, (preferredShards*len(processes)+shards-1)/shards)
	for n := range shards {
		all[n] = slices.SortedFunc(slices.Values(processes), func(a, b string) int { return cmp.Compare(affinity(b, n), affinity(a, n)) })
		all[n] = all[n][:min(atLeast, len(all[n]))]
	}
	numbers := make([]int, shards)
	for n := range numbers {
		numbers[n] = n
	}
	for _, p := range processes {
		slices.SortFunc(numbers, func(a, b int) int { return cmp.Compare(affinity(p, b), affinity(p, a)) })
		for _, n := range numbers[:min(preferredShards, shards)] {
			if !slices.Contains(all[n], p) {
				all[n] = append(all[n], p)
			}
		}
	}
	return all
}

// affinity is the weight of a shard for a process, by rendezvous hashing.
func affinity(process string, shard int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(process + "/" + strconv.Itoa(shard))) // never fails
	x := h.Sum64()
	return (x ^ x>>31) * 0x94d049bb133111eb
}

// prefer keeps the preferences of the lanes up to date.
func (all lanes) prefer(ctx context.Context) {
	if len(all) <= preferredShards {
		return
	}
	for ok := true; ok; ok = sleep.For(ctx, preferEvery) {
		for _, l := range all {
			names, err := l.stores.peers.Peers(ctx)
			if err != nil {
				continue // any shard has the list
			}
			me := l.stores.peers.Process()
			if !slices.Contains(names, me) {
				names = append(names, me)
			}
			for n, who := range preferredBy(len(all), names) {
				p := &all[n].preference
				p.processes.Store(int64(len(who)))
				p.secondary.Store(!slices.Contains(who, me))
			}
			break
		}
	}
}

// idle reports whether the preferred shards have no jobs that this process could start.
func (all lanes) idle() bool {
	return !slices.ContainsFunc(all, func(l *lane) bool { return !l.preference.secondary.Load() && l.preference.busy.Load() })
}

// turn waits until this process may take jobs of the lane's shard, and reports whether ctx has not ended.
func (all lanes) turn(ctx context.Context, l *lane) bool {
	p := &l.preference
	for p.secondary.Load() && (!all.idle() || time.Since(p.emptyAt) < stealEvery) {
		l.pool.endStay()
		if !sleep.For(ctx, stealCheck) {
			return false
		}
	}
	return ctx.Err() == nil
}

// pulled records the result of a pull for want jobs, and reports whether the shard is not preferred. The fetcher does not
// wait for events of such a shard.
func (p *preference) pulled(pulled *store.Pulled, want int) (secondary bool) {
	p.busy.Store(pulled.More || pulled.Limited || len(pulled.Jobs) == want)
	if !p.secondary.Load() {
		return false
	}
	if !pulled.More && len(pulled.Jobs) < want {
		p.emptyAt = time.Now()
	}
	return true
}
