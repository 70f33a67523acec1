package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// A large group is paused, resumed and cancelled while another tenant's jobs run: each takes effect before its response.
func TestBulkControl_LargeGroup(t *testing.T) {
	t.Parallel()
	n := sized(30_000, 1_000_000)
	f := newFarm(t, "rate: {global: 600}\nworker: {count: 20}")
	w := f.worker()
	uploadMany(t, w, "acme", "big", n)
	w.submit("globex", "other", sized(2500, 30_000))
	f.to.reached(t, 200)

	// after looks, while the other tenant's jobs go on, for jobs of the big group that had not started by the answer. The store counts
	// those that had; their requests may come later on a busy machine.
	after := func(what string, g bulkGroup, answered time.Time) {
		t.Helper()
		others := len(f.to.of("other"))
		within(t, patience, "the other tenant's jobs go on", func() bool { return len(f.to.of("other")) >= others+150 })
		within(t, patience, "those that had started have ended", func() bool { return w.group("big").InFlight == 0 })
		worst, runs := -time.Hour, f.to.of("big")
		for _, r := range runs {
			worst = max(worst, r.at.Sub(answered))
		}
		t.Logf("%s of %d jobs: the last one came %s after the answer", what, n, worst.Round(100*time.Microsecond))
		if had := g.InFlight + g.Succeeded + g.Failed + g.Dead; len(runs) > had {
			t.Errorf("%s: %d jobs had started by the answer, now %d have", what, had, len(runs))
		}
	}
	order := func(what string) (bulkGroup, time.Time) {
		t.Helper()
		began := time.Now()
		g := into[bulkGroup](w.ask(http.MethodPost, "/v1/groups/big/"+what, "").want(http.StatusOK))
		answered := time.Now()
		t.Logf("%s was answered after %s", what, answered.Sub(began))
		return g, answered
	}

	g, answered := order("pause")
	if !g.Paused || g.Pending+g.Ready+g.NonReady+g.InFlight+g.done() != n {
		t.Errorf("paused: %+v", g)
	}
	after("pause", g, answered)
	ran := len(f.to.of("big"))
	if g, _ = order("resume"); g.Paused {
		t.Errorf("resumed: %+v", g)
	}
	within(t, patience, "it goes on", func() bool { return len(f.to.of("big")) > ran+50 })
	g, answered = order("cancel")
	if g.Status != "CANCELLED" || g.Cancelled != n-g.Succeeded-g.Failed-g.Dead-g.InFlight || g.Pending+g.Ready+g.NonReady != 0 {
		t.Errorf("cancelled: %+v", g)
	}
	if seen := w.group("big"); seen.Status != "CANCELLED" || seen.Cancelled+seen.InFlight+seen.Succeeded != n {
		t.Errorf("right after the cancel: %+v", seen)
	}
	after("cancel", g, answered)
	auditBulk(t, w.file) // beside the running worker
	// The group is cancelled immediately; its jobs are recorded afterwards, and then the result is available.
	within(t, bulkPatience(), "every job's outcome is written down", func() bool {
		result := w.ask(http.MethodGet, "/v1/groups/big/result", "")
		return result.code == http.StatusOK && into[struct{ Cancelled int }](result).Cancelled == g.Cancelled
	})
	did := map[string]int{}
	for _, o := range w.results("big", n) {
		did[o.Status]++
	}
	g = w.group("big")
	if did["cancelled"] != g.Cancelled || did["succeeded"] != g.Succeeded || g.done() != n {
		t.Errorf("outcomes %v, the group %+v", did, g)
	}
	once(t, f.to.of("big"), g.Succeeded)
	w.completes("other")
}

// In no second start more jobs than the rates of that time allow, also when workers are killed, jobs are recovered and redriven, and
// rates change.
func TestBulkRate_HoldsInEverySecond(t *testing.T) {
	t.Parallel()
	n := sized(900, 6000)
	f := newFarm(t, "rate: {global: 300, per_tenant: 120}\nworker: {count: 20, lease: 1s, max_retries: 0}")
	f.to.answer = func(w http.ResponseWriter, r *http.Request, run jobRun) {
		// A third of Cyd's first group becomes dead letters and is redriven.
		if run.group == "cyd" && run.fence%3 == 0 {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		held(15*time.Millisecond)(w, r, run)
	}
	a, b := f.worker(), f.worker()
	tenants := []string{"ann", "bob", "cyd"}
	for _, tenant := range tenants {
		a.ask(http.MethodPost, "/v1/groups", fmt.Sprintf(`{"id":%q,"tenant":%q,"type":"webhook","start":"sealed","failure_tolerance":"100%%"}`, tenant, tenant)).want(http.StatusCreated)
		a.ask(http.MethodPost, "/v1/groups/"+tenant+"/jobs", jobLines(n)).want(http.StatusOK)
	}
	starts := startMeter(t, b, tenants...)
	begin := time.Now()
	for _, tenant := range tenants {
		a.ask(http.MethodPost, "/v1/groups/"+tenant+"/seal", "").want(http.StatusOK)
	}
	all := []rated{gcra(begin, 300)}
	each := map[string][]rated{}
	for _, tenant := range tenants {
		each[tenant] = []rated{gcra(begin, 120)}
	}
	// change sets the limits. During the request the old or the new limits may be in force.
	change := func(limits []rated, rate float64, path, body string) []rated {
		t.Helper()
		began := time.Now()
		b.ask(http.MethodPatch, path, body).want(http.StatusOK)
		return append(limits, gcra(began, max(rate, limits[len(limits)-1].rate)), gcra(time.Now(), rate))
	}
	ran := func(part int) { t.Helper(); f.to.reached(t, part*3*n/20) }

	ran(2)
	a.kill()
	ran(4)
	all = change(all, 450, "/v1/limits", `{"global":450}`)
	ran(5)
	a = f.worker()
	ran(6)
	each["ann"] = change(each["ann"], 200, "/v1/tenants/ann", `{"rate":200}`)
	ran(7)
	starts.through(a)
	b.kill()
	b = a
	all = change(all, 150, "/v1/limits", `{"global":150}`)
	ran(9)
	each["bob"] = change(each["bob"], 30, "/v1/groups/bob", `{"rate":30}`)
	all = change(all, 600, "/v1/limits", `{"global":600}`)
	ran(11)
	each["bob"] = change(each["bob"], 120, "/v1/groups/bob", `{"rate":null}`)
	b.awaits("cyd", func(g bulkGroup) bool { return g.Status == "COMPLETED" })
	redriven := into[bulkGroup](b.ask(http.MethodPost, "/v1/groups/cyd/redrive", `{"rate":80}`).want(http.StatusCreated))
	if redriven.RedriveOf != "cyd" || redriven.Total != b.group("cyd").Dead || redriven.Total == 0 {
		t.Errorf("the redrive: %+v", redriven)
	}
	for _, group := range []string{"ann", "bob", redriven.ID} {
		b.completes(group)
	}
	starts.judge("all", -1, all...)
	for i, tenant := range tenants {
		starts.judge(tenant, i, each[tenant]...)
	}
	t.Logf("requests within a second: %d at most", densest(f.to.of("")))
	for _, tenant := range tenants {
		byJob(t, f.to.of(tenant), n)
		b.results(tenant, n)
	}
}
