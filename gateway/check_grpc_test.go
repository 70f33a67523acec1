package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/anteroom/anteroom/gateway/extauthz"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/redistest"
)

// overGRPC serves the checks of a gateway over gRPC, and returns the server and a connection to it.
func overGRPC(t testing.TB, g *Gateway) (*extauthz.Server, *grpc.ClientConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := extauthz.New(g)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Close()
		if err := <-done; err != nil {
			t.Errorf("serve checks over gRPC: %v", err)
		}
	})
	return s, conn
}

// described returns the check that Envoy sends about a request, which is written as for call.
func described(request string, fields ...string) *authv3.CheckRequest {
	method, target, _ := strings.Cut(request, " ")
	h := &authv3.AttributeContext_HttpRequest{Method: method, Path: target, Host: "shop.test", Scheme: "http", Headers: map[string]string{
		":method": method, ":path": target, ":authority": "shop.test", ":scheme": "http", "x-forwarded-proto": "http",
	}}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Headers[strings.ToLower(name)] = value
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Source: sourceAt("192.0.2.7"), Request: &authv3.AttributeContext_Request{Http: h}}}
}

// sourceAt returns a client's connection from an address, as Envoy describes it.
func sourceAt(address string) *authv3.AttributeContext_Peer {
	return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 40001},
	}}}}
}

// inquire sends a check and returns the response.
func inquire(t testing.TB, conn *grpc.ClientConn, r *authv3.CheckRequest) *authv3.CheckResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := authv3.NewAuthorizationClient(conn).Check(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// option returns the kind and the value of the change of a field in a list; empty without one.
func option(list []*corev3.HeaderValueOption, name string) string {
	for _, o := range list {
		if o.Header.Key == name {
			return o.AppendAction.String() + " " + o.Header.Value
		}
	}
	return ""
}

func TestCheckGRPC_FromQueueToPass(t *testing.T) {
	slow := policy(1)
	slow.Rate = 500
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: slow}}})
	_, conn := overGRPC(t, c.Gateway)

	first := inquire(t, conn, described("GET /seats", asPage))
	ok := first.GetOkResponse()
	cookie := option(ok.GetResponseHeadersToAdd(), "set-cookie")
	session := option(ok.GetHeaders(), "x-waiting-room-session")
	switch {
	case first.Status.Code != int32(codes.OK) || ok == nil:
		t.Fatalf("a free room: %v", first)
	case !strings.HasPrefix(session, "OVERWRITE_IF_EXISTS_OR_ADD ") || len(session) < len("OVERWRITE_IF_EXISTS_OR_ADD ")+22,
		option(ok.Headers, "x-waiting-room") != "OVERWRITE_IF_EXISTS_OR_ADD pass",
		!strings.HasPrefix(cookie, "APPEND_IF_EXISTS_OR_ADD wr_sale_pass="),
		option(ok.ResponseHeadersToAdd, "cache-control") != "OVERWRITE_IF_EXISTS_OR_ADD private, no-store",
		len(ok.HeadersToRemove) != 26 || slices.Contains(ok.HeadersToRemove, "x-waiting-room-session"),
		first.DynamicMetadata.Fields["room"].GetStringValue() != "sale", first.DynamicMetadata.Fields["state"].GetStringValue() != "pass":
		t.Errorf("a free room: %v", first)
	}

	pass, _, _ := strings.Cut(strings.TrimPrefix(cookie, "APPEND_IF_EXISTS_OR_ADD "), ";")
	again := inquire(t, conn, described("POST /seats", "Cookie: "+pass, "X-Waiting-Room-Session: forged"))
	if ok = again.GetOkResponse(); option(ok.GetHeaders(), "x-waiting-room-session") != session || len(ok.GetResponseHeadersToAdd()) != 0 {
		t.Errorf("with the pass: %v", again)
	}

	page := inquire(t, conn, described("GET /seats", asPage))
	denied := page.GetDeniedResponse()
	switch {
	case page.Status.Code != int32(codes.Unauthenticated) || denied.GetStatus().GetCode() != 401:
		t.Errorf("has to wait: %v", page)
	case !strings.Contains(denied.Body, `data-refresh="0"`), option(denied.Headers, "x-waiting-room") != "OVERWRITE_IF_EXISTS_OR_ADD waiting",
		option(denied.Headers, "retry-after") == "", option(denied.Headers, "content-security-policy") == "",
		option(denied.Headers, "content-type") != "OVERWRITE_IF_EXISTS_OR_ADD text/html; charset=utf-8",
		option(denied.Headers, "cache-control") != "OVERWRITE_IF_EXISTS_OR_ADD no-store", option(denied.Headers, "set-cookie") != "",
		page.DynamicMetadata.Fields["state"].GetStringValue() != "waiting":
		t.Errorf("the page: %v", page)
	}
	if n := c.state.Load().rooms[0].queue.Snapshot().Waiting; n != 0 {
		t.Errorf("%d places after checks, want none", n)
	}
}

