package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/remote"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

type leasedJobs = bulktype.Leased[time.Time]

// leasedOf returns the jobs of a response to a lease.
func leasedOf(t *testing.T, w *httptest.ResponseRecorder) leasedJobs {
	t.Helper()
	want(t, w, 200)
	var v leasedJobs
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return v
}

// leasesOf returns the leases in a response.
func leasesOf(t *testing.T, w *httptest.ResponseRecorder) (all []string) {
	t.Helper()
	for _, j := range leasedOf(t, w).Jobs {
		all = append(all, j.Lease)
	}
	return all
}

// states returns the states in a response as "id state".
func states(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	want(t, w, 200)
	var v bulktype.LeaseStates
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	var all []string
	for _, j := range v.Jobs {
		all = append(all, j.ID+" "+j.State)
	}
	return strings.Join(all, ", ")
}

// begin runs the broker until the end of the test.
func (b *bench) begin() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		_ = b.broker.Run(ctx) // always nil
		close(done)
	}()
	stop = func() { cancel(); <-done }
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) submit(group string, n int) {
	b.t.Helper()
	want(b.t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id="+group, lines(n)), 201)
}

func (b *bench) lease(body string) leasedJobs {
	b.t.Helper()
	return leasedOf(b.t, b.ask("POST", "/v1/work/lease", body))
}

func TestWork_LeaseHasWhatAWorkerNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=g", `{"id":"j/1","payload":{"a":["<b>"]},"cost":3}`), 201)
	v := b.lease(`{"types":["mail"],"max":10}`)
	if len(v.Jobs) != 1 || v.LeaseSeconds != 30 {
		t.Fatalf("%+v", v)
	}
	j := v.Jobs[0]
	if got := fmt.Sprintln(j.ID, j.Group, j.Tenant, j.Type, j.Attempt, j.Cost, j.IdempotencyKey); got != "j/1 g acme mail 1 3 g/j/1\n" {
		t.Error(got)
	}
	if left := time.Until(j.LeaseUntil); left < 20*time.Second || left > 30*time.Second {
		t.Errorf("lease_until in %s", left)
	}
	var payload any
	if err := json.Unmarshal(j.Payload, &payload); err != nil || fmt.Sprint(payload) != "map[a:[<b>]]" {
		t.Errorf("payload %s: %v", j.Payload, err)
	}
	again := b.lease(`{"types":["mail"]}`)
	if len(again.Jobs) != 0 || again.Jobs == nil {
		t.Errorf("%+v", again)
	}
}

// Each verdict has the effect of the same answer to a webhook, once: a repeated one is stale.
func TestWork_Verdicts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 8)
	v := b.lease(`{"types":["mail"],"max":8}`)
	var jobs []string
	for i, verdict := range []string{`"result":{"n":1}`, `"verdict":"done"`, `"verdict":"retry","code":"no_disk","error":"full"`, `"verdict":"failed","code":"bad"`,
		`"verdict":"busy"`, `"verdict":"busy","retry_after":7200`, `"verdict":"returned"`} {
		jobs = append(jobs, `{"lease":"`+v.Jobs[i].Lease+`",`+verdict+`}`)
	}
	body := `{"jobs":[` + strings.Join(jobs, ",") + `]}`
	if got := states(t, b.ask("POST", "/v1/work/ack", body)); got != "j0 done, j1 done, j2 retry, j3 failed, j4 busy, j5 busy, j6 returned" {
		t.Error(got)
	}
	if got := states(t, b.ask("POST", "/v1/work/ack", body)); got != "j0 stale, j1 stale, j2 stale, j3 stale, j4 stale, j5 stale, j6 stale" {
		t.Error(got)
	}
	if got := states(t, b.ask("POST", "/v1/work/fail", `{"jobs":[{"lease":"`+v.Jobs[7].Lease+`"}]}`)); got != "j7 retry" {
		t.Error(got)
	}
	for id, want := range map[string]string{
		"j0": `status="succeeded" attempts=1 code=null`, "j2": `status="waiting" attempts=1 code=null`, "j3": `status="failed" attempts=1 code="bad"`,
		"j4": `status="waiting" attempts=0 code=null`, "j6": `status="pending" attempts=0 code=null`, "j7": `status="waiting" attempts=1 code=null`,
	} {
		job := decoded(t, b.ask("GET", "/v1/groups/g/jobs/"+id, ""))
		if got := strings.Join([]string{pick(job, "status"), pick(job, "attempts"), pick(job, "code")}, " "); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
		if next, _ := job["next_at"].(string); id == "j5" && next < time.Now().Add(time.Hour).UTC().Format(time.RFC3339) {
			t.Errorf("j5 is due at %s: retry_after does not count", next)
		}
	}
}

