package gateway

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/redistest"
)

// queue returns the queue of a room, for changes by operators.
func (b *bench) queue(room string) *admission.Room {
	return b.state.Load().byID[room].queue
}

// rate changes the rate of a room, in visitors a second, as an operator does.
func (b *bench) rate(room string, perSecond int64) {
	b.t.Helper()
	rate, burst := perSecond*1000, max(1000, perSecond*1000)
	if err := b.queue(room).Patch(b.t.Context(), "test", admission.Live{Rate: &rate, Burst: &burst}); err != nil {
		b.t.Fatal(err)
	}
}

func TestAPI_JoinPollClaim(t *testing.T) {
	b, s := one(t, Room{ID: "sale", Policy: policy(1)})
	b.call("GET /", asJSON).code(t, 200) // takes the only place
	join := b.call("POST /.waiting-room/sale/tickets", "Content-Type: application/json", "", "{}")
	join.is(t, `
201
Cache-Control: no-store
Content-Type: application/json
Retry-After: N
Set-Cookie: wr_sale_nonce=NONCE; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax
Set-Cookie: wr_sale_ticket=JWT; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room: waiting

{"room":"sale","state":"waiting","position":1,"ahead":0,"waiting":1,"eta":ETA,"refresh_after":N,"joined_at":"TIME","message":"","paused":false,"token":"JWT"}`)
	token := join.field("token")
	if token == "" || join.cookies["wr_sale_ticket"] != token {
		t.Fatalf("the cookie is not the token: %q %q", token, join.cookies)
	}
	want := `
200
Cache-Control: no-store
Content-Type: application/json
Retry-After: N
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room: waiting

{"room":"sale","state":"waiting","position":1,"ahead":0,"waiting":1,"eta":ETA,"refresh_after":N,"joined_at":"TIME","message":"","paused":false}`
	for _, how := range []string{"Cookie: wr_sale_ticket=" + token, "Authorization: Bearer " + token, "X-Waiting-Room-Token: " + token} {
		b.call("GET /.waiting-room/sale/status", how).is(t, want)
	}
	b.call("POST /.waiting-room/sale/claim", "X-Waiting-Room-Token: "+token).is(t, `
409
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:not_admitted","title":"Not admitted yet","status":409,"detail":"This ticket is still waiting. Poll its status, and claim when the state is admitted.","code":"not_admitted"}`)

	b.rate("sale", 50)
	var in *response
	eventually(t, "the ticket is admitted", func() bool {
		in = b.call("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+token)
		return in.field("state") == "admitted"
	})
	in.is(t, `
200
Cache-Control: no-store
Content-Type: application/json
Set-Cookie: wr_sale_pass=JWT; Path=/; Max-Age=TTL; HttpOnly; SameSite=Lax
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room: admitted

{"room":"sale","state":"admitted","joined_at":"TIME","message":"","paused":false,"admitted_at":"TIME","pass":"JWT","expires_at":"TIME"}`)
	again := b.call("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+token)
	if again.field("state") != "active" || again.field("admitted_at") != in.field("admitted_at") || again.field("pass") == "" {
		t.Errorf("the next answer: %s", again.text())
	}
	b.call("POST /.waiting-room/sale/claim", "X-Waiting-Room-Token: "+token).code(t, 200)
	b.call("POST /.waiting-room/sale/claim", "X-Waiting-Room-Token: "+token, "User-Agent: somebody else").is(t, `
410
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:claimed","title":"Already claimed","status":410,"detail":"Another client has claimed this ticket. Join again.","code":"claimed"}`)
	got := b.call("GET /checkout", "X-Waiting-Room-Pass: "+in.field("pass")).code(t, 200)
	if got.body != "shop GET /checkout" {
		t.Errorf("through the gate: %s", got.text())
	}
	if n := len(s.requests()); n != 2 {
		t.Errorf("the origin saw %d requests: %q", n, s.requests())
	}
}

func TestAPI_RefusesMistakes(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), CORSOrigins: []string{"https://shop.example"}})
	other, _ := one(t, Room{ID: "other", Policy: policy(0)})
	foreign := other.call("POST /.waiting-room/other/tickets").field("token")
	pass, _ := one(t, Room{ID: "sale", Policy: policy(5)})
	aPass := pass.call("POST /.waiting-room/sale/tickets").field("pass")
	if foreign == "" || aPass == "" {
		t.Fatal("no tokens to try")
	}
	for _, row := range []struct {
		name   string
		lines  []string
		status int
		want   string // code, and a part of the body
	}{
		{"no token", []string{"GET /.waiting-room/sale/status"}, 401, "token_missing"},
		{"not a token", []string{"GET /.waiting-room/sale/status", "Authorization: Bearer x"}, 401, "token_invalid"},
		{"another room's", []string{"GET /.waiting-room/sale/status", "X-Waiting-Room-Token: " + foreign}, 401, "token_invalid"},
		{"a pass", []string{"GET /.waiting-room/sale/status", "X-Waiting-Room-Token: " + aPass}, 401, "token_invalid"},
		{"no room", []string{"GET /.waiting-room/none/status"}, 404, "unknown_room"},
		{"no path", []string{"GET /.waiting-room/sale/nothing"}, 404, "unknown_path"},
		{"nothing", []string{"GET /.waiting-room/"}, 404, "unknown_path"},
		{"no draw", []string{"GET /.waiting-room/sale/draw"}, 404, "no_draw"},
		{"method", []string{"PUT /.waiting-room/sale/status"}, 405, "method_not_allowed"},
		{"body", []string{"POST /.waiting-room/sale/tickets", "", "["}, 422, "invalid_body"},
		{"body field", []string{"POST /.waiting-room/sale/tickets", "", `{"nonce":"a","x":1}`}, 422, `"field":"x"`},
		{"body type", []string{"POST /.waiting-room/sale/tickets", "", `{"nonce":1}`}, 422, `"field":"nonce"`},
		{"body length", []string{"POST /.waiting-room/sale/tickets", "", strings.Repeat("x", 5000)}, 413, "body_too_large"},
		{"short key", []string{"POST /.waiting-room/sale/tickets", "Idempotency-Key: 012345678901234567890"}, 422, "idempotency_key"},
		{"long key", []string{"POST /.waiting-room/sale/tickets", "Idempotency-Key: " + strings.Repeat("k", 129)}, 422, "idempotency_key"},
		{"another site", []string{"POST /.waiting-room/sale/tickets", "Origin: https://evil.example"}, 403, "cross_site"},
		{"a sandbox", []string{"POST /.waiting-room/sale/tickets", "Origin: null"}, 403, "cross_site"},
		{"another site's form", []string{"POST /.waiting-room/sale/tickets", "Sec-Fetch-Site: cross-site"}, 403, "cross_site"},
		{"another site leaves", []string{"DELETE /.waiting-room/sale/tickets", "Origin: https://evil.example"}, 403, "cross_site"},
		{"another site claims", []string{"POST /.waiting-room/sale/claim", "Origin: https://evil.example"}, 403, "cross_site"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := b.call(row.lines...).code(t, row.status)
			if !strings.Contains(a.body, row.want) || a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s", a.text())
			}
		})
	}
	if allow := b.call("PUT /.waiting-room/sale/status").header.Get("Allow"); allow != "GET, HEAD, OPTIONS" {
		t.Errorf("Allow: %q", allow)
	}
	if a := b.call("GET /.waiting-room/sale/nothing", asPage).code(t, 404); a.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("a client.Navigation: %s", a.text())
	}
	b.call("POST /.waiting-room/sale/tickets", "Origin: http://shop.test").code(t, 201)
	b.call("OPTIONS /.waiting-room/sale/tickets", "Origin: https://shop.example", "Access-Control-Request-Method: POST").is(t, `
204
Access-Control-Allow-Credentials: true
Access-Control-Allow-Headers: Accept, Authorization, Content-Type, Idempotency-Key, X-Waiting-Room-Token, X-Waiting-Room-Pass
Access-Control-Allow-Methods: POST, DELETE, OPTIONS
Access-Control-Allow-Origin: https://shop.example
Access-Control-Expose-Headers: Retry-After, X-Waiting-Room, X-Waiting-Room-Pass
Access-Control-Max-Age: 600
Allow: POST, DELETE, OPTIONS
Cache-Control: no-store
Vary: Cookie, Origin
X-Content-Type-Options: nosniff

`)
	if a := b.call("POST /.waiting-room/sale/tickets", "Origin: https://shop.example").code(t, 201); a.header.Get("Access-Control-Allow-Origin") != "https://shop.example" {
		t.Errorf("CORS: %s", a.text())
	}
}

