package bulk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// patience bounds every wait; it only decides how long a failure takes.
const patience = 60 * time.Second

// fast are settings with short times.
func fast(s *store.Settings) {
	s.Global, s.Lease, s.BaseBackoff, s.MaxBackoff = 1e6, 2*time.Second, 10*time.Millisecond, time.Second
}

// openStore gives a store with the patience that a test has on a busy machine.
func openStore(t testing.TB, client redis.UniversalClient, prefix string, change func(*store.Settings)) *store.Store {
	t.Helper()
	return openWithin(t, patience/2, client, prefix, change)
}

func openWithin(t testing.TB, timeout time.Duration, client redis.UniversalClient, prefix string, change func(*store.Settings)) *store.Store {
	t.Helper()
	set := store.Defaults()
	fast(&set)
	if change != nil {
		change(&set)
	}
	s, err := store.New(store.Options{Client: client, Prefix: prefix, Timeout: timeout, Settings: set, Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// submit makes a group of n jobs, seals it and gives its id.
func submit(t testing.TB, s *store.Store, spec store.GroupSpec, n int, payload func(i int) string) string {
	t.Helper()
	if spec.Type == "" {
		spec.Type = "t"
	}
	if spec.Aggregate == "" {
		spec.Aggregate = `{"op":"count"}`
	}
	g, _, err := s.CreateGroup(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < n; from += store.MaxAdd {
		jobs := make([]store.Job, min(store.MaxAdd, n-from))
		for i := range jobs {
			jobs[i] = store.Job{ID: fmt.Sprintf("j%06d", from+i), Payload: []byte(payload(from + i))}
		}
		if _, err := s.AddJobs(t.Context(), g.ID, store.Chunk{}, jobs); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Seal(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	return g.ID
}

func number(i int) string { return fmt.Sprintf(`{"n":%d}`, i) }

// engine runs an Engine until stop.
func engine(t testing.TB, s *store.Store, o Options, setup func(e *Engine)) (e *Engine, stop func()) {
	t.Helper()
	o.Store = s
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	setup(e)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return e, stop
}

// await polls until what is asked for holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s", patience, what)
		}
		<-tick.C
	}
}

func ended(t testing.TB, s *store.Store, group string) store.Group {
	t.Helper()
	var g store.Group
	await(t, "group "+group+" does not end", func() bool {
		var err error
		if g, err = s.Group(t.Context(), group); err != nil && !errors.Is(err, store.ErrStore) {
			t.Fatal(err)
		}
		return g.Status.Ended()
	})
	return g
}

// clean audits the store.
func clean(t testing.TB, s *store.Store) {
	t.Helper()
	broken, err := s.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range broken {
		t.Errorf("audit: %s: %s", v.Invariant, v.What)
	}
}

// TestEngine runs groups of three tenants with every verdict on two engines, on a server and on a cluster.
func TestEngine(t *testing.T) {
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"server":  func(t *testing.T) redis.UniversalClient { return redistest.Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { return redistest.Cluster(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, client(t), redistest.Prefix(t), nil)
			m := NewMetrics(nil, "")
			calls := make(chan string, 10)
			handle := HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
				var p struct{ N int }
				if err := json.Unmarshal(j.Payload, &p); err != nil {
					return nil, Permanent("payload", err)
				}
				switch {
				case p.N%50 == 7:
					return nil, Permanent("nobody", errors.New("no such person"))
				case p.N%50 == 8:
					return nil, Fail("http_500", errors.New("always"))
				case p.N%50 == 9 && j.Attempt == 1:
					return nil, errors.New("once")
				}
				return j.Payload, nil
			})
			var busy atomic.Int64
			setup := func(e *Engine) {
				e.Register("t", handle)
				e.Register("busy", HandlerFunc(func(context.Context, *Job) ([]byte, error) {
					if busy.Add(1) <= 3 {
						return nil, Busy(20*time.Millisecond, errors.New("429"))
					}
					return nil, nil
				}))
				e.RegisterReducer("largest", MapReduce(func(o *Outcome) (int, bool, error) {
					var p struct{ N int }
					return p.N, o.Status == "succeeded" && json.Unmarshal(o.Result, &p) == nil, nil
				}, func(a, b int) int { return max(a, b) }))
			}
			o := Options{Metrics: m, CallbackBody: groupBody, Callback: func(_ context.Context, url string, body []byte) error {
				calls <- url + " " + string(body)
				return nil
			}}
			sum := submit(t, s, store.GroupSpec{ID: "sum", Tenant: "a", Aggregate: `{"op":"sum","field":"n"}`,
				Tolerance: store.Tolerance{Share: true, Percent: 10}, CallbackURL: "https://example.com/a"}, 2000, number)
			largest := submit(t, s, store.GroupSpec{ID: "largest", Tenant: "b", Aggregate: `{"op":"reduce","name":"largest"}`}, 300, number)
			refused := submit(t, s, store.GroupSpec{ID: "busy", Tenant: "c", Type: "busy"}, 5, number)
			unknown := submit(t, s, store.GroupSpec{ID: "fax", Tenant: "c", Type: "fax"}, 2, number)
			_, stop := engine(t, s, o, setup)
			_, stop2 := engine(t, s, o, setup)

			// Of each 50 jobs one fails for good and one dies.
			const tail = `"errors":{"http_500":%d,"nobody":%d}}`
			for _, row := range []struct {
				group  string
				status store.Status
				result string
			}{
				{sum, store.Completed, `{"op":"sum","field":"n","value":1920400,"count":1920,"skipped":0,"succeeded":1920,"failed":40,"dead":40,"cancelled":0,` + fmt.Sprintf(tail, 40, 40)},
				{largest, store.Failed, `{"op":"reduce","name":"largest","value":299,"succeeded":288,"failed":6,"dead":6,"cancelled":0,` + fmt.Sprintf(tail, 6, 6)},
				{refused, store.Completed, `{"succeeded":5,"failed":0,"dead":0,"cancelled":0,"errors":{}}`},
				{unknown, store.Failed, `{"succeeded":0,"failed":0,"dead":2,"cancelled":0,"errors":{"unknown_type":2}}`},
			} {
				g := ended(t, s, row.group)
				if g.Status != row.status || string(g.Result) != row.result {
					t.Errorf("%s: %s %s\nwant %s %s", row.group, g.Status, g.Result, row.status, row.result)
				}
			}
			if got := <-calls; got != "https://example.com/a sum COMPLETED" {
				t.Errorf("called %q", got)
			}
			await(t, "the callback is not noted", func() bool { g, err := s.Group(t.Context(), sum); return err == nil && g.CallbackState == "done" })
			stop()
			stop2()
			clean(t, s)
			same(t, m, map[string]float64{
				`job_runs_total{type="t",verdict="success"}`: 1920 + 288, `job_runs_total{type="t",verdict="failed"}`: 46,
				`job_runs_total{type="t",verdict="dead"}`: 46, `job_runs_total{type="t",verdict="retry"}`: 46*3 + 46,
				`job_runs_total{type="busy",verdict="throttled"}`: 3, `job_runs_total{type="other",verdict="dead"}`: 2,
				"reduced_total": 2307, "store_up": 1, "leases_lost_total": 0,
			})
		})
	}
}

