package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestNotPublic_ClassifiesAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"8.8.8.8": "", "1.1.1.1": "", "100.63.255.255": "", "100.128.0.0": "", "172.15.255.255": "", "172.32.0.0": "",
		"169.253.255.255": "", "192.167.255.255": "", "223.255.255.255": "", "198.17.255.255": "", "198.20.0.0": "",
		"2606:4700:4700::1111": "", "2a00::1": "", "2001:4860::8888": "", "::ffff:8.8.8.8": "", "64:ff9b::808:808": "",

		"0.0.0.0": "an address of this network", "0.1.2.3": "an address of this network",
		"127.0.0.1": "a loopback address", "127.255.255.254": "a loopback address", "::1": "a loopback address",
		"::ffff:127.0.0.1": "a loopback address", "64:ff9b::7f00:1": "a loopback address",
		"10.0.0.0": "a private address", "10.255.255.255": "a private address", "172.16.0.1": "a private address",
		"172.31.255.255": "a private address", "192.168.1.1": "a private address", "::ffff:10.1.2.3": "a private address",
		"64:ff9b::a00:1": "a private address", "fc00::1": "a private address", "fdff::1": "a private address",
		"169.254.169.254": "a link-local address", "fe80::1": "a link-local address", "febf::1": "a link-local address",
		"168.63.129.15": "", "168.63.129.16": "the host agent of Azure's machines", "::ffff:168.63.129.16": "the host agent of Azure's machines",
		"100.100.100.200": "a carrier's shared address", "192.0.0.192": "a protocol's address", "fd00:ec2::254": "a private address",
		"100.64.0.0": "a carrier's shared address", "100.127.255.255": "a carrier's shared address",
		"224.0.0.1": "a multicast address", "239.255.255.255": "a multicast address", "ff02::1": "a multicast address",
		"240.0.0.1": "a reserved address", "255.255.255.255": "a reserved address",
		"192.0.2.1": "an address for documentation", "198.51.100.1": "an address for documentation", "203.0.113.1": "an address for documentation",
		"2001:db8::1": "an address for documentation", "3fff::1": "an address for documentation",
		"192.0.0.1": "a protocol's address", "2001::1": "a protocol's address", "198.18.0.1": "an address for benchmarks",
		"192.88.99.1": "a 6to4 relay's address", "2002:7f00:1::": "a 6to4 address",
		"::": "not a public address", "::7f00:1": "not a public address", "fec0::1": "not a public address",
		"100::1": "not a public address", "64:ff9b:1::1": "not a public address", "5f00::1": "not a public address",
		"fe80::1%eth0": "an address with a zone", "2a00::1%eth0": "an address with a zone",
	} {
		if got := notPublic(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}

func TestNewGuard_NamesInvalidEntry(t *testing.T) {
	for _, entry := range []string{"", "*", "*.", "*.com", "a.*.com", "http://x.example", "x.example/path", "user@x.example",
		"x.example:0", "x.example:70000", "x.example:http", "10.0.0.0/8", "a b", "[::1]:", "[]", "*.10.0.0.1:x", "x.example:"} {
		_, err := NewGuard([]string{"fine.example", entry, "*"})
		if err == nil || !strings.HasPrefix(err.Error(), "callbacks.allow[1]: ") || !strings.Contains(err.Error(), "\ncallbacks.allow[2]: \"*\": ") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

func TestGuard_AllowsListedHosts(t *testing.T) {
	g, err := NewGuard([]string{"hooks.internal", "Ported.Internal:8443", "*.corp.example", "*.ported.example:81", "10.1.2.3", "[fd00::1]:99",
		"fd00::2", "[fd00::3]", "bücher.internal"})
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]bool{
		"http://hooks.internal": true, "https://HOOKS.internal.:1234": true, "http://xhooks.internal": false, "http://a.hooks.internal": false,
		"https://ported.internal:8443": true, "https://ported.internal": false,
		"http://a.corp.example": true, "http://a.b.corp.example:5": true, "http://corp.example": false, "http://acorp.example": false,
		"http://corp.example.evil.example": false,
		"http://a.ported.example:81":       true, "http://a.ported.example": false,
		"http://10.1.2.3": true, "http://[::ffff:10.1.2.3]": true, "http://10.1.2.4": false,
		"http://[fd00::1]:99": true, "http://[fd00::1]": false, "http://[fd00:0::2]:7": true, "http://[fd00::3]": true,
		"http://xn--bcher-kva.internal": true, "http://b%C3%BCcher.internal": true,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Listed(u); got != want {
			t.Errorf("Listed(%s) = %t, want %t", raw, got, want)
		}
	}
	if g, _ = NewGuard([]string{"https.example:443", "http.example:80"}); !g.Listed(&url.URL{Scheme: "https", Host: "https.example"}) ||
		!g.Listed(&url.URL{Scheme: "http", Host: "http.example"}) || g.Listed(&url.URL{Scheme: "http", Host: "https.example"}) {
		t.Error("a scheme's own port is not taken for the one that is listed")
	}
}

func TestCheckURL_RefusesForbiddenTargets(t *testing.T) {
	g, err := NewGuard([]string{"10.1.2.3:8080"})
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"https://hooks.example/a?b=c":    "",
		"http://8.8.8.8":                 "",
		"http://10.1.2.3:8080/":          "",
		"http://10.1.2.3/":               `host "10.1.2.3" is at 10.1.2.3, a private address: calls there are refused unless callbacks.allow lists the host`,
		"http://[::ffff:7f00:1]/":        `host "::ffff:7f00:1" is at ::ffff:127.0.0.1, a loopback address: calls there are refused unless callbacks.allow lists the host`,
		"https://169.254.169.254/latest": `host "169.254.169.254" is at 169.254.169.254, a link-local address: calls there are refused unless callbacks.allow lists the host`,
		"ftp://x.example":                `the scheme is "ftp", not http or https`,
		"file:///etc/passwd":             `the scheme is "file", not http or https`,
		"//x.example":                    `the scheme is "", not http or https`,
		"http://":                        `it has no host`,
		"http://:80/":                    `it has no host`,
		"http://me:secret@x.example/":    `the host is preceded by credentials; send them in a header`,
		"http://x.example:99999/":        `the port is not a number of 1 to 65535`,
		"http://x.example:0/":            `the port is not a number of 1 to 65535`,
		"http://x.example/\x7f?k=secret": `not a URL: net/url: invalid control character in URL`,
	} {
		got := ""
		if _, err := g.CheckURL(raw); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("CheckURL(%q)\n got %s\nwant %s", raw, got, want)
		}
	}
}

