package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// chainedGroup is a group of a chain, and what has to become of it.
type chainedGroup struct {
	id, when, extra string // extra: further fields of its creation
	after           []string
	jobs            int
	bad             bool // its jobs fail
	want            string
}

// Chains over three servers, through kills of workers and faults of the servers: each group starts or is skipped as its condition
// requires, and no job starts before the groups ahead of it have ended.
func TestBulkWorker_ChainsOverShardsSurviveKills(t *testing.T) {
	t.Parallel()
	var servers []*redistest.PrivateServer
	var urls []string
	for range 3 {
		s := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
		servers, urls = append(servers, s), append(urls, fmt.Sprintf("%q", s.URL()))
	}
	f := newFarmOn(t, servers[0], fmt.Sprintf("{urls: [%s], timeout: %s}", strings.Join(urls, ", "), slowStore), "shards: 3\nworker: {count: 8, lease: 4s}")
	f.to.answer = func(w http.ResponseWriter, r *http.Request, run jobRun) {
		if strings.HasPrefix(run.group, "bad") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		held(20*time.Millisecond)(w, r, run)
	}
	all := []chainedGroup{
		{id: "split", extra: `,"split":3`, jobs: 90},
		{id: "good", jobs: 5},
		{id: "bad", jobs: 5, bad: true},
	}
	first := []string{"split", "good", "bad"}
	for i, when := range []string{"on_success", "on_failure", "on_end"} {
		for k := range 6 {
			after := slices.Clone(first[:1+(i+k)%3])
			all = append(all, chainedGroup{id: fmt.Sprintf("%s-%d", when, k), when: when, after: after, jobs: 2})
		}
	}
	for k := range 6 {
		all = append(all, chainedGroup{id: fmt.Sprintf("last-%d", k), when: []string{"on_end", "on_failure"}[k%2], jobs: 2,
			after: []string{fmt.Sprintf("on_success-%d", k), fmt.Sprintf("on_failure-%d", (k+1)%6), fmt.Sprintf("on_end-%d", (k+2)%6)}})
	}
	pair := []*bulkWorker{f.worker(), f.worker()}
	// ask repeats a request until a worker answers it. A group that was skipped meanwhile takes no jobs and no seal.
	ask := func(method, path, body string) {
		t.Helper()
		within(t, bulkPatience(), path, func() bool {
			a, err := pair[0].try(method, path, body)
			if err == nil && a.code >= 400 && a.code < 500 && a.code != http.StatusConflict {
				t.Fatalf("%s: %d %s", path, a.code, a.body)
			}
			return err == nil && a.code < 500
		})
	}
	results := map[string]string{}
	for i := range all {
		g := &all[i]
		after, _ := json.Marshal(g.after)
		body := fmt.Sprintf(`{"id":%q,"tenant":"acme","type":"webhook"%s}`, g.id, g.extra)
		if len(g.after) > 0 {
			body = fmt.Sprintf(`{"id":%q,"tenant":"acme","type":"webhook","after":%s,"when":%q}`, g.id, after, g.when)
		}
		ask(http.MethodPost, "/v1/groups", body)
		if i == 3 || i == 12 { // in the middle of creations
			pair[1].kill()
			pair[1] = f.worker()
			pair[0], pair[1] = pair[1], pair[0]
		}
		completed := true
		for _, p := range g.after {
			completed = completed && results[p] == "COMPLETED"
		}
		switch {
		case len(g.after) > 0 && g.when != "on_end" && completed != (g.when == "on_success"):
			g.want = "CANCELLED"
		case g.bad:
			g.want = "FAILED"
		default:
			g.want = "COMPLETED"
		}
		results[g.id] = g.want
	}
	for _, g := range slices.Backward(all) {
		ask(http.MethodPost, "/v1/groups/"+g.id+"/jobs", jobLines(g.jobs))
		ask(http.MethodPost, "/v1/groups/"+g.id+"/seal", "")
	}
	// restarted kills a worker and starts another one, which takes as long as a fault lasts.
	restarted := func(i int) {
		pair[i].kill()
		pair[i] = f.worker()
	}
	for i, fault := range []func(){
		func() { servers[1].Stop(); restarted(0); servers[1].Cont() },
		func() { restarted(1) },
		func() { servers[2].Kill(); restarted(0); servers[2].Restart() },
		func() { servers[0].Kill(); servers[0].Restart(); restarted(1) },
	} {
		f.to.reached(t, 20*(i+1)) // the first groups have a hundred jobs
		fault()
	}
	for _, g := range all {
		got := pair[0].awaits(g.id, func(g bulkGroup) bool {
			return g.Status == "COMPLETED" || g.Status == "FAILED" || g.Status == "CANCELLED"
		})
		if got.Status != g.want {
			t.Errorf("%+v is %s", g, got.Status)
		}
	}
	for _, g := range all {
		runs := f.to.of(g.id)
		if (len(runs) > 0) != (g.want != "CANCELLED") {
			t.Errorf("%+v: its jobs ran %d times", g, len(runs))
		}
		for _, p := range g.after {
			before := f.to.of(p)
			if len(runs) > 0 && len(before) > 0 && before[len(before)-1].at.After(runs[0].at) {
				t.Errorf("a job of %s started before %s had ended", g.id, p)
			}
		}
	}
}
