package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// agedPass returns the cookie of a response's pass, changed so that the pass ended ago seconds before now, after applying changes.
func agedPass(t testing.TB, a *response, ago int64, changes ...func(*token.Pass)) string {
	t.Helper()
	raw := a.cookies["wr_sale_pass"]
	p := readPass(t, raw, "sale")
	life := p.Expires - p.IssuedAt
	p.Expires = time.Now().Unix() - ago
	p.IssuedAt = p.Expires - life
	for _, change := range changes {
		change(&p)
	}
	return "Cookie: wr_sale_pass=" + string(testRing(t).AppendPass(nil, &p))
}

// After a pass ends, its visitor receives one place before all later visitors, at every gateway and however the pass is sent, and is
// admitted first. The rest of the session ends.
func TestPass_KeepsOrder(t *testing.T) {
	t.Parallel()
	fleet, _ := fleetOf(t, 2, Room{ID: "sale", Policy: policy(1), Renew: true, MaxSession: time.Hour})
	one, two := fleet[0], fleet[1]
	in := one.call("GET /", asPage).code(t, 200)
	arrived := readPass(t, in.cookies["wr_sale_pass"], "sale")
	if now := time.Now().UnixMicro(); arrived.Fence == 0 || arrived.Order > now || arrived.Order < now-60_000_000 {
		t.Fatalf("a visitor admitted immediately got %+v", arrived)
	}
	var others []*response
	for range 3 {
		others = append(others, one.call(tickets).code(t, 201))
	}
	over := agedPass(t, in, 6)
	first := one.call("GET /", asJSON, over).code(t, 202)
	place := waitingIn(t, first)
	if place.Order != arrived.Order || place.Order >= waitingIn(t, others[0]).Order || first.field("position") != "1" || place.Used != 300 {
		t.Errorf("the place %+v does not keep order %d: %s", place, arrived.Order, first.text())
	}
	if joined := place.IssuedAt; joined < time.Now().Unix()-60 {
		t.Errorf("it was taken at %d", joined)
	}
	for name, again := range map[string]*response{
		"another gateway":  two.call("GET /", asJSON, over).code(t, 202),
		"a page":           two.call("GET /", asPage, over).code(t, 200),
		"a join":           two.call(tickets, over).code(t, 200),
		"a join by a key":  one.call(tickets, over, "Idempotency-Key: 0123456789abcdefghijklm").code(t, 200),
		"a newer copy":     one.call("GET /", asJSON, "Cookie: wr_sale_pass="+in.cookies["wr_sale_pass"]).code(t, 202),
		"with its ticket":  two.call("GET /", asJSON, over, "X-Waiting-Room-Token: "+first.field("token")).code(t, 202),
		"by the header":    one.call("GET /", asJSON, "X-Waiting-Room-Pass: "+over[len("Cookie: wr_sale_pass="):]).code(t, 202),
		"its former place": two.call("GET /", asJSON, over, "Cookie: wr_sale_ticket=tossed").code(t, 202),
	} {
		raw := again.cookies["wr_sale_ticket"]
		if raw == "" {
			raw = again.field("token")
		}
		if raw == "" { // it is not signed anew
			continue
		}
		w, err := testRing(t).VerifyWaiting([]byte(raw), "sale", time.Now().Unix())
		if err != nil || w.ID != place.ID || w.Order != place.Order {
			t.Errorf("%s: %+v %v, want %+v", name, w, err, place)
		}
	}
	eventually(t, "the former session has ended at the other gateway", func() bool {
		return two.queue("sale").Revoked(admission.ID(arrived.Session))
	})
	if n := one.queue("sale").Snapshot().Waiting; n != 4 {
		eventually(t, "four wait", func() bool { return one.queue("sale").Snapshot().Waiting == 4 })
	}

	one.rate("sale", 5)
	status := func(a *response) (admitted string) {
		eventually(t, "it is admitted", func() bool {
			got := two.call("GET /.waiting-room/sale/status", bearing(a)).code(t, 200)
			if admitted = got.field("admitted_at"); a == first && admitted != "" {
				p := readPass(t, got.cookies["wr_sale_pass"], "sale")
				if p.Order != arrived.Order || p.Session != place.ID || time.Now().Unix()-p.IssuedAt < 300 {
					t.Errorf("the next pass is %+v", p)
				}
			}
			return admitted != ""
		})
		return admitted
	}
	var order []string
	for _, a := range append([]*response{first}, others...) {
		order = append(order, status(a))
	}
	if !slices.IsSorted(order) || order[0] == order[1] {
		t.Errorf("admitted at %v, want the returning visitor first", order)
	}
}

