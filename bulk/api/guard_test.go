package api

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/remote"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestNew_RefusesBadOptions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Store = nil }, "Store"},
		{func(o *Options) { o.Token, o.Tokens = "", nil }, "set admin.token or api_tokens, or listen on 127.0.0.1"},
		{func(o *Options) { o.Tokens[0].Name = "" }, "api_tokens[0].name"},
		{func(o *Options) { o.Tokens[0].Token = "" }, "token_file"},
		{func(o *Options) { o.Tokens[0].Tenants = nil }, "api_tokens[0].tenants"},
		{func(o *Options) { o.Tokens[0].Tenants = []string{"a b"} }, `"a b"`},
		{func(o *Options) { o.Tokens[0].Token = o.Token }, "same token as admin.token"},
		{func(o *Options) { o.Limits.Line = store.MaxAddBytes + 1 }, "limits.line"},
	} {
		o := Options{Store: newBench(t).store, Token: "x", Tokens: []Token{{Name: "acme", Tenants: []string{"acme"}, Token: "y"}}, RequireToken: true}
		row.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}

// every request of the API, for what all refuse alike. %s is a group.
var every = []struct{ method, path, body string }{
	{"GET", "/v1/groups", ""}, {"POST", "/v1/groups", `{"tenant":"zoo","type":"mail"}`}, {"POST", "/v1/bulk?tenant=zoo&type=mail", `{"payload":1}`},
	{"GET", "/v1/groups/z", ""}, {"PATCH", "/v1/groups/z", `{"weight":2}`}, {"POST", "/v1/groups/z/jobs", `{"payload":1}`}, {"GET", "/v1/groups/z/jobs/a", ""}, {"DELETE", "/v1/groups/z", ""},
	{"POST", "/v1/groups/z/jobs/a/cancel", ""}, {"POST", "/v1/groups/z/jobs/a/retry", ""},
	{"POST", "/v1/groups/z/seal", ""}, {"POST", "/v1/groups/z/pause", ""}, {"POST", "/v1/groups/z/resume", ""}, {"POST", "/v1/groups/z/release", ""}, {"POST", "/v1/groups/z/cancel", ""},
	{"POST", "/v1/groups/z/redrive", ""}, {"GET", "/v1/groups/z/events", ""}, {"GET", "/v1/groups/z/results", ""}, {"GET", "/v1/groups/z/result", ""},
	{"POST", "/v1/jobs", `{"tenant":"zoo","type":"mail","payload":1}`},
	{"GET", "/v1/schedules", ""}, {"POST", "/v1/schedules", `{"id":"new","tenant":"zoo","cron":"@daily","job":{"type":"mail","payload":1}}`},
	{"GET", "/v1/schedules/z", ""}, {"PATCH", "/v1/schedules/z", `{"paused":true}`}, {"DELETE", "/v1/schedules/z", ""},
	{"GET", "/v1/dead?group=z", ""}, {"GET", "/v1/congestion", ""}, {"GET", "/v1/congestion/zoo/history", ""},
	{"GET", "/v1/workers?tenant=zoo", ""}, {"GET", "/v1/breakers", ""}, {"DELETE", "/v1/breakers?processor=mail", ""}, {"GET", "/v1/limits", ""}, {"PATCH", "/v1/limits", `{"global":5}`}, {"GET", "/v1/tenants/zoo", ""}, {"PATCH", "/v1/tenants/zoo", `{"weight":2}`},
	{"POST", "/v1/work/lease", `{"types":["mail"]}`}, {"POST", "/v1/work/ack", `{"jobs":[{"lease":"` + someLease + `"}]}`},
	{"POST", "/v1/work/fail", `{"jobs":[{"lease":"` + someLease + `"}]}`}, {"POST", "/v1/work/extend", `{"leases":["` + someLease + `"]}`},
}

// someLease is a lease that no worker holds.
var someLease = remote.Handle{Key: "z/a", Fence: 1, Type: "mail", Attempt: 1, Began: time.Unix(1_800_000_000, 0)}.String()

func TestGuard_RefusesWithoutToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, r := range every {
		for _, header := range []string{"Authorization:", "Authorization: Basic eDp5", "Authorization: Bearer", "Authorization: Bearer wrong"} {
			w := b.ask(r.method, r.path, r.body, header, "Peer: [2001:db8::"+string("123456789abcdef"[len(r.path)%15])+":0:0:0:0]:1")
			if w.Code == 429 {
				continue // enough wrong ones from there
			}
			wantCode(t, w, 401, "unauthorized")
			if w.Header().Get("WWW-Authenticate") != `Bearer realm="anteroom"` {
				t.Errorf("%s %s: no challenge", r.method, r.path)
			}
		}
	}
	wantCode(t, b.ask("GET", "/v1/nothing", "", "Authorization:"), 401, "unauthorized")
	wantCode(t, b.ask("GET", "/v1/nothing", ""), 404, "not_found")
	wantCode(t, b.ask("GET", "/nothing", "", "Authorization:"), 404, "not_found")
	for path, body := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "up 1\n", "/": "<p>"} {
		if w := b.ask("GET", path, "", "Authorization:"); w.Code != 200 || w.Body.String() != body || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
		wantCode(t, b.ask("POST", path, "", "Authorization:"), 405, "method_not_allowed", "GET, HEAD")
	}
}

