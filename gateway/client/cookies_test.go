package client

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/client/clienttest"
)

func TestCookies(t *testing.T) {
	h := clienttest.Request(t, "GET", "192.0.2.1", [2]string{"Cookie", `a=1; wr_sale_ticket=first;wr_sale_pass="quoted"; wr_sales_ticket=no; wr_sale_ticket=second; =; wr_sale_nonce=`},
		[2]string{"Cookie", `__Host-wr_sale_ticket=secure; broken; wr_sale_pass=again`})
	var j Jar
	plain, secure := NamesOf("sale", false), NamesOf("sale", true)
	j.Read(h, &plain)
	list := func(v Values) string {
		var s []string
		for _, b := range v.All() {
			s = append(s, string(b))
		}
		return strings.Join(s, ",")
	}
	if got := list(j.Ticket) + " " + list(j.Pass) + " " + list(j.Nonce); got != "first,second quoted,again " {
		t.Errorf("plain: %q", got)
	}
	j.Read(h, &secure)
	if got := list(j.Ticket) + " " + list(j.Pass); got != "secure " {
		t.Errorf("on TLS: %q", got)
	}
	// Browsers protect names that begin with __Host-, but a sibling host may set such a name after a Unicode space.
	for _, blank := range []string{"\u0085", "\u00a0", "\u2003", "\u3000"} {
		j.Read(clienttest.Request(t, "GET", "192.0.2.1", [2]string{"Cookie", "a=1; " + blank + "__Host-wr_sale_pass=theirs; __Host-wr_sale_nonce" + blank + "=theirs"}), &secure)
		if got := list(j.Pass) + list(j.Nonce); got != "" {
			t.Errorf("%q before or behind a name: %q", blank, got)
		}
	}
	for _, row := range []struct {
		sameSite string
		secure   bool
		want     string
	}{
		{SameSiteLax, false, "wr_sale_pass=V; Path=/; Max-Age=7; HttpOnly; SameSite=Lax"},
		{SameSiteStrict, true, "__Host-wr_sale_pass=V; Path=/; Max-Age=7; HttpOnly; SameSite=Strict; Secure"},
		{SameSiteNone, true, "__Host-wr_sale_pass=V; Path=/; Max-Age=7; HttpOnly; SameSite=None; Secure; Partitioned"},
	} {
		name := NamesOf("sale", row.secure).Pass
		if got := string(AppendCookie(nil, name, []byte("V"), 7, row.sameSite, row.secure)); got != row.want {
			t.Errorf("%s %v: %s", row.sameSite, row.secure, got)
		}
	}
	for name, want := range map[string]bool{
		"wr_sale_ticket": true, "__Host-wr_sale_pass": true, "wr_a_nonce": true, "wr_a_permit": true, "__Host-wr_a_permit": true, "wr_theirs": false, "session": false, "xwr_sale_pass": false,
	} {
		if IsOwnCookie([]byte(name)) != want {
			t.Errorf("%s is ours: %v", name, !want)
		}
	}
}
