package gateway

import (
	"bufio"
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/redistest"
)

// checked is a gateway that answers checks, in nginx's dialect unless a test sets another.
type checked struct {
	*bench
	at string // address for checks
}

// startChecked runs a gateway that answers checks and has no origin.
func startChecked(t testing.TB, o Options) *checked {
	t.Helper()
	if o.Check.Trusted == nil {
		o.Check.Trusted = loopback()
	}
	o.TrustedProxies = loopback()
	for i := range o.Rooms {
		o.Rooms[i].Renew, o.Rooms[i].MaxSession, o.Rooms[i].PollBudget = true, 12*time.Hour, 20000
	}
	c := &checked{bench: startTicking(t, redistest.Client(t), redistest.Prefix(t), 20*time.Millisecond, o)}
	c.serveChecks(t)
	return c
}

// serveChecks serves checks until the test ends.
func (c *checked) serveChecks(t testing.TB) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.at = ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- c.ServeCheck(ln) }()
	t.Cleanup(func() {
		c.stop()
		if err := <-done; err != nil {
			t.Errorf("serve checks: %v", err)
		}
	})
}

// ask sends a check about a request, written as for call, in the dialect of the gateway.
func (c *checked) ask(request string, fields ...string) *response {
	c.t.Helper()
	method, target, _ := strings.Cut(request, " ")
	lines := []string{"GET " + check.Path}
	switch c.state.Load().options.Check.Dialect.Family() {
	case dialect.Original:
		lines = append(lines, "X-Original-Method: "+method, "X-Original-URI: "+target)
	case dialect.Forwarded:
		lines = append(lines, "X-Forwarded-Method: "+method, "X-Forwarded-Uri: "+target, "X-Forwarded-Host: shop.test")
	case dialect.Prefixed:
		lines[0] = method + " " + check.Path + target
	}
	lines = append(lines, "X-Forwarded-Proto: http", "X-Forwarded-For: 192.0.2.7")
	return c.raw(append(lines, fields...)...)
}

// raw sends the given lines as a check.
func (c *checked) raw(lines ...string) *response {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.at)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	a, err := exchange(conn, bufio.NewReader(conn), lines...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func TestCheck_FromQueueToPass(t *testing.T) {
	slow := policy(1)
	slow.Rate = 500
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: slow}}})
	first := c.ask("GET /seats", asPage)
	first.code(t, 200)
	if first.header.Get("X-Waiting-Room") != "pass" || first.header.Get("X-Waiting-Room-Session") == "" || len(first.header["Set-Cookie"]) != 1 || first.body != "" {
		t.Errorf("admitted at once: %s", first.text())
	}
	again := c.ask("POST /seats", first.jar())
	if again.code(t, 200); again.header.Get("X-Waiting-Room-Session") != first.header.Get("X-Waiting-Room-Session") || len(again.header["Set-Cookie"]) != 0 {
		t.Errorf("with the pass: %s", again.text())
	}
	page := c.ask("GET /seats", asPage)
	page.code(t, 401)
	if !strings.Contains(page.body, `data-refresh="0"`) || page.header.Get("X-Waiting-Room") != "waiting" || page.header.Get("Retry-After") == "" || len(page.cookies) != 0 {
		t.Errorf("has to wait: %s", page.text())
	}
	c.ask("GET /seats", asJSON).is(t, `
401
Cache-Control: no-store
Content-Type: application/json
Retry-After: N
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room: waiting

{"room":"sale","state":"waiting","eta":ETA,"refresh_after":N,"message":"","paused":false,"reason":"no_ticket"}`)
	if n := c.state.Load().rooms[0].queue.Snapshot().Waiting; n != 0 {
		t.Errorf("%d places after checks, want none", n)
	}
	ticket := c.call("POST /.waiting-room/sale/tickets", asJSON, "X-Forwarded-For: 192.0.2.7").code(t, 201)
	if ticket.field("state") != "waiting" {
		t.Fatalf("the ticket: %s", ticket.text())
	}
	waits := c.ask("GET /seats", asJSON, ticket.jar()).code(t, 401)
	if waits.field("position") != "1" || waits.field("reason") != "" || len(waits.cookies) != 0 {
		t.Errorf("with a ticket: %s", waits.text())
	}
	eventually(t, "the ticket is admitted", func() bool {
		a := c.call("GET /.waiting-room/sale/status", asJSON, ticket.jar(), "X-Forwarded-For: 192.0.2.7")
		for name, value := range a.cookies {
			ticket.cookies[name] = value
		}
		return a.field("state") == "admitted"
	})
	c.ask("GET /seats", asPage, ticket.jar()).code(t, 200)
}

