package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// The tickets and sessions of a network are found by it, at the room that they are of.
func TestClients_AreThoseThatReceivedTokens(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Paths: []string{"/"}, Policy: policy(0)}, Room{ID: "other", Paths: []string{"/other"}, Policy: policy(1000)})
	waits := b.call("POST /.waiting-room/sale/tickets", from("203.0.113.9")).code(t, 201)
	b.call("POST /.waiting-room/sale/tickets", from("198.51.100.1")).code(t, 201)
	b.call("POST /.waiting-room/other/tickets", from("203.0.113.10")).code(t, 201)
	in := func(room int, prefix string) string {
		var words []string
		found, all := b.Views()[room].Clients(netip.MustParsePrefix(prefix), 10)
		for _, u := range found {
			words = append(words, u.Address.String())
			if room == 0 && u.ID.String() != jti(t, waits) {
				t.Errorf("the ticket is %v", u.ID)
			}
		}
		return fmt.Sprint(strings.Join(words, " "), " of ", all)
	}
	if got := in(0, "203.0.113.0/24"); got != "203.0.113.9 of 1" {
		t.Errorf("waiting: %s", got)
	}
	if got := in(1, "203.0.113.0/24"); got != "203.0.113.10 of 1" {
		t.Errorf("admitted: %s", got)
	}
}
