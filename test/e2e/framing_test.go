package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// The cases of these files are raw bytes. Each is sent on every way: to the site with a pass, into the queue, and to the gateway's own
// endpoints. A name begins with the number of the case in framing_cases.md.
//
// In a request PATH stands for the path of the way; the pass or ticket is added after the line "Host: a", or replaces LINE.

// TestFraming sends all cases to one gateway.
func TestFraming(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, part := range []struct {
		name string
		try  func(*testing.T, *edge)
	}{
		{"refused", tryRefused}, {"passed", tryPassed}, {"bodies that break", tryBodiesThatBreak}, {"bodies that stop", tryBodiesThatStop},
		{"bodies that are too long", tryBodiesThatAreTooLong}, {"expectations", tryExpectations}, {"pipelines", tryPipelines}, {"byte by byte", tryByteByByte},
		{"no path", tryNoPath}, {"what proxies tell", tryWhatProxiesTell}, {"nothing but requests", tryNothingButRequests}, {"upgrade without a pass", tryUpgradeWithoutAPass},
		{"bad answers", tryBadAnswers}, {"replies", tryReplies}, {"cut answers", tryCutAnswers},
	} {
		t.Run(part.name, func(t *testing.T) {
			e.origin.script("", false)
			part.try(t, e)
		})
	}
}

// edge is the gateway and the ledger behind it, for all cases.
type edge struct {
	t      *testing.T
	g      *gateway
	origin *ledger
	pass   string // Cookie line of a session in room in
	ticket string // Cookie line of a ticket in room out
	sid    string // the session id that the site receives
}

// way is a destination of a request.
type way struct {
	name, path, line string
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{t: t, origin: newLedger(t)}
	e.g = start(t, setup{
		more: fmt.Sprintf("trusted_proxies: [\"127.0.0.2/32\"]\nlog: {access: true}\norigins: [{id: shop, servers: [%q], max_body: 1MiB}]\n", e.origin.url()),
		rooms: []string{
			"{id: in, paths: [/in], admission: {rate: 1000, burst: 1000}, session: {ttl: 1h}}",
			"{id: out, paths: [/out], admission: {rate: 0}}",
		},
	})
	c := e.dial(t)
	var head string
	until(t, "the room admits", func() bool { // a store that has just been started may be slow
		c.send("GET /in HTTP/1.1\r\nHost: a\r\n\r\n")
		head, _ = c.whole("GET")
		return code(head) == "200"
	})
	e.pass = cookieLine(t, head, "wr_in_pass")
	c.send("POST /.waiting-room/out/tickets HTTP/1.1\r\nHost: a\r\n\r\n")
	head, _ = c.whole("POST")
	e.ticket = cookieLine(t, head, "wr_out_ticket")
	seen, _ := e.origin.since(mark{})
	_, rest, _ := strings.Cut(seen[0], "X-Waiting-Room-Session: ")
	e.sid, _, _ = strings.Cut(rest, "\r\n")
	if len(e.sid) < 16 {
		t.Fatalf("no session in %q", seen[0])
	}
	return e
}

func cookieLine(t *testing.T, head, name string) string {
	t.Helper()
	for _, l := range strings.Split(head, "\r\n") {
		if v, ok := strings.CutPrefix(l, "Set-Cookie: "+name+"="); ok {
			v, _, _ = strings.Cut(v, ";")
			return "Cookie: " + name + "=" + v + "\r\n"
		}
	}
	t.Fatalf("no %s in\n%s", name, head)
	return ""
}

// through leads to the site.
func (e *edge) through() way { return way{"with a pass", "/in/x", e.pass} }

// apart are the ways whose requests the gateway responds to itself.
func (e *edge) apart() []way {
	return []way{
		{"waiting", "/out/x", ""},
		{"waiting with a ticket", "/out/x", e.ticket},
		{"status", "/.waiting-room/out/status", e.ticket},
		{"tickets", "/.waiting-room/out/tickets", e.ticket},
		{"claim", "/.waiting-room/out/claim", e.ticket},
		{"events", "/.waiting-room/out/events", e.ticket},
		{"page", "/.waiting-room/out/", ""},
		{"unknown room", "/.waiting-room/nowhere/status", ""},
	}
}