// A result that is too long is dropped, and the job succeeds: its work is done.
func TestWork_DropsLongResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 1)
	v := b.lease(`{"types":["mail"]}`)
	body := `{"jobs":[{"lease":"` + v.Jobs[0].Lease + `","result":"` + strings.Repeat("x", 65<<10) + `"}]}`
	if got := states(t, b.ask("POST", "/v1/work/ack", body)); got != "j0 done" {
		t.Error(got)
	}
	if job := b.ask("GET", "/v1/groups/g/jobs/j0", "").Body.String(); !strings.Contains(job, `"dropped":"result_too_large"`) {
		t.Error(job)
	}
}

func TestWork_ExtendTellsWhatBecameOfJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 3)
	v := b.lease(`{"types":["mail"],"max":3}`)
	want(t, b.ask("POST", "/v1/groups/g/jobs/j1/cancel", ""), 202)
	want(t, b.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+v.Jobs[2].Lease+`"}]}`), 200)
	body := `{"leases":["` + v.Jobs[0].Lease + `","` + v.Jobs[1].Lease + `","` + v.Jobs[2].Lease + `"]}`
	if got := states(t, b.ask("POST", "/v1/work/extend", body)); got != "j0 held, j1 cancelled, j2 lost" {
		t.Error(got)
	}
	if got := states(t, b.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+v.Jobs[1].Lease+`","verdict":"returned"}]}`)); got != "j1 cancelled" {
		t.Error(got)
	}
}