func TestJoin_BodyTimesOut(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}, Limits: wire.Limits{BodyIdle: 50 * time.Millisecond},
	})
	for _, path := range []string{"/.waiting-room/sale/tickets", "/.waiting-room/sale/events"} {
		method := "POST "
		w := b.call("POST /.waiting-room/sale/tickets").code(t, 201)
		if strings.HasSuffix(path, "events") {
			method = "GET "
		}
		a := b.call(method+path, "Content-Length: 7", "Authorization: Bearer "+w.field("token")).code(t, 408)
		if !a.closed || !strings.Contains(a.body, "request_timeout") {
			t.Errorf("%s: %s", path, a.text())
		}
	}
}

func TestIdempotencyKey_ReturnsSameTicket(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	key := "Idempotency-Key: 0123456789012345678901"
	first := b.call("POST /.waiting-room/sale/tickets", key).code(t, 201)
	second := b.call("POST /.waiting-room/sale/tickets", key).code(t, 200)
	id := func(a *response) string {
		w, err := testRing(t).VerifyWaiting([]byte(a.field("token")), "sale", time.Now().Unix())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(w.ID, w.Order)
	}
	if id(first) != id(second) || first.field("joined_at") != second.field("joined_at") {
		t.Errorf("a repeat gives another ticket:\n%s\n%s", first.text(), second.text())
	}
	if other := b.call("POST /.waiting-room/sale/tickets", "Idempotency-Key: 0123456789012345678902").code(t, 201); id(other) == id(first) {
		t.Error("another key gives the same ticket")
	}
	live := b.call("POST /.waiting-room/sale/tickets", "Cookie: wr_sale_ticket="+first.field("token")).code(t, 200)
	if id(live) != id(first) {
		t.Error("a join with a live ticket gives another")
	}
	b.call("DELETE /.waiting-room/sale/tickets", "X-Waiting-Room-Token: "+first.field("token")).code(t, 204)
	if next := b.call("POST /.waiting-room/sale/tickets", key).code(t, 201); id(next) == id(first) {
		t.Error("a key whose ticket has ended gives the ended one")
	}
}

