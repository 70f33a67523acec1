package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// patience bounds every wait; it only decides how long a failure takes.
const patience = 60 * time.Second

// fast are settings with short times.
func fast(s *store.Settings) {
	s.Global, s.Lease, s.BaseBackoff, s.MaxBackoff = 1e6, 2*time.Second, 10*time.Millisecond, time.Second
}

// openStore returns a store with timeouts that fit a busy machine.
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

// submit creates a group of n jobs, seals it and returns its id.
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
func engine(t testing.TB, s store.Sharded, o Options, setup func(e *Engine)) (e *Engine, stop func()) {
	t.Helper()
	o.Retry = Retry{Max: 3, Base: 10 * time.Millisecond, Most: time.Second}
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

// await polls until the condition holds.
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

// TestEngine_RunsGroupsWithEveryVerdict runs groups of three tenants with every verdict on two engines, on a server and on a cluster.
func TestEngine_RunsGroupsWithEveryVerdict(t *testing.T) {
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"server":  func(t *testing.T) redis.UniversalClient { return redistest.Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { return redistest.Cluster(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// No lease ends, however busy the machine: each job runs as often as its verdicts say.
			s := openStore(t, client(t), redistest.Prefix(t), func(s *store.Settings) { s.Lease = time.Minute })
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
				`job_runs_total{type="busy",verdict="throttled"}`: 3,
				"reduced_total": 2300, "store_up": 1, "leases_lost_total": 0,
			})
		})
	}
}

// TestEngine_RunsClassicPipeline: pull, check, ready or non-ready, with windows of a second; every job ends.
func TestEngine_RunsClassicPipeline(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.Client(t), redistest.Prefix(t), func(s *store.Settings) {
		s.Policy, s.Limiter, s.Gating, s.Global, s.BaseBackoff = "score", "fixed_window", false, 50, 100*time.Millisecond
		s.Lease = time.Minute
	})
	m := NewMetrics(nil, "")
	a := submit(t, s, store.GroupSpec{Tenant: "a"}, 80, number)
	b := submit(t, s, store.GroupSpec{Tenant: "b", Level: store.High}, 40, number)
	_, stop := engine(t, s, Options{Metrics: m}, func(e *Engine) { e.Register("t", noop) })
	for _, group := range []string{a, b} {
		if g := ended(t, s, group); g.Status != store.Completed || g.Succeeded != g.Total {
			t.Errorf("%+v", g)
		}
	}
	stop()
	clean(t, s)
	same(t, m, map[string]float64{"dequeued_total": 120, `fetch_admitted_total{verdict="ready"}`: 120})
	if refused := value(t, m, `fetch_admitted_total{verdict="non_ready"}`); refused == 0 {
		t.Error("no job was turned away at 50 a second")
	}
}

// TestEngine_HoldsRateAcrossRestarts: no more jobs start in a second than the rate and its burst allow, while engines come and go.
func TestEngine_HoldsRateAcrossRestarts(t *testing.T) {
	short.Skip(t, "waits for the clock")
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

// TestIdempotencyKey_SurvivesRedrives: a redriven job had another key, so its receiver took it for a new job.
func TestIdempotencyKey_SurvivesRedrives(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.Client(t), redistest.Prefix(t), nil)
	keys := make(chan string, 10)
	_, _ = engine(t, s, Options{}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
			keys <- j.IdempotencyKey
			return nil, Permanent("no", errors.New("no"))
		}))
	})
	group := submit(t, s, store.GroupSpec{ID: "charge-r5", Tenant: "a"}, 1, number)
	for range 3 {
		ended(t, s, group)
		if key := <-keys; key != "charge-r5/j000000" {
			t.Errorf("group %s: key %q", group, key)
		}
		g, err := s.RedriveJobs(t.Context(), group, store.RedriveOptions{Statuses: []string{"failed"}})
		if err != nil {
			t.Fatal(err)
		}
		group = g.ID
	}
}

// A group whose reducer no process has, or whose reducer fails, ends after a while without its result, so that its data is deleted
// in the end.
func TestEngine_EndsAGroupWithoutItsReducer(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.Client(t), redistest.Prefix(t), nil)
	_, stop := engine(t, s, Options{ReducerWait: 200 * time.Millisecond}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) { return j.Payload, nil }))
		e.RegisterReducer("broken", MapReduce(func(*Outcome) (int, bool, error) { panic("oh") }, func(a, _ int) int { return a }))
		if _, err := e.ParseAggregate([]byte(`{"op":"reduce","name":"absent"}`)); err == nil || !strings.Contains(err.Error(), "no such reducer; use broken") {
			t.Errorf("a reducer that is not registered: %v", err)
		}
		if got, err := e.ParseAggregate([]byte(`{"op":"reduce","name":"broken"}`)); err != nil || string(got) != `{"op":"reduce","name":"broken"}` {
			t.Errorf("a registered reducer: %s %v", got, err)
		}
	})
	defer stop()
	for name, why := range map[string]string{"absent": "no such reducer is registered", "broken": "it panicked: oh"} {
		id := submit(t, s, store.GroupSpec{ID: name, Tenant: "a", Aggregate: `{"op":"reduce","name":"` + name + `"}`}, 700, number)
		var g store.Group
		until(t, "the group ends", func() bool {
			var err error
			if g, err = s.Group(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			return g.Status.Ended()
		})
		var result struct {
			Value     any
			Error     string
			Succeeded int
		}
		if err := json.Unmarshal(g.Result, &result); err != nil || g.Status != store.Completed || result.Succeeded != 700 || !strings.Contains(result.Error, why) {
			t.Errorf("%s: %s %s, %v", name, g.Status, g.Result, err)
		}
	}
}
