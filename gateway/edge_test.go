package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// The site receives the address that the gateway uses, whatever fields the visitor or the proxy added.
func TestTrustedHeader_ReachesOrigin(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		fmt.Fprintf(w, "%q %q %q %q %q %q", h["X-Forwarded-For"], h["X-Real-Ip"], h["Cf-Connecting-Ip"], h["Cf_connecting_ip"], h["X-Forwarded-Host"], h["Forwarded"])
	})
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}, TrustedProxies: loopback()})
	visitor := []string{"X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6;host=evil.test", "CF-Connecting-IP: 192.0.2.7", "CF_Connecting_IP: 6.6.6.6", "X-Real-IP: 6.6.6.6"}
	stranger := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, row := range []struct {
		header  string
		trusted []netip.Prefix
		lines   []string
		want    string
	}{
		{"", loopback(), visitor, `["6.6.6.6, 127.0.0.1"] ["6.6.6.6"] ["192.0.2.7"] ["6.6.6.6"] ["shop.test"] []`},
		{"CF-Connecting-IP", loopback(), visitor, `["192.0.2.7, 127.0.0.1"] ["192.0.2.7"] ["192.0.2.7"] [] ["shop.test"] []`},
		{"CF-Connecting-IP", stranger, visitor, `["127.0.0.1"] ["127.0.0.1"] ["127.0.0.1"] [] ["shop.test"] []`},
		{"CF-Connecting-IP", loopback(), append([]string{"CF-Connecting-IP: 192.0.2.8"}, visitor...), `["127.0.0.1"] ["127.0.0.1"] ["127.0.0.1"] [] ["shop.test"] []`},
		{"x-real-ip", loopback(), visitor, `["6.6.6.6, 127.0.0.1"] ["6.6.6.6"] ["192.0.2.7"] ["6.6.6.6"] ["shop.test"] []`},
		{"Forwarded", loopback(), []string{"X-Forwarded-For: 6.6.6.6", "X-Forwarded-Host: evil.test", "Forwarded: for=6.6.6.6;host=evil.test, for=192.0.2.7;host=www.test"},
			`["192.0.2.7, 127.0.0.1"] ["192.0.2.7"] [] [] ["www.test"] []`},
	} {
		o := b.o
		o.TrustedHeader, o.TrustedProxies = row.header, row.trusted
		if err := b.Reload(o); err != nil {
			t.Fatal(err)
		}
		if a := b.call(append([]string{"GET /a"}, row.lines...)...).code(t, 200); a.body != row.want {
			t.Errorf("%q, trusted %v, %q: the site read\n%s, want\n%s", row.header, row.trusted, row.lines, a.body, row.want)
		}
	}
}
