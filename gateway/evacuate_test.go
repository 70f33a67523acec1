package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// A pass from before an evacuation opens nothing at either gateway: no proxied request, no permit, not with a renewed life. Its visitor
// waits at the order of the pass, ahead of later visitors, and reads why. The next pass is valid.
func TestEvacuate_VoidsPassesAndKeepsOrders(t *testing.T) {
	t.Parallel()
	fleet, _ := fleetOf(t, 2, Room{ID: "sale", Policy: policy(3), Renew: true, MaxSession: time.Hour})
	one, two := fleet[0], fleet[1]
	var cookies []string
	var passes []token.Pass
	for range 3 {
		in := one.call("GET /", asPage).code(t, 200)
		raw := in.cookies["wr_sale_pass"]
		cookies, passes = append(cookies, "Cookie: wr_sale_pass="+raw), append(passes, readPass(t, raw, "sale"))
	}
	for _, p := range passes {
		if p.Claimed == 0 || p.Order == 0 {
			t.Fatalf("a pass without its claim: %+v", p)
		}
	}
	two.call("GET /", asPage, cookies[0]).code(t, 200)
	if list := two.call("GET /.waiting-room/sale/revoked").code(t, 200); strings.Contains(list.text(), "evacuated") {
		t.Errorf("evacuated before any evacuation: %s", list.text())
	}
	later := one.call(tickets).code(t, 201) // the limit is used up
	if err := one.queue("sale").Evacuate(t.Context(), "ann", "the origin is down"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other gateway knows", func() bool { return two.queue("sale").Evacuation().Fence > 0 })
	newcomer := two.call(tickets).code(t, 201)
	order := waitingIn(t, later).Order
	for i, cookie := range cookies {
		for _, b := range fleet {
			a := b.call("GET /", asJSON, cookie).code(t, 202)
			w := waitingIn(t, a)
			if a.field("state") != "waiting" || a.field("reason") != "evacuated" || w.Order != passes[i].Order || w.Order >= order {
				t.Errorf("pass %d: %s, order %d, want %d before %d", i, a.text(), w.Order, passes[i].Order, order)
			}
		}
		two.call(permitsPath, cookie, "", permitBody("/x", "GET")).code(t, 401)
		if page := two.call("GET /", asPage, cookie).code(t, 200).text(); !strings.Contains(page, "Everyone had to go back to the queue. Your place is kept.") {
			t.Error("the page does not say why its visitor waits again")
		}
	}
	// The return has revoked the session. The reason stays.
	eventually(t, "the other gateway knows that the session is revoked", func() bool {
		return two.state.Load().byID["sale"].store.Revoked(admission.ID(passes[0].Session))
	})
	if a := two.call("GET /", asJSON, cookies[0]).code(t, 202); a.field("reason") != "evacuated" {
		t.Errorf("after the return: %s", a.text())
	}
	var list struct {
		Evacuated struct{ CT, IAT int64 }
	}
	eventually(t, "the published list has the evacuation", func() bool { // a gateway makes the list once in a while
		if err := json.NewDecoder(strings.NewReader(two.call("GET /.waiting-room/sale/revoked").code(t, 200).body)).Decode(&list); err != nil {
			t.Fatal(err)
		}
		return list.Evacuated.CT > 0
	})
	for _, p := range passes {
		if e := list.Evacuated; p.Claimed > e.CT || p.IssuedAt > e.IAT || e.CT > time.Now().UnixMicro()+60_000_000 {
			t.Errorf("the list has %+v, the pass %+v", e, p)
		}
	}
	if w := waitingIn(t, newcomer); w.Order <= order {
		t.Errorf("a newcomer has order %d, before %d", w.Order, order)
	}
	browser := cookies[0] + "; " + strings.TrimPrefix(one.call("GET /", asPage, cookies[0]).jar(), "Cookie: ")
	one.rate("sale", 1000)
	eventually(t, "the first is admitted again", func() bool {
		a := one.call("GET /", asPage, browser)
		raw := a.cookies["wr_sale_pass"]
		if raw == "" {
			return false
		}
		p := readPass(t, raw, "sale")
		if e := one.queue("sale").Evacuation(); e.Ends(p.Claimed, p.IssuedAt) || p.Order != passes[0].Order {
			t.Errorf("the next pass is %+v, the evacuation %+v", p, e)
		}
		two.call("GET /", asPage, "Cookie: wr_sale_pass="+raw).code(t, 200)
		return true
	})
}

// A pass without the claim ct, of an earlier version, is void by its time of issue.
func TestEvacuate_OfPassesWithoutClaimTime(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(2), Renew: true, MaxSession: time.Hour})
	in := b.call("GET /", asPage).code(t, 200)
	if err := b.queue("sale").Evacuate(t.Context(), "ann", "a test"); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		after int64
		code  int
	}{{0, 202}, {-60, 202}, {1, 200}} {
		p := readPass(t, in.cookies["wr_sale_pass"], "sale")
		p.Claimed, p.IssuedAt, p.Session = 0, b.queue("sale").Evacuation().At/1e6+row.after, token.ID(admission.ID{byte(row.after)})
		b.call("GET /", asJSON, "Cookie: wr_sale_pass="+string(testRing(t).AppendPass(nil, &p))).code(t, row.code)
	}
}

