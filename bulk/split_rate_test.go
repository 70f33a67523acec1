package bulk

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

const splitRate, splitBurst = 60, 6

// ratedSplit is an engine over three servers, each with a part of a group that has a rate.
type ratedSplit struct {
	*shardRun
	servers []*redistest.PrivateServer
	added   []int // jobs by shard
}

func runRatedSplit(t *testing.T) *ratedSplit {
	t.Helper()
	r := &ratedSplit{added: make([]int, 3)}
	servers, clients := durableServers(t, len(r.added))
	r.servers, r.shardRun = servers, openShards(t, len(r.added), func(*store.Settings) {}, clients...)
	spec := store.GroupSpec{ID: "rated", Tenant: "acme", Type: "t", Split: len(r.added), Rate: splitRate}
	if _, _, err := r.fleet.CreateGroup(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	r.run()
	return r
}

// lasting is more jobs than a shard starts in a test.
const lasting = 8 * store.MaxAdd

// add gives the part on one shard jobs. Their ids begin with the shard's number, whatever part their hash selects.
func (r *ratedSplit) add(n int, shards ...int) {
	r.t.Helper()
	for _, shard := range shards {
		jobs := make([]store.Job, n)
		for i := range jobs {
			jobs[i] = store.Job{ID: fmt.Sprintf("%d-%d", shard, r.added[shard]), Payload: []byte("1")}
			r.added[shard]++
		}
		for some := range slices.Chunk(jobs, store.MaxAdd) {
			if _, err := r.fleet.Shards()[shard].AddJobs(r.t.Context(), "rated", store.Chunk{}, some); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// of returns when jobs of a shard have started, in µs of the store's clock, from the number from on.
func (r *ratedSplit) of(shard, from int) (at []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.starts {
		if strings.HasPrefix(s.job, fmt.Sprintf("rated/%d-", shard)) {
			at = append(at, s.at)
		}
	}
	return at[min(from, len(at)):]
}

// reach waits until each of some shards has more than a rate and a burst: until more of its jobs have started in some interval than these
// allow. A busy machine reaches no full rate, because it uses no tokens beyond the burst; but then it starts a whole burst at once.
func (r *ratedSplit) reach(rate, burst float64, shards ...int) {
	r.t.Helper()
	from := make([]int, len(r.added))
	for _, shard := range shards {
		from[shard] = len(r.of(shard, 0))
	}
	for _, shard := range shards {
		await(r.t, fmt.Sprintf("shard %d has no more than a rate of %v and a burst of %v", shard, rate, burst), func() bool {
			at := r.of(shard, from[shard])
			for i := range at {
				for k := i + 1; k < len(at); k++ {
					if float64(k-i+1) > rate*float64(at[k]-at[i])/1e6+burst {
						return true
					}
				}
			}
			return false
		})
	}
}

// The whole rate of a group goes to the part that has jobs, and back when others get some.
func TestSplit_RateGoesToThePartWithJobs(t *testing.T) {
	t.Parallel()
	r := runRatedSplit(t)
	r.add(lasting, 1)
	r.reach(splitRate/2, splitBurst/2, 1) // its fixed part is a third
	r.add(lasting, 0)
	r.reach(splitRate/4, splitBurst/4, 0, 1)
	r.add(lasting, 2)
	r.reach(splitRate/6, splitBurst/6, 0, 1, 2)
	r.limited(splitRate, splitBurst)
}

// A shard that has the whole rate goes away and comes back. The other parts go on, and the rate holds over all of them.
func TestSplit_RateHoldsThroughShardFaults(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault func(s *redistest.PrivateServer)
		mend  func(s *redistest.PrivateServer)
		at    int // shard 0 has the lender
	}{
		{"killed", (*redistest.PrivateServer).Kill, (*redistest.PrivateServer).Restart, 2},
		{"lender's killed", (*redistest.PrivateServer).Kill, (*redistest.PrivateServer).Restart, 0},
		{"frozen", (*redistest.PrivateServer).Stop, (*redistest.PrivateServer).Cont, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.name == "frozen" {
				short.Skip(t, "does not differ much from the others")
			}
			t.Parallel()
			r := runRatedSplit(t)
			others := slices.DeleteFunc([]int{0, 1, 2}, func(n int) bool { return n == row.at })
			r.add(lasting, row.at)
			r.reach(splitRate/2, splitBurst/2, row.at)
			// Back within its lease, if the machine is fast.
			row.fault(r.servers[row.at])
			r.add(60, others...)
			await(t, "the other shards start no jobs", func() bool { return len(r.of(others[0], 2))+len(r.of(others[1], 2)) > 2 })
			row.mend(r.servers[row.at])
			r.reach(splitRate/2, splitBurst/2, row.at)
			// Away until the others have its share.
			row.fault(r.servers[row.at])
			r.add(lasting, others...)
			r.reach(splitRate/6, splitBurst/6, others...)
			row.mend(r.servers[row.at])
			r.reach(splitRate/6, splitBurst/6, 0, 1, 2)
			r.limited(splitRate, splitBurst)
		})
	}
}
