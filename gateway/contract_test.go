package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/checktest"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// integrations are the proxies that these tests run a gateway beside. Each asks by the rules of the program that it is named after.
var integrations = []struct {
	name       string
	dialect    dialect.Dialect
	cookieless bool // a cookie of a passing check does not reach the visitor
	start      func(testing.TB, *Gateway, checktest.Site) http.Handler
}{
	{"traefik", dialect.Traefik, false, func(_ testing.TB, g *Gateway, s checktest.Site) http.Handler {
		var cookies []string
		for _, r := range g.state.Load().rooms {
			cookies = append(cookies, "wr_"+r.id+"_pass")
		}
		return checktest.Traefik(s, cookies...)
	}},
	{"envoy", dialect.Envoy, false, func(_ testing.TB, _ *Gateway, s checktest.Site) http.Handler { return checktest.Envoy(s) }},
	{"gateway-api", dialect.GatewayAPI, true, func(_ testing.TB, _ *Gateway, s checktest.Site) http.Handler { return checktest.GatewayAPI(s) }},
	{"envoy-grpc", dialect.Caddy, false, func(t testing.TB, g *Gateway, s checktest.Site) http.Handler {
		_, conn := overGRPC(t, g)
		return checktest.EnvoyGRPC(s, authv3.NewAuthorizationClient(conn))
	}},
}

// beside is a site whose proxy asks a gateway.
type beside struct {
	*checked
	proxied bench // sends to the proxy
	origin  *echo
	site    checktest.Site
}

// echo is an origin that reports in its response what it has received.
type echo struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func startEcho(t testing.TB) *echo {
	e := &echo{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		session := "none"
		for name, values := range r.Header {
			if strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name)) == "x-waiting-room-session" {
				if session = "session"; strings.Contains(strings.Join(values, ","), "forged") {
					session = "forged"
				}
			}
		}
		line := fmt.Sprintf("%s %s %s %s", r.Method, r.Host, r.RequestURI, session)
		e.mu.Lock()
		e.seen = append(e.seen, line)
		e.mu.Unlock()
		w.Header().Set("X-Origin", session)
		w.Header().Add("Set-Cookie", "cart=1")
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *echo) requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.seen...)
}

func startBeside(t testing.TB, at int, o Options) *beside {
	t.Helper()
	in := integrations[at]
	o.Check.Dialect = in.dialect
	b := &beside{checked: startChecked(t, o), origin: startEcho(t)}
	b.site = checktest.Site{Checks: b.at, Visitors: b.addr, Origin: strings.TrimPrefix(b.origin.URL, "http://")}
	front := httptest.NewServer(in.start(t, b.Gateway, b.site))
	t.Cleanup(front.Close)
	b.proxied = *b.bench
	b.proxied.addr = front.Listener.Addr().String()
	return b
}

// outcome returns what a visitor has received, in words.
func outcomeOf(a *response) string {
	if session := a.header.Get("X-Origin"); session != "" {
		if a.cookies["cart"] != "1" {
			return "the origin without its cookie"
		}
		for name := range a.cookies {
			if strings.HasSuffix(name, "_pass") {
				return "origin " + session + " +pass"
			}
		}
		return "origin " + session
	}
	kind := "text"
	switch t := a.header.Get("Content-Type"); {
	case strings.HasPrefix(t, "text/html"):
		kind = "page"
	case t == "application/json":
		kind = "json"
	case t == "application/problem+json":
		kind = a.field("code")
	case a.body == "":
		kind = "empty"
	}
	return strings.Join(strings.Fields(fmt.Sprint(a.status, " ", a.header.Get("X-Waiting-Room"), " ", kind)), " ")
}

// besideRooms are the rooms of the contract, one for each state, by host.
func besideRooms() []Room {
	room := func(id string, p admission.Policy) Room {
		return Room{ID: id, Hosts: []string{id + ".test"}, Policy: p, Bypass: []route.BypassRule{{Paths: []string{"/static/"}}, {Paths: []string{"/search"}, Methods: []string{"GET"}}}}
	}
	full := policy(0)
	full.Capacity = 1
	turn := policy(1)
	turn.Rate = 2000
	return []Room{
		room("free", policy(1000)), room("queue", policy(0)), room("other", policy(0)), room("turn", turn), room("paused", policy(1000)),
		room("shut", shut(policy(5))), room("full", full), room("before", lottery("before", 30*time.Minute, 10*time.Minute)), room("off", off(policy(0))),
	}
}

func TestContract(t *testing.T) {
	for at, in := range integrations {
		t.Run(in.name, func(t *testing.T) {
			b := startBeside(t, at, Options{Rooms: besideRooms()})
			contract(t, b, in.cookieless)
		})
	}
}