// A visitor who returns while the store misses one deadline gets no ticket with the order of now, and the old order with the next
// request.
func TestReturn_KeepsOrderThoughOneCallFails(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(1), Renew: true, MaxSession: time.Hour})
	raw := b.call("GET /", asPage).code(t, 200).cookies["wr_sale_pass"]
	order, cookie := readPass(t, raw, "sale").Order, "Cookie: wr_sale_pass="+raw
	if err := b.queue("sale").Evacuate(t.Context(), "ann", "a test"); err != nil {
		t.Fatal(err)
	}
	room := b.state.Load().byID["sale"]
	whole := room.store
	for _, request := range [][]string{{"GET /", asJSON, cookie}, {tickets, cookie}} {
		room.store.ticketStore = noReply{whole.ticketStore}
		a := b.call(request...).code(t, 503)
		if a.field("code") != "store_unavailable" || a.cookies["wr_sale_ticket"] != "" || a.field("token") != "" {
			t.Errorf("%v without a reply of the store: %s %v", request, a.text(), a.cookies)
		}
		room.store = whole
		if w := waitingIn(t, b.call(request...)); w.Order != order {
			t.Errorf("%v afterwards: order %d, want %d", request, w.Order, order)
		}
	}
}

// noReply fails the joins of visitors who return, as if the store had missed the deadline of one call.
type noReply struct{ ticketStore }

func (s noReply) Join(ctx context.Context, a admission.Arrival) (admission.Standing, admission.Refusal, error) {
	if a.Return != nil {
		return admission.Standing{}, admission.Granted, admission.ErrStore
	}
	return s.ticketStore.Join(ctx, a)
}

