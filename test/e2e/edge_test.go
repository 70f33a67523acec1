package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/test/recorder"
)

// wire is a connection on which a test writes raw bytes.
type wire struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

// dialWire connects to the visitors' socket, from another loopback address if one is given.
func dialWire(t testing.TB, g *gateway, from ...string) *wire {
	t.Helper()
	d := net.Dialer{Timeout: patience}
	if len(from) > 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from[0])}
	}
	c, err := d.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &wire{Conn: c, t: t, r: bufio.NewReader(c)}
}

func (w *wire) send(s string) {
	w.t.Helper()
	if _, err := io.WriteString(w.Conn, s); err != nil {
		w.t.Fatalf("send: %v", err)
	}
}

// get sends a request with these header lines and returns the response.
func (w *wire) get(target string, lines ...string) (int, string) {
	w.t.Helper()
	w.send("GET " + target + " HTTP/1.1\r\nHost: shop.test\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n")
	return w.answer()
}

func (w *wire) answer() (int, string) {
	w.t.Helper()
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("the answer ends early: %v", err)
	}
	return resp.StatusCode, string(body)
}

// closed waits for the end of the connection, before which no further byte may arrive.
func (w *wire) closed() {
	w.t.Helper()
	if b, err := io.ReadAll(w.r); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		w.t.Errorf("want a closed connection, have %q, %v", b, err)
	}
}

// forwardedTo has the header fields that describe a visitor to an origin.
func forwardedTo(r recorder.Request) string {
	h := r.Header
	return fmt.Sprintf("for=%s real=%s proto=%s host=%s port=%s forwarded=%s", h["X-Forwarded-For"], h["X-Real-Ip"],
		h["X-Forwarded-Proto"], h["X-Forwarded-Host"], h["X-Forwarded-Port"], h["Forwarded"])
}

// signatureV2 begins a header of version 2.
const signatureV2 = "\r\n\r\n\x00\r\nQUIT\n"

func headerV2(command byte, from, more string) string {
	payload := string(net.ParseIP(from).To4()) + "\x0a\x00\x00\x01\x12\x67\x01\xbb" + more
	return signatureV2 + string([]byte{command, 0x11}) + string(binary.BigEndian.AppendUint16(nil, uint16(len(payload)))) + payload
}

// The address in the PROXY protocol is the visitor's for the origin, the log and the rules. Only trusted proxies may send it.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{"{id: sale, admission: {rate: 0}, bypass: [{ips: [198.51.100.0/24, 127.0.0.0/8]}]}"},
		more: "proxy_protocol: any\ntrusted_proxies: [127.0.0.1/32, 10.9.0.0/16]\nlimits: {header_timeout: 5s}\n"})
	silent := dialWire(t, g)
	for _, row := range []struct {
		name, header, line, want string
	}{
		{"v1", "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", "X-Forwarded-For: 6.6.6.6",
			"for=[198.51.100.7] real=[198.51.100.7] proto=[http] host=[shop.test] port=[] forwarded=[]"},
		{"v2 by TLS", headerV2(0x21, "198.51.100.7", "\x20\x00\x0f\x01\x00\x00\x00\x00\x21\x00\x07TLSv1.3"), "X-Forwarded-Proto: http",
			"for=[198.51.100.7] real=[198.51.100.7] proto=[https] host=[shop.test] port=[] forwarded=[]"},
		{"LOCAL is the proxy itself, which may forward", signatureV2 + "\x20\x00\x00\x00", "X-Forwarded-For: 198.51.100.8",
			"for=[198.51.100.8, 127.0.0.1] real=[198.51.100.8] proto=[http] host=[shop.test] port=[] forwarded=[]"},
		{"UNKNOWN", "PROXY UNKNOWN\r\n", "X-A: 1", "for=[127.0.0.1] real=[127.0.0.1] proto=[http] host=[shop.test] port=[] forwarded=[]"},
		{"a trusted proxy before the trusted proxy", headerV2(0x21, "10.9.1.1", ""), "X-Forwarded-For: 6.6.6.6, 198.51.100.9",
			"for=[6.6.6.6, 198.51.100.9, 10.9.1.1] real=[198.51.100.9] proto=[http] host=[shop.test] port=[] forwarded=[]"},
	} {
		w := dialWire(t, g)
		w.send(row.header)
		if code, body := w.get("/", row.line); code != http.StatusOK {
			t.Fatalf("%s: %d %s", row.name, code, body)
		}
		if got := forwardedTo(site.last()); got != row.want {
			t.Errorf("%s: the origin was told\n%s, want\n%s", row.name, got, row.want)
		}
	}
	until(t, "the log has the visitor's address", func() bool { return strings.Contains(g.text(), `"ip":"198.51.100.9"`) })
	w := dialWire(t, g)
	w.send("PROXY TCP4 203.0.113.1 10.0.0.1 4711 443\r\n")
	if code, _ := w.get("/"); code != http.StatusAccepted {
		t.Errorf("a visitor whom no rule lets through: %d", code)
	}

	silent.closed()
	w = dialWire(t, g)
	w.send("GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
	w.closed()
	stranger := dialWire(t, g, "127.0.0.9")
	stranger.send("PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n")
	if code, _ := stranger.get("/"); code != http.StatusBadRequest {
		t.Errorf("a header from a stranger: %d", code)
	}
	stranger = dialWire(t, g, "127.0.0.9")
	if code, _ := stranger.get("/"); code != http.StatusOK {
		t.Errorf("a stranger without one: %d", code)
	}
	for _, want := range []string{`anteroom_proxy_protocol_errors_total{reason="missing"} 1`, `anteroom_proxy_protocol_errors_total{reason="timeout"} 1`} {
		until(t, want, func() bool { return adminOf(t, g).metric(want) })
	}
}