func TestCheck_AdmittedAtVisitorsSocketRedirectsToSameAddress(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(1)}}})
	a := c.call("POST /seats?id=7", asPage, "X-Forwarded-For: 192.0.2.7", "", "id=7").code(t, 307)
	if a.header.Get("Location") != "/seats?id=7" || a.cookies["wr_sale_pass"] == "" {
		t.Errorf("%s", a.text())
	}
	if b := c.call("GET /seats", asPage, a.jar()); b.status != 502 {
		t.Errorf("with a pass, without an origin: %s", b.text())
	}
}

// checkRow is a check about a request to a room, and the expected response.
type checkRow struct {
	name    string
	room    Room
	request string
	fields  []string
	status  int
	state   string // X-Waiting-Room
}

// Each rule for requests at the visitors' socket applies to checks.
func TestCheck_RespondsByRule(t *testing.T) {
	shut, paused, off, gathers := policy(5), policy(5), policy(5), policy(5)
	shut.Method = admission.Reject
	paused.Paused = true
	off.Enabled = false
	gathers.Method, gathers.OpensAt = admission.Lottery, time.Now().Add(time.Hour).UnixMicro()
	gathers.Plan = admission.NewPlan(testSecret, "sale", &gathers, nil)
	crowded := policy(0)
	bypass := []Bypass{{Paths: []string{"/health"}, Methods: []string{"GET"}}}
	for _, row := range []checkRow{
		{"a free room", Room{Policy: policy(5)}, "GET /", []string{asPage}, 200, "pass"},
		{"a free room, an API client", Room{Policy: policy(5)}, "POST /buy", []string{asJSON}, 200, "pass"},
		{"a free room, a subresource", Room{Policy: policy(5)}, "GET /a.png", []string{"Sec-Fetch-Dest: image"}, 200, "bypass"},
		{"a queue, a subresource", Room{Policy: crowded}, "GET /a.png", []string{"Sec-Fetch-Dest: image"}, 401, "waiting"},
		{"a queue, a prefetch", Room{Policy: crowded}, "GET /", []string{"Sec-Purpose: prefetch"}, 401, "waiting"},
		{"a queue, a navigation", Room{Policy: crowded}, "GET /", []string{asPage}, 401, "waiting"},
		{"a queue, an upgrade", Room{Policy: crowded}, "GET /ws", []string{"Upgrade: websocket"}, 401, "waiting"},
		{"a CORS preflight", Room{Policy: crowded}, "OPTIONS /buy", []string{"Access-Control-Request-Method: POST"}, 200, "bypass"},
		{"a bypass rule", Room{Policy: crowded, Bypass: bypass}, "GET /health", nil, 200, "bypass"},
		{"a bypass rule, another method", Room{Policy: crowded, Bypass: bypass}, "POST /health", nil, 401, "waiting"},
		{"a bypass rule, another path behind it", Room{Policy: crowded, Bypass: bypass}, "GET /health/../buy", nil, 401, "waiting"},
		{"a bypass rule, a path in the query", Room{Policy: crowded, Bypass: bypass}, "GET /buy?/health", nil, 401, "waiting"},
		{"a closed room", Room{Policy: shut}, "GET /", []string{asPage}, 401, "rejected"},
		{"a paused room", Room{Policy: paused}, "GET /", []string{asPage}, 401, "waiting"},
		{"a room that is off", Room{Policy: off}, "GET /", []string{asPage}, 200, "bypass"},
		{"a pre-queue", Room{Policy: gathers}, "GET /", []string{asPage}, 401, "prequeue"},
		{"a guarded room", Room{Policy: policy(5), Guard: Guard{Proof: ProofAlways}}, "GET /", []string{asPage}, 401, "proof"},
		{"a path outside the room", Room{Policy: crowded, Paths: []string{"/sale"}}, "GET /other", nil, 200, "bypass"},
		{"another spelling of a path of the room", Room{Policy: crowded, Paths: []string{"/sale"}}, "GET /x/..//%73ale", []string{asJSON}, 401, "waiting"},
		{"a path of the gateway", Room{Policy: crowded}, "GET /.waiting-room/sale/status", nil, 200, "bypass"},
		{"a path of the gateway in capitals, which a proxy sends to the site", Room{Policy: crowded}, "GET /.Waiting-Room/index.php", nil, 403, ""},
		{"a path of the gateway with an escape, likewise", Room{Policy: crowded}, "GET /%2ewaiting-room/x", nil, 403, ""},
		{"a path of the gateway with a parameter, likewise", Room{Policy: crowded}, "GET /.waiting-room;x/buy", nil, 403, ""},
		{"a path of the gateway without its slash, likewise", Room{Policy: crowded}, "GET /.waiting-room", nil, 403, ""},
		{"a path that may be of the gateway", Room{Policy: crowded}, "GET /.waiting-room/..%2fbuy", nil, 403, ""},
		{"another host", Room{Policy: crowded, Hosts: []string{"other.test"}}, "GET /", nil, 403, ""},
		{"the method TRACE", Room{Policy: policy(5)}, "TRACE /", nil, 403, ""},
		{"a target with a blank", Room{Policy: policy(5)}, "GET /a b", nil, 403, ""},
		{"a whole URL as the target", Room{Policy: policy(5)}, "GET http://shop.test/", nil, 403, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.room.ID = "sale"
			c := startChecked(t, Options{Rooms: []Room{row.room}})
			a := c.ask(row.request, row.fields...)
			if a.status != row.status || a.header.Get("X-Waiting-Room") != row.state {
				t.Errorf("%s", a.text())
			}
			if len(a.header["Set-Cookie"]) > 1 || a.status == 200 && a.body != "" {
				t.Errorf("more than one cookie, or a body that no proxy passes on: %s", a.text())
			}
			if c.state.Load().rooms[0].queue.Snapshot().Waiting > 0 {
				t.Error("a visitor has a place after the check")
			}
		})
	}
}

