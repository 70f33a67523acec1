package bulk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/short"
)

// split creates a group with parts on all shards and adds jobs.
func (r *shardRun) split(id string, shards, jobs int) {
	r.t.Helper()
	spec := store.GroupSpec{ID: id, Tenant: "acme", Type: "t", Split: shards, Aggregate: `{"op":"sum","field":"v"}`, CallbackURL: "http://127.0.0.1/" + id}
	if _, _, err := r.fleet.CreateGroup(r.t.Context(), spec); err != nil {
		r.t.Fatal(err)
	}
	r.add(id, jobs)
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
	servers, clients := durableServers(t, shards)
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
	at, part := r.secondPart("lossy")
	await(t, "no job of the group starts", func() bool { return r.startedOf("lossy") > 5 })
	if err := clients[at].FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.whole("lossy", func(g *store.Group) bool {
		return g.Status == store.Failed && slices.Equal(g.Lost, []int{at}) && g.Succeeded == 150-part && g.Total == 150-part
	})
	for n := range shards {
		if g, err := r.fleet.Group(t.Context(), r.groups[n]); n != at && (err != nil || g.Succeeded != shardJobs) {
			t.Errorf("shard %d, which was not emptied: %+v, %v", n, g, err)
		}
	}
	r.within()
}

// Three servers are killed, frozen and emptied 20 times in an order by seed; always the same one is emptied. A split group loses that
// server's part and says so. Whole groups of the other two lose nothing, the other shards go on through each fault, the emptied shard
// takes new groups, and the rate holds over all of them.
func TestSplit_ThroughFaultsAndLosses(t *testing.T) {
	short.Skip(t, "plants 20 faults")
	t.Parallel()
	const shards, faults, each = 3, 20, 400
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	servers, clients := durableServers(t, shards)
	r := runShards(t, shards, clients...)
	const jobs = 3 * each
	r.split("lossy", shards, jobs)
	emptied, lost := r.secondPart("lossy")
	var keepers []string
	for n := range shards {
		if n != emptied {
			keepers = append(keepers, r.groupOn(n, fmt.Sprintf("keeper%d-", n), each))
		}
	}
	last := "" // group of the emptied shard
	for i := range faults {
		at, fault := random.IntN(shards), random.IntN(3)
		if i == 0 { // while most jobs are there
			fault = 2
		}
		mend := func() {}
		switch fault {
		case 0:
			servers[at].Kill()
			mend = servers[at].Restart
		case 1:
			servers[at].Stop()
			mend = servers[at].Cont
		case 2:
			at = emptied
			// A client whose connections were refused a moment ago may refuse calls by itself for a second.
			await(t, "the shard is not emptied", func() bool { return clients[at].FlushAll(t.Context()).Err() == nil })
		}
		was := r.all()
		await(t, fmt.Sprintf("shards go on without shard %d", at), func() bool { return r.all() > was+20 || r.idle(at) })
		mend()
		if fault == 2 {
			last = r.groupOn(emptied, fmt.Sprintf("after%d-", i), 40)
		}
	}
	for _, id := range append(keepers, last) {
		want := int64(each)
		if id == last {
			want = 40
		}
		await(t, id+" does not end", func() bool {
			g, err := r.fleet.Group(context.Background(), id)
			return err == nil && g.Status == store.Completed && g.Succeeded == want && g.Total == want
		})
	}
	for _, id := range keepers {
		if n := r.startedOf(id); n != each {
			t.Errorf("%d of %d jobs of %s have started", n, each, id)
		}
	}
	r.whole("lossy", func(g *store.Group) bool {
		return g.Status == store.Failed && slices.Equal(g.Lost, []int{emptied}) && g.Succeeded == jobs-lost && g.Total == jobs-lost
	})
	for n, s := range r.fleet.Shards() {
		if found, err := s.Audit(t.Context()); n != emptied && (err != nil || len(found) > 0) {
			t.Errorf("audit of shard %d: %v, %v", n, found, err)
		}
	}
	r.within()
}

// secondPart returns the shard of a split group's second part, and how many jobs it has. The first part is that of the group itself.
func (r *shardRun) secondPart(id string) (shard int, jobs int64) {
	r.t.Helper()
	g, err := r.fleet.Group(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	var first int
	if _, err := fmt.Sscan(g.Parts, &first, &shard); err != nil {
		r.t.Fatal(err)
	}
	part, err := r.fleet.Shards()[shard].Group(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return shard, part.Total
}

// groupOn creates a sealed group whose home is a shard, and returns its id.
func (r *shardRun) groupOn(shard int, prefix string, jobs int) string {
	r.t.Helper()
	for i := 0; ; i++ {
		spec := store.GroupSpec{ID: fmt.Sprintf("%s%d", prefix, i), Tenant: "acme", Type: "t"}
		await(r.t, "no group can be created", func() bool {
			_, _, err := r.fleet.CreateGroup(context.Background(), spec)
			return err == nil
		})
		if _, err := r.fleet.Shards()[shard].Group(r.t.Context(), spec.ID); err == nil {
			r.add(spec.ID, jobs)
			return spec.ID
		}
	}
}

// add adds jobs to a group and seals it.
func (r *shardRun) add(id string, jobs int) {
	r.t.Helper()
	list := make([]store.Job, jobs)
	for i := range list {
		list[i] = store.Job{ID: fmt.Sprintf("j%d", i), Payload: []byte("1")}
	}
	// A server that is back may still be too slow for one call. A job that was added twice is found by its id.
	for part := range slices.Chunk(list, store.MaxAdd) {
		await(r.t, "no job can be added to "+id, func() bool {
			_, err := r.fleet.AddJobs(context.Background(), id, store.Chunk{}, part)
			return err == nil
		})
	}
	await(r.t, id+" cannot be sealed", func() bool {
		_, err := r.fleet.Seal(context.Background(), id)
		return err == nil
	})
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