// The field in trusted_header has the visitor's address for the rules, the origin and the log. SIGHUP loads another field.
func TestTrustedHeader(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	s := setup{origin: site.URL, rooms: []string{"{id: sale, admission: {rate: 0}, bypass: [{ips: [198.51.100.0/24]}]}"}, more: "trusted_header: Forwarded\n"}
	g := start(t, s)
	w := dialWire(t, g)
	if code, _ := w.get("/", "X-Forwarded-For: 198.51.100.7", "X-Real-IP: 198.51.100.7", "Forwarded: for=198.51.100.7, for=203.0.113.9"); code != http.StatusAccepted {
		t.Errorf("a visitor who forges the other headers: %d, want 202", code)
	}
	if code, _ := w.get("/", "X-Forwarded-Host: evil.test", "Forwarded: for=198.51.100.8;proto=https;host=www.shop.test"); code != http.StatusOK {
		t.Errorf("a visitor whom a rule lets past the room: %d, want 200", code)
	}
	if got, want := forwardedTo(site.last()), "for=[198.51.100.8, 127.0.0.1] real=[198.51.100.8] proto=[https] host=[www.shop.test] port=[] forwarded=[]"; got != want {
		t.Errorf("the origin was told\n%s, want\n%s", got, want)
	}
	until(t, "the log has the visitor's address", func() bool { return strings.Contains(g.text(), `"ip":"203.0.113.9"`) })
	w.get("/", "X-Forwarded-For: 198.51.100.7")
	until(t, "the log names the header that is not believed", func() bool {
		return strings.Contains(g.text(), `"header":"x-forwarded-for","trusted_header":"forwarded"`)
	})
	s.more, s.store = "trusted_header: CF-Connecting-IP\n", ownStore(g.dir)
	g.rewrite(s.yaml())
	g.signal(sighup)
	until(t, "the other header counts", func() bool {
		code, _ := w.get("/", "CF-Connecting-IP: 198.51.100.9", "Forwarded: for=203.0.113.9")
		return code == http.StatusOK
	})
	if got := site.last().Header["Cf-Connecting-Ip"]; len(got) != 1 || got[0] != "198.51.100.9" {
		t.Errorf("the origin was told CF-Connecting-IP %q", got)
	}
}

// Headers at their limits pass; one more is refused with the status that the settings name.
func TestLimits(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{store: "", rooms: []string{room(admission(50, 50))},
		more: "limits: {header: 2KiB, target: 512B, headers: 10}\norigins: [{id: shop, servers: [\"" + site.URL + "\"], max_body: 1000}]\n"})
	target := func(n int) string { return "GET /" + strings.Repeat("t", n-1) + " HTTP/1.1\r\nHost: a\r\n\r\n" }
	lines := func(n int) string {
		return "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-A: 1\r\n", n-1) + "\r\n"
	}
	whole := func(n int) string {
		const rest = "GET / HTTP/1.1\r\nHost: a\r\nX-A: \r\n\r\n"
		return rest[:len(rest)-4] + strings.Repeat("v", n-len(rest)) + "\r\n\r\n"
	}
	body := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", n) + strings.Repeat("b", n)
	}
	chunked := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("b", n))
	}
	for _, row := range []struct {
		name, raw string
		want      int
	}{
		{"a target of 512 B", target(512), 200}, {"of 513", target(513), 414}, {"far longer than all of it", target(5000), 414},
		{"10 header lines", lines(10), 200}, {"11", lines(11), 431},
		{"a header of 2 KiB", whole(2048), 200}, {"of 2049 B", whole(2049), 431}, {"of 100 KB", whole(100_000), 431},
		{"a body of 1000 B", body(1000), 200}, {"of 1001", body(1001), 413},
		{"chunks of 1000 B", chunked(1000), 200}, {"of 1001", chunked(1001), 413},
	} {
		w := dialWire(t, g)
		go func() { _, _ = io.WriteString(w.Conn, row.raw) }() // the connection may be closed before all is sent
		if code, text := w.answer(); code != row.want {
			t.Errorf("%s: %d, want %d: %s", row.name, code, row.want, text)
		}
	}
}

