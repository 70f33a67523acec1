package route

import (
	"net/netip"
	"testing"

	"github.com/anteroom/anteroom/gateway/client/clienttest"
)

func TestBypass(t *testing.T) {
	rules, err := NewBypass([]BypassRule{
		{Paths: []string{"/health", "~^/feed\\.(xml|json)$"}, Methods: []string{"get"}},
		{IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, UserAgents: []string{"Monitor", "probe/1.0"}},
		{Headers: map[string]string{"X-Key": "open", "X-Any": ""}},
	})
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
		h := clienttest.Request(t, row.method, row.addr, append([][2]string{{"User-Agent", row.agent}}, row.header...)...)
		got := false
		for i := range rules {
			got = got || rules[i].Matches(h, readingsOf(row.path), netip.MustParseAddr(row.addr))
		}
		if got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	if _, err := NewBypass([]BypassRule{{}}); err == nil || err.Error() != "bypass[0]: the rule is empty; name paths, methods, ips, user_agents or headers" {
		t.Errorf("an empty rule: %v", err)
	}
}