func TestCheck_RefusesInvalidDescriptions(t *testing.T) {
	original := []string{"X-Original-Method: GET", "X-Original-URI: /"}
	forwarded := []string{"X-Forwarded-Method: GET", "X-Forwarded-Uri: /", "X-Forwarded-Host: shop.test"}
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(100)}}})
	for _, row := range []struct {
		name   string
		lines  []string
		reason string
	}{
		{"no description", []string{"GET /.waiting-room/check"}, "target"},
		{"the fields of another dialect", append([]string{"GET /.waiting-room/check"}, forwarded...), "target"},
		{"an alias of a field", []string{"GET /.waiting-room/check", "X-Original-Method: GET", "X_Original_URI: /"}, "target"},
		{"two targets", append([]string{"GET /.waiting-room/check", "X-Original-URI: /free"}, original...), "target"},
		{"no method", []string{"GET /.waiting-room/check", original[1]}, "method"},
		{"two schemes", append([]string{"GET /.waiting-room/check", "X-Forwarded-Proto: http", "X-Forwarded-Proto: https"}, original...), "scheme"},
		{"another scheme", append([]string{"GET /.waiting-room/check", "X-Forwarded-Proto: gopher"}, original...), "scheme"},
		{"another path", append([]string{"GET /.waiting-room/checks"}, original...), "path"},
		{"a malformed check", append([]string{"GET /.waiting-room/check", "Bad Name: x"}, original...), "request"},
		{"an invalid method", []string{"GET /.waiting-room/check", "X-Original-Method: GE T", original[1]}, "request"},
		{"another spelling of a reserved name", append([]string{"GET /.waiting-room/check", "X_Waiting_Room_Session: mine"}, original...), "request"},
	} {
		before := metrics.Value(c.Gateway.metrics.ChecksRefused[row.reason])
		a := c.raw(row.lines...)
		if a.status != 403 || !strings.Contains(a.body, `"code":"check_refused"`) {
			t.Errorf("%s: %s", row.name, a.text())
		}
		if metrics.Value(c.Gateway.metrics.ChecksRefused[row.reason]) != before+1 {
			t.Errorf("%s is not counted as %s: %s", row.name, row.reason, a.text())
		}
	}
	stranger := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(100)}}, Check: Check{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}})
	if a := stranger.ask("GET /"); a.status != 403 || a.header.Get("X-Waiting-Room-Session") != "" {
		t.Errorf("a peer that is not listed: %s", a.text())
	}
	if log := stranger.logs.String(); !strings.Contains(log, `"proxy":"127.0.0.1"`) || !strings.Contains(log, "not listed in check.trusted") {
		t.Errorf("the log does not name the peer and the setting: %s", log)
	}
}