// An origin receives the forwarding fields of trusted proxies, with the last proxy added, and no fields of other clients.
func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{"{id: sale, enabled: false}"}, more: "trusted_proxies: [127.0.0.1/32, 10.0.0.0/8]\n"})
	for _, row := range []struct {
		name, from string
		lines      []string
		want       string
	}{
		{"trusted, nothing said", "127.0.0.1", nil, "for=[127.0.0.1] real=[127.0.0.1] proto=[http] host=[shop.test] port=[] forwarded=[]"},
		{"trusted, all said", "127.0.0.1", []string{"X-Forwarded-For: 198.51.100.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: www.shop.test:8443", "X-Forwarded-Port: 8443", "X-Real-IP: 6.6.6.6"},
			"for=[198.51.100.7, 127.0.0.1] real=[198.51.100.7] proto=[https] host=[www.shop.test:8443] port=[8443] forwarded=[]"},
		{"trusted, in several lines", "127.0.0.1", []string{"X-Forwarded-For: 6.6.6.6", "x-forwarded-for: 198.51.100.7,10.1.1.1"},
			"for=[6.6.6.6, 198.51.100.7,10.1.1.1, 127.0.0.1] real=[198.51.100.7] proto=[http] host=[shop.test] port=[] forwarded=[]"},
		{"trusted, by a header that is not the setting's", "127.0.0.1", []string{`Forwarded: for="[2001:470::7]:4711";proto=https;host=www.shop.test`},
			"for=[127.0.0.1] real=[127.0.0.1] proto=[http] host=[shop.test] port=[] forwarded=[]"},
		{"trusted, nonsense", "127.0.0.1", []string{"X-Forwarded-Proto: gopher", "X-Forwarded-Host: a b", "X-Forwarded-Port: 65536"},
			"for=[127.0.0.1] real=[127.0.0.1] proto=[http] host=[shop.test] port=[] forwarded=[]"},
		{"a stranger, all said", "127.0.0.7", []string{"X-Forwarded-For: 198.51.100.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test", "X-Forwarded-Port: 1", "X-Real-IP: 6.6.6.6", "Forwarded: for=6.6.6.6", "X-Forwarded-Server: evil", "X-Forwarded-Prefix: /evil"},
			"for=[127.0.0.7] real=[127.0.0.7] proto=[http] host=[shop.test] port=[] forwarded=[]"},
	} {
		if code, body := dialWire(t, g, row.from).get("/", row.lines...); code != http.StatusOK {
			t.Fatalf("%s: %d %s", row.name, code, body)
		}
		r := site.last()
		if got := forwardedTo(r); got != row.want {
			t.Errorf("%s: the origin was told\n%s, want\n%s", row.name, got, row.want)
		}
		if extra := r.Header["X-Forwarded-Server"]; extra != nil && row.from != "127.0.0.1" {
			t.Errorf("%s: %q", row.name, extra)
		}
	}
}

// Without free file descriptors the gateway logs a warning and waits for one; it neither exits nor spins.
func TestFileDescriptors_RunOut(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := &gateway{t: t, secrets: map[string]bool{}, dir: tempDir(t)}
	t.Cleanup(g.inspect)
	g.process = launchCommand(t, ownStoreEnv(g.dir), exec.Command("sh", "-c", `ulimit -n 150; exec "$0" "$@"`,
		gatewayBinary, "--origin", site.URL, "--rate", "1000", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"))
	t.Cleanup(g.end)
	g.ready()
	g.awaitStore() // while descriptors are free
	if n, ok := g.line("the limit of file descriptors is low", "limit"); !ok || n != "150" {
		t.Errorf("a low limit is not told of: %q", n)
	}
	began := time.Now()
	first := dialWire(t, g)
	first.get("/")
	var crowd []net.Conn
	for range 200 {
		c, err := net.DialTimeout("tcp", g.addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	until(t, "it says so", func() bool { return strings.Contains(g.text(), "cannot accept connections; trying again") })
	if code, _ := first.get("/"); code != http.StatusOK {
		t.Errorf("who was there before is served with %d", code)
	}
	for _, c := range crowd {
		_ = c.Close()
	}
	if code, _ := dialWire(t, g).get("/"); code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
	if n, most := strings.Count(g.text(), "cannot accept connections; trying again"), 8+int(time.Since(began)/(10*time.Second)); n > most {
		t.Errorf("it says so %d times", n)
	}
}
