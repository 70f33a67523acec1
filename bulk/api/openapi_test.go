package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// documented asks and compares each answer with api/openapi-bulk.yaml.
type documented struct {
	*bench
	document *openapi3.T
	router   routers.Router
	asked    map[string][]int // "GET /path/{template}" → statuses seen
}

func newDocumented(t *testing.T) *documented {
	t.Helper()
	text, err := os.ReadFile("../../api/openapi-bulk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	for _, kind := range []string{ndjson, "text/event-stream", "text/html"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.PlainBodyDecoder)
	}
	return &documented{newBench(t), document, router, map[string][]int{}}
}

func (d *documented) ask(status int, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	return d.check(status, method, path, body, headers, d.bench.ask(method, path, body, headers...))
}

// cut sends a body that stops with an error.
func (d *documented) cut(status int, method, path string, err error) {
	d.t.Helper()
	d.check(status, method, path, "", nil, d.bench.send(method, path, iotest.ErrReader(err)))
}

func (d *documented) check(status int, method, path, body string, headers []string, w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	d.t.Helper()
	t := d.t
	if w.Code != status {
		t.Fatalf("%s %s %.80s: %d, want %d: %s", method, path, body, w.Code, status, w.Body)
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	setHeaders(r, headers)
	r.Header.Set("Content-Type", "application/json")
	if takesLines(r.URL.Path) {
		r.Header.Set("Content-Type", ndjson)
	} else if body == "" {
		r.Header.Del("Content-Type")
	}
	route, params, err := d.router.FindRoute(r)
	if err != nil {
		t.Fatalf("%s %s is not documented: %v", method, path, err)
	}
	key := method + " " + route.Path
	d.asked[key] = append(d.asked[key], status)
	input := &openapi3filter.RequestValidationInput{Request: r, Route: route, PathParams: params,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if status < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
			t.Errorf("%s %s %s was taken, the document refuses it: %v", method, path, body, err)
		}
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: w.Code, Header: w.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	answer.SetBodyBytes(bytes.Clone(w.Body.Bytes()))
	if err := openapi3filter.ValidateResponse(t.Context(), answer); err != nil {
		t.Errorf("%s %s %s: %v", method, path, body, err)
	}
	return w
}

// takesLines reports whether a body for the path is NDJSON.
func takesLines(path string) bool {
	return strings.HasSuffix(path, "/jobs") && path != "/v1/jobs" || strings.HasPrefix(path, "/v1/bulk")
}

// lines checks every line of NDJSON, or every event's data, against a schema.
func (d *documented) lines(schema string, w *httptest.ResponseRecorder, want int) {
	d.t.Helper()
	n := 0
	for line := range strings.Lines(w.Body.String()) {
		if w.Header().Get("Content-Type") == "text/event-stream" {
			data, is := strings.CutPrefix(line, "data: ")
			if !is {
				continue
			}
			line = data
		}
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			d.t.Fatalf("%v in %s", err, line)
		}
		if err := d.document.Components.Schemas[schema].Value.VisitJSON(v); err != nil {
			d.t.Errorf("%s: %v", line, err)
		}
		n++
	}
	if n != want {
		d.t.Errorf("%d lines of %s, want %d: %s", n, schema, want, w.Body)
	}
}

// documentWork leases and ends jobs as a worker.
func (d *documented) documentWork() {
	d.t.Helper()
	d.ask(201, "POST", "/v1/bulk?tenant=acme&type=work&id=work", lines(6))
	d.ask(200, "POST", "/v1/work/lease", `{"worker":"w-1","types":["work"],"max":0}`)
	w := d.ask(200, "POST", "/v1/work/lease", `{"worker":"w-1","types":["work","other"],"max":6,"wait":2.5,"request":"r-1","lost":["r-0"]}`)
	leases := leasesOf(d.t, w)
	d.ask(200, "POST", "/v1/work/extend", `{"leases":["`+leases[0]+`","`+someLease+`"]}`)
	d.ask(200, "POST", "/v1/work/ack", `{"jobs":[{"lease":"`+leases[0]+`","result":{"a":1},"duration_ms":5},{"lease":"`+leases[1]+`","verdict":"returned"},{"lease":"`+someLease+`"}]}`)
	d.ask(200, "POST", "/v1/work/fail", `{"jobs":[{"lease":"`+leases[2]+`","code":"no_disk","error":"full","retry_after":60,"down":true},`+
		`{"lease":"`+leases[3]+`","verdict":"failed"},{"lease":"`+leases[4]+`","verdict":"busy"},{"lease":"`+leases[5]+`","verdict":"busy_group","retry_after":60}]}`)
	if err := d.store.NotePullers(d.t.Context(), []store.Puller{{ID: "w-1", Host: "192.0.2.1", Types: []string{"work"}, StartedAt: time.Now()}}); err != nil {
		d.t.Fatal(err)
	}
	d.server.running.at = time.Time{}
	d.ask(200, "GET", "/v1/workers", "")
	d.ask(200, "POST", "/v1/groups/work/cancel", "")
}

