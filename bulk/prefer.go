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

// preferredShards is how many shards a process takes jobs from first, and the fewest processes that a shard is served by
// if there are so many.
const preferredShards = 2

const (
	preferEvery = 2 * time.Second
	// stealEvery is how often a process that has found nothing in its shards looks into each of the others.
	stealEvery = time.Second
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
	other     atomic.Bool  // the shard is not preferred
	processes atomic.Int64 // that prefer it, this one included if it does; 0: unknown
	busy      atomic.Bool  // the last pull left jobs, or a limit kept them back
	emptyAt   time.Time    // the last look into a shard that is not preferred found nothing; of the fetcher
}

// preferring returns for each shard the processes that prefer it: those that are first for the shard, and those for which
// the shard is first. So each shard has some, however the processes are distributed.
func preferring(shards int, processes []string) [][]string {
	all := make([][]string, shards)
	first := max(preferredShards, (preferredShards*len(processes)+shards-1)/shards)
	for n := range shards {
		all[n] = slices.SortedFunc(slices.Values(processes), func(a, b string) int { return cmp.Compare(affinity(b, n), affinity(a, n)) })
		all[n] = all[n][:min(first, len(all[n]))]
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
			for n, who := range preferring(len(all), names) {
				p := &all[n].preference
				p.processes.Store(int64(len(who)))
				p.other.Store(!slices.Contains(who, me))
			}
			break
		}
	}
}

// idle reports whether no preferred shard has jobs that this process could start.
func (all lanes) idle() bool {
	return !slices.ContainsFunc(all, func(l *lane) bool { return !l.preference.other.Load() && l.preference.busy.Load() })
}

// turn waits until this process takes jobs of the lane's shard, and reports whether ctx has not ended.
func (all lanes) turn(ctx context.Context, l *lane) bool {
	p := &l.preference
	for p.other.Load() && (!all.idle() || time.Since(p.emptyAt) < stealEvery) {
		if !sleep.For(ctx, stealCheck) {
			return false
		}
	}
	return ctx.Err() == nil
}

// looked records what a pull has found, and reports whether the shard is another one, whose events are not waited for.
func (p *preference) looked(pulled *store.Pulled, want int) (other bool) {
	p.busy.Store(pulled.More || pulled.Limited || len(pulled.Jobs) == want)
	if !p.other.Load() {
		return false
	}
	if !pulled.More && len(pulled.Jobs) < want {
		p.emptyAt = time.Now()
	}
	return true
}