func TestGuard_LimitsTokenToItsTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const acme = "Authorization: Bearer " + acmeToken
	b.create(`{"id":"z","tenant":"zoo","type":"mail"}`)
	b.create(`{"id":"a","tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/schedules", `{"id":"z","tenant":"zoo","cron":"@daily","job":{"type":"mail","payload":1}}`), 201)
	for _, r := range every {
		w := b.ask(r.method, r.path, r.body, acme)
		switch {
		case strings.Contains(r.path, "/groups/z"), strings.Contains(r.path, "/schedules/z"), strings.Contains(r.path, "group=z"):
			wantCode(t, w, 404, "not_found")
			missing := b.ask(r.method, strings.Replace(strings.Replace(r.path, "/z", "/y", 1), "=z", "=y", 1), r.body, acme)
			if strings.ReplaceAll(missing.Body.String(), `\"y\"`, `\"z\"`) != w.Body.String() {
				t.Errorf("%s %s: a foreign group is answered %s, none at all %s", r.method, r.path, w.Body, missing.Body)
			}
		case strings.Contains(r.path, "zoo"), strings.Contains(r.body, "zoo"):
			wantCode(t, w, 403, "wrong_tenant", "acme", "zoo")
		case r.method == "PATCH", r.method == "DELETE":
			wantCode(t, w, 403, "operators_only")
		case strings.HasPrefix(r.path, workPath):
			wantCode(t, w, 403, "wrong_scope", "worker_tokens", "acme")
		default:
			want(t, w, 200)
			if strings.Contains(w.Body.String(), "zoo") {
				t.Errorf("%s shows %s", r.path, w.Body)
			}
		}
	}
	want(t, b.ask("GET", "/v1/groups/a", "", acme), 200)
	want(t, b.ask("POST", "/v1/groups/a/jobs", `{"payload":1}`, acme), 200)
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=b", `{"payload":1}`, acme), 201)
	wantCode(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=z", `{"payload":1}`, acme), 409, "exists")
	wantCode(t, b.ask("PATCH", "/v1/tenants/acme", `{"weight":2}`, acme), 403, "operators_only")
	if got := pick(b.group("z"), "total", "weight", "paused"); got != "total=0 weight=1 paused=false" {
		t.Error(got)
	}
}

func TestGuard_LimitsWorkerTokenToWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const mail = "Authorization: Bearer " + mailToken
	b.create(`{"id":"z","tenant":"zoo","type":"mail"}`)
	for _, r := range every {
		if w := b.ask(r.method, r.path, r.body, mail); strings.HasPrefix(r.path, workPath) {
			want(t, w, 200)
		} else {
			wantCode(t, w, 403, "wrong_scope", "post office", workPath)
		}
	}
	wantCode(t, b.ask("POST", "/v1/work/lease", `{"types":["mail","fax"]}`, mail), 403, "wrong_scope", "fax", "mail")
	fax := strings.ReplaceAll(`"L"`, "L", remote.Handle{Key: "z/a", Fence: 1, Type: "fax", Attempt: 1, Began: time.Unix(1_800_000_000, 0)}.String())
	wantCode(t, b.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":`+fax+`}]}`, mail), 403, "wrong_scope", "fax")
	wantCode(t, b.ask("POST", "/v1/work/extend", `{"leases":[`+fax+`]}`, mail), 403, "wrong_scope", "fax")
	want(t, b.ask("POST", "/v1/work/lease", `{"types":["fax"]}`), 200)
}

func TestWrongTokens_Limited(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	b := newBench(t, func(o *Options) { o.Now = func() time.Time { return now } })
	const wrong, peer = "Authorization: Bearer wrong", "Peer: 192.0.2.9:1"
	for range 10 {
		wantCode(t, b.ask("GET", "/v1/groups", "", wrong, peer), 401, "unauthorized")
	}
	w := b.ask("GET", "/v1/groups", "", wrong, peer)
	wantCode(t, w, 429, "too_many_attempts")
	if w.Header().Get("Retry-After") != "6" {
		t.Error(w.Header())
	}
	want(t, b.ask("GET", "/v1/groups", "", peer), 200) // another tenant behind the same address
	now = now.Add(6 * time.Second)
	wantCode(t, b.ask("GET", "/v1/groups", "", wrong, peer), 401, "unauthorized")
}

