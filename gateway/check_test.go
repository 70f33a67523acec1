package gateway

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/redistest"
)

// checked is a gateway beside a proxy that speaks nginx's dialect unless a test says otherwise.
type checked struct {
	*bench
	at string // of checks
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
	return c
}

// ask sends a check about a request, given as to call, in the dialect of the gateway.
func (c *checked) ask(request string, fields ...string) *response {
	c.t.Helper()
	method, target, _ := strings.Cut(request, " ")
	lines := []string{"GET " + check.Path}
	switch c.state.Load().options.Check.Dialect.Family() {
	case dialect.Original:
		lines = append(lines, "X-Original-Method: "+method, "X-Original-URI: "+target)
	case dialect.Forwarded:
		lines = append(lines, "X-Forwarded-Method: "+method, "X-Forwarded-Uri: "+target, "X-Forwarded-Host: shop.test")
	case dialect.Itself:
		lines[0] = method + " " + check.Path + target
	}
	lines = append(lines, "X-Forwarded-Proto: http", "X-Forwarded-For: 192.0.2.7")
	return c.raw(append(lines, fields...)...)
}

// raw sends a check as it is written.
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

func TestCheck_AdmittedAtVisitorsSocketSendsRequestAgain(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(1)}}})
	a := c.call("POST /seats?id=7", asPage, "X-Forwarded-For: 192.0.2.7", "", "id=7").code(t, 307)
	if a.header.Get("Location") != "/seats?id=7" || a.cookies["wr_sale_pass"] == "" {
		t.Errorf("%s", a.text())
	}
	if b := c.call("GET /seats", asPage, a.jar()); b.status != 502 {
		t.Errorf("with a pass, without an origin: %s", b.text())
	}
}