func TestCheckGRPC_BypassRemovesSession(t *testing.T) {
	p := policy(0)
	p.Enabled = false
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: p}}})
	_, conn := overGRPC(t, c.Gateway)
	a := inquire(t, conn, described("GET /", "X-Waiting-Room-Session: forged", "X-Waiting.Room-Session: forged"))
	if a.GetDeniedResponse().GetStatus().GetCode() != 403 {
		t.Errorf("an alias of the field: %v", a)
	}
	a = inquire(t, conn, described("GET /", "X-Waiting-Room-Session: forged"))
	got := a.GetOkResponse().GetHeadersToRemove()
	for _, name := range []string{"x-waiting-room-session", "x_waiting_room_session", "x.waiting.room.session", "x-waiting_room.session"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not removed: %q", name, got)
		}
	}
}

// Requests that would be refused over HTTP are refused over gRPC, with the same response.
func TestCheckGRPC_RefusesInvalidRequests(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(1000)}}})
	_, conn := overGRPC(t, c.Gateway)
	type http = authv3.AttributeContext_HttpRequest
	field := func(name, value string) func(*http) { return func(h *http) { h.Headers[name] = value } }
	raw := func(values ...*corev3.HeaderValue) func(*http) {
		return func(h *http) { h.Headers, h.HeaderMap = nil, &corev3.HeaderMap{Headers: values} }
	}
	for _, row := range []struct {
		what   string
		change func(*http)
		reason string
	}{
		{"no method", func(h *http) { h.Method, h.Headers = "", nil }, "method"},
		{"a method with a blank", func(h *http) { h.Method, h.Headers = "GET /a", nil }, "method"},
		{"a method with a line break", func(h *http) { h.Method, h.Headers = "GET\r\n", nil }, "method"},
		{"no path", func(h *http) { h.Path, h.Headers = "", nil }, "target"},
		{"OPTIONS *", func(h *http) { h.Method, h.Path, h.Headers = "OPTIONS", "*", nil }, "target"},
		{"an absolute path", func(h *http) { h.Path, h.Headers = "http://shop.test/", nil }, "target"},
		{"a path with a blank", func(h *http) { h.Path, h.Headers = "/a HTTP/1.1", nil }, "request"},
		{"a path with a line break", func(h *http) { h.Path, h.Headers = "/a\r\nx: y", nil }, "request"},
		{"a path with a fragment", func(h *http) { h.Path, h.Headers = "/a#b", nil }, "request"},
		{"a path of 9 KB", func(h *http) { h.Path, h.Headers = "/"+strings.Repeat("a", 9<<10), nil }, "request"},
		{"no host", func(h *http) { h.Host, h.Headers = "", nil }, "host"},
		{"two hosts in one", func(h *http) { h.Host, h.Headers = "shop.test,free.test", nil }, "request"},
		{"a host with a line break", func(h *http) { h.Host, h.Headers = "shop.test\r\nx: y", nil }, "request"},
		{":authority of another host", field(":authority", "free.test"), "request"},
		{"Host of another host", field("host", "free.test"), "host"},
		{"another :path", field(":path", "/free"), "request"},
		{"another :method", field(":method", "HEAD"), "request"},
		{"another :scheme", field(":scheme", "https"), "request"},
		{"an unknown pseudo-header field", field(":protocol", "websocket"), "request"},
		{"a scheme that is not HTTP", func(h *http) { h.Scheme, h.Headers = "ftp", nil }, "scheme"},
		{"two X-Forwarded-Proto", field("x-forwarded-proto", "http,https"), "scheme"},
		{"a name in upper case", field("Accept", "text/html"), "request"},
		{"a name with a colon", field("a: b", "c"), "request"},
		{"a name with a line break", field("a\r\nb", "c"), "request"},
		{"an empty name", field("", "c"), "request"},
		{"a value with a line break", field("a", "b\r\nc: d"), "request"},
		{"a value with a control character", field("a", "b\x00"), "request"},
		{"a dropped field with a control character", field("x-forwarded-uri", "\x7f"), "request"},
		{"an alias of the session", field("x_waiting_room_session", "forged"), "request"},
		{"an alias of X-Forwarded-For", field("x_forwarded_for", "192.0.2.9"), "request"},
		{"101 fields", func(h *http) {
			for i := range 101 {
				h.Headers["a"+strings.Repeat("b", i)] = "c"
			}
		}, "request"},
		{"a field of 32 KB", field("a", strings.Repeat("b", 32<<10)), "request"},
		{"a field of 1 MB", field("a", strings.Repeat("b", 1<<20)), "request"},
		{"a field in two encodings", raw(&corev3.HeaderValue{Key: "a", Value: "b", RawValue: []byte("c")}), "request"},
		{"a field map and a list", func(h *http) { h.HeaderMap = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: "a", Value: "b"}}} }, "request"},
		{"two hosts in a list", raw(&corev3.HeaderValue{Key: "host", Value: "shop.test"}, &corev3.HeaderValue{Key: "host", Value: "free.test"}), "host"},
		{"two X-Forwarded-Proto in a list", raw(&corev3.HeaderValue{Key: "x-forwarded-proto", Value: "http"}, &corev3.HeaderValue{Key: "x-forwarded-proto", Value: "http"}), "scheme"},
		{"no HTTP attributes", nil, "target"},
	} {
		r := described("GET /", asJSON)
		if row.change == nil {
			r.Attributes.Request = nil
		} else {
			row.change(r.Attributes.Request.Http)
		}
		before := refusedChecks(c, row.reason)
		a := inquire(t, conn, r)
		d := a.GetDeniedResponse()
		if a.Status.Code != int32(codes.PermissionDenied) || d.GetStatus().GetCode() != 403 || !strings.Contains(d.GetBody(), `"code":"check_refused"`) {
			t.Errorf("%s: %v", row.what, a)
		}
		if n := refusedChecks(c, row.reason) - before; n != 1 {
			t.Errorf("%s: counted %v times as %s", row.what, n, row.reason)
		}
	}
	if a := inquire(t, conn, described("GET /", asJSON)); a.GetOkResponse() == nil {
		t.Errorf("a valid check after those: %v", a)
	}
}

