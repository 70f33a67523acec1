package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// meter reads, again and again, how many jobs each tenant has started as the store counts them, in the same step in which it
// grants them. Who receives jobs sees them late, and so at moments that are not the limiter's.
type meter struct {
	t       *testing.T
	tenants []string
	halt    chan struct{}
	over    chan struct{}

	mu    sync.Mutex
	ask   *bulkWorker
	looks []look
}

// look is one reading. What it counts had started by after; what had started by before is in it.
type look struct {
	before, after time.Time
	served        []int
	all           int
}

// startMeter reads through a worker until stop.
func startMeter(t *testing.T, w *bulkWorker, tenants ...string) *meter {
	m := &meter{t: t, tenants: tenants, ask: w, halt: make(chan struct{}), over: make(chan struct{})}
	go m.run()
	t.Cleanup(m.stop)
	return m
}

// through sets the worker to which later requests go.
func (m *meter) through(w *bulkWorker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ask = w
}

func (m *meter) stop() {
	select {
	case <-m.halt:
	default:
		close(m.halt)
	}
	<-m.over
}

func (m *meter) run() {
	defer close(m.over)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-m.halt:
			return
		case <-tick.C:
		}
		m.mu.Lock()
		w := m.ask
		m.mu.Unlock()
		l, ok := look{before: time.Now(), served: make([]int, len(m.tenants))}, true
		for i, tenant := range m.tenants {
			a, err := w.try(http.MethodGet, "/v1/tenants/"+tenant, "")
			var state struct{ Served int }
			if err == nil && a.code == http.StatusOK {
				err = json.Unmarshal([]byte(a.body), &state)
			}
			// A tenant that has sent nothing yet is not known; a worker that is killed, or its store, does not answer.
			if err != nil || a.code != http.StatusOK && a.code != http.StatusNotFound {
				ok = false
				break
			}
			l.served[i] = state.Served
			l.all += state.Served
		}
		if l.after = time.Now(); ok {
			m.mu.Lock()
			m.looks = append(m.looks, l)
			m.mu.Unlock()
		}
	}
}

// rated is a limit from a moment on.
type rated struct {
	from        time.Time
	rate, burst float64
}

// gcra is a limit with the burst that it has unless one is configured.
func gcra(from time.Time, rate float64) rated { return rated{from, rate, max(1, rate/10)} }

// judge looks at every stretch of at most a second between two readings, and at those between neighbours that are further apart:
// no more may have started in it than the highest of the limits in force then allows in a second, or in its time if that is
// longer, and its burst. It logs the worst. tenant is −1 for all together.
func (m *meter) judge(what string, tenant int, limits ...rated) {
	m.t.Helper()
	m.stop()
	count := func(l look) int {
		if tenant < 0 {
			return l.all
		}
		return l.served[tenant]
	}
	worst, allowed, readings := 0, 0.0, 0
	for i, from := range m.looks {
		for j, to := range m.looks[i+1:] {
			long := to.after.Sub(from.before)
			if long > time.Second && j > 0 {
				break
			}
			readings++
			limit := 0.0
			for k, l := range limits {
				if !l.from.After(to.after) && (k+1 == len(limits) || !limits[k+1].from.Before(from.before)) {
					limit = max(limit, l.rate*max(1, long.Seconds())+l.burst)
				}
			}
			started := count(to) - count(from)
			if float64(started) > limit {
				m.t.Errorf("%s: %d jobs started in %s, at most %.0f may", what, started, long, limit)
				return
			}
			if float64(started)*allowed >= float64(worst)*limit {
				worst, allowed = started, limit
			}
		}
	}
	if readings == 0 {
		m.t.Errorf("%s: there are no two readings of the starts", what)
	}
	m.t.Logf("%s: at most %d jobs started in a second, of %.0f that may; %d stretches", what, worst, allowed, readings)
}

