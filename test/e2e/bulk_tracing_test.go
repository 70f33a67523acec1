package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
)

const (
	submitterTrace = "0af7651916cd43dd8448eb211c80319c"
	submitterSpan  = "b7ad6b7169203331"
)

// submitted is the trace context of a submitter who traces.
var submitted = headers{"traceparent": "00-" + submitterTrace + "-" + submitterSpan + "-01", "tracestate": "a=1"}

// parents records the traceparent of each request to a receiver of jobs.
type parents struct {
	mu     sync.Mutex
	all    map[string]string // by job and attempt
	states map[string]string // tracestate, likewise
}

func (p *parents) note(r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all, p.states = map[string]string{}, map[string]string{}
	}
	run := r.Header.Get("X-Bulk-Job") + " " + r.Header.Get("X-Bulk-Attempt")
	p.all[run], p.states[run] = r.Header.Get("Traceparent"), r.Header.Get("Tracestate")
}

// state returns the tracestate of a run of a job.
func (p *parents) state(run string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.states[run]
}

// of returns the traceparent of a run of a job, as "job attempt".
func (p *parents) of(run string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[run]
}

// A job's run follows the span of its submission, in a process that was not asked for it and on its second try, and its webhook carries
// the trace on. A job that workers lease brings the trace along.
func TestBulkTracing_FollowsSubmitter(t *testing.T) {
	t.Parallel()
	to := newOTLP(t)
	f := newFarm(t, fmt.Sprintf("tracing: {otlp_endpoint: %q, sample: 0}\nworker: {max_retries: 3}", to.URL))
	f.processors = ", crawl: {kind: pull}"
	var seen parents
	f.to.answer = func(w http.ResponseWriter, r *http.Request, run jobRun) {
		seen.note(r)
		if run.job == "second" && run.attempt == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	w := f.worker()
	lines := `{"id":"first","payload":1}` + "\n" + `{"id":"second","payload":2}` + "\n" + `{"id":"pulled","type":"crawl","payload":3}` + "\n"
	w.ask(http.MethodPost, "/v1/bulk?type=webhook&tenant=acme&id=g", lines, submitted).want(http.StatusCreated)
	w.submit("acme", "untraced", 1)
	single := into[struct{ ID string }](w.ask(http.MethodPost, "/v1/jobs", `{"tenant":"acme","type":"webhook","payload":1}`,
		submitted, headers{"Content-Type": "application/json"}).want(http.StatusAccepted))
	lease := into[struct {
		Jobs []struct{ ID, Lease, TraceParent, TraceState string }
	}](w.ask(http.MethodPost, "/v1/work/lease", `{"worker":"w","types":["crawl"],"max":1,"wait":30}`, headers{"Content-Type": "application/json"}).want(http.StatusOK))
	if len(lease.Jobs) != 1 {
		t.Fatalf("%+v", lease)
	}
	w.ask(http.MethodPost, "/v1/work/ack", fmt.Sprintf(`{"jobs":[{"lease":%q,"verdict":"done"}]}`, lease.Jobs[0].Lease), headers{"Content-Type": "application/json"}).want(http.StatusOK)
	w.completes("g")
	w.completes("untraced")

	server := func(route string) received {
		return to.one(route, func(s received) bool {
			return s.Name == "POST "+route && s.trace() == submitterTrace && s.parent() == submitterSpan
		})
	}
	upload, alone := server("/v1/bulk"), server("/v1/jobs")
	upload.wants(t, map[string]string{"http.route": "/v1/bulk", "anteroom.group": "g", "messaging.batch.message_count": "3", "messaging.operation.type": "send"})
	run := func(job, attempt string, of received) received {
		s := to.one("the run of "+job, func(s received) bool {
			return s.Name == "process webhook" && s.attribute("messaging.message.id") == job && s.attribute("anteroom.attempt") == attempt
		})
		if s.Kind != trace.Span_SPAN_KIND_CONSUMER || s.trace() != submitterTrace || s.parent() != of.id() {
			t.Errorf("%v of %s has the parent %s", s, job, s.parent())
		}
		call := to.one("the call of "+job, func(c received) bool { return c.parent() == s.id() })
		if got, want := seen.of(job+" "+attempt), "00-"+submitterTrace+"-"+call.id()+"-01"; got != want || call.Kind != trace.Span_SPAN_KIND_CLIENT {
			t.Errorf("the webhook of %s received %q, want %q", job, got, want)
		}
		return s
	}
	run("first", "1", upload).wants(t, map[string]string{"anteroom.tenant": "acme", "anteroom.group": "g", "anteroom.verdict": "done", "messaging.destination.name": "webhook"})
	run("second", "1", upload).wants(t, map[string]string{"anteroom.verdict": "retry", "error.type": "http_500"})
	run("second", "2", upload)
	run(single.ID, "1", alone)
	leased := to.one("the lease", named("receive crawl"))
	if leased.parent() != upload.id() || lease.Jobs[0].TraceParent != "00-"+submitterTrace+"-"+leased.id()+"-01" || lease.Jobs[0].TraceState != "a=1" {
		t.Errorf("%v has the parent %s; the worker received %q, %q", leased, leased.parent(), lease.Jobs[0].TraceParent, lease.Jobs[0].TraceState)
	}
	if got := seen.state("first 1"); got != "a=1" || leased.TraceState != "a=1" {
		t.Errorf("the webhook received the tracestate %q, the span has %q", got, leased.TraceState)
	}
	if got := seen.of("j0 1"); got != "" {
		t.Errorf("the webhook of a job that nobody traces received %q", got)
	}
	figures := w.ask(http.MethodGet, "/metrics", "", headers{"Accept": "application/openmetrics-text; version=1.0.0"}).body
	if !strings.Contains(figures, `# {trace_id="`+submitterTrace+`"}`) {
		t.Errorf("no exemplar in\n%s", figures)
	}
}

// Without a collector the submitter's own trace context reaches the webhook.
func TestBulkTracing_OffPassesTracesOn(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "")
	var seen parents
	f.to.answer = func(_ http.ResponseWriter, r *http.Request, _ jobRun) { seen.note(r) }
	w := f.worker()
	w.ask(http.MethodPost, "/v1/bulk?type=webhook&tenant=acme&id=g", jobLines(1), submitted).want(http.StatusCreated)
	w.ask(http.MethodPost, "/v1/bulk?type=webhook&tenant=acme&id=h", `{"id":"k","payload":1}`, headers{"traceparent": "00-" + submitterTrace + "-" + submitterSpan + "-00"}).want(http.StatusCreated)
	w.completes("g")
	w.completes("h")
	if got := seen.of("j0 1"); got != submitted["traceparent"] {
		t.Errorf("the webhook received %q, want %q", got, submitted["traceparent"])
	}
	if got := seen.of("k 1"); got != "" {
		t.Errorf("the webhook of a submission that is not sampled received %q", got)
	}
}