// The guard refuses every URL with a literal address that is not public.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{"http://127.0.0.1", "http://[::1]", "https://x.example:443/a?b#c", "http://[fe80::1%25eth0]/", "http://0x7f.1", "HTTP://a@b", "http://[::ffff:10.0.0.1]:80"} {
		f.Add(seed)
	}
	g, err := NewGuard(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := g.CheckURL(raw)
		if err != nil {
			return
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
			t.Fatalf("%q passes as %s", raw, u)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && notPublic(addr) != "" {
			t.Fatalf("%q passes with %s", raw, addr)
		}
	})
}

// A DNS server whose answers change from question to question, as one that means harm would give them.
func dnsServer(t *testing.T, answers ...string) (*net.Resolver, *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q.Type == dnsmessage.TypeA {
				i := asked.Add(1) - 1
				ip := netip.MustParseAddr(answers[min(int(i), len(answers)-1)])
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: ip.As4()},
				}}
			}
			packed, err := m.Pack()
			if err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, &asked
}

// The guard checks the address that is dialled. A public name that resolves to private addresses, wholly or partly, is refused, and no
// request reaches the server there.
func TestGuard_ChecksResolvedAddress(t *testing.T) {
	var reached atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer inside.Close()
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	target := "http://hooks.example:" + port + "/"

	post := func(t *testing.T, allow []string, answers ...string) ([]error, int64) {
		resolver, asked := dnsServer(t, answers...)
		g, err := NewGuard(allow)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.CheckURL(target); err != nil {
			t.Fatalf("a name is refused before it is dialled: %v", err)
		}
		client := NewClient(Options{Guard: g, resolver: resolver})
		defer client.CloseIdleConnections()
		var errs []error
		for range answers {
			_, err := Post(t.Context(), client, Request{URL: target, Body: []byte("{}"), MaxAnswer: 100})
			errs = append(errs, err)
		}
		return errs, asked.Load()
	}

	errs, asked := post(t, nil, "192.0.2.1", "127.0.0.1", "10.0.0.1")
	if asked != 3 {
		t.Errorf("DNS was asked %d times for 3 requests", asked)
	}
	for i, addr := range []string{"192.0.2.1", "127.0.0.1", "10.0.0.1"} {
		refused, ok := errors.AsType[*RefusedError](errs[i])
		if !ok || refused.Host != "hooks.example" || refused.Addr.String() != addr || !strings.Contains(errs[i].Error(), "callbacks.allow") {
			t.Errorf("answer %s: %v", addr, errs[i])
		}
	}
	if reached.Load() != 0 {
		t.Fatal("a request reached a loopback address that is not listed")
	}
	for _, allow := range []string{"hooks.example", "hooks.example:" + port} {
		before := reached.Load()
		if errs, _ := post(t, []string{allow}, "127.0.0.1"); errs[0] != nil || reached.Load() != before+1 {
			t.Errorf("%s listed: %v", allow, errs[0])
		}
	}
	if errs, _ := post(t, []string{"hooks.example:1", "127.0.0.1"}, "127.0.0.1"); errs[0] == nil {
		t.Error("another port, or the address, is listed, and the name passes")
	}
}
