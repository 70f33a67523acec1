package console

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAdmit_ByTokenAndMethod(t *testing.T) {
	for _, row := range []struct {
		name, method, path string
		headers            []string
		status             int
		code               string
	}{
		{"with the token", "GET", "/admin/v1/rooms", nil, 200, ""},
		{"the scheme in any case", "GET", "/admin/v1/rooms", []string{"Authorization: bearer " + writeToken}, 200, ""},
		{"without a token", "GET", "/admin/v1/rooms", []string{"Authorization:"}, 401, "unauthorized"},
		{"with a wrong one", "GET", "/admin/v1/rooms", []string{"Authorization: Bearer " + writeToken + "x"}, 401, "unauthorized"},
		{"with a part of it", "GET", "/admin/v1/rooms", []string{"Authorization: Bearer " + writeToken[:8]}, 401, "unauthorized"},
		{"with another scheme", "GET", "/admin/v1/rooms", []string{"Authorization: Basic " + writeToken}, 401, "unauthorized"},
		{"with the token as a cookie", "GET", "/admin/v1/rooms", []string{"Authorization:", "Cookie: token=" + writeToken}, 401, "unauthorized"},
		{"in the query", "GET", "/admin/v1/rooms?token=" + writeToken, []string{"Authorization:"}, 401, "unauthorized"},
		{"a path that is not there, without a token", "GET", "/admin/v1/nothing", []string{"Authorization:"}, 401, "unauthorized"},
		{"a room that is not there, without a token", "GET", "/admin/v1/rooms/none", []string{"Authorization:"}, 401, "unauthorized"},
		{"a reader reads", "GET", "/admin/v1/rooms", []string{"Authorization: Bearer " + readToken}, 200, ""},
		{"a reader pauses", "POST", "/admin/v1/rooms/sale/pause", []string{"Authorization: Bearer " + readToken}, 403, "read_only"},
		{"a reader patches", "PATCH", "/admin/v1/rooms/sale", []string{"Authorization: Bearer " + readToken}, 403, "read_only"},
		{"a reader removes", "DELETE", "/admin/v1/rooms/sale/tickets/AQIDAAAAAAAAAAAAAAAAAA", []string{"Authorization: Bearer " + readToken}, 403, "read_only"},
		{"from another site's page", "POST", "/admin/v1/rooms/sale/pause", []string{"Sec-Fetch-Site: cross-site"}, 403, "cross_site"},
		{"from a sibling's page", "POST", "/admin/v1/rooms/sale/pause", []string{"Sec-Fetch-Site: same-site"}, 403, "cross_site"},
		{"from an old browser on another site", "POST", "/admin/v1/rooms/sale/pause", []string{"Origin: https://evil.example"}, 403, "cross_site"},
		{"from a sandboxed page", "POST", "/admin/v1/rooms/sale/pause", []string{"Origin: null"}, 403, "cross_site"},
		{"from the console", "POST", "/admin/v1/rooms/sale/pause", []string{"Origin: http://example.com", "Sec-Fetch-Site: same-origin"}, 200, ""},
		{"metrics need none", "GET", "/metrics", []string{"Authorization:"}, 200, ""},
		{"health needs none", "GET", "/healthz", []string{"Authorization:"}, 200, ""},
		{"readiness needs none", "GET", "/readyz", []string{"Authorization:"}, 200, ""},
		{"the page needs none", "GET", "/", []string{"Authorization:"}, 200, ""},
		{"profiles need one", "GET", "/debug/pprof/", []string{"Authorization:"}, 401, "unauthorized"},
		{"the command line needs one", "GET", "/debug/pprof/cmdline", []string{"Authorization:"}, 401, "unauthorized"},
		{"profiles with it", "GET", "/debug/pprof/", nil, 200, ""},
		{"a profile by name", "GET", "/debug/pprof/goroutine?debug=1", nil, 200, ""},
		{"a profile of no number of seconds", "GET", "/debug/pprof/heap?seconds=60x", nil, 422, "invalid"},
		{"a profile of an hour", "GET", "/debug/pprof/profile?seconds=3600", nil, 422, "invalid"},
		{"a profile of an hour, by a reader", "GET", "/debug/pprof/profile?seconds=61", []string{"Authorization: Bearer " + readToken}, 422, "invalid"},
		{"a trace without end", "GET", "/debug/pprof/trace?seconds=Inf", nil, 422, "invalid"},
		{"a difference of an hour", "GET", "/debug/pprof/heap?seconds=3600", nil, 422, "invalid"},
		{"a profile is not posted", "POST", "/debug/pprof/heap", nil, 405, "method_not_allowed"},
		{"no such path", "GET", "/nothing", nil, 404, "not_found"},
		{"no such API", "GET", "/admin/v2/rooms", nil, 404, "not_found"},
		{"no such room", "GET", "/admin/v1/rooms/none", nil, 404, "unknown_room"},
		{"a room's id is exact", "GET", "/admin/v1/rooms/SALE", nil, 404, "unknown_room"},
		{"posting to health", "POST", "/healthz", nil, 405, "method_not_allowed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newBench(t).ask(row.method, row.path, "", row.headers...)
			if row.code == "" {
				want(t, w, row.status)
			} else {
				wantCode(t, w, row.status, row.code)
			}
			if got := w.Header().Get("WWW-Authenticate"); (got != "") != (row.status == 401) {
				t.Errorf("WWW-Authenticate %q with status %d", got, w.Code)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control %q", got)
			}
		})
	}
}

