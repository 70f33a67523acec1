package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Cancelling a job or its group ends the requests in progress. Ended jobs can be retried and deleted.
func TestBulkCancel_EndsRequests(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "worker: {count: 3, lease: 1s, max_retries: 0}")
	// Its own timeout does not end a request within this test.
	f.processors = fmt.Sprintf(", slow: {kind: webhook, url: %q, timeout: 10m}", f.to.URL)
	var mended atomic.Bool
	var mu sync.Mutex
	closed := map[string]bool{} // jobs whose request was ended by the worker
	over := make(chan struct{})
	defer close(over)
	f.to.answer = func(w http.ResponseWriter, r *http.Request, run jobRun) {
		switch {
		case run.group == "held":
			select {
			case <-r.Context().Done():
				mu.Lock()
				closed[run.job] = true
				mu.Unlock()
			case <-over:
			}
		case !mended.Load():
			http.Error(w, "no such person", http.StatusUnprocessableEntity)
		}
	}
	ended := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(closed)
	}
	w := f.worker()
	command := func(code int, parts []string, args ...string) {
		t.Helper()
		got, out, errs := bulkCommand(t, "", append(args, "--server", w.url)...)
		if got != code {
			t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, code, out, errs)
		}
		for _, part := range parts {
			if !strings.Contains(out+errs, part) {
				t.Errorf("%v: no %q in\n%s%s", args, part, out, errs)
			}
		}
	}

	w.ask(http.MethodPost, "/v1/bulk?type=slow&tenant=acme&id=held", jobLines(5)).want(http.StatusCreated)
	f.to.reached(t, 3)
	first := f.to.of("held")[0].job
	command(0, []string{`"status": "running"`, `"cancelling": true`}, "cancel-job", "held", first)
	within(t, patience, "the request of a job that is cancelled is ended", func() bool { return ended() > 0 })
	f.to.reached(t, 4) // in its place
	mu.Lock()
	if len(closed) != 1 || !closed[first] {
		t.Errorf("the requests of %v were ended, want that of %s", closed, first)
	}
	mu.Unlock()
	command(0, []string{`"status": "cancelled"`}, "cancel-job", "held", first)
	command(0, []string{`"status": "cancelled"`}, "cancel-job", "held", "j4") // the last pending job
	command(1, []string{"wrong_state"}, "retry-job", "held", first)
	command(1, []string{"wrong_state"}, "delete", "held")
	command(0, []string{"CANCELLED"}, "cancel", "held")
	within(t, patience, "the requests of a group that is cancelled are ended", func() bool { return ended() == 4 })
	g := w.awaits("held", func(g bulkGroup) bool { return g.InFlight == 0 })
	if g.Status != "CANCELLED" || g.Cancelled != 5 || len(f.to.of("held")) != 4 {
		t.Errorf("cancelled, after %d runs: %+v", len(f.to.of("held")), g)
	}
	within(t, patience, "every job's outcome is written down", func() bool {
		return w.ask(http.MethodGet, "/v1/groups/held/result", "").code == http.StatusOK
	})
	command(0, []string{"held is gone"}, "delete", "held")
	command(1, []string{"not_found"}, "status", "held")

	w.submit("acme", "g", 1)
	w.awaits("g", func(g bulkGroup) bool { return g.Status == "FAILED" && g.Failed == 1 })
	mended.Store(true)
	command(0, []string{`"group": "g-r1"`}, "retry-job", "g", "j0")
	w.completes("g-r1")
	command(1, []string{"wrong_state"}, "cancel-job", "g-r1", "j0")
	for _, id := range []string{"g", "g-r1"} {
		command(0, []string{id + " is gone"}, "delete", id)
	}
}