func TestWork_RefusesByField(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	verdict := func(fields string) string { return `{"jobs":[{"lease":"` + someLease + `",` + fields + `}]}` }
	for _, row := range []struct{ path, body, field, problem string }{
		{"lease", `{}`, "types", "is missing"},
		{"lease", `{"types":[]}`, "types", "has 0 elements"},
		{"lease", `{"types":"mail"}`, "types", "is not a list"},
		{"lease", `{"types":["mail","a b"]}`, "types", "has an element, the 2th, that is not allowed"},
		{"lease", `{"types":["mail","mail"]}`, "types", "has mail twice"},
		{"lease", `{"types":["mail"],"max":501}`, "max", "is out of range"},
		{"lease", `{"types":["mail"],"max":1.5}`, "max", "is not a whole number"},
		{"lease", `{"types":["mail"],"wait":61}`, "wait", "is out of range"},
		{"lease", `{"types":["mail"],"wait":"30s"}`, "wait", "is not a number"},
		{"lease", `{"types":["mail"],"worker":"a b"}`, "worker", "is not allowed"},
		{"lease", `{"types":["mail"],"worker":"a#b"}`, "worker", "is not allowed"},
		{"lease", `{"types":["mail"],"lost":["r"]}`, "worker", "is missing; request and lost are those of a worker"},
		{"lease", `{"types":["mail"],"batch":5}`, "batch", "is not a field of this request"},
		{"ack", `{}`, "jobs", "is missing"},
		{"ack", `{"jobs":[]}`, "jobs", "has 0 elements"},
		{"ack", `{"jobs":[7]}`, "jobs[0]", "is not a JSON object"},
		{"ack", `{"jobs":[{}]}`, "jobs[0].lease", "is missing"},
		{"ack", `{"jobs":[{"lease":"` + someLease + `"},{"lease":"x"}]}`, "jobs[1].lease", "is not a lease that this API has returned"},
		{"ack", verdict(`"verdict":"fine"`), "jobs[0].verdict", "is not a verdict"},
		{"ack", verdict(`"verdict":"retry","result":1`), "jobs[0].result", "belongs to the verdict done, and this is retry"},
		{"ack", verdict(`"code":"x"`), "jobs[0].code", "belongs to the verdicts retry, failed, busy or busy_group, and this is done"},
		{"ack", verdict(`"verdict":"retry","code":"Not So"`), "jobs[0].code", "is not allowed"},
		{"ack", verdict(`"verdict":"failed","retry_after":5`), "jobs[0].retry_after", "is given for a job that is not tried again; use the verdict retry"},
		{"ack", verdict(`"verdict":"retry","retry_after":86401`), "jobs[0].retry_after", "is out of range"},
		{"ack", verdict(`"verdict":"retry","down":1`), "jobs[0].down", "is not true or false"},
		{"ack", verdict(`"attempt":1`), "jobs[0].attempt", "is not a field of this request"},
		{"fail", verdict(`"verdict":"done"`), "jobs[0].verdict", "is no failure; send it to POST /v1/work/ack"},
		{"extend", `{"leases":["x"]}`, "leases[0]", "is not a lease that this API has returned"},
		{"extend", `{"leases":[` + strings.Repeat(`"x",`, 500) + `"x"]}`, "leases", "has 501 elements"},
	} {
		w := b.ask("POST", "/v1/work/"+row.path, row.body)
		wantCode(t, w, 422, "invalid")
		faults, _ := decoded(t, w)["problems"].([]any)
		if len(faults) == 0 {
			t.Errorf("%s %s: no problems", row.path, row.body)
			continue
		}
		first, _ := faults[0].(map[string]any)
		if first["path"] != row.field || first["problem"] != row.problem {
			t.Errorf("%s %.100s: %v", row.path, row.body, first)
		}
	}
	wantCode(t, b.ask("POST", "/v1/work/lease?wait=5", `{"types":["mail"]}`), 422, "invalid", "wait")
	wantCode(t, b.ask("GET", "/v1/work/lease", ""), 405, "method_not_allowed")
}

// A request waits for jobs and is answered when some are submitted.
func TestWork_WaitsForJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.begin()
	got := make(chan leasedJobs)
	for range 3 {
		go func() { got <- leasedOf(t, b.ask("POST", "/v1/work/lease", `{"types":["mail"],"max":5,"wait":60}`)) }()
	}
	b.submit("g", 11)
	sum := 0
	for range 3 {
		sum += len((<-got).Jobs)
	}
	if sum != 11 {
		t.Errorf("%d jobs leased, want 11", sum)
	}
}

// At a reload or shutdown requests that wait are answered at once, and none is leased a job later.
func TestWork_EndAnswersThoseThatWait(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bench, stop func()){
		"reload":   func(b *bench, _ func()) { b.server.Close() },
		"shutdown": func(_ *bench, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			stop := b.begin()
			got := make(chan leasedJobs)
			go func() {
				got <- leasedOf(t, b.ask("POST", "/v1/work/lease", `{"worker":"w","types":["mail"],"wait":60}`))
			}()
			until(t, func() bool { return b.broker.Waiting() == 1 })
			end(b, stop)
			if v := <-got; len(v.Jobs) != 0 {
				t.Errorf("%+v", v)
			}
			b.submit("g", 1)
			if name == "shutdown" {
				w := b.ask("POST", "/v1/work/lease", `{"types":["mail"]}`)
				wantCode(t, w, 503, "stopping")
				if w.Header().Get("Retry-After") != "1" {
					t.Error("no Retry-After")
				}
			}
			if p, err := b.store.Pull(t.Context(), 5); err != nil || len(p.Jobs) != 1 {
				t.Errorf("%+v %v: the job is leased to nobody", p, err)
			}
		})
	}
}

// until waits for a condition.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
		<-time.After(time.Millisecond)
	}
}

