package forwarded

import (
	"net/http"
	"net/netip"
	"testing"
)

func TestBy_FollowsTrustedProxiesAlone(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")}
	for _, row := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"192.0.2.1:5", nil, "192.0.2.1"},
		{"192.0.2.1:5", []string{"198.51.100.7"}, "192.0.2.1"},
		{"127.0.0.1:5", nil, "127.0.0.1"},
		{"127.0.0.1:5", []string{"203.0.113.1, 198.51.100.7"}, "198.51.100.7"},
		{"[::ffff:10.1.2.3]:5", []string{"203.0.113.1", "198.51.100.7, 10.0.0.9"}, "198.51.100.7"},
		{"127.0.0.1:5", []string{"198.51.100.7, unknown"}, "127.0.0.1"},
		{"127.0.0.1:5", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"@", []string{"198.51.100.7"}, "invalid IP"},
	} {
		r := &http.Request{RemoteAddr: row.peer, Header: http.Header{"X-Forwarded-For": row.lines}}
		if got := By(r, trusted).String(); got != row.want {
			t.Errorf("%s with %q: %s, want %s", row.peer, row.lines, got, row.want)
		}
	}
}

func FuzzParseHop(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "1.2.3.4:5", "01.2.3.4", "256.1.1.1", "1.2.3", "[::1]:80", "[::1]", "::ffff:1.2.3.4", "fe80::1%eth0", "unknown", "0.0.0.0", "1..2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := []byte(s)
		if a, ok := parse4(b); ok {
			if want, err := netip.ParseAddr(s); err != nil || want != a {
				t.Fatalf("%q: %v, netip says %v %v", s, a, want, err)
			}
		} else if want, err := netip.ParseAddr(s); err == nil && want.Is4() {
			t.Fatalf("%q is refused, netip says %v", s, want)
		}
		if a, ok := ParseHop(b); ok && (!a.IsValid() || a.Zone() != "" || a.Is4In6()) {
			t.Fatalf("%q: %v", s, a)
		}
	})
}