// A batch links to the submissions of its jobs.
func TestBulkTracing_BatchLinksToSubmissions(t *testing.T) {
	t.Parallel()
	to := newOTLP(t)
	var got string
	receiver := http.NewServeMux()
	receiver.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Traceparent")
		_, _ = w.Write([]byte(`[{"id":"j0","verdict":"done"},{"id":"j1","verdict":"done"}]`))
	})
	f := newFarm(t, fmt.Sprintf("tracing: {otlp_endpoint: %q, sample: 0}", to.URL))
	f.to.Config.Handler = receiver
	f.processors = fmt.Sprintf(", many: {kind: webhook, url: %q, batching: {max: 2, wait: 5s}}", f.to.URL)
	w := f.worker()
	w.ask(http.MethodPost, "/v1/bulk?type=many&tenant=acme&id=g", jobLines(2), submitted).want(http.StatusCreated)
	w.completes("g")
	upload := to.one("the upload", named("POST /v1/bulk"))
	batch := to.one("the batch", named("process many"))
	if len(batch.Links) != 2 || !batch.linksTo(upload) || batch.trace() == submitterTrace {
		t.Errorf("%v links to %v", batch, batch.Links)
	}
	call := to.one("the call", func(s received) bool { return s.parent() == batch.id() })
	if want := "00-" + batch.trace() + "-" + call.id() + "-01"; got != want {
		t.Errorf("the webhook received %q, want %q", got, want)
	}
}

// The callback of a group follows the request that created it, with a span for each try; without a collector it gets the creator's own context.
func TestBulkTracing_CallbackFollowsCreation(t *testing.T) {
	t.Parallel()
	to := newOTLP(t)
	calls := make(chan http.Header, 10)
	var refuse atomic.Int32
	team := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		calls <- r.Header
	}))
	t.Cleanup(team.Close)
	allow := fmt.Sprintf("callbacks: {allow: [%q]}\n", strings.TrimPrefix(team.URL, "http://"))
	call := func() http.Header {
		t.Helper()
		select {
		case h := <-calls:
			return h
		case <-time.After(patience):
			t.Fatal("no callback")
			return nil
		}
	}
	spec := fmt.Sprintf(`{"id":"g","tenant":"acme","type":"webhook","callback_url":%q}`, team.URL+"/done")
	finish := func(w *bulkWorker) {
		w.ask(http.MethodPost, "/v1/groups", spec, submitted, headers{"Content-Type": "application/json"}).want(http.StatusCreated)
		w.ask(http.MethodPost, "/v1/groups/g/jobs", jobLines(1)).want(http.StatusOK)
		w.ask(http.MethodPost, "/v1/groups/g/seal", "").want(http.StatusOK)
	}

	refuse.Store(1)
	finish(newFarm(t, allow+fmt.Sprintf("tracing: {otlp_endpoint: %q, sample: 0}", to.URL)).worker())
	created := to.one("the creation", named("POST /v1/groups"))
	if created.trace() != submitterTrace || created.parent() != submitterSpan || created.attribute("anteroom.group") != "g" {
		t.Errorf("%v has the parent %s", created, created.parent())
	}
	for _, want := range []map[string]string{
		{"anteroom.attempt": "1", "anteroom.verdict": "retry", "error.type": "callback"},
		{"anteroom.attempt": "2", "anteroom.verdict": "done", "anteroom.group": "g", "anteroom.state": "COMPLETED"},
	} {
		header := call()
		try := to.one("a try of the callback", func(s received) bool {
			return s.Name == "callback webhook" && s.attribute("anteroom.attempt") == want["anteroom.attempt"]
		})
		try.wants(t, want)
		sent := to.one("its request", func(s received) bool { return s.parent() == try.id() })
		if got := header.Get("Traceparent"); try.parent() != created.id() || got != "00-"+submitterTrace+"-"+sent.id()+"-01" || header.Get("Tracestate") != "a=1" {
			t.Errorf("%v has the parent %s; the receiver got %q, %q", try, try.parent(), got, header.Get("Tracestate"))
		}
	}

	finish(newFarm(t, allow).worker())
	if header := call(); header.Get("Traceparent") != submitted["traceparent"] || header.Get("Tracestate") != "a=1" {
		t.Errorf("without a collector the receiver got %v", header)
	}
}