// Every response matches api/openapi-bulk.yaml, every response of the document occurs here at least once, and the document has every
// path that is served.
func TestServer_AnswersAsDocumented(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	const acme = "Authorization: Bearer " + acmeToken
	const spec = `{"id":"g","tenant":"acme","type":"mail","priority":"high","weight":2,"rate":500,"concurrency":3,"base_priority":7,"aggregate":"sum:a.b",` +
		`"failure_tolerance":"5.5%","stop_at":"2.5%","results":"all","callback_url":"https://example.com/done","start":"sealed"}`
	d.ask(201, "POST", "/v1/groups", spec)
	d.ask(200, "POST", "/v1/groups", spec, key+"k")
	d.ask(201, "POST", "/v1/groups", `{"tenant":"zoo","type":"a/b:c","failure_tolerance":3,"aggregate":{"op":"mean","field":"x"},"id":null}`)
	d.ask(409, "POST", "/v1/groups", `{"id":"g","tenant":"acme","type":"mail"}`)
	d.ask(200, "PATCH", "/v1/groups/g", `{"weight":1.5,"rate":null,"priority":"normal","concurrency":null,"base_priority":0}`)
	d.ask(200, "PATCH", "/v1/groups/g", `{"priority":null}`)
	for _, line := range []string{`{"id":"a","type":"mail","payload":{"x":[1]},"cost":3,"run_at":"2020-01-02T03:04:05Z"}`, `{"payload":null}`} {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if err := d.document.Components.Schemas["Job"].Value.VisitJSON(v); err != nil {
			t.Error(err)
		}
		d.ask(200, "POST", "/v1/groups/g/jobs", line+"\n{}\n")
	}
	d.ask(200, "POST", "/v1/groups/g/jobs", lines(5), key+"k")
	d.cut(400, "POST", "/v1/groups/g/jobs", errCut)
	d.ask(200, "POST", "/v1/groups/g/release", "")
	d.ask(200, "POST", "/v1/groups/g/pause", "")
	d.ask(200, "POST", "/v1/groups/g/resume", "{}")
	d.ask(409, "GET", "/v1/groups/g/result", "")
	d.ask(409, "POST", "/v1/groups/g/redrive", "")
	d.bench.send("POST", "/v1/groups/g/jobs", cut(lines(501)), key+"half")
	d.ask(409, "POST", "/v1/groups/g/seal", "")
	d.ask(200, "POST", "/v1/groups/g/jobs", lines(501), key+"half")
	d.ask(200, "POST", "/v1/groups/g/seal", "")
	d.ask(409, "POST", "/v1/groups/g/jobs", lines(1))
	if n := d.run(func(j store.Leased) store.Ack {
		if j.ID == "j7" {
			return buried(j)
		}
		return done(j)
	}); n != 503 {
		t.Fatalf("%d jobs ran", n)
	}
	d.ask(200, "GET", "/v1/congestion", "")
	if err := d.store.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.ask(200, "GET", "/v1/congestion/acme/history?minutes=5", "")
	d.lines("Outcome", d.ask(200, "GET", "/v1/groups/g/results", ""), 503)
	d.lines("Outcome", d.ask(200, "GET", "/v1/groups/g/results?status=failed,dead&code=unknown_type&cursor=", ""), 1)
	d.ask(200, "GET", "/v1/groups/g/jobs/j7", "")
	d.ask(404, "GET", "/v1/groups/g/jobs/nobody", "")
	d.lines("Letter", d.ask(200, "GET", "/v1/dead?group=g&limit=9", ""), 1)
	d.finish("g")
	d.ask(200, "GET", "/v1/groups/g", "")
	d.ask(200, "GET", "/v1/groups/g/result", "")
	d.lines("Group", d.ask(200, "GET", "/v1/groups/g/events", ""), 1)
	d.ask(204, "GET", "/v1/groups/g/events", "", "Last-Event-ID: end")
	d.ask(201, "POST", "/v1/groups/g/redrive", `{"rate":5}`)
	for _, row := range [][2]string{{"PATCH", ""}, {"POST", "/pause"}, {"POST", "/resume"}, {"POST", "/release"}, {"POST", "/cancel"}} {
		d.ask(409, row[0], "/v1/groups/g"+row[1], map[string]string{"PATCH": `{"weight":2}`}[row[0]])
	}
	d.ask(409, "POST", "/v1/groups/g/jobs/j0/cancel", "")
	d.ask(409, "POST", "/v1/groups/g/jobs/j0/retry", "")
	d.ask(409, "DELETE", "/v1/groups/g", "")
	d.ask(200, "POST", "/v1/groups/g-r1/cancel", "")
	d.ask(201, "POST", "/v1/bulk?tenant=acme&type=mail&id=one", lines(3))
	d.ask(200, "POST", "/v1/groups/one/jobs/j0/cancel", "")
	pulled, err := d.store.Pull(t.Context(), 2)
	if err != nil || len(pulled.Jobs) != 2 {
		t.Fatal(pulled, err)
	}
	d.ask(202, "POST", "/v1/groups/one/jobs/"+pulled.Jobs[0].ID+"/cancel", "{}")
	if _, err := d.store.Ack(t.Context(), []store.Ack{{Key: pulled.Jobs[0].Key, Fence: pulled.Jobs[0].Fence, Verdict: store.Returned},
		{Key: pulled.Jobs[1].Key, Fence: pulled.Jobs[1].Fence, Verdict: store.Retry, Retries: 9, After: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	d.ask(200, "POST", "/v1/groups/one/jobs/"+pulled.Jobs[1].ID+"/retry", "")
	d.run(buried)
	d.ask(201, "POST", "/v1/groups/one/jobs/"+pulled.Jobs[1].ID+"/retry", "")
	d.run(done)
	patience := d.server.deleteTime
	d.server.deleteTime = 0
	d.ask(202, "DELETE", "/v1/groups/one", "")
	d.server.deleteTime = patience
	d.ask(204, "DELETE", "/v1/groups/one", "")
	d.ask(200, "GET", "/v1/groups?limit=1&status=completed&tenant=acme", "")
	const job = `{"tenant":"acme","type":"mail","payload":{"to":"a"},"id":"reminder","delay":"24h","expires_at":"2090-01-01T00:00:00Z","priority":"low","cost":2,"unique":{"key":"k","for":"24h"}}`
	d.ask(202, "POST", "/v1/jobs", job)
	d.ask(200, "POST", "/v1/jobs", job)
	d.ask(202, "POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":null,"id":null,"start_at":"2090-01-01T00:00:00Z"}`, key+"k")
	const nightly = `{"id":"nightly","tenant":"acme","cron":"30 2 * * *","time_zone":"Europe/Berlin","overlap":"queue","catch_up":"all","paused":false,"expires_after":"2h","group":{"type":"mail","priority":"low","quiet_hours":{"from":"22:00","to":"06:00"}},"jobs":[{"id":"a","payload":1,"cost":2},{"payload":null}]}`
	d.ask(201, "POST", "/v1/schedules", nightly)
	d.ask(200, "POST", "/v1/schedules", nightly)
	d.ask(409, "POST", "/v1/schedules", strings.Replace(nightly, "30 2", "31 2", 1))
	d.ask(201, "POST", "/v1/schedules", `{"tenant":"acme","cron":"@hourly","job":{"type":"mail","payload":1}}`, key+"k")
	d.ask(200, "GET", "/v1/schedules?tenant=acme", "")
	d.ask(200, "GET", "/v1/schedules/nightly", "")
	d.ask(200, "PATCH", "/v1/schedules/nightly", `{"paused":true,"jobs":[{"payload":2}],"expires_after":null}`)
	d.ask(204, "DELETE", "/v1/schedules/nightly", "")
	d.bench.ask("POST", "/v1/schedules", `{"id":"g","tenant":"acme","cron":"@hourly","job":{"type":"mail","payload":1}}`)
	const later = `{"id":"later","tenant":"acme","type":"mail","start_at":"2090-01-01T00:00:00Z","expires_at":"2091-01-01T00:00:00Z","unique":{"key":"k","for":"1h"}}`
	d.ask(201, "POST", "/v1/groups", later)
	d.ask(200, "POST", "/v1/groups", strings.Replace(later, "later", "again", 1))
	d.ask(201, "POST", "/v1/groups", `{"id":"behind","tenant":"acme","type":"mail","after":["later"],"when":"on_failure","quiet_hours":{"from":"22:00","to":"08:00","time_zone":"Europe/Berlin"}}`)
	d.ask(200, "PATCH", "/v1/groups/later", `{"start_at":null,"expires_at":"2092-01-01T00:00:00Z"}`)
	d.ask(200, "POST", "/v1/bulk?tenant=acme&type=mail&unique="+url.QueryEscape(`{"key":"k","for":"1h"}`), lines(3))
	d.ask(200, "GET", "/v1/groups?limit=1", "")

	const bulk = "/v1/bulk?tenant=acme&type=mail&id=b&priority=low&weight=2&rate=5&concurrency=1&base_priority=1&aggregate=count&failure_tolerance=5%25&stop_at=10&results=failures&start=early&callback_url=http://x/"
	d.ask(201, "POST", bulk, lines(3)+"x\n", key+"k")
	d.ask(200, "POST", bulk, lines(3)+"x\n", key+"k")
	d.ask(422, "POST", bulk, "other", key+"k")
	d.ask(409, "POST", bulk, lines(3), key+"other")
	d.ask(201, "POST", "/v1/bulk?tenant=acme&type=mail", lines(3))
	d.cut(400, "POST", strings.Replace(bulk, "id=b", "id=cut", 1), errCut)

	d.ask(200, "GET", "/v1/limits", "")
	d.ask(200, "PATCH", "/v1/limits", `{"global":5,"per_tenant":2.5}`)
	d.ask(200, "PATCH", "/v1/limits", `{"global":null,"per_tenant":null}`)
	d.ask(200, "GET", "/v1/breakers", "")
	d.ask(404, "DELETE", "/v1/breakers?processor=mail", "")
	d.ask(422, "DELETE", "/v1/breakers?tenant=acme", "")
	d.bench.openBreaker("mail", "acme")
	d.ask(200, "GET", "/v1/breakers", "")
	d.ask(200, "DELETE", "/v1/breakers?processor=mail&tenant=acme", "")
	d.ask(200, "GET", "/v1/workers", "")
	d.ask(200, "GET", "/v1/workers?tenant=acme&group=g&type=mail&process=p&limit=5", "")
	d.documentWork()
	d.ask(200, "GET", "/v1/tenants/acme", "")
	d.ask(200, "PATCH", "/v1/tenants/acme", `{"weight":2.5,"rate":7}`)
	d.ask(200, "PATCH", "/v1/tenants/acme", `{"weight":null,"rate":null}`)
	d.ask(404, "GET", "/v1/tenants/nobody", "")
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		d.ask(200, "GET", path, "")
	}
	d.ask(200, "GET", "/", "")
	d.ready, d.healthy = false, http.ErrServerClosed
	d.ask(503, "GET", "/healthz", "")
	d.ask(503, "GET", "/readyz", "")

	// What is refused for its form.
	for _, r := range every {
		if r.method == "GET" || r.method == "DELETE" || takesLines(r.path) {
			continue
		}
		at := strings.Replace(r.path, "/z", "/g", 1)
		if strings.Contains(at, "tenants") {
			at = "/v1/tenants/zoo"
		}
		d.ask(400, r.method, at, `{`)
		d.cut(408, r.method, at, os.ErrDeadlineExceeded)
		most := maxBody
		if strings.HasPrefix(at, workPath) {
			most = maxWorkBody
		}
		d.ask(413, r.method, at, `{"x":"`+strings.Repeat("x", most)+`"}`)
		d.ask(415, r.method, at, r.body, "Content-Encoding: gzip")
		d.ask(422, r.method, at, `{"nothing":1}`)
	}
	for _, at := range []string{"/v1/groups/g-r1/jobs", "/v1/bulk?tenant=acme&type=mail"} {
		at = strings.Replace(at, "g-r1", "open", 1)
		d.bench.ask("POST", "/v1/groups", `{"id":"open","tenant":"acme","type":"mail"}`)
		d.cut(408, "POST", at, os.ErrDeadlineExceeded)
		d.ask(415, "POST", at, "", "Content-Encoding: br")
		d.ask(413, "POST", at, compressed(t, "zstd", strings.Repeat(" ", 3<<20)), "Content-Encoding: zstd")
		d.ask(422, "POST", at, lines(10_001))
	}
	for _, path := range []string{"/v1/groups?x=1", "/v1/groups/g/events?x=1", "/v1/groups/g/results?limit=x", "/v1/groups/g/results?status=lost", "/v1/groups/g/results?cursor=x", "/v1/groups/g/jobs/j7?x=1", "/v1/groups/g/result?x=1", "/v1/dead?group=", "/v1/congestion?x=1",
		"/v1/congestion/acme/history?minutes=x", "/v1/breakers?x=1", "/v1/workers?limit=x", "/v1/limits?x=1", "/v1/tenants/acme?x=1"} {
		d.ask(422, "GET", path, "")
	}
	d.ask(422, "DELETE", "/v1/groups/g?x=1", "")
	d.ask(422, "GET", "/v1/schedules?x=1", "")
	d.ask(422, "GET", "/v1/schedules/g?x=1", "")
	d.ask(422, "DELETE", "/v1/schedules/g?x=1", "")
	for _, path := range []string{"/v1/congestion/a%20b/history", "/v1/tenants/a%20b"} {
		d.ask(404, "GET", path, "")
	}
	d.ask(404, "PATCH", "/v1/tenants/a%20b", "{}")

	// What refuses before the request is looked at is alike for all.
	for _, r := range every {
		d.ask(401, r.method, r.path, r.body, "Authorization:")
		if strings.Contains(r.path, "/z") && !strings.Contains(r.path, "zoo") || strings.Contains(r.path, "=z") && strings.Contains(r.path, "dead") {
			d.ask(404, r.method, r.path, r.body)
		}
		if strings.Contains(r.path+r.body, "zoo") || r.path == "/v1/limits" && r.method == "PATCH" || r.method == "DELETE" && strings.Contains(r.path, "breakers") || strings.HasPrefix(r.path, workPath) {
			d.ask(403, r.method, r.path, r.body, acme)
		}
	}
	const wrong, peer = "Authorization: Bearer wrong", "Peer: 192.0.2.9:1"
	for range 10 {
		d.bench.ask("GET", "/v1/groups", "", wrong, peer)
	}
	for _, r := range every {
		d.ask(429, r.method, r.path, r.body, wrong, peer)
	}
	d.bench = newBench(t, func(o *Options) { o.Token, o.Tokens, o.WorkerTokens, o.RequireToken = "", nil, nil, false })
	for _, r := range every {
		d.ask(403, r.method, r.path, r.body, "Authorization:", "Host: evil.example")
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		d.ask(403, "GET", path, "", "Authorization:", "Host: evil.example")
	}
	private := redistest.Server(t)
	d.bench = newBenchOn(t, private.Client(), store.Defaults())
	if err := d.store.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	private.Kill()
	for _, r := range every {
		d.ask(503, r.method, r.path, r.body)
	}

	for path, item := range d.document.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if !slices.ContainsFunc(d.asked[method+" "+path], func(seen int) bool { return status == strconv.Itoa(seen) }) {
					t.Errorf("%s %s: the documented %s was never given", method, path, status)
				}
			}
		}
	}
	for path, m := range d.server.paths() {
		item := d.document.Paths.Value(path)
		for method := range m {
			if item == nil || item.GetOperation(method) == nil {
				t.Errorf("%s %s is served and not documented", method, path)
			}
		}
	}
}
