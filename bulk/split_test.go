package bulk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// split creates a group with parts on all shards and adds jobs.
func (r *shardRun) split(id string, shards, jobs int) {
	r.t.Helper()
	spec := store.GroupSpec{ID: id, Tenant: "acme", Type: "t", Split: shards, Aggregate: `{"op":"sum","field":"v"}`, CallbackURL: "http://127.0.0.1/" + id}
	if _, _, err := r.fleet.CreateGroup(r.t.Context(), spec); err != nil {
		r.t.Fatal(err)
	}
	list := make([]store.Job, jobs)
	for i := range list {
		list[i] = store.Job{ID: fmt.Sprintf("j%d", i), Payload: []byte("1")}
	}
	for part := range slices.Chunk(list, store.MaxAdd) {
		if _, err := r.fleet.AddJobs(r.t.Context(), id, store.Chunk{}, part); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := r.fleet.Seal(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
}

// startedOf returns how many jobs of a group have started.
func (r *shardRun) startedOf(group string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for job := range r.runs {
		if strings.HasPrefix(job, group+"/") {
			n++
		}
	}
	return n
}

// whole waits for the end of a split group and its one callback.
func (r *shardRun) whole(id string, ended func(g *store.Group) bool) {
	r.t.Helper()
	var last store.Group
	await(r.t, "the split group "+id+" does not end", func() bool {
		g, err := r.fleet.Group(context.Background(), id)
		last = g
		return err == nil && g.Status.Ended() && g.CallbackState == "done"
	})
	if !ended(&last) {
		r.t.Errorf("%s: %+v: %s", id, last, last.Result)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := slices.DeleteFunc(slices.Clone(r.called), func(g store.Group) bool { return g.ID != id })
	if len(calls) != 1 || calls[0].Total != last.Total || calls[0].Succeeded != last.Succeeded || string(calls[0].Result) != string(last.Result) {
		r.t.Errorf("%s: %d callbacks: %+v", id, len(calls), calls)
	}
}

// Three servers are killed, frozen and at last one of them is emptied, in an order by seed, under a split group and whole
// groups beside it. Nothing is lost but what was on the emptied server, which the split group says; the other shards go on through
// each fault; and the rate holds over all of them.
func TestSplit_ThroughShardFaults(t *testing.T) {
	t.Parallel()
	splitThroughFaults(t, 2)
}

func TestSplit_ThroughManyShardFaults(t *testing.T) {
	short.Skip(t, "plants 20 faults")
	t.Parallel()
	splitThroughFaults(t, 20)
}

func splitThroughFaults(t *testing.T, faults int) {
	const shards = 3
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	var servers []*redistest.PrivateServer
	var clients []redis.UniversalClient
	for range shards {
		s := redistest.Server(t, "--appendonly", "yes")
		servers, clients = append(servers, s), append(clients, s.Client())
	}
	r := runShards(t, shards, clients...)
	jobs := 100 * faults
	r.split("whole", shards, jobs)
	for i := range faults {
		at, kill := random.IntN(shards), (i+int(seed%2))%2 == 0
		if kill {
			servers[at].Kill()
		} else {
			servers[at].Stop()
		}
		was := r.all()
		await(t, fmt.Sprintf("shards go on without shard %d", at), func() bool { return r.all() > was+20 || r.idle(at) })
		if kill {
			servers[at].Restart()
		} else {
			servers[at].Cont()
		}
	}
	for n := range shards {
		r.ended(n)
	}
	sum := fmt.Sprintf(`"value":%d,"count":%d`, jobs, jobs)
	r.whole("whole", func(g *store.Group) bool {
		return g.Status == store.Completed && g.Succeeded == int64(jobs) && len(g.Lost) == 0 && strings.Contains(string(g.Result), sum)
	})
	if found, err := r.fleet.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
	// A shard that has not the first part loses everything.
	r.split("lossy", shards, 150)
	g, err := r.fleet.Group(t.Context(), "lossy")
	if err != nil {
		t.Fatal(err)
	}
	var at, first int
	if _, err := fmt.Sscan(g.Parts, &first, &at); err != nil {
		t.Fatal(err)
	}
	part, err := r.fleet.Shards()[at].Group(t.Context(), "lossy")
	if err != nil {
		t.Fatal(err)
	}
	await(t, "no job of the group starts", func() bool { return r.startedOf("lossy") > 5 })
	if err := clients[at].FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.whole("lossy", func(g *store.Group) bool {
		return g.Status == store.Failed && slices.Equal(g.Lost, []int{at}) && g.Succeeded == 150-part.Total && g.Total == 150-part.Total
	})
	for n := range shards {
		if g, err := r.fleet.Group(t.Context(), r.groups[n]); n != at && (err != nil || g.Succeeded != shardJobs) {
			t.Errorf("shard %d, which was not emptied: %+v, %v", n, g, err)
		}
	}
	r.within()
}

// all returns how many jobs have started.
func (r *shardRun) all() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts)
}

// idle reports whether no shard but one has jobs to do.
func (r *shardRun) idle(but int) bool {
	for n, s := range r.fleet.Shards() {
		if n == but {
			continue
		}
		if d, err := s.Depths(context.Background()); err != nil || d.Pending+d.NonReady+d.InFlight > 0 {
			return false
		}
	}
	return true
}
