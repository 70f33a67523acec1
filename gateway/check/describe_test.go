package check_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/dialect"
)

var (
	proxy   = netip.MustParseAddr("10.0.0.1")
	proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
)

// describe returns the request that a check describes, as a line, or the name of the fault.
func describe(d dialect.Dialect, raw string) string {
	q, refusal := wire.ParseRequest([]byte(raw), proxy)
	if refusal != nil {
		return refusal.Code
	}
	var described wire.Description
	if fault := check.Describe(d, &described, q, proxies); fault != nil {
		return fault.Name
	}
	limits := wire.Limits{}.OfDescribed()
	r, refusal := described.Request(&limits)
	if refusal != nil {
		return refusal.Code
	}
	scheme := "http"
	if r.Secure() {
		scheme = "https"
	}
	return strings.Join([]string{string(r.Method()), scheme + "://" + string(r.Host()) + string(r.Target()), "from", r.Peer().String()}, " ")
}

func TestDescribe(t *testing.T) {
	const nginx = "GET /.waiting-room/check HTTP/1.1\r\nHost: shop.test\r\nX-Original-Method: POST\r\nX-Original-URI: /buy?id=1\r\n"
	for _, row := range []struct {
		dialect dialect.Dialect
		raw     string
		want    string
	}{
		{dialect.Nginx, nginx + "X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n", "POST https://shop.test/buy?id=1 from 192.0.2.7"},
		{dialect.Nginx, nginx + "X-Forwarded-For: 203.0.113.9, 192.0.2.7, 10.1.1.1\r\n\r\n", "POST http://shop.test/buy?id=1 from 192.0.2.7"}, // only proxies are passed over
		{dialect.Nginx, nginx + "\r\n", "POST http://shop.test/buy?id=1 from 10.0.0.1"},
		{dialect.HAProxy, nginx + "\r\n", "POST http://shop.test/buy?id=1 from 10.0.0.1"},
		{dialect.Traefik, nginx + "\r\n", "target"},
		{dialect.Traefik, "GET /.waiting-room/check HTTP/1.1\r\nHost: gateway:8085\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\nX-Forwarded-Host: shop.test\r\n\r\n", "GET http://shop.test/ from 10.0.0.1"},
		{dialect.Traefik, "GET /.waiting-room/check HTTP/1.1\r\nHost: gateway:8085\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n\r\n", "host"},
		{dialect.Envoy, "PUT /.waiting-room/check/a%2Fb?c HTTP/1.1\r\nHost: shop.test\r\nX-Original-URI: /free\r\n\r\n", "PUT http://shop.test/a%2Fb?c from 10.0.0.1"},
		{dialect.Envoy, "GET /.waiting-room/check HTTP/1.1\r\nHost: shop.test\r\n\r\n", "target"},
		{dialect.Envoy, "GET /.waiting-room/checks/ HTTP/1.1\r\nHost: shop.test\r\n\r\n", "path"},
		{dialect.Nginx, nginx + "X-Original-URI: /free\r\n\r\n", "target"},
		{dialect.Nginx, nginx + "X-Original-Method: GET\r\n\r\n", "method"},
	} {
		if got := describe(row.dialect, row.raw); got != row.want {
			t.Errorf("%s: %q, want %q of\n%s", row.dialect, got, row.want, row.raw)
		}
	}
}

// Whatever a check contains, the described request is one that a visitor could have sent: one line, an absolute path, one host.
func FuzzDescribe(f *testing.F) {
	f.Add("POST", "/buy", "https", "192.0.2.7", "a=1")
	f.Add("GET", "/x y", "gopher", "::1", "\r\nX: y")
	f.Add("TRACE", "//host/..;/%00", "http", "1.2.3.4, ,", "wr_sale_pass=x")
	f.Fuzz(func(t *testing.T, method, target, proto, from, cookie string) {
		for _, name := range dialect.Names() {
			d, err := dialect.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, raw := range []string{
				"GET /.waiting-room/check HTTP/1.1\r\nHost: shop.test\r\nX-Original-Method: " + method + "\r\nX-Original-URI: " + target + "\r\nX-Forwarded-Method: " + method + "\r\nX-Forwarded-Uri: " + target +
					"\r\nX-Forwarded-Host: shop.test\r\nX-Forwarded-Proto: " + proto + "\r\nX-Forwarded-For: " + from + "\r\nCookie: " + cookie + "\r\n\r\n",
				method + " /.waiting-room/check" + target + " HTTP/1.1\r\nHost: shop.test\r\nX-Forwarded-Proto: " + proto + "\r\nCookie: " + cookie + "\r\n\r\n",
			} {
				got := describe(d, raw)
				_, rest, described := strings.Cut(got, "://shop.test")
				if described && (!strings.HasPrefix(rest, "/") || strings.ContainsAny(got, "\r\n") || strings.Contains(strings.Split(rest, " from ")[0], " ")) {
					t.Fatalf("%s describes %q", raw, got)
				}
			}
		}
	})
}
