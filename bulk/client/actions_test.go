package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// pull takes n jobs as a worker does.
func (s *server) pull(t testing.TB, n int) []store.Leased {
	t.Helper()
	pulled, err := s.store.Pull(t.Context(), n)
	if err != nil || len(pulled.Jobs) != n {
		t.Fatalf("pulled %+v, %v; want %d jobs", pulled, err, n)
	}
	return pulled.Jobs
}

// ack ends the run of a job.
func (s *server) ack(t testing.TB, j store.Leased, a store.Ack) {
	t.Helper()
	a.Key, a.Fence = j.Key, j.Fence
	if _, err := s.store.Ack(t.Context(), []store.Ack{a}); err != nil {
		t.Fatal(err)
	}
}

// lost serves the first request to a path, and drops its answer.
func lost(suffix string, asked *atomic.Int64) fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, suffix) && (r.Method == http.MethodPost || r.Method == http.MethodDelete) && asked.Add(1) == 1 {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// wantProblem checks that an error is a refusal of this code.
func wantProblem(t testing.TB, what string, err error, status int, code string) {
	t.Helper()
	if p, ok := errors.AsType[*Problem](err); !ok || p.Status != status || p.Code != code || p.Detail == "" {
		t.Errorf("%s: %v; want %d %s", what, err, status, code)
	}
}

// state describes a job's answer.
func state(j *JobState, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s cancelling=%t in %q", j.ID, j.Status, j.Cancelling, j.Group)
}

func TestCancelJob_WhereverItIs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := submit(t, c, GroupSpec{}, `{"id":"a","payload":1}
{"id":"b","payload":1}
{"id":"c","payload":1}
{"id":"d","payload":1,"run_at":"2100-01-01T00:00:00Z"}`)
	running := s.pull(t, 2)
	s.ack(t, running[1], store.Ack{Verdict: store.Done})
	for _, row := range []struct{ what, job, want string }{
		{"one that waits", "c", `c cancelled cancelling=false in ""`},
		{"one that was cancelled", "c", `c cancelled cancelling=false in ""`},
		{"one that waits for its run_at", "d", `d cancelled cancelling=false in ""`},
		{"one that runs", "a", `a running cancelling=true in ""`},
	} {
		if got := state(c.CancelJob(t.Context(), g.ID, row.job)); got != row.want {
			t.Errorf("%s: %s; want %s", row.what, got, row.want)
		}
	}
	_, err := c.CancelJob(t.Context(), g.ID, "b")
	wantProblem(t, "one that has succeeded", err, 409, "wrong_state")
	_, err = c.CancelJob(t.Context(), g.ID, "nobody")
	wantProblem(t, "no such job", err, 404, "not_found")
	_, err = c.CancelJob(t.Context(), "nobody", "a")
	wantProblem(t, "no such group", err, 404, "not_found")
	if states, err := s.store.Renew(t.Context(), []store.Lease{{Key: running[0].Key, Fence: running[0].Fence}}); err != nil || states[0] != store.LeaseCalled {
		t.Errorf("the worker of a cancelled job is told %v, %v", states, err)
	}
	s.ack(t, running[0], store.Ack{Verdict: store.Returned})
	if got := state(c.Job(t.Context(), g.ID, "a")); got != `a cancelled cancelling=false in ""` {
		t.Error(got)
	}
	s.work(t)
	if g := end(t, c, g.ID); g.Succeeded != 1 || g.Cancelled != 3 {
		t.Errorf("ended %+v", g)
	}
}

func TestRetryJob_NowOrInARedrive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := submit(t, c, GroupSpec{}, `{"id":"a","payload":1}
{"id":"b","payload":1}
{"id":"c","payload":1}`)
	running := s.pull(t, 2)
	s.ack(t, running[0], store.Ack{Verdict: store.Retry, Retries: 5, After: time.Hour})
	s.ack(t, running[1], store.Ack{Verdict: store.Rejected, Code: "http_400"})
	if got, want := state(c.RetryJob(t.Context(), g.ID, "a")), fmt.Sprintf("a pending cancelling=false in %q", g.ID); got != want {
		t.Errorf("one that waits for its next try: %s; want %s", got, want)
	}
	_, err := c.RetryJob(t.Context(), g.ID, "c")
	wantProblem(t, "one that waits for its turn", err, 409, "wrong_state")
	_, err = c.RetryJob(t.Context(), g.ID, "nobody")
	wantProblem(t, "no such job", err, 404, "not_found")
	again, err := c.RetryJob(t.Context(), g.ID, "b")
	if got, want := state(again, err), fmt.Sprintf("b pending cancelling=false in %q", g.ID+"-r1"); got != want {
		t.Fatalf("one that has failed: %s; want %s", got, want)
	}
	_, err = c.RetryJob(t.Context(), g.ID, "b")
	wantProblem(t, "one that was redriven", err, 409, "wrong_state")
	s.work(t)
	if as := end(t, c, again.Group); as.RedriveOf != g.ID || as.Total != 1 || as.Succeeded != 1 {
		t.Errorf("the redrive ended %+v", as)
	}
	if g := end(t, c, g.ID); g.Succeeded != 2 || g.Failed != 1 {
		t.Errorf("ended %+v", g)
	}
}

// The response to a retry is lost; the second request finds the result of the first.
func TestRetryJob_ThroughABadLine(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what   string
		ack    store.Ack
		suffix string // of the group that the job runs in
	}{
		{"at once", store.Ack{Verdict: store.Retry, Retries: 5, After: time.Hour}, ""},
		{"in a redrive", store.Ack{Verdict: store.Rejected, Code: "http_400"}, "-r1"},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := serve(t, lost("/retry", &asked))
			c := newClient(t, s.URL, Options{})
			g := submit(t, c, GroupSpec{}, `{"id":"a","payload":1}`)
			s.ack(t, s.pull(t, 1)[0], row.ack)
			got, want := state(c.RetryJob(t.Context(), g.ID, "a")), fmt.Sprintf("a pending cancelling=false in %q", g.ID+row.suffix)
			if got != want || asked.Load() != 2 {
				t.Errorf("%s, asked %d times; want %s", got, asked.Load(), want)
			}
		})
	}
}

func TestDelete_LeavesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := submit(t, c, GroupSpec{}, lines(1200)+`{"id":"bad","type":"refuse","payload":1}`)
	wantProblem(t, "one that has not ended", c.Delete(t.Context(), g.ID), 409, "wrong_state")
	wantProblem(t, "no such group", c.Delete(t.Context(), "nobody"), 404, "not_found")
	s.work(t)
	end(t, c, g.ID)
	if err := c.Delete(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	_, err := c.Group(t.Context(), g.ID)
	wantProblem(t, "the group afterwards", err, 404, "not_found")
	_, err = c.Job(t.Context(), g.ID, "bad")
	wantProblem(t, "its job afterwards", err, 404, "not_found")
	wantProblem(t, "once more", c.Delete(t.Context(), g.ID), 404, "not_found")
	if wrong, err := s.store.Audit(t.Context()); err != nil || len(wrong) > 0 {
		t.Errorf("audit: %v, %v", wrong, err)
	}
	create(t, c, GroupSpec{ID: g.ID}) // the id is free again
}

// The response to a delete is lost; the second request finds the group gone.
func TestDelete_ThroughUnreliableConnection(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := serve(t, lost("/gone", &asked))
	s.work(t)
	c := newClient(t, s.URL, Options{})
	end(t, c, submit(t, c, GroupSpec{ID: "gone"}, lines(3)).ID)
	if err := c.Delete(t.Context(), "gone"); err != nil || asked.Load() != 2 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
}