// A visitor who returns without a nonce is admitted at once, and the response is lost: the repeated request is of the same session.
func TestPass_ReturnsToOneSessionWhenItsResponseIsLost(t *testing.T) {
	t.Parallel()
	for kind, accept := range map[string]string{"a page": asPage, "a call": asJSON} {
		t.Run(kind, func(t *testing.T) {
			fleet, _ := fleetOf(t, 2, Room{ID: "sale", Policy: policy(10), Renew: true, MaxSession: time.Hour})
			over := agedPass(t, fleet[0].call("GET /", asJSON).code(t, 200), 6)
			lost := readPass(t, fleet[0].call("GET /", accept, over).code(t, 200).cookies["wr_sale_pass"], "sale")
			again := readPass(t, fleet[1].call("GET /", accept, over).code(t, 200).cookies["wr_sale_pass"], "sale")
			if again.Session != lost.Session || again.Order != lost.Order {
				t.Errorf("%+v, then %+v", lost, again)
			}
		})
	}
}

// A renewed pass keeps its order, and its cookie lives for absence longer than the pass.
func TestPass_RenewalKeepsOrder(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(1)})
	in := b.call("GET /", asPage).code(t, 200)
	first := readPass(t, in.cookies["wr_sale_pass"], "sale")
	half := agedPass(t, in, -100)
	a := b.call("GET /", half).code(t, 200)
	next := readPass(t, a.cookies["wr_sale_pass"], "sale")
	if next.Order != first.Order || next.Fence != first.Fence || next.Expires <= first.Expires-5 {
		t.Errorf("renewed %+v, was %+v", next, first)
	}
	for _, header := range append(in.header["Set-Cookie"], a.header["Set-Cookie"]...) {
		c, err := http.ParseSetCookie(header)
		if err != nil {
			t.Fatal(err)
		}
		if c.Name == "wr_sale_pass" && (c.MaxAge < 300+600-5 || c.MaxAge > 300+600) {
			t.Errorf("the cookie %s lives for %d s, want 15 min", c.Name, c.MaxAge)
		}
	}
}

