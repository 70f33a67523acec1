package bulk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// durableServers starts servers that keep every acknowledged write if they are killed, because it has reached the kernel. With the default,
// everysec, a busy disk delays the writes of up to two seconds.
func durableServers(t *testing.T, n int) (servers []*redistest.PrivateServer, clients []redis.UniversalClient) {
	t.Helper()
	for range n {
		s := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "no")
		servers, clients = append(servers, s), append(clients, s.Client())
	}
	return servers, clients
}

// shardRun is an engine over several shards, with the starts and ends of its jobs.
type shardRun struct {
	t      *testing.T
	fleet  *store.Fleet
	groups map[int]string // by shard

	mu     sync.Mutex
	starts []start
	runs   map[string]int // by job
	called []store.Group  // bodies of callbacks
}

// start is the start of a job.
type start struct {
	at  int64  // µs of the store's clock
	job string // group/id
}

const (
	shardRate, shardBurst = 150, 15
	shardJobs             = 120 // of each shard
)

// runShards has jobs in a group on each shard, under a global rate.
func runShards(t *testing.T, shards int, clients ...redis.UniversalClient) *shardRun {
	t.Helper()
	r := openShards(t, shards, func(s *store.Settings) { s.Global, s.Burst = shardRate, shardBurst }, clients...)
	for i := 0; len(r.groups) < shards; i++ {
		spec := store.GroupSpec{ID: fmt.Sprintf("g%d", i), Tenant: "acme", Type: "t"}
		if _, _, err := r.fleet.CreateGroup(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		for n, s := range r.fleet.Shards() {
			if _, err := s.Group(t.Context(), spec.ID); err != nil {
				continue
			}
			if r.groups[n] == "" {
				r.groups[n] = spec.ID
				r.fill(spec.ID)
			} else if _, err := r.fleet.Cancel(t.Context(), spec.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.run()
	return r
}

// openShards prepares the shards. The engine starts with run.
func openShards(t *testing.T, shards int, change func(*store.Settings), clients ...redis.UniversalClient) *shardRun {
	t.Helper()
	set := store.Defaults()
	fast(&set)
	change(&set)
	// Calls to a server that halts end soon, as in production.
	f, err := store.NewFleet(store.Options{Shards: shards, Prefix: "wr", Timeout: 2 * time.Second, Settings: set, Log: discard()}, clients...)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &shardRun{t: t, fleet: f, groups: map[int]string{}, runs: map[string]int{}}
}

func (r *shardRun) run() {
	r.t.Helper()
	e, err := New(Options{Store: r.fleet, Worker: WorkerOptions{Count: 20}, CallbackBody: func(g store.Group) ([]byte, error) { return json.Marshal(g) },
		Callback: func(_ context.Context, _ string, body []byte) error {
			var g store.Group
			err := json.Unmarshal(body, &g)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.called = append(r.called, g)
			return err
		}})
	if err != nil {
		r.t.Fatal(err)
	}
	e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		job := j.Group + "/" + j.ID
		r.starts = append(r.starts, start{j.Fence, job}) // the fence is the time of the start, if no two are in one µs
		r.runs[job]++
		return []byte(`{"v":1}`), nil
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *shardRun) fill(group string) {
	r.t.Helper()
	jobs := make([]store.Job, shardJobs)
	for i := range jobs {
		jobs[i] = store.Job{ID: fmt.Sprintf("j%d", i), Payload: []byte("1")}
	}
	if _, err := r.fleet.AddJobs(r.t.Context(), group, store.Chunk{}, jobs); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.fleet.Seal(r.t.Context(), group); err != nil {
		r.t.Fatal(err)
	}
}

// started returns how many jobs of a shard have started.
func (r *shardRun) started(shard int) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range shardJobs {
		n += r.runs[fmt.Sprintf("%s/j%d", r.groups[shard], i)]
	}
	return n
}

func (r *shardRun) ended(shard int) {
	r.t.Helper()
	await(r.t, fmt.Sprintf("the group of shard %d does not end", shard), func() bool {
		g, err := r.fleet.Group(context.Background(), r.groups[shard])
		return err == nil && g.Status == store.Completed && g.Succeeded == shardJobs
	})
}

// within checks that no interval has more starts than the global rate and its burst allow.
func (r *shardRun) within() {
	r.t.Helper()
	r.limited(shardRate, shardBurst)
}

// limited checks that no interval has more starts than a rate and a burst allow, by the clock of the store.
func (r *shardRun) limited(rate, burst float64) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := slices.SortedFunc(slices.Values(r.starts), func(a, b start) int { return cmp.Compare(a.at, b.at) })
	for from := range starts {
		for to := from; to < len(starts); to++ {
			d := starts[to].at - starts[from].at
			if n, most := float64(to-from+1), burst+rate*float64(d)/1e6; n > most+1e-6 {
				r.t.Fatalf("%v jobs started within %d µs, where %.1f may", n, d, most)
			}
		}
	}
}

// Each shard is on a server of its own. While one of them is away, or has lost everything, the others go on, no job of
// theirs is lost, and the rate holds over all of them.
func TestShards_GoOnWithoutOne(t *testing.T) {
	for _, row := range []struct {
		name   string
		fault  func(s *redistest.PrivateServer)
		mend   func(s *redistest.PrivateServer)
		within bool // its jobs end when it is back
	}{
		{"killed", (*redistest.PrivateServer).Kill, (*redistest.PrivateServer).Restart, true},
		{"frozen", (*redistest.PrivateServer).Stop, (*redistest.PrivateServer).Cont, true},
		{"emptied", func(s *redistest.PrivateServer) {
			if err := s.Client().FlushAll(context.Background()).Err(); err != nil {
				t.Error(err)
			}
		}, func(*redistest.PrivateServer) {}, false},
	} {
		for _, at := range []int{0, 1} { // shard 0 has the leases
			t.Run(fmt.Sprintf("%s %d", row.name, at), func(t *testing.T) {
				t.Parallel()
				if (row.name == "frozen") != (at == 0) {
					short.Skip(t, "does not differ much from the others")
				}
				servers, clients := durableServers(t, 3)
				r := runShards(t, 3, clients...)
				await(t, "no job of the shard starts", func() bool { return r.started(at) > 5 })
				row.fault(servers[at])
				for n := range 3 {
					if n != at {
						r.ended(n)
					}
				}
				row.mend(servers[at])
				if row.within {
					r.ended(at)
				}
				// The shard takes new groups, also after it has lost all.
				id := ""
				for i := 0; id == ""; i++ {
					spec := store.GroupSpec{ID: fmt.Sprintf("after%d", i), Tenant: "acme", Type: "t"}
					await(t, "no group can be created", func() bool {
						_, _, err := r.fleet.CreateGroup(context.Background(), spec)
						return err == nil
					})
					if _, err := r.fleet.Shards()[at].Group(t.Context(), spec.ID); err == nil {
						id = spec.ID
					}
				}
				r.groups[at] = id
				r.fill(id)
				r.ended(at)
				r.within()
			})
		}
	}
}

// The shards are in the slots of one cluster.
func TestShards_InOneCluster(t *testing.T) {
	c := redistest.ThreeMasters(t, 0, "--cluster-require-full-coverage", "no")
	r := runShards(t, 5, c.Client())
	frozen := c.Master("wr:{bulk:1}:state")
	var away []int
	for n := range 5 {
		if c.Master(fmt.Sprintf("wr:{bulk:%d}:state", n)) == frozen {
			away = append(away, n)
		}
	}
	await(t, "no job starts", func() bool { return r.started(1) > 5 })
	frozen.Stop()
	for n := range 5 {
		if !slices.Contains(away, n) {
			r.ended(n)
		}
	}
	frozen.Cont()
	for n := range 5 {
		r.ended(n)
	}
	r.within()
	if found, err := r.fleet.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// Several processes share the shards: each job runs once, also those of shards that few processes prefer.
func TestShards_ServedBySeveralProcesses(t *testing.T) {
	const shards, each = 6, 40
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	var mu sync.Mutex
	runs := map[string]int{}
	var fleet *store.Fleet
	for range 3 {
		set := store.Defaults()
		fast(&set)
		f, err := store.NewFleet(store.Options{Shards: shards, Prefix: prefix, Timeout: patience / 2, Settings: set, Log: discard()}, client)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		fleet = f
		engine(t, f, Options{Worker: WorkerOptions{Count: 4}}, func(e *Engine) {
			e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				runs[j.Group+"/"+j.ID]++
				return nil, nil
			}))
		})
	}
	var groups []string
	for i := range 2 * shards {
		spec := store.GroupSpec{ID: fmt.Sprintf("g%d", i), Tenant: "acme", Type: "t"}
		if _, _, err := fleet.CreateGroup(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		jobs := make([]store.Job, each)
		for k := range jobs {
			jobs[k] = store.Job{ID: fmt.Sprintf("j%d", k), Payload: []byte("1")}
		}
		if _, err := fleet.AddJobs(t.Context(), spec.ID, store.Chunk{}, jobs); err != nil {
			t.Fatal(err)
		}
		if _, err := fleet.Seal(t.Context(), spec.ID); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, spec.ID)
	}
	for _, id := range groups {
		await(t, "group "+id+" does not end", func() bool {
			g, err := fleet.Group(t.Context(), id)
			return err == nil && g.Succeeded == each
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for job, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", job, n)
		}
	}
	if found, err := fleet.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// A due schedule runs once over all shards, its group is at its home, and a group that waits for it runs on the same shard.
func TestShards_RunSchedules(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	plan := &schedule.Schedule{ID: "hourly", Tenant: "acme", Cron: "@hourly", Overlap: schedule.Queue, Group: store.GroupSpec{Type: "t"}, Jobs: []schedule.Job{{Payload: json.RawMessage(`1`)}}}
	if err := plan.Check(); err != nil {
		t.Fatal(err)
	}
	plan.Next = time.Now().Add(-time.Second).UTC().Truncate(time.Second) // as if it had been planned
	body, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var fleet *store.Fleet
	var runs atomic.Int64
	for n := range 2 {
		set := store.Defaults()
		fast(&set)
		if fleet, err = store.NewFleet(store.Options{Shards: 3, Prefix: prefix, Timeout: patience / 2, Settings: set, Log: discard()}, client); err != nil {
			t.Fatal(err)
		}
		if err := fleet.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if _, _, err := fleet.WriteSchedule(t.Context(), store.ScheduleRecord{ID: plan.ID, Body: body}, plan.Next); err != nil {
				t.Fatal(err)
			}
		}
		engine(t, fleet, Options{}, func(e *Engine) {
			e.Register("t", HandlerFunc(func(context.Context, *Job) ([]byte, error) { runs.Add(1); return nil, nil }))
		})
	}
	first := schedule.GroupID("hourly", plan.Next)
	await(t, "no run is made", func() bool { _, err := fleet.Group(t.Context(), first); return err == nil })
	second := store.GroupSpec{ID: fleet.IDBeside(first, "second"), Tenant: "acme", Type: "t", After: first}
	if _, _, err := fleet.CreateGroup(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.AddJobs(t.Context(), second.ID, store.Chunk{}, []store.Job{{ID: "j", Payload: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Seal(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{first, second.ID} {
		await(t, id+" does not end", func() bool {
			g, err := fleet.Group(t.Context(), id)
			return err == nil && g.Status == store.Completed
		})
	}
	if n := runs.Load(); n != 2 {
		t.Errorf("%d runs of 2 jobs", n)
	}
	if now, err := schedule.NewBook(fleet).Get(t.Context(), "hourly"); err != nil || now.Counts != (schedule.Counts{Started: 1}) {
		t.Errorf("%+v %v", now, err)
	}
	if found, err := fleet.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// A chain goes over three servers, each of which halts once. The engine of the process that began it ends in between.
func TestShards_ChainsOutlastHalts(t *testing.T) {
	t.Parallel()
	var servers []*redistest.PrivateServer
	var clients []redis.UniversalClient
	for range 3 {
		s := redistest.Server(t)
		servers, clients = append(servers, s), append(clients, s.Client())
	}
	open := func() *store.Fleet {
		set := store.Defaults()
		fast(&set)
		f, err := store.NewFleet(store.Options{Shards: 3, Prefix: "wr", Timeout: 2 * time.Second, Settings: set, Log: discard()}, clients...)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f
	}
	fleet := open()
	// chain[n] is on shard n and waits for the one before.
	var chain []string
	for n := range 3 {
		for i := 0; len(chain) == n; i++ {
			spec := store.GroupSpec{ID: fmt.Sprintf("g%d-%d", n, i), Tenant: "acme", Type: "t", StartSealed: true}
			if n > 0 {
				spec.After = chain[n-1]
			}
			if _, _, err := fleet.CreateGroup(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			if _, err := fleet.Shards()[n].Group(t.Context(), spec.ID); err != nil {
				continue
			}
			if _, err := fleet.AddJobs(t.Context(), spec.ID, store.Chunk{}, []store.Job{{ID: "j", Payload: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			chain = append(chain, spec.ID)
		}
	}
	var mu sync.Mutex
	var ran []string
	process := func() (stop func()) {
		e, err := New(Options{Store: open(), Worker: WorkerOptions{Count: 2}})
		if err != nil {
			t.Fatal(err)
		}
		e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, j.Group)
			return nil, nil
		}))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		return stop
	}
	stop := process()
	// The first one is sealed last.
	for _, id := range slices.Backward(chain) {
		if _, err := fleet.Seal(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for n, id := range chain {
		servers[n].Stop()
		if n == 1 { // the group before has ended, and its end cannot be handed over
			stop()
			process()
		}
		servers[n].Cont()
		await(t, id+" does not end", func() bool {
			g, err := fleet.Group(context.Background(), id)
			return err == nil && g.Status == store.Completed
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(ran, chain) {
		t.Errorf("ran %v, want %v", ran, chain)
	}
	if found, err := fleet.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}
