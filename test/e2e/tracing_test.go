package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
)

// tracedSetup is a room behind a gateway that sends its traces to a collector.
func tracedSetup(t testing.TB, to *otlp, settings string, rooms ...string) setup {
	return setup{origin: newOrigin(t, nil).URL, rooms: rooms, more: fmt.Sprintf("tracing: {otlp_endpoint: %q, %s}\n", to.URL, settings)}
}

// ofServer returns a condition on the server span of a path.
func ofServer(path string) func(received) bool {
	return func(s received) bool {
		return s.Kind == trace.Span_SPAN_KIND_SERVER && s.attribute("url.path") == path
	}
}

// A visitor who waits, is admitted, claims and goes on to the origin leaves one trace of the ticket, and one of each request, with links
// between them.
func TestTracing_FollowsTicketToOrigin(t *testing.T) {
	t.Parallel()
	to := newOTLP(t)
	s := tracedSetup(t, to, "sample: 1, service_name: front-door", room("admission: {rate: 2, burst: 1}"))
	site := newOrigin(t, nil)
	s.origin = site.URL
	g := start(t, s)

	newClient(t, g).get(g, "/enter").want(http.StatusOK) // takes the burst
	c := newClient(t, g)
	joined := c.join(g)
	if joined.State != "waiting" {
		t.Fatalf("%v", joined)
	}
	token, pass := joined.Token, ""
	until(t, "the ticket is admitted", func() bool {
		got := c.poll(g, token)
		if got.Token != "" {
			token = got.Token
		}
		pass = got.Pass
		return got.State == "admitted"
	})
	c.get(g, "/sale?secret=1", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusOK)
	forwarded := site.last()

	_, claims := decode(t, token)
	raw, err := base64.RawURLEncoding.DecodeString(claims.Jti)
	if err != nil {
		t.Fatal(err)
	}
	ticket := func(name string) received {
		return to.one(name, func(s received) bool { return s.Name == name && s.trace() == hex.EncodeToString(raw) })
	}
	join, admission, claim := ticket("waiting_room join"), ticket("waiting_room admission"), ticket("waiting_room claim")
	if join.parent() != "" || admission.parent() != join.id() || claim.parent() != join.id() {
		t.Errorf("the parents are %q, %q and %q, want none and %q", join.parent(), admission.parent(), claim.parent(), join.id())
	}
	if admission.EndTimeUnixNano != claim.StartTimeUnixNano || admission.StartTimeUnixNano >= admission.EndTimeUnixNano {
		t.Errorf("admission %d to %d, claim from %d", admission.StartTimeUnixNano, admission.EndTimeUnixNano, claim.StartTimeUnixNano)
	}
	join.wants(t, map[string]string{"anteroom.room": "sale", "anteroom.ticket": claims.Jti, "anteroom.state": "waiting"})

	linked := func(path string) received {
		return to.await(1, path+" with a link to the ticket", func(s received) bool { return ofServer(path)(s) && s.linksTo(join) })[0]
	}
	took := linked("/.waiting-room/sale/tickets")
	took.wants(t, map[string]string{
		"http.request.method": "POST", "http.route": "/.waiting-room/{room}/tickets", "http.response.status_code": "201", "anteroom.room": "sale",
		"anteroom.outcome": "waiting", "anteroom.ticket": claims.Jti, "url.scheme": "http", "network.protocol.version": "1.1", "client.address": "127.0.0.1",
	})
	if took.Name != "POST /.waiting-room/{room}/tickets" || took.service != "front-door" || !join.linksTo(took) {
		t.Errorf("the join is %v, and its span links to %v", took, join.Links)
	}
	call := to.one("the call of the store", func(s received) bool { return s.parent() == took.id() && s.Name == "EVALSHA room_enter" })
	call.wants(t, map[string]string{"db.system.name": "redis", "db.operation.name": "EVALSHA", "db.stored_procedure.name": "room_enter", "db.operation.batch.size": "1"})
	var claiming received
	for _, s := range to.all(ofServer("/.waiting-room/sale/status")) {
		if claim.linksTo(s) {
			claiming = s
		}
	}
	if claiming.Span == nil || !claiming.linksTo(join) {
		t.Fatalf("no poll is linked with %v", claim)
	}
	to.one("the claim in the store", func(s received) bool { return s.parent() == claiming.id() && s.Name == "EVALSHA room_claim" })

	through := to.one("the request with a pass", ofServer("/sale"))
	through.wants(t, map[string]string{
		"anteroom.decision": "pass", "anteroom.outcome": "proxied", "anteroom.ticket": claims.Jti, "http.response.status_code": "200", "url.query": "", "http.route": "/",
	})
	exchange := to.one("the exchange with the origin", func(s received) bool { return s.parent() == through.id() })
	exchange.wants(t, map[string]string{"http.request.method": "GET", "http.response.status_code": "200", "anteroom.origin": "shop", "url.full": site.URL + "/sale"})
	if exchange.Kind != trace.Span_SPAN_KIND_CLIENT || exchange.StartTimeUnixNano < through.StartTimeUnixNano || exchange.EndTimeUnixNano > through.EndTimeUnixNano {
		t.Errorf("the exchange %v is not within %v", exchange, through)
	}
	if got, want := forwarded.Header.Get("Traceparent"), "00-"+exchange.trace()+"-"+exchange.id()+"-01"; got != want {
		t.Errorf("the origin received the traceparent %q, want %q", got, want)
	}

	figures := adminOf(t, g).openMetrics()
	if !strings.Contains(figures, `anteroom_request_seconds_bucket{outcome="proxied",room="sale"`) || !strings.Contains(figures, `# {trace_id="`+through.trace()+`"}`) ||
		!strings.Contains(figures, `anteroom_upstream_seconds_bucket{origin="shop"`) {
		t.Errorf("no exemplar of the trace %s in\n%s", through.trace(), figures)
	}
}