// brokenWriter is a connection that takes no response.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// The jobs of a response that cannot be sent return to their group, and no crash is counted.
func TestWork_DisconnectedWorkerHoldsNoJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 3)
	r := httptest.NewRequest("POST", "/v1/work/lease", strings.NewReader(`{"types":["mail"],"max":3}`))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	b.handler.ServeHTTP(brokenWriter{httptest.NewRecorder()}, r)
	p, err := b.store.Pull(t.Context(), 5)
	if err != nil || len(p.Jobs) != 3 || p.Jobs[0].Crashes != 0 || p.Jobs[0].Attempt != 1 {
		t.Fatalf("%+v %v", p, err)
	}
}

// A worker that disconnects while it waits is leased no job.
func TestWork_WorkerThatLeavesIsLeasedNoJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.begin()
	ctx, leave := context.WithCancel(t.Context())
	r := httptest.NewRequest("POST", "/v1/work/lease", strings.NewReader(`{"types":["mail"],"wait":60}`)).WithContext(ctx)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	done := make(chan struct{})
	go func() {
		b.handler.ServeHTTP(httptest.NewRecorder(), r)
		close(done)
	}()
	until(t, func() bool { return b.broker.Waiting() == 1 })
	leave()
	<-done
	b.submit("g", 1)
	if p, err := b.store.Pull(t.Context(), 5); err != nil || len(p.Jobs) != 1 {
		t.Errorf("%+v %v", p, err)
	}
}

// A response that the worker never received: the next request names it, here to another process, and gets the jobs.
func TestWork_LostResponseIsReclaimed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 5)
	kept := b.lease(`{"worker":"w","types":["mail"],"max":2,"request":"r1"}`)
	b.lease(`{"worker":"w","types":["mail"],"max":2,"request":"r2"}`) // lost
	v := b.lease(`{"worker":"w","types":["mail"],"max":5,"request":"r3","lost":["r2"]}`)
	if len(v.Jobs) != 3 {
		t.Errorf("%d jobs, want the two of the lost response and the last one", len(v.Jobs))
	}
	for _, j := range v.Jobs {
		if j.Attempt != 1 {
			t.Errorf("%+v", j)
		}
	}
	if got := states(t, b.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+kept.Jobs[0].Lease+`"}]}`)); got != kept.Jobs[0].ID+" done" {
		t.Errorf("%s: the jobs of another response were reclaimed", got)
	}
}

// Any process takes verdicts and extensions: the one that leased the jobs may be gone.
func TestWork_AnotherProcessTakesVerdicts(t *testing.T) {
	t.Parallel()
	shared := store.Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Settings: store.Defaults()}
	b, other := newBenchWith(t, shared), newBenchWith(t, shared)
	b.submit("g", 2)
	v := b.lease(`{"types":["mail"],"max":2}`)
	if got := states(t, other.ask("POST", "/v1/work/extend", `{"leases":["`+v.Jobs[0].Lease+`"]}`)); got != "j0 held" {
		t.Error(got)
	}
	if got := states(t, other.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+v.Jobs[0].Lease+`"},{"lease":"`+v.Jobs[1].Lease+`","verdict":"failed"}]}`)); got != "j0 done, j1 failed" {
		t.Error(got)
	}
}

// A token ends no leases of another token's workers by giving their name and their request as lost.
func TestWork_LostRequestsAreThoseOfTheToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=fax&id=g", lines(2)), 201)
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=h", lines(2)), 201)
	asMail := "Authorization: Bearer " + mailToken
	faxes := b.lease(`{"worker":"w","types":["fax"],"max":2,"request":"r1"}`)
	mails := leasesOf(t, b.ask("POST", "/v1/work/lease", `{"worker":"w","types":["mail"],"max":2,"request":"r2"}`, asMail))
	want(t, b.ask("POST", "/v1/work/lease", `{"worker":"w","types":["mail"],"max":0,"lost":["r1"]}`, asMail), 200)
	if got := states(t, b.ask("POST", "/v1/work/extend", `{"leases":["`+faxes.Jobs[0].Lease+`","`+faxes.Jobs[1].Lease+`"]}`)); got != "j0 held, j1 held" {
		t.Errorf("%s after another token listed the request as lost", got)
	}
	want(t, b.ask("POST", "/v1/work/lease", `{"worker":"w","types":["mail"],"max":0,"lost":["r2"]}`, asMail), 200)
	if got := states(t, b.ask("POST", "/v1/work/extend", `{"leases":["`+mails[0]+`"]}`, asMail)); got != "j0 lost" {
		t.Errorf("%s after the token itself listed the request as lost", got)
	}
}

