package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/forwarded"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestPeer(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for _, row := range []struct {
		name   string
		from   string
		header [][2]string
		want   string
		secure bool
	}{
		{"nobody between", "192.0.2.1", nil, "192.0.2.1", false},
		{"not trusted", "192.0.2.1", [][2]string{{"X-Forwarded-For", "198.51.100.7"}, {"X-Forwarded-Proto", "https"}}, "192.0.2.1", false},
		{"trusted", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7"}, {"X-Forwarded-Proto", "https"}}, "198.51.100.7", true},
		{"a chain", "10.0.0.1", [][2]string{{"X-Forwarded-For", "6.6.6.6, 198.51.100.7, 10.2.3.4"}}, "198.51.100.7", false},
		{"two lines", "10.0.0.1", [][2]string{{"X-Forwarded-For", "6.6.6.6"}, {"X-Forwarded-For", "198.51.100.7"}}, "198.51.100.7", false},
		{"all trusted", "10.0.0.1", [][2]string{{"X-Forwarded-For", "10.0.0.9, 10.0.0.8"}}, "10.0.0.9", false},
		{"with a port", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7:4711"}}, "198.51.100.7", false},
		{"six", "2001:db8::1", [][2]string{{"X-Forwarded-For", "[2001:470::7]:4711"}}, "2001:470::7", false},
		{"mapped", "::ffff:10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7"}}, "198.51.100.7", false},
		{"rubbish", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7, unknown, 10.0.0.8"}}, "10.0.0.8", false},
		{"empty", "10.0.0.1", [][2]string{{"X-Forwarded-For", " , "}}, "10.0.0.1", false},
		{"empty elements are none", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7, ,, 10.0.0.8,"}}, "198.51.100.7", false},
		{"three lines, one empty", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7"}, {"X-Forwarded-For", ""}, {"X-Forwarded-For", "10.0.0.8"}}, "198.51.100.7", false},
		{"the walk does not go past a stranger", "10.0.0.1", [][2]string{{"X-Forwarded-For", "10.0.0.9, 198.51.100.7, 10.0.0.8"}}, "198.51.100.7", false},
		{"an address that is half one", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7, 10.0.0.300"}}, "10.0.0.1", false},
		{"a port that is none", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7:99999"}}, "10.0.0.1", false},
		{"six without brackets", "10.0.0.1", [][2]string{{"X-Forwarded-For", "2001:470::7"}}, "2001:470::7", false},
		{"six in brackets", "10.0.0.1", [][2]string{{"X-Forwarded-For", "[2001:470::7]"}}, "2001:470::7", false},
		{"six, mapped", "10.0.0.1", [][2]string{{"X-Forwarded-For", "::ffff:198.51.100.7"}}, "198.51.100.7", false},
		{"six, trusted", "10.0.0.1", [][2]string{{"X-Forwarded-For", "198.51.100.7, 2001:db8::9"}}, "198.51.100.7", false},
		{"six with a zone", "10.0.0.1", [][2]string{{"X-Forwarded-For", "fe80::1%eth0"}}, "fe80::1", false},
		{"no other header names the address", "10.0.0.1", [][2]string{{"X-Real-Ip", "6.6.6.6"}, {"Forwarded", "for=6.6.6.6;proto=https"}, {"Cf-Connecting-Ip", "6.6.6.6"}}, "10.0.0.1", false},
		{"proto without an address", "10.0.0.1", [][2]string{{"X-Forwarded-Proto", "HTTPS"}}, "10.0.0.1", true},
	} {
		p := peerOf(request(t, "GET", row.from, row.header...), trusted, forwardedFor)
		if p.addr.String() != row.want || p.secure != row.secure {
			t.Errorf("%s: %v secure=%v", row.name, p.addr, p.secure)
		}
	}
}

// The header that trusted_header names is the only one that the visitor's address is read from: what the visitor adds under
// the other names a proxy passes on.
// What a visitor adds to a chain of proxies costs no more than so many hops.
func TestPeer_LooksAtAFewHops(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	chain := func(n int) string { return "192.0.2.7" + strings.Repeat(", 10.0.0.2", n-1) }
	long := "for=192.0.2.7;x=" + strings.Repeat("a", forwarded.HopMost)
	for _, row := range []struct{ header, value, want string }{
		{forwardedFor, chain(forwarded.HopsMost), "192.0.2.7"},
		{forwardedFor, chain(forwarded.HopsMost + 1), "10.0.0.2"},
		{forwardedFor, "192.0.2.7" + strings.Repeat(",", forwarded.HopsMost-1), "192.0.2.7"},
		{forwardedFor, "192.0.2.7" + strings.Repeat(",", forwarded.HopsMost), "10.0.0.1"},
		{"forwarded", long[:forwarded.HopMost], "192.0.2.7"},
		{"forwarded", long[:forwarded.HopMost+1], "10.0.0.1"},
		{"forwarded", "proto=https;" + long, "10.0.0.1"},
	} {
		name := map[string]string{forwardedFor: "X-Forwarded-For", "forwarded": "Forwarded"}[row.header]
		p := peerOf(request(t, "GET", "10.0.0.1", [2]string{name, row.value}), trusted, row.header)
		if p.addr.String() != row.want || p.secure {
			t.Errorf("%s: %.60s… (%d bytes): %s, want %s", name, row.value, len(row.value), p.addr, row.want)
		}
	}
}

func TestPeer_TrustedHeader(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	forged := [][2]string{{"X-Forwarded-For", "6.6.6.6"}, {"Forwarded", "for=6.6.6.6;host=evil.test"}, {"X-Real-IP", "6.6.6.6"}, {"CF-Connecting-IP", "6.6.6.6"}}
	for _, row := range []struct {
		name, setting string
		header        [][2]string
		want          string
		secure        bool
	}{
		{"Forwarded", "forwarded", [][2]string{{"Forwarded", `for="[2001:470::7]:4711";proto=https;by=10.0.0.1`}}, "2001:470::7", true},
		{"a chain in Forwarded", "forwarded", [][2]string{{"Forwarded", `for=6.6.6.6, For=198.51.100.7`}}, "198.51.100.7", false},
		{"a chain of trusted proxies", "forwarded", [][2]string{{"Forwarded", `for=198.51.100.7;proto=https, for=10.0.0.2;proto=http`}}, "198.51.100.7", true},
		{"the visitor's own element has no say of the scheme", "forwarded", [][2]string{{"Forwarded", `for=6.6.6.6;proto=https, for=198.51.100.7;proto=http`}}, "198.51.100.7", false},
		{"nor has it where the proxy reports none", "forwarded", [][2]string{{"Forwarded", `for=6.6.6.6;proto=https, for=198.51.100.7`}}, "198.51.100.7", false},
		{"a hidden address", "forwarded", [][2]string{{"Forwarded", `for=_secret;proto=https`}}, "10.0.0.1", true},
		{"X-Forwarded-Proto beside Forwarded", "forwarded", [][2]string{{"Forwarded", "for=198.51.100.7"}, {"X-Forwarded-Proto", "https"}}, "198.51.100.7", false},
		{"X-Real-IP", "x-real-ip", [][2]string{{"X-Real-IP", "198.51.100.7"}, {"X-Forwarded-Proto", "https"}}, "198.51.100.7", true},
		{"a CDN's header", "cf-connecting-ip", [][2]string{{"CF-Connecting-IP", "2001:470::7"}}, "2001:470::7", false},
		{"two lines", "cf-connecting-ip", [][2]string{{"CF-Connecting-IP", "198.51.100.7"}, {"CF-Connecting-IP", "198.51.100.8"}}, "10.0.0.1", false},
		{"a list", "cf-connecting-ip", [][2]string{{"CF-Connecting-IP", "198.51.100.7, 198.51.100.8"}}, "10.0.0.1", false},
		{"another spelling", "cf-connecting-ip", [][2]string{{"CF_Connecting_IP", "198.51.100.7"}}, "10.0.0.1", false},
		{"nothing", "x-real-ip", nil, "10.0.0.1", false},
	} {
		q := row.header
		for _, f := range forged {
			if !strings.EqualFold(f[0], row.setting) {
				q = append(q, f)
			}
		}
		if p := peerOf(request(t, "GET", "10.0.0.1", q...), trusted, row.setting); p.addr.String() != row.want || p.secure != row.secure {
			t.Errorf("%s: %v secure=%v", row.name, p.addr, p.secure)
		}
		if p := peerOf(request(t, "GET", "192.0.2.1", q...), trusted, row.setting); p.addr.String() != "192.0.2.1" || p.secure {
			t.Errorf("%s, from a stranger: %v secure=%v", row.name, p.addr, p.secure)
		}
	}
}

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

// FuzzPeer: whatever a stranger says before a trusted proxy adds what it saw, the visitor is who the proxy saw; and what a
// stranger says without a proxy is nothing.
func FuzzPeer(f *testing.F) {
	for _, s := range []string{"", "6.6.6.6", "6.6.6.6,", "for=6.6.6.6;proto=https", `for="6.6.6.6`, `for="a, for=10.0.0.9"`, "10.0.0.9, 10.0.0.8", "unknown", ",,", `"`, "for=[::1];host=a"} {
		f.Add(s)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, said string) {
		for lines, setting := range map[string]string{
			"X-Forwarded-For: " + said + ", 198.51.100.7\r\nForwarded: " + said + "\r\n":                     forwardedFor,
			"X-Forwarded-For: " + said + "\r\nX-Forwarded-For: 198.51.100.7, 10.0.0.2\r\n":                   forwardedFor,
			"Forwarded: " + said + ", for=198.51.100.7\r\nX-Forwarded-For: " + said + "\r\n":                 "forwarded",
			"Forwarded: " + said + "\r\nForwarded: for=\"198.51.100.7:1\", for=10.0.0.2\r\n":                 "forwarded",
			"X-Real-IP: 198.51.100.7\r\nX-Forwarded-For: " + said + "\r\nCF-Connecting-IP: " + said + "\r\n": "x-real-ip",
		} {
			header := []byte("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n")
			for from, want := range map[string]string{"10.0.0.1": "198.51.100.7", "192.0.2.1": "192.0.2.1"} {
				q, r := proxy.ParseRequest(header, netip.MustParseAddr(from))
				if r != nil || strings.ContainsAny(said, "\r\n") {
					return // it is refused, or more than a value
				}
				if p := peerOf(q, trusted, setting); p.addr.String() != want {
					t.Fatalf("%q from %s: %v, want %s", lines, from, p.addr, want)
				}
			}
		}
	})
}

// request is one as the proxy hands it on.
func request(t *testing.T, method, from string, fields ...[2]string) *proxy.Request {
	t.Helper()
	text := method + " / HTTP/1.1\r\nHost: shop.test\r\n"
	for _, f := range fields {
		text += f[0] + ": " + f[1] + "\r\n"
	}
	q, r := proxy.ParseRequest([]byte(text+"\r\n"), netip.MustParseAddr(from).Unmap())
	if r != nil {
		t.Fatalf("%s: %v", text, r)
	}
	return q
}

func TestCookies(t *testing.T) {
	h := request(t, "GET", "192.0.2.1", [2]string{"Cookie", `a=1; wr_sale_ticket=first;wr_sale_pass="quoted"; wr_sales_ticket=no; wr_sale_ticket=second; =; wr_sale_nonce=`},
		[2]string{"Cookie", `__Host-wr_sale_ticket=secure; broken; wr_sale_pass=again`})
	var j jar
	plain, secure := namesOf("sale", false), namesOf("sale", true)
	j.read(h, &plain)
	list := func(v values) string {
		var s []string
		for _, b := range v.all() {
			s = append(s, string(b))
		}
		return strings.Join(s, ",")
	}
	if got := list(j.ticket) + " " + list(j.pass) + " " + list(j.nonce); got != "first,second quoted,again " {
		t.Errorf("plain: %q", got)
	}
	j.read(h, &secure)
	if got := list(j.ticket) + " " + list(j.pass); got != "secure " {
		t.Errorf("on TLS: %q", got)
	}
	// Browsers guard the names that begin with __Host-: a sibling host may set one behind a blank of Unicode.
	for _, blank := range []string{"\u0085", "\u00a0", "\u2003", "\u3000"} {
		j.read(request(t, "GET", "192.0.2.1", [2]string{"Cookie", "a=1; " + blank + "__Host-wr_sale_pass=theirs; __Host-wr_sale_nonce" + blank + "=theirs"}), &secure)
		if got := list(j.pass) + list(j.nonce); got != "" {
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
		name := namesOf("sale", row.secure).pass
		if got := string(appendCookie(nil, name, []byte("V"), 7, row.sameSite, row.secure)); got != row.want {
			t.Errorf("%s %v: %s", row.sameSite, row.secure, got)
		}
	}
	for name, want := range map[string]bool{
		"wr_sale_ticket": true, "__Host-wr_sale_pass": true, "wr_a_nonce": true, "wr_theirs": false, "session": false, "xwr_sale_pass": false,
	} {
		if ours([]byte(name)) != want {
			t.Errorf("%s is ours: %v", name, !want)
		}
	}
}

func TestBypass(t *testing.T) {
	r := stillRoom("sale", 1, nil, nil)
	rules, err := newBypass([]Bypass{
		{Paths: []string{"/health", "~^/feed\\.(xml|json)$"}, Methods: []string{"get"}},
		{IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, UserAgents: []string{"Monitor", "probe/1.0"}},
		{Headers: map[string]string{"X-Key": "open", "X-Any": ""}},
	}, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, method, path, addr, agent string
		header                          [][2]string
		want                            bool
	}{
		{"path", "GET", "/health", "10.0.0.1", "", nil, true},
		{"path below", "GET", "/health/db", "10.0.0.1", "", nil, true},
		{"regex", "GET", "/Feed.xml", "10.0.0.1", "", nil, true},
		{"other method", "POST", "/health", "10.0.0.1", "", nil, false},
		{"a path that reads in two ways", "GET", "/health%2f..%2fbuy", "10.0.0.1", "", nil, false},
		{"address and agent", "POST", "/", "192.0.2.9", "xx MONITOR/2", nil, true},
		{"address alone", "GET", "/", "192.0.2.9", "curl", nil, false},
		{"agent alone", "GET", "/", "10.0.0.1", "probe/1.0", nil, false},
		{"a dot is a dot", "GET", "/", "192.0.2.9", "probe/1x0", nil, false},
		{"headers", "GET", "/", "10.0.0.1", "", [][2]string{{"X-Key", "open"}, {"X-Any", "1"}}, true},
		{"one header", "GET", "/", "10.0.0.1", "", [][2]string{{"X-Key", "open"}}, false},
		{"another value", "GET", "/", "10.0.0.1", "", [][2]string{{"X-Key", "Open"}, {"X-Any", "1"}}, false},
	} {
		h := request(t, row.method, row.addr, append([][2]string{{"User-Agent", row.agent}}, row.header...)...)
		got := false
		for i := range rules {
			got = got || rules[i].fits(h, readingsOf(row.path), netip.MustParseAddr(row.addr))
		}
		if got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	if _, err := newBypass([]Bypass{{}}, r); err == nil || err.Error() != "bypass[0]: the rule is empty; name paths, methods, ips, user_agents or headers" {
		t.Errorf("an empty rule: %v", err)
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
		if got := publicly(&h); got != want {
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
		if got := publicly(&h); got != row.want {
			t.Errorf("%s: %s: %v", row.name, row.value, got)
		}
	}
}