// Only a trusted proxy's trace context counts; a visitor's is neither continued nor forwarded.
func TestTracing_ContinuesTracesOfTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	const (
		sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	)
	for _, row := range []struct {
		name, proxies, parent string
		sample                int
		traced, continues     bool
		forwarded             string // traceparent at the origin; empty: none; span: that of the exchange
		state                 string // tracestate at the origin
	}{
		{"a trusted proxy that traces", "[127.0.0.1/32]", sampled, 0, true, true, "span", "a=1"},
		{"a trusted proxy that does not trace", "[127.0.0.1/32]", unsampled, 1, false, false, unsampled, "a=1"},
		{"a trusted proxy with a malformed field", "[127.0.0.1/32]", "00-zz", 1, true, false, "span", ""},
		{"a visitor who traces", "[]", sampled, 0, false, false, "", ""},
		{"a visitor who traces, sampled", "[]", sampled, 1, true, false, "span", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			to := newOTLP(t)
			s := tracedSetup(t, to, fmt.Sprint("sample: ", row.sample))
			site := newOrigin(t, nil)
			s.origin, s.more = site.URL, s.more+"trusted_proxies: "+row.proxies+"\n"
			g := start(t, s)
			newClient(t, g).get(g, "/a", headers{"traceparent": row.parent, "tracestate": "a=1"}).want(http.StatusOK)
			got := site.last().Header
			parent, state := strings.Join(got.Values("Traceparent"), ","), strings.Join(got.Values("Tracestate"), ",")
			g.end() // the spans are sent before the end
			spans := to.all(ofServer("/a"))
			if len(spans) > 0 != row.traced {
				t.Fatalf("spans: %v", spans)
			}
			want := row.forwarded
			if row.traced {
				exchange := to.one("the exchange", func(s received) bool { return s.parent() == spans[0].id() })
				want = "00-" + exchange.trace() + "-" + exchange.id() + "-01"
				if (spans[0].parent() == "b7ad6b7169203331") != row.continues || (spans[0].trace() == sampled[3:35]) != row.continues {
					t.Errorf("%v has the parent %q", spans[0], spans[0].parent())
				}
			}
			if parent != want || state != row.state {
				t.Errorf("the origin received %q and %q, want %q and %q", parent, state, want, row.state)
			}
		})
	}
}

// Without a collector a trace context is a header like any other.
func TestTracing_OffForwardsEverything(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, more: "trusted_proxies: []\n"})
	newClient(t, g).get(g, "/a", headers{"traceparent": "anything", "tracestate": "a=1"}).want(http.StatusOK)
	if h := site.last().Header; h.Get("Traceparent") != "anything" || h.Get("Tracestate") != "a=1" {
		t.Errorf("the origin received %v", h)
	}
}

