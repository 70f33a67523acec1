package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// One 503 in a hundred delays the jobs that got it, and nobody else: beside a tenant that gets none, a tenant that does runs nine tenths as
// many jobs at least.
func TestBulkIncident_OneRefusalInAHundredCostsLittle(t *testing.T) {
	t.Parallel()
	n := sized(1500, 10_000)
	f := newFarm(t, "worker: {count: 20}")
	var refused sync.Map
	var refusals atomic.Int64
	f.to.answer = func(w http.ResponseWriter, _ *http.Request, run jobRun) {
		time.Sleep(5 * time.Millisecond)
		if run.group == "bad" && strings.HasSuffix(run.job, "00") {
			if _, again := refused.LoadOrStore(run.job, true); again {
				return
			}
			refusals.Add(1)
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}
	}
	w := f.worker()
	for _, id := range []string{"bad", "good"} {
		w.submit(id, id, n, "start=sealed")
	}
	for _, id := range []string{"good", "bad"} {
		if g := w.completes(id); g.Succeeded != n {
			t.Fatalf("%+v, want %d jobs that succeeded", g, n)
		}
	}
	if refusals.Load() < int64(n/100-1) {
		t.Errorf("%d refusals, want one in a hundred of %d", refusals.Load(), n)
	}
	ran := map[string]int{}
	for _, r := range f.to.of("") {
		if ran[r.group]++; ran["good"] == n*9/10 {
			break
		}
	}
	t.Logf("%d jobs of the tenant without refusals ran, and %d of the other", ran["good"], ran["bad"])
	if ran["bad"] < ran["good"]*9/10 {
		t.Errorf("while %d jobs of a tenant without refusals ran, %d of one with %d refusals did", ran["good"], ran["bad"], refusals.Load())
	}
	for _, o := range w.results("bad", n) {
		if o.Attempts != 1 {
			t.Errorf("job %s spent %d tries: a refusal spends none", o.ID, o.Attempts)
		}
	}
}

// A tenant whose jobs take a second leaves the workers to one whose jobs take five milliseconds, by the time that each has used.
func TestBulkIncident_ASlowTenantLeavesWorkersToAQuickOne(t *testing.T) {
	t.Parallel()
	const workers, jobs = 10, 500
	f := newFarm(t, "worker: {count: 10}")
	f.to.answer = func(_ http.ResponseWriter, r *http.Request, run jobRun) {
		d := 5 * time.Millisecond
		if run.group == "slow" {
			d = time.Second
		}
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	w := f.worker()
	w.submit("acme", "slow", 1000)
	w.awaits("slow", func(g bulkGroup) bool { return g.Succeeded >= workers })
	w.submit("beta", "quick", jobs)
	before := w.group("slow").Succeeded
	if g := w.completes("quick"); g.Succeeded != jobs {
		t.Errorf("%+v", g)
	}
	// Ten workers end ten slow jobs a second. With alternating starts the fast tenant would take fifty seconds.
	if during := w.group("slow").Succeeded - before; during > 5*workers {
		t.Errorf("the slow tenant ended %d jobs of a second while the quick one waited for %d of 5 ms", during, jobs)
	} else {
		t.Logf("the slow tenant ended %d jobs meanwhile", during)
	}
	w.ask(http.MethodPost, "/v1/groups/slow/cancel", "").want(http.StatusOK)
}

// While a new version with a new type of job is rolled out, the old processes leave that type to the new ones.
func TestBulkIncident_ARollingDeployBringsANewType(t *testing.T) {
	t.Parallel()
	const n = 1000
	f := newFarm(t, "worker: {count: 10}")
	old := f.worker()
	f.processors = fmt.Sprintf(", fax: {kind: webhook, url: %q, headers: {X-Worker: new}}", f.to.URL)
	next := f.worker()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"id":"j%d","type":"fax","payload":{}}`+"\n", i)
	}
	// The old process refuses the unknown type with a clear error, and no job is lost.
	next.ask(http.MethodPost, "/v1/bulk?tenant=acme&type=fax&id=fax", lines.String()).want(http.StatusCreated)
	old.submit("acme", "mixed", n)
	if g := next.completes("fax"); g.Succeeded != n {
		t.Errorf("%+v, want %d jobs that succeeded", g, n)
	}
	if g := old.completes("mixed"); g.Succeeded != n {
		t.Errorf("%+v, want %d jobs that succeeded", g, n)
	}
	for _, r := range f.to.of("fax") {
		if r.worker != "new" {
			t.Fatalf("job %s of the new type ran on %q", r.job, r.worker)
		}
	}
}

// A tenant with its own rate continues after its last group has ended and a new group is submitted.
func TestBulkIncident_ATenantWithARateLosesItsLastGroup(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "worker: {count: 5}\nretention: {jobs: 1s, groups: 1s, dead: 1s}")
	w := f.worker()
	w.ask(http.MethodPatch, "/v1/tenants/acme", `{"rate": 20}`).want(http.StatusOK)
	for _, id := range []string{"first", "second", "third"} {
		w.submit("acme", id, 30) // more than the burst: the tenant is gated when its last job has gone
		if g := w.completes(id); g.Succeeded != 30 {
			t.Fatalf("%+v", g)
		}
		within(t, patience, "group "+id+" is gone", func() bool {
			a, err := w.try(http.MethodGet, "/v1/groups/"+id, "")
			return err == nil && a.code == http.StatusNotFound
		})
	}
}