func (e *edge) ways() []way { return append([]way{e.through()}, e.apart()...) }

// of returns a request with the destination and the token of this way.
func (w way) of(raw string) string {
	raw = strings.NewReplacer("PATH", w.path, "LINE", w.line).Replace(raw)
	return strings.Replace(raw, "\r\nHost: a\r\n", "\r\nHost: a\r\n"+w.line, 1)
}

// edgeConn is a connection to a gateway that may be closed at any time.
type edgeConn struct{ *wire }

func (e *edge) dial(t *testing.T) *edgeConn { return e.dialFrom(t, "127.0.0.1") }

func (e *edge) dialFrom(t *testing.T, ip string) *edgeConn {
	t.Helper()
	return &edgeConn{dialWire(t, e.g, ip)}
}

// send writes bytes; the gateway may respond and close before it has read all.
func (c *edgeConn) send(raw string) { _, _ = io.WriteString(c.Conn, raw) }

// head reads the header of an answer.
func (c *edgeConn) head() string {
	c.t.Helper()
	var b strings.Builder
	for {
		l, err := c.r.ReadString('\n')
		b.WriteString(l)
		if err != nil {
			c.t.Fatalf("the answer ends with %q: %v", b.String(), err)
		}
		if l == "\r\n" {
			return b.String()
		}
	}
}

// whole reads the final response: its header unchanged, and its body.
func (c *edgeConn) whole(method string) (head, body string) {
	c.t.Helper()
	for head = c.head(); head[9] == '1'; {
		head = c.head()
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head), oneByte{c.r})), &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("the answer is %q: %v", head, err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("the answer's body ends with %q: %v\n%s", b, err, head)
	}
	return head, string(b)
}

// oneByte keeps a buffered reader from reading ahead.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// ended asserts that the connection has ended, without further bytes.
func (c *edgeConn) ended() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		c.t.Errorf("the connection goes on with %q, %v", b, err)
	}
}

// goesOn asserts that the next request on the connection is served normally.
func (c *edgeConn) goesOn(e *edge) {
	c.t.Helper()
	before := e.origin.mark()
	raw := e.through().of("GET /in/probe HTTP/1.1\r\nHost: a\r\n\r\n")
	c.send(raw)
	head, body := c.whole("GET")
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") || body != "ok" {
		c.t.Errorf("the probe is answered with\n%s%s", head, body)
	}
	want := "GET /in/probe HTTP/1.1\r\nHost: a\r\n" + e.own("a", "")
	if got, begun := e.origin.since(before); begun != 1 || len(got) != 1 || got[0] != want {
		c.t.Errorf("the site got %d requests: %q, want the probe alone:\n%q", begun, got, want)
	}
}

// own is the end of a header that goes to the site: what the gateway says of a stranger's request to a host, and the
// lines of framing.
func (e *edge) own(host, framing string) string {
	return "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: " + host +
		"\r\nX-Waiting-Room-Session: " + e.sid + "\r\n" + framing + "\r\n"
}

func code(head string) string {
	if len(head) < 12 {
		return head
	}
	return head[9:12]
}

// field returns the only value of a header field, empty without one.
func field(head, name string) string {
	var found []string
	for _, l := range strings.Split(head, "\r\n")[1:] {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(k, name) {
			found = append(found, strings.TrimSpace(v))
		}
	}
	return strings.Join(found, " | ")
}

func hexOf(n int) string { return strconv.FormatInt(int64(n), 16) }

// methodOf returns the method of a request.
func methodOf(raw string) string {
	m, _, _ := strings.Cut(strings.TrimLeft(raw, "\r\n"), " ")
	return m
}

// smuggled follows a request that is refused, or hides in a body: it must never run.
const smuggled = "GET /in/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