// A reload turns tracing on, moves it to another collector and turns it off. A collector that fails costs spans only.
func TestTracing_IsReloaded(t *testing.T) {
	t.Parallel()
	one, two := newOTLP(t), newOTLP(t)
	fields := filepath.Join(tempDir(t), "headers")
	write(t, fields, "# of the collector\nAuthorization: Bearer abc\n")
	s := setup{origin: newOrigin(t, nil).URL, store: ownStore(tempDir(t))}
	g := start(t, s)
	c := newClient(t, g)
	use := func(settings string) {
		t.Helper()
		before := strings.Count(g.text(), `"configuration reloaded"`)
		next := s
		next.more = settings
		g.rewrite(next.yaml())
		g.signal(syscall.SIGHUP)
		until(t, "the configuration is reloaded", func() bool { return strings.Count(g.text(), `"configuration reloaded"`) > before })
	}
	c.get(g, "/off").want(http.StatusOK)
	use(fmt.Sprintf("tracing: {otlp_endpoint: %q, sample: 1, headers_file: %q}\n", one.URL, fields))
	c.get(g, "/one").want(http.StatusOK)
	if one.one("/one", ofServer("/one")); one.auth != "Bearer abc" {
		t.Errorf("the collector received the authorization %q", one.auth)
	}
	one.fail(http.StatusBadRequest)
	c.get(g, "/lost").want(http.StatusOK)
	until(t, "the failure is logged", func() bool { return strings.Contains(g.text(), "cannot export traces") })
	until(t, "the failure is counted", func() bool { return adminOf(t, g).metric(`anteroom_trace_spans_total{result="failed"} 2`) })
	use(fmt.Sprintf("tracing: {otlp_endpoint: %q, sample: 1}\n", two.URL))
	c.get(g, "/two").want(http.StatusOK)
	two.one("/two", ofServer("/two"))
	use("tracing: {}\n")
	c.get(g, "/three").want(http.StatusOK)
	g.end()
	for _, path := range []string{"/off", "/lost", "/three"} {
		if n := len(one.all(ofServer(path))) + len(two.all(ofServer(path))); n > 0 {
			t.Errorf("%s was traced", path)
		}
	}
}

// openMetrics returns the metrics of a gateway as a scraper gets them that asks for exemplars.
func (o *operator) openMetrics() string {
	o.t.Helper()
	a := o.ask(http.MethodGet, "/metrics", "", headers{"Accept": "application/openmetrics-text; version=1.0.0"})
	if !strings.HasPrefix(a.header.Get("Content-Type"), "application/openmetrics-text") {
		o.t.Errorf("the metrics are %q", a.header.Get("Content-Type"))
	}
	return a.body
}

// A scraper that asks for exemplars gets the same series as others.
func TestMetrics_AreSameInBothFormats(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(5, 5))}})
	newClient(t, g).get(g, "/a").want(http.StatusOK)
	w := newFarm(t, "").worker()
	w.submit("acme", "g", 1)
	w.completes("g")
	for name, text := range map[string][2]string{
		"gateway":    {adminOf(t, g).ask(http.MethodGet, "/metrics", "").body, adminOf(t, g).openMetrics()},
		"bulkworker": {w.ask(http.MethodGet, "/metrics", "").body, w.ask(http.MethodGet, "/metrics", "", headers{"Accept": "application/openmetrics-text; version=1.0.0"}).body},
	} {
		plain, open := seriesOf(text[0]), seriesOf(text[1])
		if len(plain) < 100 || !strings.HasSuffix(text[1], "# EOF\n") {
			t.Errorf("%s: %d series, and OpenMetrics ends in %q", name, len(plain), text[1][max(0, len(text[1])-20):])
		}
		for s := range plain {
			if !open[s] {
				t.Errorf("%s: OpenMetrics lacks %s", name, s)
			}
		}
		for s := range open {
			if !plain[s] {
				t.Errorf("%s: only OpenMetrics has %s", name, s)
			}
		}
	}
}

// seriesOf returns the names and labels in a text of metrics, without those of the Go runtime, which change by themselves. A bound of a
// bucket is a number: 1 and 1.0 are the same.
func seriesOf(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(line, " ")
		if ok && (strings.HasPrefix(name, "anteroom_") || strings.HasPrefix(name, "bulk_")) && !strings.Contains(name, "_created") {
			all[strings.Replace(name, `.0"`, `"`, 1)] = true
		}
	}
	return all
}

// A reload of the bulk worker turns tracing on.
func TestBulkTracing_IsReloaded(t *testing.T) {
	t.Parallel()
	to := newOTLP(t)
	f := newFarm(t, "")
	w := f.worker()
	w.submit("acme", "before", 1)
	w.completes("before")
	f.settings = fmt.Sprintf("tracing: {otlp_endpoint: %q, sample: 1, service_name: jobs}", to.URL)
	text, err := os.ReadFile(f.config("w1", f.store))
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.file, string(text))
	until(t, "the configuration is reloaded", func() bool {
		_ = w.cmd.Process.Signal(syscall.SIGHUP)
		return strings.Contains(w.text(), `"configuration reloaded"`)
	})
	w.submit("acme", "after", 1)
	w.completes("after")
	w.stop() // the spans are sent before the end
	if run := to.one("the run", named("process webhook")); run.service != "jobs" || run.attribute("anteroom.group") != "after" {
		t.Errorf("%v of %s", run, run.attribute("anteroom.group"))
	}
}