func TestCheck_ReadsEachDialect(t *testing.T) {
	for _, name := range dialect.Names() {
		d, err := dialect.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			deny := 401
			if d.CanDeny(503) {
				deny = 503
			}
			c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(1)}}, Check: Check{Dialect: d, Deny: deny}})
			first := c.ask("GET /seats?id=1", asPage)
			if want := map[bool]int{true: 200, false: deny}[d.Cookies()]; first.status != want || (first.cookies["wr_sale_pass"] != "") != d.Cookies() {
				t.Errorf("a free room: %s", first.text())
			}
			ticket := c.call("POST /.waiting-room/sale/tickets", asJSON)
			if a := c.ask("GET /seats", asPage); a.status != deny {
				t.Errorf("a queue, or a full room: %s", a.text())
			}
			if !d.Cookies() {
				if a := c.ask("GET /seats", asPage, ticket.jar()); a.status != 200 {
					t.Errorf("with the pass of the visitors' socket: %s", a.text())
				}
			}
		})
	}
}

func TestCheck_RedirectsBrowsersIfDenyIsRedirect(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(0)}}, Check: Check{Dialect: dialect.Envoy, Deny: 302}})
	if a := c.ask("GET /seats", asPage); a.status != 302 || a.header.Get("Location") != "/.waiting-room/sale/" {
		t.Errorf("a browser: %s", a.text())
	}
	if a := c.ask("GET /seats", asJSON); a.status != 401 || a.field("state") != "waiting" {
		t.Errorf("an API client: %s", a.text())
	}
}

// nginx sends the Content-Length of a body that it does not send with the check. The next bytes on the connection are the next check.
func TestCheck_WithBodyIsLastOfItsConnection(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(5)}}})
	conn, err := net.Dial("tcp", c.at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(conn)
	lines := []string{"GET /.waiting-room/check", "X-Original-URI: /", "X-Original-Method: POST", "Content-Length: 40"}
	a, err := exchange(conn, in, lines...)
	if err != nil {
		t.Fatal(err)
	}
	a.code(t, 200)
	if a, err = exchange(conn, in, lines[:3]...); err == nil {
		t.Errorf("a check was read as a body: %s", a.text())
	}
}

// A visitor with a pass would be redirected from the room's page to the room, and from there to the page.
func TestCheck_RedirectsNobodyWithPass(t *testing.T) {
	for _, row := range []struct {
		d            dialect.Dialect
		deny, status int
	}{{dialect.Envoy, 302, 429}, {dialect.Traefik, 503, 429}, {dialect.Nginx, 401, 403}} {
		room := Room{ID: "sale", Policy: policy(5), SessionRequests: meter.Quota{N: 1, Per: time.Hour}}
		c := startChecked(t, Options{Rooms: []Room{room}, Check: Check{Dialect: row.d, Deny: row.deny}})
		first := c.ask("GET /seats", asPage).code(t, 200)
		c.ask("GET /seats", asPage, first.jar()).code(t, 200)
		if a := c.ask("GET /seats", asPage, first.jar()); a.status != row.status || a.header.Get("Location") != "" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %s", row.d, a.text())
		}
	}
}

