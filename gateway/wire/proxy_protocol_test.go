package wire

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// v2 returns a header of version 2, with another length if one is given.
func v2(command, family byte, payload string, length ...int) string {
	n := len(payload)
	if len(length) > 0 {
		n = length[0]
	}
	return string(proxyproto.SIGV2) + string([]byte{command, family, byte(n >> 8), byte(n)}) + payload
}

// tlv returns a TLV field of version 2.
func tlv(kind byte, value string) string {
	return string([]byte{kind, byte(len(value) >> 8), byte(len(value))}) + value
}

const (
	from4 = "\xc6\x33\x64\x07\x0a\x00\x00\x01\x12\x67\x01\xbb"                                                                                                 // 198.51.100.7:4711 to 10.0.0.1:443
	from6 = "\x20\x01\x04\x70\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x20\x01\x04\x70\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x12\x67\x01\xbb" // 2001:470::7
)

var (
	overTLS  = tlv(0x20, "\x01\x00\x00\x00\x00"+tlv(0x21, "TLSv1.3"))
	notByTLS = tlv(0x20, "\x00\x00\x00\x00\x01")
)

const either = ProxyProtocolV1 | ProxyProtocolV2

// proxyHeaders are PROXY headers, alone at the beginning of a connection, with their results.
var proxyHeaders = []struct {
	name   string
	wanted ProxyProtocol
	raw    string
	want   string // the address, with /tls behind it; "peer"; or the reason of a refusal
}{
	{"v1 TCP4", ProxyProtocolV1, "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", "198.51.100.7:4711"},
	{"v1 TCP6", ProxyProtocolV1, "PROXY TCP6 2001:470::7 2001:470::1 4711 443\r\n", "[2001:470::7]:4711"},
	{"v1 TCP6, both IPv4", ProxyProtocolV1, "PROXY TCP6 ::ffff:198.51.100.7 ::ffff:10.0.0.1 4711 443\r\n", "198.51.100.7:4711"},
	{"v1 UNKNOWN", ProxyProtocolV1, "PROXY UNKNOWN\r\n", "peer"},
	{"v1 UNKNOWN with more", ProxyProtocolV1, "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", "peer"},
	{"v1 where both are taken", either, "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", "198.51.100.7:4711"},
	{"v1, v2 wanted", ProxyProtocolV2, "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", ProxyHeaderVersion},
	{"v1 without CR", ProxyProtocolV1, "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\n", ProxyHeaderMalformed},
	{"v1 too long", ProxyProtocolV1, "PROXY UNKNOWN " + strings.Repeat("x", 100) + "\r\n", ProxyHeaderLong},
	{"v1 of exactly 107", ProxyProtocolV1, "PROXY UNKNOWN " + strings.Repeat("x", 91) + "\r\n", "peer"},
	{"v1 of 108", ProxyProtocolV1, "PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", ProxyHeaderLong},
	{"v1 with another first word", ProxyProtocolV1, "PROXYX TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", ProxyHeaderMalformed},
	{"v1 without addresses", ProxyProtocolV1, "PROXY TCP4\r\n", ProxyHeaderMalformed},
	{"v1 with a name", ProxyProtocolV1, "PROXY TCP4 localhost 10.0.0.1 4711 443\r\n", ProxyHeaderMalformed},
	{"v1 TCP4 with IPv6", ProxyProtocolV1, "PROXY TCP4 2001:470::7 2001:470::1 4711 443\r\n", ProxyHeaderMalformed},
	{"v1 with a port too large", ProxyProtocolV1, "PROXY TCP4 198.51.100.7 10.0.0.1 65536 443\r\n", ProxyHeaderMalformed},
	{"v1 with a seventh word", ProxyProtocolV1, "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443 1\r\n", ProxyHeaderMalformed},
	{"v1 with two blanks", ProxyProtocolV1, "PROXY  TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", ProxyHeaderMalformed},
	{"v1 UDP4", ProxyProtocolV1, "PROXY UDP4 198.51.100.7 10.0.0.1 4711 443\r\n", ProxyHeaderMalformed},

	{"v2 TCP4", ProxyProtocolV2, v2(0x21, 0x11, from4), "198.51.100.7:4711"},
	{"v2 TCP6", ProxyProtocolV2, v2(0x21, 0x21, from6), "[2001:470::7]:4711"},
	{"v2 LOCAL", ProxyProtocolV2, v2(0x20, 0x00, ""), "peer"},
	{"v2 LOCAL with addresses", ProxyProtocolV2, v2(0x20, 0x11, from4+overTLS), "peer"},
	{"v2 UNIX", ProxyProtocolV2, v2(0x21, 0x31, strings.Repeat("\x00", 216)), "peer"},
	{"v2 with additions", ProxyProtocolV2, v2(0x21, 0x11, from4+tlv(0x02, "shop.test")+tlv(0xea, "x")+tlv(0x04, "")), "198.51.100.7:4711"},
	{"v2 by TLS", ProxyProtocolV2, v2(0x21, 0x11, from4+tlv(0x02, "shop.test")+overTLS), "198.51.100.7:4711/tls"},
	{"v2 not by TLS", ProxyProtocolV2, v2(0x21, 0x11, from4+notByTLS), "198.51.100.7:4711"},
	{"v2 where both are taken", either, v2(0x21, 0x11, from4), "198.51.100.7:4711"},
	{"v2, v1 wanted", ProxyProtocolV1, v2(0x21, 0x11, from4), ProxyHeaderVersion},
	{"v2 of version 3", ProxyProtocolV2, v2(0x31, 0x11, from4), ProxyHeaderMalformed},
	{"v2 of an unknown command", ProxyProtocolV2, v2(0x22, 0x11, from4), ProxyHeaderMalformed},
	{"v2 of an unknown family", ProxyProtocolV2, v2(0x21, 0x41, from4), ProxyHeaderMalformed},
	{"v2 of datagrams", ProxyProtocolV2, v2(0x21, 0x12, from4), ProxyHeaderMalformed},
	{"v2 shorter than its addresses", ProxyProtocolV2, v2(0x21, 0x11, from4[:11]), ProxyHeaderMalformed},
	{"v2 with an addition cut off", ProxyProtocolV2, v2(0x21, 0x11, from4+"\x02\x00\x09shop"), ProxyHeaderMalformed},
	{"v2 with a broken note of TLS", ProxyProtocolV2, v2(0x21, 0x11, from4+tlv(0x20, "\x01")), ProxyHeaderMalformed},
	{"v2 of the largest size", ProxyProtocolV2, v2(0x21, 0x11, from4+tlv(0xea, strings.Repeat("x", 4096-12-3))), "198.51.100.7:4711"},
	{"v2 too long", ProxyProtocolV2, v2(0x21, 0x11, from4, 4097), ProxyHeaderLong},

	{"no header", either, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", ProxyHeaderMissing},
	{"nearly v1", either, "PROXX TCP4", ProxyHeaderMissing},
	{"a POST where v1 is wanted", ProxyProtocolV1, "POST / HTTP/1.1\r\n", ProxyHeaderMissing},
	{"nearly v2", either, "\r\n\r\n\x00\r\nQUIX\n", ProxyHeaderMissing},
	{"TLS", either, "\x16\x03\x01", ProxyHeaderMissing},
}

// outcomeOf reads a PROXY header from a connection as the listener does.
func outcomeOf(c net.Conn, wanted ProxyProtocol) (string, []byte) {
	p := &proxyProtocolConn{Conn: c, wanted: wanted}
	o, err := p.receive()
	var refused *proxyHeaderError
	switch {
	case errors.As(err, &refused):
		return refused.reason, nil
	case err != nil:
		return err.Error(), nil
	case o.addr == nil:
		return "peer", p.rest
	case o.secure:
		return o.addr.String() + "/tls", p.rest
	}
	return o.addr.String(), p.rest
}

// drip is a connection that returns a fixed number of bytes a read.
type drip struct {
	net.Conn
	r *strings.Reader
	n int
}

func (d *drip) Read(p []byte) (int, error) { return d.r.Read(p[:min(len(p), d.n)]) }

func TestProxyProtocol_Headers(t *testing.T) {
	for _, row := range proxyHeaders {
		for _, n := range []int{1, 7, 1 << 20} {
			const behind = "GET / HTTP"
			c := &drip{r: strings.NewReader(row.raw + behind), n: n}
			got, rest := outcomeOf(c, row.wanted)
			if got != row.want {
				t.Errorf("%s, %d bytes a time: %s, want %s", row.name, n, got, row.want)
				continue
			}
			left, _ := io.ReadAll(c.r)
			if all := string(rest) + string(left); rest != nil && all != behind {
				t.Errorf("%s, %d bytes a time: %q is left behind the header", row.name, n, all)
			}
		}
		if row.want == ProxyHeaderMissing || row.want == ProxyHeaderVersion {
			continue
		}
		for _, cut := range []int{1, 5, 12, len(row.raw) / 2} { // the connection ends inside it
			if cut >= len(row.raw) {
				continue
			}
			if got, _ := outcomeOf(&drip{r: strings.NewReader(row.raw[:cut]), n: 1 << 20}, row.wanted); got != ProxyHeaderMalformed && got != row.want {
				t.Errorf("%s, ended after %d bytes: %s", row.name, cut, got)
			}
		}
	}
}

func FuzzProxyHeader(f *testing.F) {
	for _, row := range proxyHeaders {
		f.Add([]byte(row.raw), byte(row.wanted))
	}
	f.Fuzz(func(t *testing.T, b []byte, wanted byte) {
		w := ProxyProtocol(wanted) & either
		n, err := w.measure(b)
		if n > longestV2 || err != nil && n != 0 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if n == 0 || n > len(b) {
			return
		}
		for k := range n { // no shorter beginning of it is a header of another length
			if m, err := w.measure(b[:k]); err != nil || m > 0 && m != n {
				t.Fatalf("%d bytes of %q are a header of %d, %v; want %d", k, b, m, err, n)
			}
		}
		o, err := parseProxyHeader(b[:n])
		if err != nil || o.addr == nil {
			return
		}
		ours, _ := netip.AddrFromSlice(o.addr.IP)
		if !ours.IsValid() || o.addr.Port < 0 || o.addr.Port > 65535 {
			t.Fatalf("%v from %q", o.addr, b[:n])
		}
		version := byte(2)
		if b[0] == 'P' {
			version = 1
		}
		again, err := proxyproto.HeaderProxyFromAddrs(version, o.addr, o.addr).Format()
		if err != nil {
			t.Fatal(err)
		}
		if p, err := parseProxyHeader(again); err != nil || p.addr.String() != o.addr.String() {
			t.Fatalf("%v is written as %q and read as %v, %v", o.addr, again, p.addr, err)
		}
	})
}

// porch is a gate whose connections begin with a PROXY header.
type porch struct {
	addr    string
	mu      sync.Mutex
	refused []string
}

func newPorch(t *testing.T, wanted ProxyProtocol, secure *tls.Config, lim Limits) *porch {
	t.Helper()
	p := &porch{}
	s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		if r := CheckRequest(ctx); r != nil {
			ctx.SetStatusCode(r.Status)
			return
		}
		addr := RequestOf(ctx).Peer()
		proto := "http"
		if RequestOf(ctx).Secure() {
			proto = "https"
		}
		body, _ := RequestOf(ctx).ReadBody(nil, 1<<20)
		ctx.SetBodyString(proto + " " + addr.String() + " " + ctx.RemoteAddr().String() + " " + wiretest.Itoa(len(body)))
	}}
	ServerOptions(s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = ln.Addr().String()
	under := ProxyProtocolListener(ln, ProxyProtocolOptions{
		Wanted: func(peer netip.Addr) ProxyProtocol {
			if peer.String() != "127.0.0.1" {
				t.Errorf("asked about %s", peer)
			}
			return wanted
		},
		Refused: func(_ net.Addr, reason string, _ error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.refused = append(p.refused, reason)
		},
	})
	if secure != nil {
		under = tls.NewListener(under, secure)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(Listener(under, lim, nil)) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(), <-served); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *porch) dial(t *testing.T) *wiretest.Client { return wiretest.Dial(t, p.addr) }