func TestHandler_AllowHeader(t *testing.T) {
	b := newBench(t)
	for path, allow := range map[string]string{
		"/admin/v1/rooms": "GET, HEAD", "/admin/v1/rooms/sale": "GET, HEAD, PATCH", "/admin/v1/rooms/sale/pause": "POST",
		"/admin/v1/rooms/sale/tickets/x": "DELETE, GET, HEAD", "/metrics": "GET, HEAD", "/": "GET, HEAD",
	} {
		w := b.ask("PUT", path, "")
		wantCode(t, w, 405, "method_not_allowed")
		if got := w.Header().Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q, want %q", path, got, allow)
		}
	}
}

func TestAdmit_LoopbackNeedsNoToken(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Listen, o.Tokens = "127.0.0.1:9090", nil })
	for _, host := range []string{"127.0.0.1:9090", "localhost:9090", "LOCALHOST", "[::1]:9090", "127.5.5.5"} {
		want(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization:", "Host: "+host), 200)
	}
	// A page whose name was pointed at 127.0.0.1 is same-origin to its browser.
	for _, host := range []string{"evil.example:9090", "127.0.0.1.evil.example", "", "10.0.0.1"} {
		wantCode(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization:", "Host: "+host), 403, "unknown_host")
	}
	wantCode(t, b.ask("POST", "/admin/v1/rooms/sale/pause", "", "Authorization:", "Host: localhost:9090", "Origin: https://evil.example"), 403, "cross_site")
	want(t, b.ask("POST", "/admin/v1/rooms/sale/pause", "", "Authorization:", "Host: localhost:9090"), 200)
	want(t, b.ask("GET", "/debug/pprof/", "", "Authorization:", "Host: localhost:9090"), 200)
	// A picture on another site's page could have the process profiled for as long as it likes.
	for _, site := range []string{"cross-site", "same-site"} {
		wantCode(t, b.ask("GET", "/debug/pprof/profile?seconds=1", "", "Authorization:", "Host: localhost:9090", "Sec-Fetch-Site: "+site), 403, "cross_site")
	}
	// What needs no token anyway is not for such a page either.
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/", "/nothing"} {
		wantCode(t, b.ask("GET", path, "", "Authorization:", "Host: evil.example:9090"), 403, "unknown_host")
	}
	want(t, b.ask("GET", "/metrics", "", "Authorization:", "Host: localhost:9090"), 200)
	want(t, b.ask("GET", "/healthz", "", "Authorization:", "Host: "), 200) // an HTTP/1.0 probe
	entries, err := b.core.Audit(t.Context(), 1, nil)
	if err != nil || len(entries) != 1 || entries[0].Who != "local" {
		t.Errorf("the audit log has %v (%v), want an entry by local", entries, err)
	}
}

func TestAdmit_ChecksTokenOnLoopback(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Listen = "127.0.0.1:9090" })
	wantCode(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization:", "Peer: 127.0.0.1:5"), 401, "unauthorized")
	want(t, b.ask("GET", "/metrics", "", "Authorization:", "Host: metrics.example"), 200)
}

// A body that does not arrive must not hold a connection, with or without a token.
func TestHandler_EndsConnectionWithoutBody(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Idle = 200 * time.Millisecond })
	server := httptest.NewServer(b.console.Handler())
	t.Cleanup(server.Close)
	for _, row := range []struct {
		request string
		status  int
	}{
		{"POST /admin/v1/rooms/sale/pause HTTP/1.1\r\n", 401},
		{"POST /admin/v1/rooms/sale/reset HTTP/1.1\r\nAuthorization: Bearer " + writeToken + "\r\n", 408},
		{"PATCH /admin/v1/rooms/sale HTTP/1.1\r\nAuthorization: Bearer " + writeToken + "\r\n", 408},
		{"POST /metrics HTTP/1.1\r\n", 405}, {"GET /healthz HTTP/1.1\r\n", 200}, {"POST /nothing HTTP/1.1\r\n", 405},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(conn, row.request+"Host: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(all), fmt.Sprintf("HTTP/1.1 %d ", row.status)) {
			t.Errorf("%q: %q, %v; want %d and the end of the connection", row.request, all, err, row.status)
		}
	}
}