func TestEvents_ReportAdmission(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(1)})
	b.call("GET /", asJSON).code(t, 200)
	token := b.call("POST /.waiting-room/sale/tickets").field("token")
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET /.waiting-room/sale/events HTTP/1.1\r\nHost: shop.test\r\nX-Waiting-Room-Token: %s\r\n\r\n", token)
	r := bufio.NewReader(c)
	until := func(what string) string {
		var all strings.Builder
		for !strings.Contains(all.String(), what) {
			line, err := r.ReadString('\n')
			all.WriteString(line)
			if err != nil {
				t.Fatalf("%v before %q in:\n%s", err, what, all.String())
			}
		}
		return all.String()
	}
	if head := until("\r\n\r\n"); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || !strings.Contains(head, "Content-Type: text/event-stream") {
		t.Fatalf("head: %s", head)
	}
	if got := until("}\n\n"); !strings.Contains(got, "event: status\ndata: {\"room\":\"sale\",\"state\":\"waiting\",\"position\":1") {
		t.Fatalf("first event: %s", got)
	}
	b.rate("sale", 50)
	_, last, _ := strings.Cut(until("event: admitted\ndata: "), "event: admitted\ndata: ")
	if !strings.Contains(last, `"state":"admitted"`) || strings.Contains(last, "pass") {
		t.Errorf("admitted: %s", last)
	}
	b.call("POST /.waiting-room/sale/claim", "X-Waiting-Room-Token: "+token).code(t, 200)
}