// A lease is text that its holder can change, and the types of a token hold for the job and not for that text.
func TestWork_TypeOfAChangedLeaseDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asMail := func(path, body string) *httptest.ResponseRecorder {
		return b.ask("POST", path, body, "Authorization: Bearer "+mailToken)
	}
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=h", `{"id":"own","payload":1}`), 201)
	own := leasesOf(t, asMail("/v1/work/lease", `{"types":["mail"],"max":1}`))[0]
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=fax&id=g", lines(2)), 201)
	changed := func(lease string) string {
		h, err := remote.ParseHandle(lease)
		if err != nil {
			t.Fatal(err)
		}
		h.Type = "mail"
		return h.String()
	}
	v := b.lease(`{"types":["fax"],"max":2}`)
	for _, j := range v.Jobs {
		want(t, asMail("/v1/work/extend", `{"leases":["`+j.Lease+`"]}`), 403)
		want(t, asMail("/v1/work/ack", `{"jobs":[{"lease":"`+j.Lease+`"}]}`), 403)
	}
	if got := states(t, asMail("/v1/work/extend", `{"leases":["`+changed(v.Jobs[0].Lease)+`","`+own+`"]}`)); got != "j0 lost, own held" {
		t.Error(got)
	}
	if got := states(t, asMail("/v1/work/ack", `{"jobs":[{"lease":"`+changed(v.Jobs[0].Lease)+`"},{"lease":"`+own+`"},{"lease":"`+changed(v.Jobs[1].Lease)+`"}]}`)); got != "j0 stale, own done, j1 stale" {
		t.Error(got)
	}
	if got := states(t, asMail("/v1/work/fail", `{"jobs":[{"lease":"`+changed(v.Jobs[0].Lease)+`"}]}`)); got != "j0 stale" {
		t.Error(got)
	}
	if got := states(t, b.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+v.Jobs[0].Lease+`"},{"lease":"`+v.Jobs[1].Lease+`"}]}`)); got != "j0 done, j1 done" {
		t.Error(got)
	}
}

// GET /v1/workers lists a worker that pulls, and its jobs name it.
func TestWork_WorkersAreListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 2)
	b.lease(`{"worker":"thumbs-7","types":["mail"],"max":2,"request":"r"}`)
	if err := b.store.NotePullers(t.Context(), []store.Puller{{ID: "thumbs-7", Host: "192.0.2.1", Types: []string{"mail"}}}); err != nil {
		t.Fatal(err)
	}
	w := b.ask("GET", "/v1/workers?process=thumbs-7", "")
	want(t, w, 200)
	v := decoded(t, w)
	processes, _ := v["processes"].([]any)
	jobs, _ := v["jobs"].([]any)
	if len(processes) != 1 || len(jobs) != 2 {
		t.Fatalf("%s", w.Body)
	}
	process, _ := processes[0].(map[string]any)
	if got := pick(process, "id", "pulls", "busy", "types", "host"); got != `id="thumbs-7" pulls=true busy=2 types=["mail"] host="192.0.2.1"` {
		t.Error(got)
	}
	job := decoded(t, b.ask("GET", "/v1/groups/g/jobs/j0", ""))
	if got := pick(job, "status", "process"); got != `status="running" process="thumbs-7"` {
		t.Error(got)
	}
}

func TestWork_MissingWithoutBroker(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Work = nil })
	wantCode(t, b.ask("POST", "/v1/work/lease", `{"types":["mail"]}`), http.StatusNotFound, "not_found")
}