func TestNew_RefusesOptions(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*Options)
		says   string
	}{
		{"every interface without a token", func(o *Options) { o.Listen, o.Tokens = ":9090", nil }, "admin.token"},
		{"an address without a token", func(o *Options) { o.Listen, o.Tokens = "10.1.2.3:9090", nil }, "admin.token"},
		{"a name without a token", func(o *Options) { o.Listen, o.Tokens = "localhost.example:9090", nil }, "admin.token"},
		{"no name", func(o *Options) { o.Tokens[1].Name = "" }, "admin.tokens[1].name"},
		{"one name twice", func(o *Options) { o.Tokens[1].Name = "ops" }, `"ops" is given twice`},
		{"an empty token", func(o *Options) { o.Tokens[0].Token = "" }, "token_file"},
		{"an unknown role", func(o *Options) { o.Tokens[0].Role = "root" }, `"root"`},
		{"nothing to show", func(o *Options) { o.Rooms = nil }, "Rooms"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			o := Options{Listen: ":9090", Tokens: []Token{{Name: "ops", Token: writeToken, Role: Write}, {Name: "wall", Token: readToken, Role: Read}},
				Rooms: func() []Room { return nil }, Core: b.core, Measures: Measures{Registry: prometheus.NewRegistry()}, Ready: func() bool { return true }}
			row.change(&o)
			_, err := New(o)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("error %v, want one that says %q", err, row.says)
			}
		})
	}
}

func TestSetTokens_ReplacesTokens(t *testing.T) {
	b := newBench(t)
	if err := b.console.SetTokens([]Token{{Name: "new", Token: "n-5d2e8f1a7c3b6049", Role: Read}}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.ask("GET", "/admin/v1/rooms", ""), 401, "unauthorized")
	want(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization: Bearer n-5d2e8f1a7c3b6049"), 200)
	wantCode(t, b.ask("POST", "/admin/v1/rooms/sale/pause", "", "Authorization: Bearer n-5d2e8f1a7c3b6049"), 403, "read_only")
	for name, bad := range map[string][]Token{"none": nil, "one that is empty": {{Name: "ops", Token: writeToken, Role: Write}, {Name: "empty", Role: Read}}} {
		if err := b.console.SetTokens(bad); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	want(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization: Bearer n-5d2e8f1a7c3b6049"), 200)
}

func TestAdmit_LimitsWrongTokens(t *testing.T) {
	b := newBench(t)
	guess := func(token string) *httptest.ResponseRecorder {
		return b.ask("GET", "/admin/v1/rooms", "", "Authorization: Bearer "+token, "Peer: 192.0.2.1:1000")
	}
	for range 10 {
		wantCode(t, guess("wrong"), 401, "unauthorized")
	}
	w := guess("wrong")
	wantCode(t, w, 429, "too_many_attempts")
	if w.Header().Get("Retry-After") != "6" {
		t.Errorf("Retry-After %q, want 6", w.Header().Get("Retry-After"))
	}
	want(t, guess(writeToken), 200) // behind one proxy there are other operators
	wantCode(t, guess("wrong"), 429, "too_many_attempts")
	b.clock.move(6 * time.Second)
	wantCode(t, guess("wrong"), 401, "unauthorized")
	wantCode(t, guess("wrong"), 429, "too_many_attempts")
}

func TestAdmit_DoesNotLimitRightTokens(t *testing.T) {
	b := newBench(t)
	for range 100 {
		want(t, b.ask("GET", "/admin/v1/rooms", ""), 200)
	}
	for range 100 { // asking without a token is no guess
		wantCode(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization:"), 401, "unauthorized")
	}
	want(t, b.ask("GET", "/admin/v1/rooms", ""), 200)
}

func TestHandler_HealthAndReadiness(t *testing.T) {
	b := newBench(t)
	for _, row := range []struct {
		path string
		set  func()
		code int
	}{
		{"/readyz", func() {}, 200},
		{"/readyz", func() { b.ready = false }, 503},
		{"/healthz", func() {}, 200},
		{"/healthz", func() { b.healthy = errors.New("deadlock") }, 503},
	} {
		row.set()
		w := b.ask("GET", row.path, "", "Authorization:")
		if w.Code != row.code || strings.Contains(w.Body.String(), "deadlock") {
			t.Errorf("%s: %d %q, want %d", row.path, w.Code, w.Body, row.code)
		}
	}
}