func contract(t *testing.T, b *beside, cookieless bool) {
	host := func(id string) string { return "Host: " + id + ".test" }
	with := func(room string, issued, ends int64) string {
		_, raw := aPass(t, room, issued, ends, "")
		return "Cookie: a=1; wr_" + room + "_pass=" + raw + "; b=2"
	}
	pass := with("queue", 0, 300)
	yes := true
	if err := b.line("paused").Patch(t.Context(), "ann", admission.Live{Paused: &yes}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the room is paused", func() bool { return b.line("paused").Snapshot().Policy.Paused })
	ticket := b.proxied.call("POST /.waiting-room/queue/tickets", asJSON, host("queue")).code(t, 201)
	b.proxied.call("POST /.waiting-room/full/tickets", asJSON, host("full")).code(t, 201)
	eventually(t, "the room is full", func() bool { return b.line("full").Snapshot().Waiting == 1 })
	revoked, raw := aPass(t, "queue", 0, 300, "")
	b.state.Load().byID["queue"].store.Revoke(admission.ID(revoked.Session))

	admits := func(with, without string) string {
		if cookieless {
			return without
		}
		return with
	}
	for _, row := range []struct {
		name, want string
		request    []string
	}{
		{"a free room admits a page", admits("origin session +pass", "401 waiting page"), []string{"GET /", asPage, host("free")}},
		{"a free room admits an API client", admits("origin session +pass", "401 waiting json"), []string{"POST /order", asJSON, host("free")}},
		{"a queue shows the page", "401 waiting page", []string{"GET /", asPage, host("queue")}},
		{"a queue sends its status", "401 waiting json", []string{"GET /", asJSON, host("queue")}},
		{"a ticket shows its place", "401 waiting json", []string{"GET /", asJSON, host("queue"), ticket.jar()}},
		{"a pass", "origin session", []string{"GET /", asPage, host("queue"), pass}},
		{"a pass past half its life", admits("origin session +pass", "origin session"), []string{"GET /", asPage, host("queue"), with("queue", -200, 100)}},
		{"an image without a pass", "401 waiting text", []string{"GET /a.png", asImage, host("queue")}},
		{"an image with a pass", "origin session", []string{"GET /a.png", asImage, host("queue"), pass}},
		{"a CORS preflight", "origin none", []string{"OPTIONS /order", "Origin: http://shop.test", "Access-Control-Request-Method: PUT", host("queue")}},
		{"OPTIONS that is no preflight", "401 waiting json", []string{"OPTIONS /order", asJSON, host("queue")}},
		{"a bypass rule", "origin none", []string{"GET /static/a.css", host("queue")}},
		{"a bypass rule with a session of the visitor's", "origin none", []string{"GET /static/a.css", host("queue"), "X-Waiting-Room-Session: forged"}},
		{"a pass with a session of the visitor's", "origin session", []string{"GET /", host("queue"), pass, "X-Waiting-Room-Session: forged"}},
		{"a paused room", "401 waiting page", []string{"GET /", asPage, host("paused")}},
		{"a closed room shows a page", "401 rejected page", []string{"GET /", asPage, host("shut")}},
		{"a closed room sends a problem", "401 rejected room_closed", []string{"GET /", asJSON, host("shut")}},
		{"a pass of a closed room", "origin session", []string{"GET /", host("shut"), with("shut", 0, 300)}},
		{"a full room", admits("401 rejected page", "401 waiting page"), []string{"GET /", asPage, host("full")}},
		{"a room before it opens", "401 prequeue page", []string{"GET /", asPage, host("before")}},
		{"a room that is off", "origin none", []string{"GET /", asPage, host("off")}},
		{"a revoked session", "401 waiting page", []string{"GET /", asPage, host("queue"), "Cookie: wr_queue_pass=" + raw}},
		{"a pass that has ended", "401 waiting page", []string{"GET /", asPage, host("queue"), with("queue", -400, -100)}},
		{"a pass of another room", "401 waiting page", []string{"GET /", asPage, host("other"), pass}},
		{"HEAD with a pass", "origin session", []string{"HEAD /seats", host("queue"), pass}},
		{"HEAD without a pass", "401 waiting page", []string{"HEAD /seats", asPage, host("queue")}},
		{"an unknown host", "403 check_refused", []string{"GET /", asJSON, "Host: unknown.test"}},
	} {
		a := b.proxied.call(row.request...)
		if row.name == "an unknown host" && a.status == 403 {
			continue // the problem is unknown_host
		}
		if got := outcomeOf(a); got != row.want {
			t.Errorf("%s: %s, want %s: %.600s", row.name, got, row.want, a.text())
		}
		if a.header.Get("X-Origin") == "" && (len(a.cookies) > 0 || a.header.Get("X-Envoy-Auth-Headers-To-Remove") != "") {
			t.Errorf("%s: %s", row.name, a.text())
		}
	}
	if a := b.proxied.call("POST /order?a=%2F&b=%zz;c=/x//y&d=%00", host("queue"), pass, "", "seat=7&row=8"); a.body != "POST /order?a=%2F&b=%zz;c=/x//y&d=%00 seat=7&row=8" {
		t.Errorf("the body and the query arrive as %q", a.body)
	}
	if n := b.line("queue").Snapshot().Waiting; n != 1 {
		t.Errorf("%d places in the queue after the checks, want that of the ticket", n)
	}
	untilAdmitted(t, b)
}

// untilAdmitted takes a ticket through the proxy, waits, and sends a request with the pass of its claim.
func untilAdmitted(t *testing.T, b *beside) {
	const host = "Host: turn.test"
	for range 3 { // leave the room without capacity
		b.proxied.call("POST /.waiting-room/turn/tickets", asJSON, host)
	}
	ticket := b.proxied.call("POST /.waiting-room/turn/tickets", asJSON, host).code(t, 201)
	jar := ticket.cookies
	eventually(t, "the ticket is admitted", func() bool {
		a := b.proxied.call("GET /.waiting-room/turn/status", asJSON, host, (&response{cookies: jar}).jar())
		for name, value := range a.cookies {
			jar[name] = value
		}
		return a.field("state") == "admitted"
	})
	if got := outcomeOf(b.proxied.call("GET /", asPage, host, (&response{cookies: jar}).jar())); got != "origin session" {
		t.Errorf("after the claim: %s", got)
	}
}

func TestContract_StoreAway(t *testing.T) {
	short.Skip(t, "waits for the clock")
	for at, in := range integrations {
		t.Run(in.name, func(t *testing.T) {
			srv := redistest.Server(t)
			var rooms []Room
			for _, mode := range []string{admission.OnErrorWait, admission.OnErrorOpen, admission.OnErrorClosed} {
				p := policy(1)
				p.OnStoreError = mode
				rooms = append(rooms, Room{ID: mode, Hosts: []string{mode + ".test"}, Policy: p})
			}
			b := startBesideStore(t, at, srv, Options{Rooms: rooms})
			srv.Kill()
			eventually(t, "the store is known to be away", func() bool { return !b.core.Up() })
			_, raw := aPass(t, "closed", 0, 300, "")
			if got := outcomeOf(b.proxied.call("GET /", asPage, "Host: closed.test", "Cookie: wr_closed_pass="+raw)); got != "origin session" {
				t.Errorf("a pass while the store is away: %s", got)
			}
			for mode, want := range map[string]string{"wait": "401 waiting json", "open": "origin session +pass", "closed": "401 store_unavailable"} {
				if in.cookieless { // the visitor takes a ticket, which decides
					want = "401 waiting json"
				}
				eventually(t, "on_store_error "+mode+" leads to "+want, func() bool {
					return outcomeOf(b.proxied.call("GET /", asJSON, "Host: "+mode+".test")) == want
				})
			}
		})
	}
}

// startBesideStore is startBeside with a store of its own.
func startBesideStore(t testing.TB, at int, srv *redistest.PrivateServer, o Options) *beside {
	t.Helper()
	o.Check.Trusted, o.TrustedProxies, o.Check.Dialect = loopback(), loopback(), integrations[at].dialect
	b := &beside{checked: &checked{bench: start(t, srv.Client(), "wr", o)}, origin: startEcho(t)}
	b.serveChecks(t)
	b.site = checktest.Site{Checks: b.at, Visitors: b.addr, Origin: strings.TrimPrefix(b.origin.URL, "http://")}
	front := httptest.NewServer(integrations[at].start(t, b.Gateway, b.site))
	t.Cleanup(front.Close)
	b.proxied = *b.bench
	b.proxied.addr = front.Listener.Addr().String()
	return b
}

// No proxy lets a request pass that it could not ask about.
func TestContract_GatewayAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := ln.Addr().String()
	ln.Close()
	for at, in := range integrations {
		b := startBeside(t, at, Options{Rooms: []Room{{ID: "sale", Policy: policy(1000)}}})
		var handler http.Handler
		if in.name == "envoy-grpc" {
			s, conn := overGRPC(t, b.Gateway)
			s.Close()
			handler = checktest.EnvoyGRPC(b.site, authv3.NewAuthorizationClient(conn))
		} else {
			b.site.Checks = gone
			handler = in.start(t, b.Gateway, b.site)
		}
		front := httptest.NewServer(handler)
		b.proxied.addr = front.Listener.Addr().String()
		a := b.proxied.call("GET /", asPage)
		front.Close()
		if a.status < 400 || len(b.origin.requests()) != 0 {
			t.Errorf("%s: %s", in.name, a.text())
		}
	}
}
