package client

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// The claim bnd is as docs/passes.md describes it for programs that verify passes themselves.
func TestBinding_IsAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/passes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, bind, addr, agent, hashed string }{
		{"IPv4", BindIP, "203.0.113.7", "x", "ip\x00203.0.113.0/24"},
		{"IPv6", BindIP, "2001:db8:1:2:3:4:5:6", "x", "ip\x002001:db8:1:2::/64"},
		{"IPv6 with a group of zeros", BindIP, "2001:db8:0:1::7", "x", "ip\x002001:db8:0:1::/64"},
		{"user agent", BindUA, "203.0.113.7", "curl/7.88.1", "ua\x00curl/7.88.1"},
		{"no user agent", BindUA, "203.0.113.7", "", "ua\x00"},
	} {
		var b Binding
		b.Set(row.bind, netip.MustParseAddr(row.addr), []byte(row.agent))
		sum := sha256.Sum256([]byte(row.hashed))
		want := base64.RawURLEncoding.EncodeToString(sum[:12])
		if got := string(b.Claim()); got != want {
			t.Errorf("%s: %q, want %q", row.name, got, want)
		}
		if row.agent == "curl/7.88.1" && !strings.Contains(string(page), want) {
			t.Errorf("docs/passes.md has another example than %s", want)
		}
	}
}
