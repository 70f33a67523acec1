package gateway

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/token"
)

func boundTo(t testing.TB, bind string) *bench {
	t.Helper()
	s := newSite(t, "shop", nil)
	return start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, TrustedProxies: loopback(), Bind: bind,
		Rooms: []Room{{ID: "sale", Policy: policy(0), Renew: true, MaxSession: time.Hour}},
	})
}

// A copied token is not valid on another network or in another browser: a poll receives 401, a navigation a new ticket.
func TestBinding_RefusesCopiedToken(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	for _, row := range []struct {
		bind             string
		mine, near, away []string
	}{
		{BindIP, []string{from("203.0.113.7")}, []string{from("203.0.113.200"), "User-Agent: other"}, []string{from("203.0.114.7")}},
		{BindIP, []string{from("2001:db8:1:2::7")}, []string{from("[2001:db8:1:2:ffff::1]:443")}, []string{from("2001:db8:1:3::7")}},
		{BindIP, []string{from("203.0.113.7")}, []string{from("::ffff:203.0.113.9")}, []string{from("203.0.114.7, 127.0.0.1")}},
		{BindUA, []string{"User-Agent: one", from("203.0.113.7")}, []string{"User-Agent: one", from("198.51.100.1")}, []string{"User-Agent: two", from("203.0.113.7")}},
	} {
		b := boundTo(t, row.bind)
		ask := func(who []string, lines ...string) *response { return b.call(append(lines, who...)...) }
		w := ask(row.mine, tickets).code(t, 201)
		poll := "GET /.waiting-room/sale/status"
		for _, who := range [][]string{row.mine, row.near} {
			ask(who, poll, bearing(w)).code(t, 200)
		}
		for _, target := range []string{poll, "POST /.waiting-room/sale/claim", "DELETE /.waiting-room/sale/tickets", "GET /.waiting-room/sale/events"} {
			if a := ask(row.away, target, bearing(w)).code(t, 401); a.field("code") != "token_bound" {
				t.Errorf("%s elsewhere: %s", target, a.text())
			}
		}
		if a := ask(row.away, "GET /", asPage, "Cookie: wr_sale_ticket="+w.field("token")).code(t, 200); a.cookies["wr_sale_ticket"] == "" {
			t.Errorf("a page elsewhere: %s", a.text())
		}
		if a := ask(row.away, tickets, bearing(w)).code(t, 201); a.field("position") != "3" {
			t.Errorf("a join elsewhere: %s", a.text())
		}
		if a := ask(row.mine, poll, bearing(w)).code(t, 200); a.field("position") != "1" {
			t.Errorf("its owner: %s", a.text())
		}
		reload(t, b, func(r *Room) { r.Policy.MinWait, r.Policy.Rate, r.Policy.Burst = 0, 1_000_000, 1_000_000 })
		var pass string
		eventually(t, "its owner is in", func() bool {
			pass = ask(row.mine, poll, bearing(w)).field("pass")
			return pass != ""
		})
		reload(t, b, func(r *Room) { r.Policy = policy(0) })
		ask(row.near, "GET /", asJSON, "X-Waiting-Room-Pass: "+pass).code(t, 200)
		if a := ask(row.away, "GET /", asJSON, "X-Waiting-Room-Pass: "+pass); strings.HasPrefix(a.body, "shop") && a.cookies["wr_sale_pass"] == "" {
			t.Errorf("a copied pass: %s", a.text())
		}
	}
}