func (p *porch) reasons() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.refused, ",")
}

const plainGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

func TestProxyProtocol_BeforeRequests(t *testing.T) {
	p := newPorch(t, either, nil, Limits{})
	for _, row := range []struct{ name, header, want string }{
		{"v1", "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", "http 198.51.100.7 198.51.100.7:4711 0"},
		{"v2", v2(0x21, 0x21, from6), "http 2001:470::7 [2001:470::7]:4711 0"},
		{"v2 by TLS", v2(0x21, 0x11, from4+overTLS), "https 198.51.100.7 198.51.100.7:4711 0"},
	} {
		c := p.dial(t)
		c.Send(row.header + plainGet)
		for range 2 { // it holds for the whole connection
			if _, _, body := c.Answer("GET"); body != row.want {
				t.Errorf("%s: %q, want %q", row.name, body, row.want)
			}
			c.Send(plainGet)
		}
		c.Answer("GET")
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + plainGet)
		if _, _, body := c.Answer("POST"); !strings.HasSuffix(body, " 3") {
			t.Errorf("%s: a body: %q", row.name, body)
		}
		c.Answer("GET")
	}
	c := p.dial(t)
	c.Send(v2(0x20, 0, ""))
	c.Send(plainGet[:9])
	c.Send(plainGet[9:])
	if _, _, body := c.Answer("GET"); !strings.HasPrefix(body, "http 127.0.0.1 127.0.0.1:") {
		t.Errorf("LOCAL, then a request in pieces: %q", body)
	}
	c = p.dial(t)
	c.Send("PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\nPROXY TCP4 198.51.100.8 10.0.0.1 4711 443\r\n\r\n")
	if status, _, _ := c.Answer("GET"); status != 400 {
		t.Errorf("a second header: %d", status)
	}
	p.dial(t).Close() // as a balancer does to see whether somebody listens
	if r := p.reasons(); r != "" {
		t.Errorf("refused: %s", r)
	}
}

