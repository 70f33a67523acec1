package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// What the site reads is what the gateway believes, whatever the visitor or the proxy added.
func TestTrustedHeader_ToTheSite(t *testing.T) {
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

func TestRedact(t *testing.T) {
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.c2lnbmF0dXJl"
	for in, want := range map[string]string{
		"/a":                          "/a",
		"/a?b=c&d":                    "/a?b=c&d",
		"/a?Access_Token=x&b=1":       "/a?Access_Token=***&b=1",
		"/a?b=" + jwt:                 "/a?b=***",
		"/verify/" + jwt + "/now":     "/verify/***/now",
		"https://h/p?password=1&ok=2": "https://h/p?password=***&ok=2",
		"/a?":                         "/a?",
		"/a?&&b":                      "/a?&&b",
		"/a?toke=1&CREDIT=2":          "/a?toke=1&CREDIT=***",
	} {
		if got := string(appendRedacted(nil, []byte(in))); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestPubliclyCacheable(t *testing.T) {
	for control, want := range map[string]bool{
		"": false, "public": true, "public, max-age=60": true, "max-age=60": true, "max-age=0": false, "s-maxage=1": true,
		"private, max-age=60": false, "no-store": false, "Public , Private": false, "no-cache": false,
	} {
		var h fasthttp.ResponseHeader
		if control != "" {
			h.Set("Cache-Control", control)
		}
		if got := isPublic(&h); got != want {
			t.Errorf("%q: %v", control, got)
		}
	}
}

func TestAnswerForOneCacheIsPublic(t *testing.T) {
	for _, row := range []struct {
		name, value string
		want        bool
	}{
		{"CDN-Cache-Control", "max-age=600", true}, {"CDN-Cache-Control", "no-store", false}, {"Cloudflare-CDN-Cache-Control", "public", true},
		{"Surrogate-Control", "max-age=1, content=\"ESI/1.0\"", true}, {"X-Accel-Expires", "600", true}, {"X-Accel-Expires", "0", false},
	} {
		var h fasthttp.ResponseHeader
		h.Set("Cache-Control", "private")
		h.Set(row.name, row.value)
		if got := isPublic(&h); got != row.want {
			t.Errorf("%s: %s: %v", row.name, row.value, got)
		}
	}
}
