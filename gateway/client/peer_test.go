package client

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/client/clienttest"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/forwarded"
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
		p := PeerOf(clienttest.Request(t, "GET", row.from, row.header...), trusted, ForwardedFor)
		if p.Addr.String() != row.want || p.Secure != row.secure {
			t.Errorf("%s: %v secure=%v", row.name, p.Addr, p.Secure)
		}
	}
}

// The address is read only from trusted_header, because a proxy forwards the visitor's own values of all other fields.
// A visitor who adds elements to the chain of proxies makes the gateway read only a limited number of hops.
func TestPeer_ReadsFewHops(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	chain := func(n int) string { return "192.0.2.7" + strings.Repeat(", 10.0.0.2", n-1) }
	long := "for=192.0.2.7;x=" + strings.Repeat("a", forwarded.HopMost)
	for _, row := range []struct{ header, value, want string }{
		{ForwardedFor, chain(forwarded.HopsMost), "192.0.2.7"},
		{ForwardedFor, chain(forwarded.HopsMost + 1), "10.0.0.2"},
		{ForwardedFor, "192.0.2.7" + strings.Repeat(",", forwarded.HopsMost-1), "192.0.2.7"},
		{ForwardedFor, "192.0.2.7" + strings.Repeat(",", forwarded.HopsMost), "10.0.0.1"},
		{"forwarded", long[:forwarded.HopMost], "192.0.2.7"},
		{"forwarded", long[:forwarded.HopMost+1], "10.0.0.1"},
		{"forwarded", "proto=https;" + long, "10.0.0.1"},
	} {
		name := map[string]string{ForwardedFor: "X-Forwarded-For", "forwarded": "Forwarded"}[row.header]
		p := PeerOf(clienttest.Request(t, "GET", "10.0.0.1", [2]string{name, row.value}), trusted, row.header)
		if p.Addr.String() != row.want || p.Secure {
			t.Errorf("%s: %.60s… (%d bytes): %s, want %s", name, row.value, len(row.value), p.Addr, row.want)
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
		if p := PeerOf(clienttest.Request(t, "GET", "10.0.0.1", q...), trusted, row.setting); p.Addr.String() != row.want || p.Secure != row.secure {
			t.Errorf("%s: %v secure=%v", row.name, p.Addr, p.Secure)
		}
		if p := PeerOf(clienttest.Request(t, "GET", "192.0.2.1", q...), trusted, row.setting); p.Addr.String() != "192.0.2.1" || p.Secure {
			t.Errorf("%s, from a stranger: %v secure=%v", row.name, p.Addr, p.Secure)
		}
	}
}

// FuzzPeer checks that the address is the one that a trusted proxy saw, whatever fields the client sent, and that fields without a
// trusted proxy have no effect.
func FuzzPeer(f *testing.F) {
	for _, s := range []string{"", "6.6.6.6", "6.6.6.6,", "for=6.6.6.6;proto=https", `for="6.6.6.6`, `for="a, for=10.0.0.9"`, "10.0.0.9, 10.0.0.8", "unknown", ",,", `"`, "for=[::1];host=a"} {
		f.Add(s)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, said string) {
		for lines, setting := range map[string]string{
			"X-Forwarded-For: " + said + ", 198.51.100.7\r\nForwarded: " + said + "\r\n":                     ForwardedFor,
			"X-Forwarded-For: " + said + "\r\nX-Forwarded-For: 198.51.100.7, 10.0.0.2\r\n":                   ForwardedFor,
			"Forwarded: " + said + ", for=198.51.100.7\r\nX-Forwarded-For: " + said + "\r\n":                 "forwarded",
			"Forwarded: " + said + "\r\nForwarded: for=\"198.51.100.7:1\", for=10.0.0.2\r\n":                 "forwarded",
			"X-Real-IP: 198.51.100.7\r\nX-Forwarded-For: " + said + "\r\nCF-Connecting-IP: " + said + "\r\n": "x-real-ip",
		} {
			header := []byte("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n")
			for from, want := range map[string]string{"10.0.0.1": "198.51.100.7", "192.0.2.1": "192.0.2.1"} {
				q, r := wire.ParseRequest(header, netip.MustParseAddr(from))
				if r != nil || strings.ContainsAny(said, "\r\n") {
					return // the request is refused, or the field has several values
				}
				if p := PeerOf(q, trusted, setting); p.Addr.String() != want {
					t.Fatalf("%q from %s: %v, want %s", lines, from, p.Addr, want)
				}
			}
		}
	})
}