func TestProxyProtocol_RefusedHeaders(t *testing.T) {
	patient, brief := newPorch(t, ProxyProtocolV2, nil, Limits{HeaderTimeout: wiretest.Wait}), newPorch(t, ProxyProtocolV2, nil, Limits{HeaderTimeout: 50 * time.Millisecond})
	for _, row := range []struct{ send, want string }{
		{plainGet, ProxyHeaderMissing},
		{"PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n" + plainGet, ProxyHeaderVersion},
		{v2(0x21, 0x11, from4[:4]) + plainGet, ProxyHeaderMalformed},
		{v2(0x21, 0x11, "", 5000), ProxyHeaderLong},
		{v2(0x21, 0x11, from4)[:14], ProxyHeaderSlow},
		{"", ProxyHeaderSlow},
	} {
		p := patient
		if row.want == ProxyHeaderSlow {
			p = brief
		}
		before := p.reasons()
		c := p.dial(t)
		c.Send(row.send)
		c.Closed()
		wiretest.Eventually(t, row.want+" is told of", func() bool { return strings.TrimPrefix(p.reasons()[len(before):], ",") == row.want })
	}
}

// A PROXY header from a peer that is not trusted is a malformed request.
func TestProxyProtocol_RefusesUntrustedHeader(t *testing.T) {
	p := newPorch(t, 0, nil, Limits{})
	for _, header := range []string{"PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", v2(0x21, 0x11, from4), "PROXY UNKNOWN\r\n"} {
		c := p.dial(t)
		c.Send(header + plainGet)
		if status, _, _ := c.Answer("GET"); status != 400 {
			t.Errorf("%q: %d", header, status)
		}
		c.Closed()
	}
}

