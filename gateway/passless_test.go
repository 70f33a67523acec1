package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/meter"
)

const asImage = "Sec-Fetch-Dest: image"

// A client cannot avoid the proof by a header field that makes the request a subresource.
func TestSubresource_IsRefusedInGuardedRoom(t *testing.T) {
	joins := policy(9)
	joins.Joins, joins.JoinsPer, joins.Wide, joins.WidePer = 1, time.Hour, 10, time.Hour
	for name, room := range map[string]Room{
		"proof of work":        {Policy: policy(9), Guard: Guard{Proof: ProofAlways}},
		"join limits":          {Policy: joins},
		"one place an account": {Policy: policy(9), Identity: Identity{OnePlace: true, Header: "X-Account", Anonymous: true}},
		"requests a session":   {Policy: policy(9), SessionRequests: meter.Quota{N: 9, Per: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room.ID = "sale"
			b, s := one(t, room)
			for _, as := range []string{asImage, "Sec-Fetch-Dest: script", "Accept: image/png", "Sec-Purpose: prefetch"} {
				a := b.call("GET /i.png", as)
				if a.status != 503 || a.header.Get("X-Waiting-Room") != "waiting" || a.header.Get("Retry-After") == "" {
					t.Errorf("%s: %s", as, a.text())
				}
			}
			if got := s.requests(); len(got) != 0 {
				t.Errorf("the site was asked: %q", got)
			}
		})
	}
}

func TestSubresource_IsRefusedAtMaxActive(t *testing.T) {
	p := policy(9)
	p.MaxActive = 1
	b, s := one(t, Room{ID: "sale", Policy: p})
	b.call("GET /i.png", asImage).code(t, 200)
	b.call("GET /", asPage).code(t, 200)
	b.call("GET /i.png", asImage).code(t, 503)
	b.call("GET /i.png", "Accept: text/html", "Sec-Purpose: prefetch").code(t, 503)
	if got := s.requests(); len(got) != 2 {
		t.Errorf("the site was asked: %q", got)
	}
}

// A request with an unsafe method takes a ticket, even if its fields describe a subresource.
func TestSubresource_WithUnsafeMethodTakesTicket(t *testing.T) {
	b, s := one(t, Room{ID: "sale", Policy: policy(0)})
	for _, lines := range [][]string{
		{"POST /buy", asImage, "", "a=b"}, {"DELETE /cart", asImage}, {"POST /buy", "Accept: image/png", "", "a"},
		{"POST /buy", "Sec-Purpose: prefetch", "", "a"}, {"GET /buy", asImage, "X-HTTP-Method-Override: POST"}, {"OPTIONS /buy", asImage},
	} {
		a := b.call(lines...)
		if a.cookies["wr_sale_ticket"] == "" || a.field("state") != "waiting" {
			t.Errorf("%q: %s", lines, a.text())
		}
	}
	if got := s.requests(); len(got) != 0 {
		t.Errorf("the site was asked: %q", got)
	}
}

var preflighting = []string{"OPTIONS /buy", "Origin: https://a.example", "Access-Control-Request-Method: POST"}

func TestPreflight_HasOwnLimit(t *testing.T) {
	b, s := one(t, Room{ID: "sale", Policy: policy(0)})
	o := b.o
	o.TrustedProxies = loopback()
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	begun, passed, refused := time.Now(), 0, 0
	for i := range 200 {
		switch a := b.call(append(preflighting, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i%20))...); a.status {
		case 200:
			passed++
		case 503:
			if refused++; a.field("code") != "too_many_preflights" || a.header.Get("Retry-After") != "1" {
				t.Fatal(a.text())
			}
		default:
			t.Fatal(a.text())
		}
	}
	if most := 50 + int(time.Since(begun)/(20*time.Millisecond)) + 1; passed < 50 || passed > most || passed+refused != 200 {
		t.Errorf("%d went on, %d did not, in %v", passed, refused, time.Since(begun))
	}
	b.call(append(preflighting, "", "body")...).code(t, 503)
	if got := s.requests(); len(got) != passed || strings.Contains(fmt.Sprint(got), "session=true") {
		t.Errorf("the site was asked %d times, %d went on", len(got), passed)
	}
}

// The preflights of one address leave capacity for other addresses.
func TestPreflight_AddressIsLimitedToShare(t *testing.T) {
	b, s := one(t, Room{ID: "sale", Policy: policy(0)})
	o := b.o
	o.TrustedProxies = loopback()
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	from := func(address string) int { return b.call(append(preflighting, "X-Forwarded-For: "+address)...).status }
	begun := time.Now()
	for range 60 {
		from("198.51.100.66")
	}
	if got, most := len(s.requests()), 12+int(time.Since(begun)/(80*time.Millisecond))+1; got < 12 || got > most {
		t.Errorf("%d preflights of one address went on, want 12 to %d", got, most)
	}
	for i := range 10 {
		if got := from(fmt.Sprintf("203.0.113.%d", i)); got != 200 {
			t.Errorf("another visitor's preflight: %d", got)
		}
	}
}

func TestPreflight_LimitFollowsRoom(t *testing.T) {
	for _, row := range []struct{ rate, active, want int64 }{{0, 0, 50}, {5_000, 0, 50}, {5_100, 0, 51}, {1000_000, 0, 10_000}, {0, 30, 60}, {7_000, 40, 80}} {
		s := &admission.Snapshot{Active: row.active, Policy: admission.Policy{Rate: row.rate}}
		if q := preflightQuota(s); q.N != row.want || q.Per != time.Second {
			t.Errorf("rate %d, %d sessions: %+v", row.rate, row.active, q)
		}
	}
}

func TestPreflight_InClosedRoom(t *testing.T) {
	p := policy(9)
	b, s := one(t, Room{ID: "sale", Policy: p})
	pass := b.call("GET /", asPage).code(t, 200)
	eventually(t, "the visitor is in", func() bool { return b.state.Load().rooms[0].queue.Snapshot().Active == 1 })
	o := b.o
	o.Rooms = []Room{o.Rooms[0]}
	o.Rooms[0].Policy.Method = admission.Reject
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	b.call(preflighting...).code(t, 200) // a visitor has a session
	r := b.state.Load().rooms[0]
	r.queue.Revoke(passOf(t, pass))
	eventually(t, "the room is empty", func() bool { return r.queue.Snapshot().Active == 0 })
	if a := b.call(preflighting...).code(t, 503); a.field("code") != "room_closed" || a.header.Get("Retry-After") == "" {
		t.Error(a.text())
	}
	if got := s.requests(); len(got) != 2 {
		t.Errorf("the site was asked: %q", got)
	}
}

// passOf returns the session of the pass that a response sets.
func passOf(t *testing.T, a *response) admission.ID {
	t.Helper()
	p, err := testRing(t).VerifyPass([]byte(a.cookies["wr_sale_pass"]), "sale", time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	return admission.ID(p.Session)
}
