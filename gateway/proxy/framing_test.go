package proxy

import (
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// Each row is one request, raw, followed on the same connection by a second one. What two parsers
// could read in two ways gets its refusal, the connection ends, and the origin sees nothing.
var refusals = []struct {
	name, raw string
	status    int
}{
	{"CL then TE", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"TE then CL", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
	{"two CL", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
	{"two equal CL", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
	{"CL list", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello", 400},
	{"CL list of two", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 10\r\n\r\nhello", 400},
	{"CL +5", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400},
	{"CL -1", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
	{"CL -0", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -0\r\n\r\n", 400},
	{"CL 0x5", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello", 400},
	{"CL 0o5", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0o5\r\n\r\nhello", 400},
	{"CL 1_0", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\nhelloworld", 400},
	{"CL 1 0", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 0\r\n\r\nhelloworld", 400},
	{"CL 005", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nhello", 400},
	{"CL empty", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400},
	{"CL overflow", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 21000000000000000000\r\n\r\n", 400},
	{"two TE", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"TE identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 400},
	{"TE xchunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
	{"TE chunked, gzip", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400},
	{"TE gzip, chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
	{"TE gzip", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
	{"TE chunked, chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400},
	{"TE ,chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n", 400},
	{"TE with a parameter", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;x=1\r\n\r\n0\r\n\r\n", 400},
	{"TE VT", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400},
	{"TE NUL", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n", 400},
	{"TE empty", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 400},
	{"TE on 1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"blank before a colon", "GET / HTTP/1.1\r\nHost: a\r\nX-A : 1\r\n\r\n", 400},
	{"tab before a colon", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length\t: 0\r\n\r\n", 400},
	{"blank before the first name", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
	{"folded", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n 2\r\n\r\n", 400},
	{"folded TE", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400},
	{"no colon", "GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n", 400},
	{"no name", "GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n", 400},
	{"name with brackets", "GET / HTTP/1.1\r\nHost: a\r\nX-A[]: 1\r\n\r\n", 400},
	{"name with a high byte", "GET / HTTP/1.1\r\nHost: a\r\nX\x85: 1\r\n\r\n", 400},
	{"name with NBSP", "GET / HTTP/1.1\r\nHost: a\r\n\xa0X: 1\r\n\r\n", 400},
	{"NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\x002\r\n\r\n", 400},
	{"CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r2\r\n\r\n", 400},
	{"two CR at a line's end", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\r\n\r\n", 400},
	{"BEL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1234567890\x07\r\n\r\n", 400},
	{"DEL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 12345\x7f67890\r\n\r\n", 400},
	{"bare LF in the header", "GET / HTTP/1.1\r\nHost: a\nX-A: 1\r\n\r\n", 400},
	{"bare LF in the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
	{"LF alone everywhere", "GET / HTTP/1.1\nHost: a\n\n", 400},
	{"bare LF ends the header", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
	{"Transfer_Encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400},
	{"Content_Length", "POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\n", 400},
	{"X_Forwarded_For", "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 1.2.3.4\r\n\r\n", 400},
	{"X-Waiting_Room-Session", "GET / HTTP/1.1\r\nHost: a\r\nX-Waiting_Room-Session: s\r\n\r\n", 400},
	{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
	{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
	{"empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
	{"Host list", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400},
	{"Host with user-info", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
	{"Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
	{"Host with a blank", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
	{"Host with a bad port", "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", 400},
	{"Host with port 65536", "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400},
	{"Host with an empty port", "GET / HTTP/1.1\r\nHost: a:\r\n\r\n", 400},
	{"absolute target for another host", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"absolute target with user-info", "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"absolute target, other scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405},
	{"TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405},
	{"GET *", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"relative target", "GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"backslash", "GET /\\evil HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"blank in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"control character in the target", "GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"raw UTF-8 in the target", "GET /\xc0\xae HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"two blanks", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"two blanks before the version", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"tab", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"blank after the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
	{"no version", "GET /\r\nHost: a\r\n\r\n", 400},
	{"lower-case version", "GET / http/1.1\r\nHost: a\r\n\r\n", 400},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
	{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
	{"HTTP/9.9", "GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505},
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
	{"TLS on a plain port", "\x16\x03\x01\x02\x00\x01\x00", 400},
	{"blank before the method", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"unknown expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 2\r\n\r\nhi", 417},
	{"target over 8 KiB", "GET /" + strings.Repeat("a", 8<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
	{"target of 100 KB", "GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
	{"cookie of 64 KB", "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=" + strings.Repeat("a", 64<<10) + "\r\n\r\n", 431},
	{"header over 16 KiB in sum", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 200)+"\r\n", 90) + "\r\n", 431},
	{"101 headers", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-A: 1\r\n", 100) + "\r\n", 431},
}

func TestRefusals(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), Limits{}, nil)
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			before := len(o.requests())
			c := g.dial()
			c.t = t
			c.send(tc.raw + "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
			status, head, body := c.answer("GET")
			if status != tc.status || headerValue(head, "Connection") != "close" {
				t.Errorf("want %d and close, have\n%s%s", tc.status, head, body)
			}
			c.closed()
			if n := len(o.requests()) - before; n != 0 {
				t.Errorf("the origin saw %d requests: %q", n, o.requests()[before:])
			}
		})
	}
}

// What fasthttp or a byte-wise delivery could trip over, and is fine.
func TestAccepted(t *testing.T) {
	for _, tc := range []struct{ name, raw, sent string }{
		{"absolute target", "GET http://A.example/x?y HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET /x?y HTTP/1.1\r\nHost: a.example\r\n"},
		{"absolute target without a path", "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n"},
		{"absolute target, query alone", "GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /?x HTTP/1.1\r\nHost: a\r\n"},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n"},
		{"escapes", "GET /a%2Fb/%2e%2e/%5c/%00/%0d%0a/%2561/./..//x;y=1?a=%zz&b;c HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a%2Fb/%2e%2e/%5c/%00/%0d%0a/%2561/./..//x;y=1?a=%zz&b;c HTTP/1.1\r\nHost: a\r\n"},
		{"two leading slashes", "GET //evil.example/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET //evil.example/x HTTP/1.1\r\nHost: a\r\n"},
		{"browsers' characters", "GET /?q={a}|b^c`d'e HTTP/1.1\r\nHost: a\r\n\r\n", "GET /?q={a}|b^c`d'e HTTP/1.1\r\nHost: a\r\n"},
		{"an empty line first", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n"},
		{"own method", "PURGE /x HTTP/1.1\r\nHost: a\r\n\r\n", "PURGE /x HTTP/1.1\r\nHost: a\r\n"},
		{"IPv6 Host", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n"},
		{"tab and high bytes in a value", "GET / HTTP/1.1\r\nHost: a\r\nX-A:\t\xc3\xa4\tb\t \r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX-A:\t\xc3\xa4\tb\t \r\n"},
		{"underscores of its own", "GET / HTTP/1.1\r\nHost: a\r\nX_Custom: 1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX_Custom: 1\r\n"},
		{"100 headers", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-A: 1\r\n", 99) + "\r\n", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-A: 1\r\n", 99)},
		{"target of 7.9 KB", "GET /" + strings.Repeat("a", 7900) + " HTTP/1.1\r\nHost: a\r\n\r\n", "GET /" + strings.Repeat("a", 7900) + " HTTP/1.1\r\nHost: a\r\n"},
		{"no Host on 1.0", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET / HTTP/1.1\r\nHost: "},
		{"body on GET", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "GET / HTTP/1.1\r\nHost: a\r\n"},
		{"an expectation without a body", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, answering(okAnswer))
			g := newGate(t, to(o), Limits{}, nil)
			c := g.dial()
			c.send(tc.raw)
			if status, head, body := c.answer("GET"); status != 200 {
				t.Fatalf("%s%s", head, body)
			}
			if sent := o.requests()[0]; !strings.HasPrefix(sent, tc.sent) {
				t.Errorf("the origin saw\n%q\nwant\n%q…", sent, tc.sent)
			}
			c.probe()
		})
	}
}

// However a request is cut into packets, it is served once and the next one too.
func TestDripped(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), Limits{}, nil)
	raw := "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n5;a=b\r\nhello\r\n3\r\nyou\r\n0\r\nX-T: 1\r\n\r\n"
	c := g.dial()
	for i := range raw {
		c.send(raw[i : i+1])
	}
	if status, _, _ := c.answer("POST"); status != 200 {
		t.Fatal(status)
	}
	for _, cut := range []int{3, 10, 16, 17, 18, 30, 60, 75, 77, 80, 83, 87, 90, len(raw) - 3, len(raw) - 1} {
		c.send(raw[:cut])
		c.send(raw[cut:])
		if status, _, _ := c.answer("POST"); status != 200 {
			t.Fatalf("cut at %d: %d", cut, status)
		}
	}
	c.probe()
	if n := len(o.requests()); n != 17 {
		t.Errorf("the origin saw %d requests, want 17", n)
	}
}

func TestPipelined(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), Limits{}, func(g *gate) {
		g.early = func(ctx *fasthttp.RequestCtx) bool {
			if string(Target(ctx)) != "/ours" {
				return false
			}
			ctx.SetBodyString("ours")
			return true
		}
	})
	c := g.dial()
	c.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /ours HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\nGET /bad HTTP/1.1\r\nHost : a\r\n\r\nGET /never HTTP/1.1\r\nHost: a\r\n\r\n")
	for _, want := range []string{"ok", "ok", "ours", "ok", CodeHeader} {
		if _, _, body := c.answer("GET"); body != want {
			t.Errorf("answer %q, want %q", body, want)
		}
	}
	c.closed()
	if n := len(o.requests()); n != 3 {
		t.Errorf("the origin saw %d requests, want 3", n)
	}
}