// densest returns the most of these requests within one second.
func densest(runs []jobRun) int {
	at := make([]time.Time, len(runs))
	for i, r := range runs {
		at[i] = r.at
	}
	slices.SortFunc(at, time.Time.Compare)
	most, first := 0, 0
	for i := range at {
		for at[i].Sub(at[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Three tenants at the pace that they are given, or share: no job is turned away, no second holds more than rate and burst, and it takes as long as
// the rate says.
func TestBulkRate_ThreeTenants(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, rates             string
		rate, global, perTenant float64 // rate is what each should get
		burst                   float64 // 0: what it is unless it is configured
		n                       int
	}{
		{"each its own rate", "{global: 5000, per_tenant: 250}", 250, 5000, 250, 0, sized(1500, 5000)},
		{"a share of one rate", "{global: 750}", 250, 750, 0, 0, sized(1500, 5000)},
		// With a burst of one, every start that is late by a little is late for good.
		{"each its own slow rate", "{per_tenant: 10}", 10, 10_000, 10, 0, sized(80, 600)},
		{"each its own slow rate and a burst of two", "{per_tenant: 10, burst: 2}", 10, 10_000, 10, 2, sized(80, 600)},
		{"a share of one slow rate", "{global: 30}", 10, 30, 0, 0, sized(80, 600)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			rate, n := row.rate, row.n
			f := newFarm(t, fmt.Sprintf("rate: %s\nworker: {count: 100}", row.rates))
			w := f.worker()
			tenants := []string{"ann", "bob", "cyd"}
			for _, tenant := range tenants {
				w.ask(http.MethodPost, "/v1/groups", fmt.Sprintf(`{"id":%q,"tenant":%q,"type":"webhook","start":"sealed"}`, tenant, tenant)).want(http.StatusCreated)
				w.ask(http.MethodPost, "/v1/groups/"+tenant+"/jobs", jobLines(n)).want(http.StatusOK)
			}
			starts := startMeter(t, w, tenants...)
			var all sync.WaitGroup
			for _, tenant := range tenants {
				all.Go(func() { w.ask(http.MethodPost, "/v1/groups/"+tenant+"/seal", "") })
			}
			all.Wait()
			var began, ended time.Time
			for _, tenant := range tenants {
				g := w.completes(tenant)
				if g.Throttles != 0 || g.Succeeded != n {
					t.Errorf("%+v", g)
				}
				if began.IsZero() || g.SealedAt.Before(began) {
					began = g.SealedAt
				}
				if g.FinishedAt.After(ended) {
					ended = g.FinishedAt
				}
				once(t, f.to.of(tenant), n)
			}
			took, ideal := ended.Sub(began), time.Duration(float64(n)/rate*float64(time.Second))
			t.Logf("%d jobs of each took %s, ideal %s: %+.1f %%", n, took, ideal, 100*(took.Seconds()/ideal.Seconds()-1))
			// What the burst gives at once is all that it may be ahead; the first ones wait for nothing.
			if least := ideal - time.Duration((max(1, rate/10, row.burst)+3)/rate*float64(time.Second)); took < least {
				t.Errorf("it took %s, less than the rate allows", took)
			}
			limit := func(rate float64) rated {
				if row.burst > 0 {
					return rated{time.Time{}, rate, row.burst}
				}
				return gcra(time.Time{}, rate)
			}
			starts.judge("all", -1, limit(row.global))
			for i, tenant := range tenants {
				if row.perTenant > 0 {
					starts.judge(tenant, i, limit(row.perTenant))
				}
				t.Logf("%s: at most %d requests came in a second", tenant, densest(f.to.of(tenant)))
			}
		})
	}
}

// Nine small tenants beside a big one: each gets its share, and waits for no more of the big one than for any other.
func TestBulkFairness_SmallBesideLarge(t *testing.T) {
	t.Parallel()
	const rate, small, tenants = 400, 150, 10
	f := newFarm(t, fmt.Sprintf("rate: {global: %d}\nworker: {count: 20}\nfair_queue: {by: starts}", rate)) // the bound below is of starts, whatever each takes
	w := f.worker()
	w.submit("big", "big", sized(30_000, 100_000))
	within(t, patience, "the big one runs", func() bool { return f.to.count() > 50 })
	for i := 1; i < tenants; i++ {
		w.submit(fmt.Sprint("small", i), fmt.Sprint("small", i), small)
	}
	fair := time.Duration(float64(small*tenants) / rate * float64(time.Second))
	var worst time.Duration
	for i := 1; i < tenants; i++ {
		g := w.completes(fmt.Sprint("small", i))
		worst = max(worst, g.FinishedAt.Sub(g.SealedAt))
	}
	t.Logf("the slowest small one took %s, its fair share takes %s: %.2f", worst, fair, worst.Seconds()/fair.Seconds())
	if g := w.group("big"); g.Status != "RUNNING" {
		t.Fatalf("the big one is no rival any more: %+v", g)
	}
	w.ask(http.MethodPost, "/v1/groups/big/cancel", "").want(http.StatusOK)

	// Fences are given in the order of the starts.
	runs := f.to.of("")
	slices.SortFunc(runs, func(a, b jobRun) int { return int(a.fence - b.fence) })
	first, last := map[string]int{}, map[string]int{}
	for i, r := range runs {
		if _, ok := first[r.group]; !ok {
			first[r.group] = i
		}
		last[r.group] = i
	}
	// One visit of the queue gives a group four jobs at most while ten are there; before, while few were, all that workers were free for.
	const visit, alone = 4, 20
	for i := 1; i < tenants; i++ {
		name := fmt.Sprint("small", i)
		served := map[string]int{}
		for _, r := range runs[first[name] : last[name]+1] {
			served[r.group]++
		}
		if served[name] != small {
			t.Errorf("%s started %d jobs, want %d", name, served[name], small)
		}
		for rival, n := range served {
			if n > small+visit+alone {
				t.Errorf("while %s started its %d jobs, %s started %d", name, small, rival, n)
			}
		}
	}
}

// Who does the jobs turns away what is too much: no try is spent on it, one refusal stands for all jobs of the group, and every
// job is done in the end.
func TestBulkDownstream_Busy(t *testing.T) {
	t.Parallel()
	const n, workers, capacity = 300, 8, 100
	f := newFarm(t, fmt.Sprintf("rate: {global: 1000}\nworker: {count: %d}\ncongestion: {base_backoff: 200ms}", workers))
	var mu sync.Mutex
	var refusals int
	took := map[int64]int{} // by second
	f.to.answer = func(w http.ResponseWriter, _ *http.Request, run jobRun) {
		mu.Lock()
		defer mu.Unlock()
		if took[run.at.Unix()] < capacity {
			took[run.at.Unix()]++
			return
		}
		refusals++
		w.Header().Set("Retry-After", "1")
		http.Error(w, "later", http.StatusTooManyRequests)
	}
	w := f.worker()
	w.submit("acme", "g", n)
	g := w.completes("g")
	for job, of := range byJob(t, f.to.of("g"), n) {
		if last := of[len(of)-1]; last.attempt != 1 {
			t.Errorf("a try was spent on job %s: %+v", job, of)
		}
	}
	for id, o := range w.results("g", n) {
		if o.Status != "succeeded" || o.Attempts != 1 {
			t.Errorf("job %s: %+v", id, o)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d refusals of %d jobs, %.3f a job", refusals, n, g.Throttles)
	if counted := int(g.Throttles*n + 0.5); counted != refusals {
		t.Errorf("%d refusals are counted, %d were given", counted, refusals)
	}
	// Each time only those who were on their way are turned away.
	if most := (n/capacity + 2) * 2 * workers; refusals > most {
		t.Errorf("%d refusals, want at most %d", refusals, most)
	}
}