// panicking is a store whose joins panic.
type panicking struct{ ticketStore }

func (panicking) Join(context.Context, admission.Arrival) (admission.Standing, admission.Refusal, error) {
	panic("a fault of the test")
}

func TestCheck_PanicDenies(t *testing.T) {
	for _, check := range []Check{{}, {Dialect: dialect.Envoy, Deny: 302}} {
		c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(5)}}, Check: check})
		room := c.state.Load().byID["sale"]
		room.store.ticketStore = panicking{room.store.ticketStore}
		if a := c.ask("GET /", asPage); a.status != 401 || !strings.Contains(a.body, "internal") {
			t.Errorf("%s", a.text())
		}
	}
}

// storeCalls returns how often each script for visitors was called. The scripts of ticks are left out.
func storeCalls(t *testing.T, b *bench) map[string]uint64 {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "anteroom_store_command_seconds" {
			continue
		}
		for _, m := range f.Metric {
			switch script := m.Label[0].GetValue(); script {
			case "room_enter", "room_claim", "room_seen", "room_leave":
				calls[script] = m.Histogram.GetSampleCount()
			}
		}
	}
	return calls
}

// Checks with a pass, with a ticket and without either are answered from memory.
func TestCheck_MakesNoStoreCallWhileVisitorsWait(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(0)}}})
	ticket := c.call("POST /.waiting-room/sale/tickets", asJSON).code(t, 201)
	eventually(t, "there is a queue", func() bool { return c.queue("sale").Snapshot().Waiting == 1 })
	_, raw := aPass(t, "sale", 0, 300, "")
	before := storeCalls(t, c.bench)
	if before["room_enter"] == 0 {
		t.Fatalf("the calls of the ticket are not counted: %v", before)
	}
	for range 50 {
		c.ask("GET /seats", asPage, "Cookie: wr_sale_pass="+raw).code(t, 200)
		c.ask("GET /seats", asPage).code(t, 401)
		c.ask("GET /seats", asJSON, ticket.jar()).code(t, 401)
		c.ask("GET /seats", asImage).code(t, 401)
	}
	if after := storeCalls(t, c.bench); !maps.Equal(before, after) {
		t.Errorf("calls of the store: %v before the checks, %v after", before, after)
	}
}

// Envoy removes the fields that the response to a check lists: every name that an origin may read as the session and that the response does not
// replace.
func TestCheck_ListsFieldsForEnvoyToRemove(t *testing.T) {
	for _, d := range []dialect.Dialect{dialect.Envoy, dialect.GatewayAPI, dialect.Traefik} {
		c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(0), Bypass: []Bypass{{Paths: []string{"/static/"}}}}}, Check: Check{Dialect: d}})
		_, raw := aPass(t, "sale", 0, 300, "")
		for request, names := range map[string]int{"GET /static/a.css": 27, "GET /seats": 26} {
			if !d.RemovesFields() {
				names = 0
			}
			a := c.ask(request, "Cookie: wr_sale_pass="+raw).code(t, 200)
			list := strings.FieldsFunc(a.header.Get("X-Envoy-Auth-Headers-To-Remove"), func(r rune) bool { return r == ',' })
			if len(list) != names || slices.Contains(list, "x-waiting-room-session") != (names == 27) || slices.Contains(list, "x_waiting.room-session") != (names > 0) {
				t.Errorf("%s, %s: %d fields %q", d, request, len(list), list)
			}
		}
		if a := c.ask("GET /seats", asPage); a.status != 401 || a.header.Get("X-Envoy-Auth-Headers-To-Remove") != "" {
			t.Errorf("%s, denied: %s", d, a.text())
		}
	}
}