// refusedChecks returns how many checks were refused for a reason.
func refusedChecks(c *checked, reason string) float64 {
	return testutil.ToFloat64(c.metrics.ChecksRefused[reason])
}

func networks(list ...string) (all []netip.Prefix) {
	for _, n := range list {
		all = append(all, netip.MustParsePrefix(n))
	}
	return all
}

func TestCheckGRPC_UnlistedPeerIsRefused(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(1000)}}, Check: Check{Trusted: networks("10.0.0.0/8")}})
	_, conn := overGRPC(t, c.Gateway)
	a := inquire(t, conn, described("GET /"))
	if a.Status.Code != int32(codes.PermissionDenied) || a.GetDeniedResponse().GetStatus().GetCode() != 403 || refusedChecks(c, "peer") != 1 {
		t.Errorf("%v", a)
	}
	if n, err := testutil.GatherAndCount(c.reg, "anteroom_checks_refused_total"); err != nil || n == 0 {
		t.Errorf("%d series of refused checks in the metrics, %v", n, err)
	}
}

// The visitor's address is that of the connection to Envoy. X-Forwarded-For counts only if that is the address of a trusted proxy.
func TestCheckGRPC_AddressOfVisitor(t *testing.T) {
	for _, row := range []struct{ source, chain, want string }{
		{"192.0.2.7", "", "192.0.2.7"},
		{"192.0.2.7", "198.51.100.1", "192.0.2.7"},
		{"192.0.2.7", "10.1.1.1", "192.0.2.7"},
		{"10.1.1.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"},
		{"10.1.1.1", "198.51.100.1, 203.0.113.9, 10.1.1.1", "203.0.113.9"},
		{"10.1.1.1", "198.51.100.1,203.0.113.9,10.1.1.1", "203.0.113.9"},
		{"10.1.1.1", "", "10.1.1.1"},
		{"2001:db8::7", "", "2001:db8::7"},
		{"::ffff:192.0.2.7", "", "192.0.2.7"},
		{"", "203.0.113.9", "203.0.113.9"},
		{"", "", "127.0.0.1"},
	} {
		log := &syncBuffer{}
		trusted := networks("127.0.0.1/32", "10.0.0.0/8")
		c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(1000)}}, Check: Check{Trusted: trusted}, Access: Access{Output: log, Sample: 1}})
		_, conn := overGRPC(t, c.Gateway)
		r := described("GET /seats?row=7")
		if r.Attributes.Source = sourceAt(row.source); row.source == "" {
			r.Attributes.Source = nil
		}
		if row.chain != "" {
			r.Attributes.Request.Http.Headers["x-forwarded-for"] = row.chain
		}
		inquire(t, conn, r)
		eventually(t, "the check is logged", func() bool { return strings.Contains(log.String(), "/seats?row=7") })
		if !strings.Contains(log.String(), `"`+row.want+`"`) {
			t.Errorf("from %q with %q, want %s: %s", row.source, row.chain, row.want, log.String())
		}
	}
}