// TestKilledEngine: another process takes on what a killed one had leased, within lease + 1 s, and no try is spent.
func TestKilledEngine(t *testing.T) {
	if socket := os.Getenv("BULK_KILLED_SOCKET"); socket != "" {
		runUntilKilled(t, socket, os.Getenv("BULK_KILLED_PREFIX"))
		return
	}
	t.Parallel()
	prefix := redistest.Prefix(t)
	s := openStore(t, redistest.Client(t), prefix, nil)
	group := submit(t, s, store.GroupSpec{Tenant: "a"}, 400, number)

	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledEngine$")
	cmd.Env = append(os.Environ(), "BULK_KILLED_SOCKET="+redistest.SharedSocket(t), "BULK_KILLED_PREFIX="+prefix)
	stdin, err := cmd.StdinPipe() // so that it ends with us, whatever happens
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for n := 0; n < 10 && lines.Scan(); { // until all its workers hang in mid-run
		if strings.HasPrefix(lines.Text(), "hangs in ") {
			n++
		}
	}
	_ = cmd.Process.Kill()
	killed := time.Now()
	_ = cmd.Wait()

	var last atomic.Int64 // when, after the kill, the last job ran
	g, err := s.Group(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if g.InFlight < 10 || g.Succeeded == 0 {
		t.Fatalf("the killed engine held %d jobs and had done %d, want at least its 10 workers' and some", g.InFlight, g.Succeeded)
	}
	t.Logf("killed with %d jobs in flight, %d done", g.InFlight, g.Succeeded)
	_, stop := engine(t, s, Options{}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
			last.Store(int64(time.Since(killed)))
			if j.Attempt != 1 {
				t.Errorf("job %s is in attempt %d: a crash spent a try", j.ID, j.Attempt)
			}
			return j.Payload, nil
		}))
	})
	g = ended(t, s, group)
	if g.Succeeded != 400 || g.Status != store.Completed {
		t.Errorf("%+v", g)
	}
	t.Logf("the last of them ran %s after the kill; the lease is %s, a crash waits up to half a second", time.Duration(last.Load()), s.Settings().Lease)
	stop()
	clean(t, s)
}