// A change by an operator whose client traces is a span of that trace, with the call of the store; a refused one shows its problem.
func TestTracing_CoversAdminAPI(t *testing.T) {
	t.Parallel()
	to := newOTLP(t)
	g := start(t, tracedSetup(t, to, "sample: 0", room("admission: {rate: 2, burst: 1}")))
	o := adminOf(t, g)
	o.ask(http.MethodPatch, "/admin/v1/rooms/sale", `{"rate":5}`).want(http.StatusOK)
	o.ask(http.MethodPatch, "/admin/v1/rooms/sale", `{"rate":7}`, submitted).want(http.StatusOK)
	o.ask(http.MethodPatch, "/admin/v1/rooms/sale", `{"rate":-1}`, submitted).want(http.StatusUnprocessableEntity)
	o.ask(http.MethodGet, "/healthz", "", submitted).want(http.StatusOK)

	change := func(status string) received {
		return to.one("the change with status "+status, func(s received) bool {
			return s.Kind == trace.Span_SPAN_KIND_SERVER && s.attribute("http.response.status_code") == status
		})
	}
	done := change("200")
	done.wants(t, map[string]string{
		"http.request.method": "PATCH", "http.route": "/admin/v1/rooms/{id}", "url.path": "/admin/v1/rooms/sale", "anteroom.room": "sale", "server.address": "127.0.0.1",
		"anteroom.operator": "local", "network.protocol.version": "1.1", "client.address": "",
	})
	if done.Name != "PATCH /admin/v1/rooms/{id}" || done.trace() != submitterTrace || done.parent() != submitterSpan {
		t.Errorf("%v has the parent %s", done, done.parent())
	}
	call := to.one("the call of the store", func(s received) bool { return s.parent() == done.id() && s.Name == "EVALSHA room_patch" })
	call.wants(t, map[string]string{"db.stored_procedure.name": "room_patch", "db.operation.batch.size": "1"})
	change("422").wants(t, map[string]string{"anteroom.problem": "invalid", "http.route": "/admin/v1/rooms/{id}"})
	g.end() // the spans are sent before the end
	if spans := to.all(func(s received) bool { return s.Kind == trace.Span_SPAN_KIND_SERVER }); len(spans) != 2 {
		t.Errorf("spans: %v", spans)
	}
}

// Each try to deliver an event is a span of the trace that the event's id names, and the receiver can continue it.
func TestTracing_FollowsWebhooks(t *testing.T) {
	t.Parallel()
	to := newOTLP(t)
	seen := make(chan http.Header, 10)
	var refuse atomic.Int32
	refuse.Store(1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		seen <- r.Header
	}))
	t.Cleanup(receiver.Close)
	secret := filepath.Join(tempDir(t), "webhook.secret")
	write(t, secret, "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\n")
	s := tracedSetup(t, to, "sample: 1", room("admission: {rate: 0.001, burst: 1}"))
	s.more += fmt.Sprintf("webhooks: [{name: crm, url: %q, secret_file: %q, allow_private: true, events: [room.queue.started]}]\n", receiver.URL, secret)
	g := start(t, s)
	c := newClient(t, g)
	for range 3 {
		c.join(g)
	}
	for _, want := range []map[string]string{
		{"anteroom.attempt": "1", "anteroom.verdict": "retry", "anteroom.webhook": "crm", "anteroom.room": "sale", "anteroom.event.type": "room.queue.started"},
		{"anteroom.attempt": "2", "anteroom.verdict": "delivered"},
	} {
		var header http.Header
		select {
		case header = <-seen:
		case <-time.After(patience):
			t.Fatal("no event")
		}
		try := to.one("a try", func(s received) bool {
			return s.Name == "deliver room.queue.started" && s.attribute("anteroom.attempt") == want["anteroom.attempt"]
		})
		try.wants(t, want)
		id := header.Get("webhook-id")
		if "msg_"+try.trace() != id || try.parent() != "" || try.attribute("anteroom.event.id") != id {
			t.Errorf("%v of the event %s has the parent %q", try, id, try.parent())
		}
		post := to.one("its request", func(s received) bool { return s.parent() == try.id() })
		if got := header.Get("Traceparent"); got != "00-"+try.trace()+"-"+post.id()+"-01" || post.Kind != trace.Span_SPAN_KIND_CLIENT {
			t.Errorf("the receiver got %q, and the span is %v", got, post)
		}
	}
}