func TestCheckGRPC_Deny(t *testing.T) {
	for _, row := range []struct {
		deny    int
		request []string
		want    int32
		code    codes.Code
	}{
		{429, []string{"GET /", asPage}, 429, codes.Unauthenticated},
		{503, []string{"GET /", asJSON}, 503, codes.Unauthenticated},
		{403, []string{"GET /", asJSON}, 403, codes.PermissionDenied},
		{302, []string{"GET /", asPage}, 302, codes.Unauthenticated},
		{302, []string{"GET /", asJSON}, 401, codes.Unauthenticated},
	} {
		c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(0)}}, Check: Check{Deny: row.deny}})
		_, conn := overGRPC(t, c.Gateway)
		a := inquire(t, conn, described(row.request[0], row.request[1:]...))
		if d := a.GetDeniedResponse(); int32(d.GetStatus().GetCode()) != row.want || a.Status.Code != int32(row.code) {
			t.Errorf("deny %d, %s: %v", row.deny, row.request[1], a)
		} else if row.want == 302 && (option(d.Headers, "location") != "OVERWRITE_IF_EXISTS_OR_ADD /.waiting-room/sale/" || d.Body != "") {
			t.Errorf("the redirect: %v", a)
		}
	}
}

// check.dialect does not limit the statuses of denials over gRPC: Envoy can send all of them to the visitor.
func TestCheckGRPC_DialectDoesNotLimitStatus(t *testing.T) {
	room := Room{ID: "sale", Policy: policy(5), SessionRequests: meter.Quota{N: 1, Per: time.Hour}}
	c := startChecked(t, Options{Rooms: []Room{room}, Check: Check{Dialect: dialect.Nginx}})
	_, conn := overGRPC(t, c.Gateway)
	_, raw := aPass(t, "sale", 0, 300, "")
	inquire(t, conn, described("GET /", "Cookie: wr_sale_pass="+raw))
	if a := inquire(t, conn, described("GET /", "Cookie: wr_sale_pass="+raw)); a.GetDeniedResponse().GetStatus().GetCode() != 429 {
		t.Errorf("over guard.requests_per_session: %v", a)
	}
}

