package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

func TestPanic_EndsOnlyRequest(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	room := b.state.Load().byID["sale"]
	whole := room.store
	room.store = brokenStore(whole)
	a := b.call("GET /", asJSON)
	if !a.closed {
		t.Error("the connection goes on")
	}
	a.is(t, `
500
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:internal","title":"Internal error","status":500,"detail":"The gateway failed and has logged the error. Try again in a moment.","code":"internal"}`)
	room.store = whole
	b.call("GET /", asJSON).code(t, 202)
	if log := b.logs.String(); !strings.Contains(log, "fault in a request") || !strings.Contains(log, "a fault of the test") {
		t.Errorf("the log: %s", log)
	}
}

// A panic while the origin responds releases the request's connection and share of the origin.
func TestPanic_WhileForwardingFreesOrigin(t *testing.T) {
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Waiting-Room-Command", "revoke")
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "ok")
	})
	at := originAt("shop", s.URL)
	at.MaxConns = 1
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{at}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}})
	room := b.state.Load().byID["sale"]
	room.store = brokenStore(room.store)
	_, raw := aPass(t, "sale", 0, 300, "")
	with := "Cookie: wr_sale_pass=" + raw
	for range 3 {
		for _, request := range [][]string{{"GET /", with}, {"POST /", with, "", "body"}, {"GET /", with, "Connection: upgrade", "Upgrade: x"}} {
			if a := b.call(request...).code(t, 500); !a.closed {
				t.Errorf("%s: the connection goes on", request)
			}
		}
	}
	eventually(t, "no request is counted", func() bool { return b.life.running.Load() == 0 })
}

// A panic in an event stream ends the stream.
func TestEvents_PanicEndsStream(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	ticket := b.call("POST /.waiting-room/sale/tickets").code(t, 201).field("token")
	room := b.state.Load().byID["sale"]
	room.store = brokenStore(room.store)
	a := b.call("GET /.waiting-room/sale/events", "Authorization: Bearer "+ticket).code(t, 200)
	if !strings.HasPrefix(a.body, "retry: ") || strings.Contains(a.body, "event:") {
		t.Errorf("%q", a.body)
	}
	eventually(t, "the stream's place is given back", func() bool { return openStreams(b) == 0 })
	if log := b.logs.String(); !strings.Contains(log, "fault in an event stream") {
		t.Errorf("the log: %s", log)
	}
}

// brokenStore panics if faulty or faultySessions is set.
func brokenStore(s store) store {
	s.ticketStore, s.sessionStore = faulty{s.ticketStore}, faultySessions{s.sessionStore}
	return s
}

type (
	faulty         struct{ ticketStore }
	faultySessions struct{ sessionStore }
)

func (faulty) Check(context.Context, admission.Ticket) (admission.Standing, error) {
	panic("a fault of the test")
}

func (faultySessions) Revoke(admission.ID) { panic("a fault of the test") }

func (faulty) Join(context.Context, admission.Arrival) (admission.Standing, admission.Refusal, error) {
	panic("a fault of the test")
}

func TestStoreAway_FollowsPolicy(t *testing.T) {
	short.Skip(t, "waits for the clock")
	srv := redistest.Server(t)
	s := newSite(t, "shop", nil)
	rooms := []Room{}
	for _, mode := range []string{admission.OnErrorWait, admission.OnErrorOpen, admission.OnErrorClosed} {
		p := policy(1)
		p.OnStoreError = mode
		rooms = append(rooms, Room{ID: mode, Paths: []string{"/" + mode}, Policy: p})
	}
	lined := policy(1)
	lined.OnStoreError = admission.OnErrorOpen
	rooms = append(rooms, Room{ID: "lined", Paths: []string{"/lined"}, Policy: lined})
	b := start(t, srv.Client(), "wr", Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: rooms})
	b.call("GET /wait", asJSON).code(t, 200)
	waits := b.call("GET /wait", asJSON).code(t, 202)
	b.call("GET /lined", asJSON).code(t, 200)
	before := b.call("GET /lined", asJSON).code(t, 202)
	srv.Kill()
	eventually(t, "the store is known to be away", func() bool { return !b.core.Up() })
	_, raw := aPass(t, "wait", 0, 300, "")
	b.call("GET /wait", asJSON, "X-Waiting-Room-Pass: "+raw).code(t, 200)
	eventually(t, "a new visitor waits", func() bool { return b.call("GET /wait", asJSON).status == 202 })
	kept := b.call("GET /.waiting-room/wait/status", waits.jar()).code(t, 200)
	if kept.field("state") != "waiting" || kept.field("position") != "1" || kept.field("joined_at") != waits.field("joined_at") {
		t.Errorf("the place while the store is away: %s", kept.text())
	}
	eventually(t, "open admits", func() bool {
		a := b.call("GET /open", asJSON)
		return a.status == 200 && readPass(t, a.header.Get("X-Waiting-Room-Pass"), "open").Off
	})
	eventually(t, "open admits the waiting visitors", func() bool {
		a := b.call("GET /.waiting-room/lined/status", before.jar()).code(t, 200)
		return a.field("state") == "admitted" && readPass(t, a.field("pass"), "lined").Off
	})
	eventually(t, "closed refuses", func() bool {
		a := b.call("GET /closed", asJSON)
		return a.status == 503 && a.field("code") == "store_unavailable" && a.header.Get("Retry-After") == "5"
	})
	b.call("GET /closed", asPage).code(t, 503)
	b.call("GET /wait/i.png", "Sec-Fetch-Dest: image").code(t, 503)
}

func TestOriginAway_IsProblem(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + ln.Addr().String()
	ln.Close()
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", dead)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}},
	})
	a := b.call("GET /", asJSON)
	a.is(t, `
502
Cache-Control: no-store
Content-Type: application/problem+json
Set-Cookie: wr_sale_pass=JWT; Path=/; Max-Age=TTL; HttpOnly; SameSite=Lax
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room-Pass: JWT

{"type":"urn:anteroom:problem:origin_unreachable","title":"The site cannot be reached","status":502,"detail":"No connection to the site behind this page could be made. Try again in a moment.","code":"origin_unreachable"}`)
	if b.call("GET /", asPage, a.jar()).code(t, 502).header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Error("a client.Navigation does not get a page")
	}
	const want = `
# HELP anteroom_upstream_errors_total Requests to an origin that failed.
# TYPE anteroom_upstream_errors_total counter
`
	var rows []string
	for _, kind := range proxy.Kinds() {
		n := 0
		if kind == proxy.KindConnect {
			n = 2
		}
		rows = append(rows, fmt.Sprintf("anteroom_upstream_errors_total{kind=%q,origin=\"shop\"} %d", kind, n))
	}
	slices.Sort(rows)
	if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want+strings.Join(rows, "\n")+"\n"), "anteroom_upstream_errors_total"); err != nil {
		t.Error(err)
	}
}