// A join with a pass that keeps no order receives a place at the end, like a join without a pass.
func TestPass_WithoutOrderJoinsAtEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/done" {
			w.Header().Set("X-Waiting-Room-Command", "revoke")
		}
		fmt.Fprint(w, "ok")
	})
	mine := "User-Agent: mine"
	for _, row := range []struct {
		name   string
		ago    int64
		change func(*token.Pass)
		before func(t *testing.T, b *bench, in *response)
		lines  []string
		keeps  bool
		used   int64
	}{
		{name: "the pattern of the rows below", keeps: true},
		{name: "absence is nearly over", ago: 580, change: another, keeps: true},
		{name: "absence is over", ago: 620, change: another},
		{name: "a pass of before orders", change: func(p *token.Pass) { p.Order, p.Fence = 0, 0 }},
		{name: "a pass without a fence", change: func(p *token.Pass) { p.Fence = 0 }},
		{name: "another room's", change: func(p *token.Pass) { p.Room = "vip" }},
		{name: "of another browser", lines: []string{"User-Agent: other"}},
		{name: "bound to nothing", change: func(p *token.Pass) { p.Bind = "" }},
		{name: "session.max is used up", change: func(p *token.Pass) { p.IssuedAt -= 3600 - 300 - 299 }},
		{name: "just enough of session.max is left", change: func(p *token.Pass) { p.IssuedAt -= 3600 - 300 - 300 }, keeps: true},
		{name: "the session goes on with a newer pass", ago: 60},
		{name: "an order of the future is one of now", change: func(p *token.Pass) { p.Order += 3600e6 }, used: 300},
		{name: "still valid, and a place is asked for", ago: -200},
		{name: "revoked by an operator", before: func(t *testing.T, b *bench, in *response) {
			if err := b.queue("sale").RevokeSession(t.Context(), "ann", admission.ID(readPass(t, in.cookies["wr_sale_pass"], "sale").Session)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "revoked by the origin", before: func(t *testing.T, b *bench, in *response) { b.call("GET /done", mine, in.jar()).code(t, 200) }},
		{name: "its visitor has left", before: func(t *testing.T, b *bench, in *response) {
			if err := b.queue("sale").Leave(t.Context(), admission.Ticket{ID: admission.ID(readPass(t, in.cookies["wr_sale_pass"], "sale").Session)}); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "the place was given up", before: func(t *testing.T, b *bench, in *response) {
			a := b.call(tickets, mine, agedPass(t, in, 6)).code(t, 201)
			b.call("DELETE /.waiting-room/sale/tickets", mine, bearing(a)).code(t, 204)
		}},
		{name: "the room was reset", before: func(t *testing.T, b *bench, in *response) {
			if err := b.queue("sale").Reset(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "of before a reset, with the fence of now", change: func(p *token.Pass) { p.Fence = 2 }, before: func(t *testing.T, b *bench, in *response) {
			if err := b.queue("sale").Reset(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
				Origins: []proxy.Config{originAt("shop", s.URL)}, Bind: BindUA,
				Rooms: []Room{{ID: "sale", Policy: policy(1), Renew: true, MaxSession: time.Hour}},
			})
			in := b.call("GET /", asPage, mine).code(t, 200)
			if row.before != nil {
				row.before(t, b, in)
			}
			other := waitingIn(t, b.call(tickets, mine).code(t, 201))
			ago := row.ago
			if ago == 0 {
				ago = 6
			}
			change := row.change
			if change == nil {
				change = func(*token.Pass) {}
			}
			lines := row.lines
			if lines == nil {
				lines = []string{mine}
			}
			a := b.call(append([]string{tickets, agedPass(t, in, ago, change)}, lines...)...).code(t, 201)
			w := waitingIn(t, a)
			if kept := w.Order < other.Order; kept != row.keeps {
				t.Errorf("order %d beside %d of a later visitor", w.Order, other.Order)
			}
			if !row.keeps && w.Used != row.used {
				t.Errorf("a new ticket has used %d s of session.max", w.Used)
			}
			if again := b.call(append([]string{"GET /.waiting-room/sale/status", bearing(a)}, lines...)...).code(t, 200); again.field("state") != "waiting" {
				t.Errorf("the place does not last: %s", again.text())
			}
		})
	}
}

// another makes a pass of a session that the store does not know.
func another(p *token.Pass) { p.Session = randomID() }

// A place in the old order requires one proof, like a new place.
func TestPass_KeptOrderRequiresProof(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: policy(2), MaxSession: time.Hour, Guard: Guard{Proof: ProofAlways, Effort: light}})
	let := func() *response { return b.call(tickets, "", b.proof("sale")).code(t, 201) }
	in, also := let(), let()
	other := let()
	over := agedPass(t, in, 6)
	b.call("GET /", asJSON, over).code(t, 428)
	b.call(tickets, over).code(t, 428)
	proof := b.proof("sale")
	a := b.call(tickets, over, "", proof).code(t, 201)
	place := waitingIn(t, a)
	if place.Order >= waitingIn(t, other).Order {
		t.Errorf("order %d, want one before %d", place.Order, waitingIn(t, other).Order)
	}
	for _, again := range []*response{b.call(tickets, over).code(t, 200), b.call("GET /", asJSON, over).code(t, 202)} {
		if jti(t, again) != jti(t, a) {
			t.Errorf("sent again: %s", again.text())
		}
	}
	over = agedPass(t, also, 6)
	if twice := b.call(tickets, over, "", proof).code(t, 409); twice.field("code") != "proof_spent" {
		t.Error(twice.text())
	}
	b.call(tickets, "", proof).code(t, 409) // nor is it a place of its own
	plain := b.proof("sale")
	b.call(tickets, "", plain).code(t, 201)
	if twice := b.call(tickets, over, "", plain).code(t, 409); twice.field("code") != "proof_spent" {
		t.Error(twice.text())
	}
}

// The join limit counts a place in the old order at the time of the join, not at its order.
func TestPass_KeptOrderCountsAsJoin(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: joinLimit(1, 2, 5), MaxSession: time.Hour})
	in := b.call("GET /", asPage, from("203.0.113.7")).code(t, 200)
	b.call("GET /", asJSON, from("203.0.113.7")).code(t, 202)
	over := agedPass(t, in, 6, func(p *token.Pass) { p.Order -= 2 * 3600e6 })
	b.call(tickets, over, from("203.0.113.7")).code(t, 429)
	a := b.call(tickets, over, from("198.51.100.7")).code(t, 201)
	b.call(tickets, over, from("203.0.113.7")).code(t, 200)
	if w := waitingIn(t, a); w.Order > time.Now().UnixMicro()-3600e6 {
		t.Errorf("the order is %d", w.Order)
	}
}