// runUntilKilled is the process that dies.
func runUntilKilled(t *testing.T, socket, prefix string) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	s := openStore(t, client, prefix, nil)
	_, stop := engine(t, s, Options{Worker: WorkerOptions{ShutdownGrace: time.Millisecond}}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
			if j.ID >= "j000100" {
				fmt.Println("hangs in", j.ID)
				<-ctx.Done()
			}
			return j.Payload, ctx.Err()
		}))
	})
	defer stop()
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
}

// TestShutdownHandsOver: what an engine gives back starts elsewhere at once, with nothing spent.
func TestShutdownHandsOver(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	s := openStore(t, redistest.Client(t), prefix, func(s *store.Settings) { s.Lease = time.Hour })
	group := submit(t, s, store.GroupSpec{Tenant: "a"}, 30, number)
	var running atomic.Int64
	_, stop := engine(t, s, Options{Worker: WorkerOptions{ShutdownGrace: 10 * time.Millisecond, JobTimeout: time.Hour}}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(ctx context.Context, _ *Job) ([]byte, error) {
			running.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	})
	await(t, "not all workers run", func() bool { return running.Load() == 10 })
	stop()
	g, err := s.Group(t.Context(), group)
	if err != nil || g.InFlight != 0 || g.Pending != 30 {
		t.Fatalf("after the shutdown %+v, %v", g, err)
	}
	clean(t, s)
	_, stop = engine(t, s, Options{}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
			if j.Attempt != 1 {
				t.Errorf("attempt %d", j.Attempt)
			}
			return nil, nil
		}))
	})
	if g := ended(t, s, group); g.Succeeded != 30 {
		t.Errorf("%+v", g)
	}
	stop()
	clean(t, s)
}

