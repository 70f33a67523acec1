package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

func TestForward_PlainRequest(t *testing.T) {
	o := newRecorder(t, answering("HTTP/1.1 200 Fine\r\nServer: shop\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: a=2; Path=/x\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"))
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.forward = func(_ *fasthttp.RequestCtx, f *Forward) {
			f.ClientIP = netip.MustParseAddr("192.0.2.7")
			f.ForwardedFor = []byte("192.0.2.7, 192.0.2.8")
			f.Session = "s1"
			f.OnlyWith = nil
			f.OnHeader = func(h *fasthttp.ResponseHeader) { h.Add("Set-Cookie", "ours=1") }
		}
	})
	c := g.dial()
	for range 3 {
		c.Send("GET /a%2Fb?x=1;y HTTP/1.1\r\nhost: site.example\r\nX-Two: 1\r\naccept: */*\r\nX-Two: 2\r\n\r\n")
		status, head, body := c.Answer("GET")
		if status != 200 || body != "hello" {
			t.Fatalf("%d %q", status, body)
		}
		want := "HTTP/1.1 200 Fine\r\nServer: shop\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: a=2; Path=/x\r\nContent-Type: text/html\r\nSet-Cookie: ours=1\r\nContent-Length: 5\r\n\r\n"
		if head != want {
			t.Errorf("answer:\n%s\nwant:\n%s", head, want)
		}
	}
	want := "GET /a%2Fb?x=1;y HTTP/1.1\r\nhost: site.example\r\nX-Two: 1\r\naccept: */*\r\nX-Two: 2\r\n" +
		"X-Forwarded-For: 192.0.2.7, 192.0.2.8, 127.0.0.1\r\nX-Real-IP: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: site.example\r\nX-Waiting-Room-Session: s1\r\n\r\n"
	for _, r := range o.requests() {
		if r != want {
			t.Errorf("request:\n%s\nwant:\n%s", r, want)
		}
	}
	if n := len(o.conns); n != 1 {
		t.Errorf("the origin saw %d connections, want 1", n)
	}
}

// A response is forwarded byte for byte: order, case, blanks, repeated and empty lines, bytes that are not text. OnHeader is
// called if OnlyWith matches a name, in any case, and lines that it does not change are still forwarded byte for byte.
func TestForward_ResponseBytesUnchanged(t *testing.T) {
	const date = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
	const lines = "X-B:2\r\nx-a:  1 \r\n" + date + "X-B: 3\r\nset-cookie: a=1\r\nX-Empty:\r\nSet-Cookie: b=\"\xe9\xff\"; Path=/\r\nSET-COOKIE: a=1\r\n" +
		"Content-type: text/html\r\nserver: one\r\nX-b: 2\r\nserver: two\r\nContent-Encoding:\r\nX-Obs: \xc3\xa9\x80\r\n"
	for _, tc := range []struct{ name, lines, want string }{
		{"as it came", lines + "Content-Length: 2\r\n", lines + "Content-Length: 2\r\n"},
		{"the length in front", date + "Content-Length: 2\r\nX-End: 1\r\n", date + "X-End: 1\r\nContent-Length: 2\r\n"},
		{"several dates", date + "DATE: 2\r\nContent-Length: 2\r\n", date + "DATE: 2\r\nContent-Length: 2\r\n"},
		{"named by Connection", date + "Content-Length: 2\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-End: 1\r\n", date + "X-End: 1\r\nContent-Length: 2\r\n"},
		{"looked for", "content-length: 2\r\nx-WANTED: 1\r\n" + lines, "x-WANTED: 1\r\n" + lines + "Set-Cookie: ours=1\r\nContent-Length: 2\r\n"},
		{"looked for, changed", "content-length: 2\r\nX-gone: 1\r\nx-WANTED: 1\r\nX-CHANGED: 1\r\nx-changed: new\r\nX-Gone: 2\r\n" + lines,
			"x-WANTED: 1\r\nx-changed: new\r\n" + lines + "Set-Cookie: ours=1\r\nContent-Length: 2\r\n"},
		{"looked for, a new kind", "X-Wanted: 1\r\nX-Kind: new\r\nContent-Type: text/html\r\nServer: a\r\n" + date + "Content-Length: 2\r\n",
			"X-Wanted: 1\r\nX-Kind: new\r\nServer: a\r\n" + date + "Content-Type: text/plain\r\nSet-Cookie: ours=1\r\nContent-Length: 2\r\n"},
		{"looked for, but of this connection alone", "Connection: x-wanted\r\nX-Wanted: 1\r\nContent-Length: 2\r\n" + date, date + "Set-Cookie: ours=1\r\nContent-Length: 2\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, answering("HTTP/1.1 200 OK\r\n"+tc.lines+"\r\nok"))
			g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
				g.forward = func(_ *fasthttp.RequestCtx, f *Forward) {
					f.OnlyWith = func(name []byte) bool { return http1.EqualFold(name, "x-wanted") }
					f.OnHeader = func(h *fasthttp.ResponseHeader) {
						h.Del("X-Gone")
						if len(h.Peek("X-Changed")) > 0 {
							h.Del("X-Changed")
							h.Set("X-Changed", "new")
						}
						if len(h.Peek("X-Kind")) > 0 {
							h.Set("Content-Type", "text/plain")
						}
						h.Add("Set-Cookie", "ours=1")
					}
				}
			})
			c := g.dial()
			c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if _, head, body := c.Answer("GET"); head != "HTTP/1.1 200 OK\r\n"+tc.want+"\r\n" || body != "ok" {
				t.Errorf("have\n%q %q, want\n%q", head, body, tc.want)
			}
		})
	}
}

func TestForward_SendsBufferedPostAtOnce(t *testing.T) {
	got := make(chan string, 10)
	o := newRecorder(t, func(s *session) {
		for {
			h := s.head()
			if h == "" {
				return
			}
			b, err := s.body(h)
			if err != nil {
				t.Error(err)
			}
			got <- string(b)
			s.write(okAnswer)
		}
	})
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	big := strings.Repeat("0123456789", 20000)
	for _, body := range []string{"a", "hello", big} {
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + wiretest.Itoa(len(body)) + "\r\n\r\n" + body)
		if status, _, _ := c.Answer("POST"); status != 200 {
			t.Fatal(status)
		}
		if b := <-got; b != body {
			t.Fatalf("the origin got %d bytes, want %d", len(b), len(body))
		}
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + wiretest.Hex(len(body)) + "\r\n" + body + "\r\n0\r\n\r\n")
		if status, _, _ := c.Answer("POST"); status != 200 {
			t.Fatal(status)
		}
		if b := <-got; b != body {
			t.Fatalf("the origin got %d bytes, want %d", len(b), len(body))
		}
	}
}
