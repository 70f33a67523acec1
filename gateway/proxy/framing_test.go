package proxy

import (
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/http1/http1test"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

func TestListener_RefusesMalformedRequests(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, nil)
	for _, tc := range http1test.Refused {
		t.Run(tc.Name, func(t *testing.T) {
			before := len(o.requests())
			c := g.dial()
			c.T = t
			c.Send(tc.Raw + "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
			status, head, body := c.Answer("GET")
			if status != tc.Status || wiretest.HeaderValue(head, "Connection") != "close" {
				t.Errorf("want %d and close, have\n%s%s", tc.Status, head, body)
			}
			c.Closed()
			if n := len(o.requests()) - before; n != 0 {
				t.Errorf("the origin saw %d requests: %q", n, o.requests()[before:])
			}
		})
	}
}

// Valid requests that fasthttp or a delivery byte by byte could misread.
func TestListener_AcceptsUnusualRequests(t *testing.T) {
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
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			c.Send(tc.raw)
			if status, head, body := c.Answer("GET"); status != 200 {
				t.Fatalf("%s%s", head, body)
			}
			if sent := o.requests()[0]; !strings.HasPrefix(sent, tc.sent) {
				t.Errorf("the origin saw\n%q\nwant\n%q…", sent, tc.sent)
			}
			c.Probe()
		})
	}
}

// However two requests are cut into packets, each is served once.
func TestListener_ReadsAnyPackets(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, nil)
	raw := "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n5;a=b\r\nhello\r\n3\r\nyou\r\n0\r\nX-T: 1\r\n\r\n"
	c := g.dial()
	for i := range raw {
		c.Send(raw[i : i+1])
	}
	if status, _, _ := c.Answer("POST"); status != 200 {
		t.Fatal(status)
	}
	for _, cut := range []int{3, 10, 16, 17, 18, 30, 60, 75, 77, 80, 83, 87, 90, len(raw) - 3, len(raw) - 1} {
		c.Send(raw[:cut])
		c.Send(raw[cut:])
		if status, _, _ := c.Answer("POST"); status != 200 {
			t.Fatalf("cut at %d: %d", cut, status)
		}
	}
	c.Probe()
	if n := len(o.requests()); n != 17 {
		t.Errorf("the origin saw %d requests, want 17", n)
	}
}

func TestListener_ServesPipelinedRequests(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.early = func(ctx *fasthttp.RequestCtx) bool {
			if string(Target(ctx)) != "/ours" {
				return false
			}
			ctx.SetBodyString("ours")
			return true
		}
	})
	c := g.dial()
	c.Send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /ours HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\nGET /bad HTTP/1.1\r\nHost : a\r\n\r\nGET /never HTTP/1.1\r\nHost: a\r\n\r\n")
	for _, want := range []string{"ok", "ok", "ours", "ok", http1.CodeHeader} {
		if _, _, body := c.Answer("GET"); body != want {
			t.Errorf("answer %q, want %q", body, want)
		}
	}
	c.Closed()
	if n := len(o.requests()); n != 3 {
		t.Errorf("the origin saw %d requests, want 3", n)
	}
}
