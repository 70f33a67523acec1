package console

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission"
)

// An operator finds the tickets of a network with what the store holds of them.
func TestClients_OfNetwork(t *testing.T) {
	b := newBench(t)
	waiting := b.join(12)
	now := b.sale.RedisNow()
	b.clients = []Client{
		{waiting[0].Ticket.ID, netip.MustParseAddr("203.0.113.7"), now}, {admission.ID{9}, netip.MustParseAddr("203.0.113.8"), now - 1}, {waiting[1].Ticket.ID, netip.MustParseAddr("2001:db8::1"), now},
	}
	const path = "/admin/v1/rooms/sale/clients?address="
	found := func(address string) string {
		w := b.ask("GET", path+address, "")
		want(t, w, 200)
		var words []string
		body := decode(t, w.Body.Bytes())
		for _, c := range at(body, "clients").([]any) {
			words = append(words, at(c, "address").(string)+" "+at(c, "ticket.state").(string))
		}
		if at(body, "gateway") != admission.GatewayOf(b.core) || at(body, "gateways") != 1.0 {
			t.Errorf("%s", w.Body)
		}
		return strings.Join(words, ", ")
	}
	for address, want := range map[string]string{
		"203.0.113.0/24": "203.0.113.7 waiting, 203.0.113.8 unknown", "203.0.113.99/24": "203.0.113.7 waiting, 203.0.113.8 unknown", "203.0.113.7": "203.0.113.7 waiting",
		"203.0.113.0/24&limit=1": "203.0.113.7 waiting", "::ffff:203.0.113.0/120": "203.0.113.7 waiting, 203.0.113.8 unknown", "2001:db8::/48": "2001:db8::1 waiting", "198.51.100.0/24": "",
	} {
		if got := found(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	for _, address := range []string{"", "x", "203.0.113.0/33", "203.0.113", "fe80::1%25eth0", "203.0.113.7&address=203.0.113.8", "203.0.113.7&limit=0"} {
		wantCode(t, b.ask("GET", path+address, ""), 422, "invalid")
	}
	wantCode(t, b.ask("GET", path+"203.0.113.7", "", "Authorization: Bearer "+readToken), 403, "read_only")
}