// A header that does not arrive delays no other connection, because it is read in its connection's goroutine.
func TestProxyProtocol_SlowHeaderDoesNotStallOthers(t *testing.T) {
	p := newPorch(t, either, nil, Limits{HeaderTimeout: wiretest.Wait})
	for range 50 {
		p.dial(t)
		p.dial(t).Send("PROXY TCP4 198.")
	}
	c := p.dial(t)
	c.Send("PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n" + plainGet)
	if _, _, body := c.Answer("GET"); body != "http 198.51.100.7 198.51.100.7:4711 0" {
		t.Errorf("%q", body)
	}
}

func TestProxyProtocol_BeforeTLS(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	defer srv.Close()
	secure := &tls.Config{Certificates: srv.TLS.Certificates}
	p := newPorch(t, either, secure, Limits{HeaderTimeout: wiretest.Wait})
	for _, row := range []struct {
		name, header, want string
		whole              bool // with the beginning of TLS in one packet
	}{
		{"v1", "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", "https 198.51.100.7 198.51.100.7:4711", false},
		{"v2 with TLS behind it", v2(0x21, 0x21, from6), "https 2001:470::7 [2001:470::7]:4711", true},
		{"LOCAL", v2(0x20, 0, ""), "https 127.0.0.1 ", true},
	} {
		raw := p.dial(t)
		b := &wiretest.Bundle{Conn: raw.Conn, Held: []byte(row.header), Hold: true}
		if !row.whole {
			raw.Send(row.header)
			b.Held = nil
		}
		under := &flushing{Bundle: b}
		c := &wiretest.Client{Conn: tls.Client(under, &tls.Config{InsecureSkipVerify: true}), T: t}
		c.R = bufio.NewReader(c.Conn)
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000))
		if _, _, body := c.Answer("POST"); !strings.HasPrefix(body, row.want) || !strings.HasSuffix(body, " 100000") {
			t.Errorf("%s: %q, want %q", row.name, body, row.want)
		}
	}
	c := p.dial(t)
	c.Send("PROXY UNKNOWN\r\n" + plainGet)
	if status, _, body := c.Answer("GET"); status != 400 || body != "This port speaks HTTPS.\r\n" {
		t.Errorf("plain HTTP behind a header: %d %q", status, body)
	}
	c.Closed()
	p = newPorch(t, either, secure, Limits{HeaderTimeout: 50 * time.Millisecond})
	c = p.dial(t)
	c.Closed()
	wiretest.Eventually(t, "the slow one is told of", func() bool { return p.reasons() == ProxyHeaderSlow })
}

// flushing sends the held bytes with the first write.
type flushing struct{ *wiretest.Bundle }

func (f *flushing) Write(p []byte) (int, error) {
	if f.Hold {
		f.Hold = false
		if _, err := f.Conn.Write(append(bytes.Clone(f.Held), p...)); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return f.Bundle.Write(p)
}