func TestWrongTokens_AreCountedByTheClientOfATrustedProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	const wrong, proxy, other = "Authorization: Bearer wrong", "Peer: 192.0.2.9:1", "Peer: 203.0.113.1:1"
	from := func(client string) string { return "X-Forwarded-For: 198.51.100.1, " + client }
	for range 11 {
		b.ask("GET", "/v1/groups", "", wrong, proxy, from("198.51.100.7"))
		b.ask("GET", "/v1/groups", "", wrong, other, from("198.51.100.8"))
	}
	wantCode(t, b.ask("GET", "/v1/groups", "", wrong, proxy, from("198.51.100.7")), 429, "too_many_attempts")
	wantCode(t, b.ask("GET", "/v1/groups", "", wrong, proxy, from("198.51.100.8")), 401, "unauthorized")
	wantCode(t, b.ask("GET", "/v1/groups", "", wrong, other, from("198.51.100.9")), 429, "too_many_attempts")
	want(t, b.ask("GET", "/v1/groups", "", proxy, from("198.51.100.7")), 200)
}

func TestWithoutAToken_AProxyLetsNobodyInFromElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) {
		o.Token, o.Tokens, o.WorkerTokens, o.RequireToken = "", nil, nil, false
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	const none, local, proxy = "Authorization:", "Host: 127.0.0.1:8090", "Peer: 127.0.0.1:4711"
	want(t, b.ask("GET", "/v1/groups", "", none, local, proxy), 200)
	want(t, b.ask("GET", "/v1/groups", "", none, local, proxy, "X-Forwarded-For: ::1"), 200)
	for _, path := range []string{"/v1/groups", "/metrics", "/"} {
		wantCode(t, b.ask("GET", path, "", none, local, proxy, "X-Forwarded-For: 198.51.100.7"), 403, "token_required", "admin.token")
	}
}

func TestGuard_RefusesForeignPagesOnLoopback(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Token, o.Tokens, o.WorkerTokens, o.RequireToken = "", nil, nil, false })
	const none, local = "Authorization:", "Host: 127.0.0.1:8090"
	for _, host := range []string{"127.0.0.1:8090", "localhost", "[::1]:8090"} {
		want(t, b.ask("GET", "/v1/groups", "", none, "Host: "+host), 200)
	}
	wantCode(t, b.ask("GET", "/v1/groups", "", none, "Host: evil.example"), 403, "unknown_host", "evil.example")
	wantCode(t, b.ask("GET", "/metrics", "", none, "Host: evil.example"), 403, "unknown_host", "evil.example")
	wantCode(t, b.ask("GET", "/healthz", "", none, "Host: evil.example"), 403, "unknown_host", "evil.example")
	wantCode(t, b.ask("GET", "/v1/groups", "", none, local, "Sec-Fetch-Site: cross-site"), 403, "cross_site")
	body := `{"tenant":"acme","type":"mail"}`
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example", "Origin: null"} {
		wantCode(t, b.ask("POST", "/v1/groups", body, none, local, header), 403, "cross_site")
		wantCode(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail", `{"payload":1}`, none, local, header), 403, "cross_site")
	}
	wantCode(t, b.ask("POST", "/v1/groups", body, none, local, "Referer: http://127.0.0.1:8090/", "Content-Type: text/plain"), 415, "unsupported_media_type")
	want(t, b.ask("POST", "/v1/groups", body, none, local, "Origin: http://127.0.0.1:8090", "Content-Type: application/json"), 201)
	want(t, b.ask("POST", "/v1/groups", body, none, local), 201)
}

func TestProblem_MapsRefusalsAndOutages(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		code   store.Code
		status int
	}{
		{store.CodeNotFound, 404}, {store.CodeExists, 409}, {store.CodeSealed, 409}, {store.CodeState, 409}, {store.CodeHalfIn, 409},
		{store.CodeQuota, 429}, {store.CodeInvalid, 422}, {store.CodeChunkReuse, 422},
	} {
		p := asProblem(&store.Refusal{Code: row.code, Detail: "100 %d and the way out"})
		if p.Status != row.status || p.Code != string(row.code) || p.Detail != "100 %d and the way out" || (p.RetryAfter > 0) != (row.status == 429) {
			t.Errorf("%s: %+v", row.code, p)
		}
	}

	private := redistest.Server(t)
	b := newBenchOn(t, private.Client(), store.Defaults())
	b.create(`{"id":"z","tenant":"zoo","type":"mail"}`)
	private.Kill()
	for _, r := range every {
		w := b.ask(r.method, r.path, r.body)
		wantCode(t, w, 503, "store_unavailable")
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s %s: no Retry-After", r.method, r.path)
		}
	}
	want(t, b.ask("GET", "/healthz", ""), 200)
}