func TestCheckGRPC_HealthAndShutdown(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(1000)}}})
	s, conn := overGRPC(t, c.Gateway)
	health := grpc_health_v1.NewHealthClient(conn)
	ask := func(service string) (string, error) {
		a, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		return a.GetStatus().String(), err
	}
	for _, service := range []string{"", "envoy.service.auth.v3.Authorization"} {
		if got, err := ask(service); err != nil || got != "SERVING" {
			t.Errorf("%q: %s %v", service, got, err)
		}
	}
	if _, err := ask("other"); err == nil {
		t.Error("an unknown service is healthy")
	}
	c.NotReady()
	if got, err := ask(""); err != nil || got != "NOT_SERVING" {
		t.Errorf("after NotReady: %s %v", got, err)
	}
	if a := inquire(t, conn, described("GET /")); a.GetOkResponse() == nil {
		t.Errorf("a check after NotReady: %v", a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown with an idle connection: %v", err)
	}
}

// Shutdown waits for checks in progress, and cuts them off when its context ends.
func TestCheckGRPC_ShutdownWaitsForChecks(t *testing.T) {
	for _, patient := range []bool{true, false} {
		store := redistest.Server(t)
		c := &checked{bench: start(t, store.Client(), "wr", Options{
			Rooms: []Room{{ID: "sale", Policy: policy(1000)}}, Check: Check{Trusted: loopback()}, TrustedProxies: loopback(),
		})}
		s, conn := overGRPC(t, c.Gateway)
		store.Stop() // a join waits for the store
		type result struct {
			answer *authv3.CheckResponse
			err    error
		}
		answered := make(chan result, 1)
		go func() {
			a, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), described("GET /", asPage))
			answered <- result{a, err}
		}()
		eventually(t, "the check has begun", func() bool { return c.life.running.Load() > 0 })
		limit := time.Minute
		if !patient {
			limit = 50 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		ended, began := make(chan error, 1), time.Now()
		go func() { ended <- s.Shutdown(ctx) }()
		if patient {
			eventually(t, "the server accepts no more", func() bool {
				other, err := net.Dial("tcp", conn.Target())
				if err == nil {
					other.Close()
				}
				return err != nil
			})
			store.Cont()
		}
		a, err := <-answered, <-ended
		cancel()
		if patient && (a.err != nil || a.answer.GetOkResponse() == nil || err != nil) {
			t.Errorf("the check: %v, the shutdown: %v", a, err)
		}
		if took := time.Since(began); !patient && (a.err == nil || err == nil || took > 8*time.Second) { // the join takes 10 s
			t.Errorf("cut: the check: %v, the shutdown: %v after %s", a, err, took)
		}
		store.Cont()
	}
}

// A fault of the gateway denies the request. After an error of the call Envoy would let it pass with failure_mode_allow.
func TestCheckGRPC_PanicDenies(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(5)}}})
	_, conn := overGRPC(t, c.Gateway)
	room := c.state.Load().byID["sale"]
	room.store.ticketStore = panicking{room.store.ticketStore}
	if a := inquire(t, conn, described("GET /", asPage)); a.GetDeniedResponse().GetStatus().GetCode() != 401 || !strings.Contains(a.GetDeniedResponse().GetBody(), "internal") {
		t.Errorf("%v", a)
	}
}