// Checks over HTTP and over gRPC refuse a pass from before an evacuation, at the gateway that evacuated and at another one. As ever they
// give no place; the join that follows says why and keeps the order.
func TestEvacuate_AtChecks(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	room := Room{ID: "sale", Policy: policy(2), Renew: true, MaxSession: time.Hour}
	var fleet [2]*checked
	for i := range fleet {
		fleet[i] = &checked{bench: startTicking(t, client, prefix, 20*time.Millisecond, Options{Rooms: []Room{room}, TrustedProxies: loopback(), Check: Check{Trusted: loopback()}})}
		fleet[i].serveChecks(t)
	}
	in := fleet[0].ask("GET /seats", asPage).code(t, 200)
	jar, order := in.jar(), readPass(t, in.cookies["wr_sale_pass"], "sale").Order
	var grpcs [2]*grpc.ClientConn
	for i, c := range fleet {
		_, grpcs[i] = overGRPC(t, c.Gateway)
		c.ask("POST /seats", jar).code(t, 200)
		if a := inquire(t, grpcs[i], described("POST /seats", jar)); a.Status.Code != int32(codes.OK) {
			t.Fatalf("gateway %d before: %v", i, a)
		}
	}
	fleet[0].ask("GET /seats", asPage).code(t, 200) // the room is full: who comes back has to wait
	if err := fleet[0].queue("sale").Evacuate(t.Context(), "ann", "a test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other gateway knows", func() bool { return fleet[1].queue("sale").Evacuation().Fence > 0 })
	for i, c := range fleet {
		if a := c.ask("GET /seats", asJSON, jar).code(t, 401); a.field("state") != "waiting" || a.field("reason") != "no_ticket" || a.header.Get("X-Waiting-Room-Session") != "" {
			t.Errorf("gateway %d: %s", i, a.text())
		}
		a := inquire(t, grpcs[i], described("GET /seats", asJSON, jar))
		if body := a.GetDeniedResponse().GetBody(); a.Status.Code != int32(codes.Unauthenticated) || !strings.Contains(body, `"reason":"no_ticket"`) {
			t.Errorf("gateway %d over gRPC: %v", i, a)
		}
		if a := c.call(tickets, jar, "X-Forwarded-For: 192.0.2.7"); a.field("reason") != "evacuated" || waitingIn(t, a).Order != order {
			t.Errorf("gateway %d, the join: %s, want order %d", i, a.text(), order)
		}
	}
}

// A visitor who shows nothing but the void pass keeps the order of arrival when the place is admitted, and in the next pass: a second
// evacuation must not put the visitor behind those who came later.
func TestEvacuate_VoidPassAloneKeepsOrderOnceAdmitted(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(2), Renew: true, MaxSession: time.Hour})
	var cookies []string
	var passes []token.Pass
	for range 2 {
		raw := b.call("GET /", asPage).code(t, 200).cookies["wr_sale_pass"]
		cookies, passes = append(cookies, "Cookie: wr_sale_pass="+raw), append(passes, readPass(t, raw, "sale"))
	}
	if err := b.queue("sale").Evacuate(t.Context(), "ann", "the origin is down"); err != nil {
		t.Fatal(err)
	}
	for _, cookie := range cookies {
		b.call(tickets, cookie).code(t, 201)
	}
	b.rate("sale", 1000)
	eventually(t, "both places are admitted", func() bool { return b.queue("sale").Snapshot().Admitted == 2 })
	if w := waitingIn(t, b.call(tickets, cookies[0]).code(t, 200)); w.Order != passes[0].Order {
		t.Errorf("the token of an admitted place has order %d, want %d", w.Order, passes[0].Order)
	}
	for range 2 { // the second request repeats the claim
		raw := b.call("GET /", asJSON, cookies[1]).code(t, 200).cookies["wr_sale_pass"]
		if p := readPass(t, raw, "sale"); p.Order != passes[1].Order {
			t.Errorf("the next pass has order %d, want %d", p.Order, passes[1].Order)
		}
	}
}

// A visitor whom an evacuation sent away, and who finds the room free, is admitted immediately. The next pass has the order of arrival, so
// that a second evacuation does not put the visitor behind those who came in between.
func TestEvacuate_ImmediateReturnKeepsOrder(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(5), Renew: true, MaxSession: time.Hour})
	raw := b.call("GET /", asPage).code(t, 200).cookies["wr_sale_pass"]
	first := readPass(t, raw, "sale")
	if err := b.queue("sale").Evacuate(t.Context(), "ann", "the origin is down"); err != nil {
		t.Fatal(err)
	}
	b.rate("sale", 1000)
	eventually(t, "the room admits again", func() bool { return b.call("GET /", asPage).code(t, 200).cookies["wr_sale_pass"] != "" })
	a := b.call("GET /", asJSON, "Cookie: wr_sale_pass="+raw)
	eventually(t, "the visitor is admitted", func() bool {
		if a.status != 200 {
			a = b.call("GET /", asJSON, "Cookie: wr_sale_pass="+raw)
		}
		return a.status == 200
	})
	if p := readPass(t, a.cookies["wr_sale_pass"], "sale"); p.Order != first.Order {
		t.Errorf("the next pass has order %d, want %d", p.Order, first.Order)
	}
}