// TestStoreFaults halts, kills and restarts the store in mid-run: the engine goes on by itself, and says so once.
func TestStoreFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	s := openStore(t, server.Client(), "p", nil)
	hasty := openWithin(t, 500*time.Millisecond, server.Client(), "p", nil)
	const n = 3000
	group := submit(t, s, store.GroupSpec{Tenant: "a", Aggregate: `{"op":"sum","field":"n"}`}, n, number)
	var runs atomic.Int64
	log := &journal{}
	o := Options{Log: slog.New(slog.NewTextHandler(log, nil)), Worker: WorkerOptions{Count: 20}}
	e, stop := engine(t, hasty, o, func(e *Engine) {
		e.Register("t", HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
			runs.Add(1)
			sleep(ctx, 10*time.Millisecond)
			return j.Payload, nil
		}))
	})
	ran := func(k int64) { await(t, "it does not go on", func() bool { return runs.Load() >= k }) }
	// On a busy machine there may be outages that we did not make.
	noticed := func(fault, mend func()) {
		t.Helper()
		before := log.count("the store is away")
		fault()
		await(t, "the outage is not noticed", func() bool { return log.count("the store is away") > before })
		mend()
		await(t, "the end of the outage is not noticed", func() bool { return log.count("the store is back") == log.count("the store is away") })
	}
	ran(300)
	noticed(server.Stop, server.Cont)
	ran(runs.Load() + 300)
	noticed(server.Kill, func() {
		if err := e.Resize(8); err != nil {
			t.Fatal(err)
		}
		server.Restart()
	})
	g := ended(t, s, group)
	want := fmt.Sprintf(`"value":%d,"count":%d,"skipped":0,"succeeded":%d`, n*(n-1)/2, n, n)
	if g.Succeeded != n || !strings.Contains(string(g.Result), want) {
		t.Errorf("%+v %s, want %s", g, g.Result, want)
	}
	t.Logf("%d runs of %d jobs", runs.Load(), n)
	stop()
	clean(t, s)
}

// TestClassicPipeline: pull, check, ready or non-ready, with windows of a second; every job gets through.
func TestClassicPipeline(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.Client(t), redistest.Prefix(t), func(s *store.Settings) {
		s.Policy, s.Limiter, s.Gating, s.Global, s.BaseBackoff = "score", "fixed_window", false, 200, 100*time.Millisecond
	})
	m := NewMetrics(nil, "")
	a := submit(t, s, store.GroupSpec{Tenant: "a"}, 250, number)
	b := submit(t, s, store.GroupSpec{Tenant: "b", Level: store.High}, 100, number)
	_, stop := engine(t, s, Options{Metrics: m}, func(e *Engine) { e.Register("t", noop) })
	for _, group := range []string{a, b} {
		if g := ended(t, s, group); g.Status != store.Completed || g.Succeeded != g.Total {
			t.Errorf("%+v", g)
		}
	}
	stop()
	clean(t, s)
	same(t, m, map[string]float64{"dequeued_total": 350, `fetch_admitted_total{verdict="ready"}`: 350})
	if refused := value(t, m, `fetch_admitted_total{verdict="non_ready"}`); refused == 0 {
		t.Error("no job was turned away at 200 a second")
	}
}

// TestRatesHold: no more jobs start in a second than the rate and its burst allow, while engines come and go.
func TestRatesHold(t *testing.T) {
	t.Parallel()
	const rate, burst = 100, 10
	s := openStore(t, redistest.Client(t), redistest.Prefix(t), func(s *store.Settings) { s.Global, s.Burst = rate, burst })
	group := submit(t, s, store.GroupSpec{Tenant: "a"}, 200, number)
	began := time.Now()
	for turn := range 4 {
		_, stop := engine(t, s, Options{Worker: WorkerOptions{Count: 3}}, func(e *Engine) { e.Register("t", noop) })
		await(t, "it does not go on", func() bool {
			g, err := s.Group(t.Context(), group)
			return err == nil && g.Succeeded >= int64(50*(turn+1))
		})
		if turn%2 == 0 {
			stop() // else it stays beside the next
		}
	}
	if g := ended(t, s, group); g.Succeeded != 200 {
		t.Errorf("%+v", g)
	}
	// The limit is a lower bound of the time, whatever the machine does.
	if d, least := time.Since(began), time.Second*(200-burst)/rate; d < least-50*time.Millisecond {
		t.Errorf("200 jobs in %s: faster than %d a second and a burst of %d allow, %s", d, rate, burst, least)
	}
}