// The ticket of an account has the account's id, and the order of the account's ended pass.
func TestPass_AccountKeepsOrder(t *testing.T) {
	t.Parallel()
	fleet, _ := fleetOf(t, 1, members(policy(2)))
	b := fleet[0]
	in := b.call("GET /", asPage, as("ann")).code(t, 200)
	sid := readPass(t, in.cookies["wr_sale_pass"], "sale").Session
	b.call("GET /", asPage, as("bob")).code(t, 200)
	other := b.call(tickets, as("cid")).code(t, 201)
	if got := b.call(tickets, as("ann"), agedPass(t, in, 6)).code(t, 200); got.field("state") != "active" {
		t.Fatalf("while the session lives: %s", got.text())
	}
	if err := redistest.Client(t).ZRem(t.Context(), b.prefix+":{room:sale}:sessions", string(sid[:])).Err(); err != nil { // as a tick does when it is over
		t.Fatal(err)
	}
	a := b.call(tickets, as("ann"), agedPass(t, in, 6)).code(t, 201)
	w := waitingIn(t, a)
	if w.Order >= waitingIn(t, other).Order || !w.Account {
		t.Errorf("%+v, want an order before %d", w, waitingIn(t, other).Order)
	}
	if again := waitingIn(t, b.call(tickets, as("ann")).code(t, 200)); again.ID != w.ID {
		t.Errorf("without the pass: %+v, want %+v", again, w)
	}
}

// ahead is a clock that was set forward.
type ahead struct {
	clock
	by, at int64
}

func (a *ahead) RedisNow() int64         { return a.clock.RedisNow() + a.by }
func (a *ahead) Stepped() (by, at int64) { return a.by, a.at }

// A replica whose clock is ten minutes ahead becomes the master. A pass of five minutes stays valid for its full life, and its first
// request renews it by the new clock. A pass that was signed after the step ends by the new clock.
func TestPass_OutlivesClockStep(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(1)})
	in := b.call("GET /", asPage).code(t, 200)
	r := b.state.Load().byID["sale"]
	const step = 600
	r.store.clock = &ahead{r.store.clock, step * 1e6, time.Now().UnixMicro()}
	a := b.call("GET /", in.jar()).code(t, 200)
	renewed, err := testRing(t).VerifyPass([]byte(a.cookies["wr_sale_pass"]), "sale", time.Now().Unix()+step)
	if err != nil || renewed.Expires < time.Now().Unix()+step+290 {
		t.Errorf("renewed as %+v, %v", renewed, err)
	}
	b.call("GET /", a.jar()).code(t, 200)
	for _, row := range []struct {
		name string
		ago  int64
		want int
	}{
		{"of before, half over", -100, 200},
		{"of before, over", 6, 202},
		{"of now, young", -step - 200, 200},
		{"of now, over", -step + 6, 202},
	} {
		b.call("GET /", asJSON, agedPass(t, in, row.ago, another)).code(t, row.want)
	}
}