// A change of tokens.bind keeps all tickets and sessions. The next response binds the tokens by the new setting.
func TestBinding_ChangeKeepsPlaces(t *testing.T) {
	t.Parallel()
	who := []string{from("203.0.113.7"), "User-Agent: one"}
	settings := []string{BindNone, BindIP, BindUA}
	for _, before := range settings {
		for _, after := range settings {
			if before == after {
				continue
			}
			t.Run(before+" to "+after, func(t *testing.T) {
				t.Parallel()
				b := boundTo(t, before)
				ask := func(lines ...string) *response { return b.call(append(lines, who...)...) }
				w := ask(tickets).code(t, 201)
				sid := randomID()
				old := b.passFor(t, sid, before, who)
				o := b.o
				o.Bind = after
				if err := b.Reload(o); err != nil {
					t.Fatal(err)
				}
				a := ask("GET /.waiting-room/sale/status", bearing(w)).code(t, 200)
				next, first := waitingIn(t, a), waitingIn(t, w)
				if next.ID != first.ID || next.Order != first.Order || a.field("position") != "1" || (next.Bind != "") != (after != BindNone) || next.Bind == first.Bind {
					t.Errorf("it waited as %+v, and is %+v: %s", first, next, a.text())
				}
				if page := ask("GET /", asPage, "Cookie: wr_sale_ticket="+w.field("token")).code(t, 200); page.cookies["wr_sale_ticket"] == "" {
					t.Errorf("the page does not bind: %s", page.text())
				} else if w, err := testRing(t).VerifyWaiting([]byte(page.cookies["wr_sale_ticket"]), "sale", time.Now().Unix()); err != nil || w.Bind != next.Bind || w.ID != first.ID {
					t.Errorf("the page binds %+v, %v", w, err)
				}
				in := ask("GET /", "X-Waiting-Room-Pass: "+old).code(t, 200)
				p := readPass(t, in.header.Get("X-Waiting-Room-Pass"), "sale")
				if p.Session != sid || p.Bind != next.Bind {
					t.Errorf("its pass is %+v", p)
				}
				if in = ask("GET /", "X-Waiting-Room-Pass: "+in.header.Get("X-Waiting-Room-Pass")).code(t, 200); in.header.Get("X-Waiting-Room-Pass") != "" {
					t.Errorf("a pass that is bound is signed again: %s", in.text())
				}
				if before == BindIP { // a copy that was not valid before is not valid now
					thief := b.call("GET /.waiting-room/sale/status", bearing(w), from("198.51.100.9"), "User-Agent: one")
					if want := map[string]int{BindNone: 200, BindUA: 401}[after]; thief.status != want {
						t.Errorf("somebody else with the old ticket: %s", thief.text())
					}
				}
			})
		}
	}
}

// passFor returns a pass as the gateway signs it for a client under a setting.
func (b *bench) passFor(t testing.TB, sid token.ID, bind string, who []string) string {
	t.Helper()
	var head strings.Builder
	for _, line := range append([]string{"GET / HTTP/1.1", "Host: shop.test"}, who...) {
		head.WriteString(line + "\r\n")
	}
	q, refused := wire.ParseRequest([]byte(head.String()+"\r\n"), loopback()[0].Addr())
	if refused != nil {
		t.Fatal(refused)
	}
	var binding client.Binding
	binding.Set(bind, client.PeerOf(q, loopback(), client.ForwardedFor).Addr, q.Peek("user-agent"))
	now := time.Now().Unix()
	p := token.Pass{ID: randomID(), Session: sid, Room: "sale", Order: time.Now().UnixMicro(), Fence: 1, IssuedAt: now, Expires: now + 300, Bind: string(binding.Claim())}
	return string(testRing(t).AppendPass(nil, &p))
}

// An unbound ticket from before the setting is valid for absence after the store has last confirmed it, so that a stored copy is not
// valid later.
func TestBinding_UnboundTicketEndsAfterAbsence(t *testing.T) {
	t.Parallel()
	b := boundTo(t, BindNone)
	w := waitingIn(t, b.call(tickets).code(t, 201))
	o := b.o
	o.Bind = BindIP
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		seen, issued time.Duration // ago
		status       int
	}{
		{9 * time.Minute, time.Hour, 200},
		{11 * time.Minute, time.Hour, 401},
		{0, 9 * time.Minute, 200}, // never enrolled
		{0, 11 * time.Minute, 401},
	} {
		old := w
		old.IssuedAt = time.Now().Add(-row.issued).Unix()
		if old.Seen = 0; row.seen > 0 {
			old.Seen = b.queue("sale").Now() - row.seen.Microseconds()
		}
		raw := string(testRing(t).AppendWaiting(nil, &old))
		if a := b.call("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+raw); a.status != row.status {
			t.Errorf("seen %s, taken %s ago: %s", row.seen, row.issued, a.text())
		}
	}
}

// The tokens of an event stream are bound too.
func TestBinding_AppliesToStreamTokens(t *testing.T) {
	t.Parallel()
	b := boundTo(t, BindIP)
	w := b.call(tickets, from("203.0.113.7")).code(t, 201)
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET /.waiting-room/sale/events HTTP/1.1\r\nHost: shop.test\r\n%s\r\n%s\r\n\r\n", bearing(w), from("203.0.113.99"))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		t.Errorf("%q, %v", line, err)
	}
}
