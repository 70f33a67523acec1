package ophttp

import (
	"net/http"
	"net/netip"
	"testing"
	"time"
)

func TestAttempts_RememberABoundedNumberOfNetworks(t *testing.T) {
	a, now := NewAttempts(), time.Unix(1_800_000_000, 0)
	peer := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	for i := range attemptPeers {
		a.wrong(now, peer(i))
	}
	blocked := 0
	for i := range 3 * attemptBurst {
		if a.wrong(now, peer(attemptPeers+i)) > 0 {
			blocked++
		}
	}
	if len(a.at) != attemptPeers+1 || blocked != 2*attemptBurst {
		t.Errorf("%d networks remembered, %d of %d newcomers held back; want %d and %d", len(a.at), blocked, 3*attemptBurst, attemptPeers+1, 2*attemptBurst)
	}
	now = now.Add(attemptBurst * attemptEvery)
	a.wrong(now, peer(1<<20))
	if len(a.at) != 1 {
		t.Errorf("%d networks remembered after all have recovered, want 1", len(a.at))
	}
}

func TestNetwork_OneIPv6HostIsOne(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7/32", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[::ffff:192.0.2.7]:80": "192.0.2.7/32",
		"[fe80::1%eth0]:80": "fe80::/64", "@": "invalid Prefix",
	} {
		if got := network(&http.Request{RemoteAddr: remote}).String(); got != want {
			t.Errorf("%s counts as %s, want %s", remote, got, want)
		}
	}
}
