package gateway

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// guarded is a gateway behind a trusted proxy that reports the clients' addresses.
func guarded(t testing.TB, rooms ...Room) *bench {
	t.Helper()
	s := newSite(t, "shop", nil)
	return start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: rooms, TrustedProxies: loopback(),
	})
}

func joinLimit(burst, joins, wide int64) admission.Policy {
	p := policy(burst)
	p.Joins, p.JoinsPer, p.Wide, p.WidePer = joins, time.Hour, wide, time.Hour
	return p
}

func from(address string) string { return "X-Forwarded-For: " + address }

func TestJoinLimit_CountsAddressesAndNetworks(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: joinLimit(0, 3, 5)})
	join := func(address string, lines ...string) *response {
		return b.call(append([]string{"POST /.waiting-room/sale/tickets", from(address)}, lines...)...)
	}
	var first *response
	for range 3 {
		first = join("203.0.113.7").code(t, 201)
	}
	refused := join("203.0.113.7").code(t, 429)
	if refused.field("code") != "too_many_joins" || refused.header.Get("Retry-After") == "" || refused.header.Get("X-Waiting-Room") != "rejected" {
		t.Errorf("the fourth: %s", refused.text())
	}
	join("203.0.113.7", first.jar()).code(t, 200) // sends its ticket
	key := "Idempotency-Key: 0123456789abcdefghijklm"
	join("203.0.113.8", key).code(t, 201)
	join("203.0.113.8", key).code(t, 200) // the same ticket
	join("203.0.113.8").code(t, 201)
	join("203.0.113.9").code(t, 429) // the limit of the network
	join("203.0.114.9").code(t, 201)
	for range 3 {
		join("2001:db8:1:2::1").code(t, 201)
	}
	join("2001:db8:1:2:ffff::2").code(t, 429)
	join("2001:db8:1:3::1").code(t, 201)
	for request, want := range map[string]int{asPage: 429, asJSON: 429} {
		a := b.call("GET /buy", from("203.0.113.7"), request).code(t, want)
		if page := request == asPage; page != strings.Contains(a.body, `data-state="rejected" data-reason="joins"`) {
			t.Errorf("%s: %s", request, a.text())
		}
	}
	b.call("GET /buy", from("203.0.113.7"), asJSON, first.jar()).code(t, 202)
	if n := testutil.ToFloat64(b.metrics.Room("sale").Refused["address"]); n != 4 {
		t.Errorf("%v refused for their address, want 4", n)
	}
	if n := testutil.ToFloat64(b.metrics.Room("sale").Refused["network"]); n != 1 {
		t.Errorf("%v refused for their network, want 1", n)
	}
}

// In a long queue any number of gateways sign tickets without the store. The join limit also holds for these.
func TestJoinLimit_CountsSignedTicketsWhenEnrolled(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: joinLimit(0, 2, 100)})
	sign := func(address string) string {
		r := b.state.Load().byID["sale"]
		v := &request{state: b.state.Load(), room: r, peer: client.Peer{Addr: netip.MustParseAddr(address)}}
		tk := admission.Ticket{ID: admission.ID(randomID()), Order: r.queue.Now(), Fence: 1, Address: v.addressOf()}
		return string(testRing(t).AppendWaiting(nil, &token.Waiting{
			ID: token.ID(tk.ID), Room: "sale", Order: tk.Order, Fence: 1, IssuedAt: r.queue.RedisNow() / 1e6,
			Expires: r.queue.RedisNow()/1e6 + day, AddrHash: addressClaim(&tk),
		}))
	}
	tokens := []string{sign("198.51.100.1"), sign("198.51.100.1"), sign("198.51.100.1")}
	status := func(token string) *response {
		return b.call("GET /.waiting-room/sale/status", "Authorization: Bearer "+token).code(t, 200)
	}
	for _, token := range tokens[:2] {
		a := status(token)
		if a.field("state") != "waiting" || a.field("token") == "" || strings.Contains(claims(t, a.field("token")), `"ah"`) {
			t.Errorf("a signed place: %s", a.text())
		}
		if again := status(token); again.field("state") != "waiting" {
			t.Errorf("once more: %s", again.text())
		}
	}
	for range 2 {
		a := status(tokens[2])
		_, api := visitorAPI(t)
		conforms(t, api, a, "GET /.waiting-room/sale/status")
		if a.field("state") != "rejected" || a.field("reason") != "joins" || a.field("refresh_after") == "" || a.field("position") != "" {
			t.Errorf("the third: %s", a.text())
		}
	}
	b.call("POST /.waiting-room/sale/claim", "Authorization: Bearer "+tokens[2]).code(t, 429)
	b.call("GET /buy", asJSON, "X-Waiting-Room-Token: "+tokens[2]).code(t, 429)
	if got := status(sign("198.51.100.2")); got.field("state") != "waiting" {
		t.Errorf("another address: %s", got.text())
	}
}

// claims are the claims of a token.
func claims(t testing.TB, jwt string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(strings.Split(jwt, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
