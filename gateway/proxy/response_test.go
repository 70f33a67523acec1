package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// scripted writes the response to the first request of each connection, then further bytes, and closes.
func scripted(answer string) func(*session) {
	return func(s *session) {
		if s.head() != "" {
			s.write(answer)
		}
	}
}

// A response that is not valid HTTP becomes 502.
func TestForward_BadResponses(t *testing.T) {
	for _, tc := range []struct{ name, ResponseHeader string }{
		{"two CL", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!"},
		{"two equal CL", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"},
		{"CL list", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok"},
		{"CL +2", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok"},
		{"CL -2", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok"},
		{"CL and TE", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
		{"two TE", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"unknown TE", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok"},
		{"TE on 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"folded", "HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok"},
		{"no token", "HTTP/1.1 200 OK\r\nX A: 1\r\nContent-Length: 2\r\n\r\nok"},
		{"NUL", "HTTP/1.1 200 OK\r\nX-A: \x00\r\nContent-Length: 2\r\n\r\nok"},
		{"CR", "HTTP/1.1 200 OK\r\nX-A: 1\rX-B: 2\r\nContent-Length: 2\r\n\r\nok"},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"},
		{"HTTP/2", "HTTP/2 200\r\n\r\n"},
		{"HTTP/0.9", "hello"},
		{"status 99", "HTTP/1.1 099 No\r\n\r\n"},
		{"status 2x0", "HTTP/1.1 2x0 No\r\n\r\n"},
		{"101 unasked", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"},
		{"endless 1xx", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 200) + okAnswer},
		{"header of 64 KiB", "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"},
		{"501 headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: 1\r\n", 501) + "\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, scripted(tc.ResponseHeader))
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if status, head, body := c.Final("GET"); status != 502 || body != KindBadResponse {
				t.Errorf("%s%s", head, body)
			}
			if n := len(o.requests()); n != 1 {
				t.Errorf("the origin saw %d requests", n)
			}
		})
	}
}

// undated removes the Date that the gateway adds if the origin sent none.
func undated(t *testing.T, head string) string {
	t.Helper()
	before, rest, ok := strings.Cut(head, "\r\nDate: ")
	value, after, _ := strings.Cut(rest, "\r\n")
	at, err := http.ParseTime(value)
	if off := time.Since(at); !ok || err != nil || off < -time.Minute || off > time.Minute {
		t.Errorf("Date is not now in %q", head)
	}
	return before + "\r\n" + after
}

// After each response the connections either go on or end.
func TestForward_ResponseFraming(t *testing.T) {
	for _, tc := range []struct {
		name, request, ResponseHeader string
		RequestHeader, Body           string // the client's
		goesOn                        bool
	}{
		{"length", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok", true},
		{"empty", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true},
		{"no reason", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n", "", true},
		{"chunked", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1 \r\nk\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "ok", true},
		{"to the end", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "ok", true},
		{"to the end, 1.0 origin", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "ok", true},
		{"origin closes", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok", true},
		{"client closes", "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: Close\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n", "ok", false},
		{"1.0 client, length", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n", "ok", false},
		{"1.0 client, keep-alive", "GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n", "ok", true},
		{"1.0 client, chunked", "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "ok", false},
		{"1.0 client, to the end", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "ok", false},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "", true},
		{"HEAD, chunked", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "", true},
		{"HEAD, no length", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "", true},
		{"204", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", "", true},
		{"304", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\nContent-Length: 1000\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\nContent-Length: 1000\r\n\r\n", "", true},
		{"206", "GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n", "HTTP/1.1 206 Partial Content\r\nContent-Encoding: br\r\nContent-Range: bytes 1-2/9\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 206 Partial Content\r\nContent-Encoding: br\r\nContent-Range: bytes 1-2/9\r\nContent-Length: 2\r\n\r\n", "ok", true},
		{"hop-by-hop", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nConnection: x-other\r\nX-Hop: 1\r\nX-Other: 2\r\nX-End: 3\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nX-End: 3\r\nContent-Length: 2\r\n\r\n", "ok", true},
		{"103 to a 1.0 client", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + okAnswer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n", "ok", false},
		{"trailers, unannounced", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "ok", true},
		{"426", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "ok", true},
		{"426 and the end", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket, IRC/6.9\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\nUpgrade: websocket, IRC/6.9\r\nConnection: Upgrade, close\r\n\r\n", "ok", false},
		{"bytes beyond the length", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", okAnswer + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok", true},
		{"a body after HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "", true},
		{"large header", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 90)+"\r\n", 250) + "Content-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 90)+"\r\n", 250) + "Content-Length: 2\r\n\r\n", "ok", true},
	} {
		run := func(t *testing.T, only func([]byte) bool) {
			first := true
			o := newRecorder(t, func(s *session) {
				if first {
					first = false
					scripted(tc.ResponseHeader)(s)
					return
				}
				answering(okAnswer)(s)
			})
			g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
				g.forward = func(_ *fasthttp.RequestCtx, f *Forward) { f.OnlyWith = only }
			})
			c := g.dial()
			c.Send(tc.request)
			method, _, _ := strings.Cut(tc.request, " ")
			_, head, body := c.Answer(method)
			head = undated(t, head)
			if head != tc.RequestHeader || body != tc.Body {
				t.Errorf("have\n%q %q\nwant\n%q %q", head, body, tc.RequestHeader, tc.Body)
			}
			if out := g.outcome(0); out.Err != nil || !out.Sent || out.BodyBytes != int64(len(tc.Body)) {
				t.Errorf("%+v", out)
			}
			if tc.goesOn {
				c.Probe()
			} else {
				c.Closed()
			}
		}
		t.Run(tc.name+"/read", func(t *testing.T) { run(t, nil) })
		t.Run(tc.name+"/as it came", func(t *testing.T) { run(t, none) })
	}
}

// Informational responses are forwarded in order, except a 100 after the gateway has sent its own, and except to HTTP/1.0
// clients, which would take one for the response.
func TestForward_InterimResponses(t *testing.T) {
	const from = "HTTP/1.1 100 Continue\r\nX-Free: 1\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Waiting-Room-Command: revoke\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b.css>\r\n\r\nHTTP/1.1 199 \r\n\r\n"
	const others = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b.css>\r\n\r\nHTTP/1.1 199 \r\n\r\n"
	const final = "HTTP/1.1 200 OK\r\nX-Ours: 1\r\nContent-Length: 2\r\n"
	for _, tc := range []struct{ name, request, want string }{
		{"GET", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 100 Continue\r\nX-Free: 1\r\n\r\n" + others + final},
		{"POST", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 100 Continue\r\nX-Free: 1\r\n\r\n" + others + final},
		{"who expects", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n" + others + final},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", final + "Connection: close\r\n"},
		{"HTTP/1.0, who expects", "POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", final + "Connection: close\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, answering(from+okAnswer))
			headers := 0
			g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
				g.forward = func(_ *fasthttp.RequestCtx, f *Forward) {
					f.OnlyWith = nil
					f.OnHeader = func(h *fasthttp.ResponseHeader) { headers++; h.Set("X-Ours", "1") }
				}
			})
			c := g.dial()
			c.Send(tc.request)
			var got string
			for !strings.Contains(got, "HTTP/1.1 200 ") {
				head, err := c.ReadHead()
				if err != nil {
					t.Fatalf("%q, %v", got+head, err)
				}
				if head == "HTTP/1.1 100 Continue\r\n\r\n" && tc.name == "who expects" {
					c.Send("hi")
				}
				got += head
			}
			if got = undated(t, got); got != tc.want+"\r\n" {
				t.Errorf("%q\nwant %q", got, tc.want)
			}
			if headers != 1 {
				t.Errorf("OnHeader was called %d times", headers)
			}
		})
	}
}

// A body that the origin cuts is cut for the client: without a clean end or further bytes.
func TestForward_CutBodies(t *testing.T) {
	for _, tc := range []struct{ name, request, ResponseHeader string }{
		{"length", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"},
		{"chunk", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello"},
		{"between chunks", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"},
		{"before the last CRLF", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"},
		{"broken chunk", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzzz\r\n"},
		{"up to the end, reset", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nhello"},
		{"up to the end, reset, 1.0 client", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nhello"},
		{"length, reset", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"},
		{"chunk, 1.0 client", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begun := make(chan struct{})
			o := newRecorder(t, func(s *session) {
				scripted(tc.ResponseHeader)(s)
				<-begun // a reset may overtake what was sent
				if strings.Contains(tc.name, "reset") {
					s.Conn.(*net.TCPConn).SetLinger(0)
				}
			})
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			c.Send(tc.request)
			head, err := c.ReadHead()
			if err == nil {
				_, err = c.R.Peek(1)
			}
			close(begun)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(c.R)
				switch s := string(b); {
				case wiretest.HeaderValue(head, "Transfer-Encoding") != "":
					if s != "5\r\nhello\r\n" {
						t.Errorf("the client got %q", s)
					}
				case strings.HasPrefix(tc.request, "GET / HTTP/1.0"):
					if err == nil {
						t.Errorf("the client saw a clean end after %q", s)
					}
				case s != "hello":
					t.Errorf("the client got %q", s)
				}
			}
			out := g.outcome(0)
			if want := map[bool]string{true: KindBadResponse, false: KindBodyCut}[tc.name == "broken chunk"]; out.Kind != want || !out.Sent || out.Status != 200 {
				t.Errorf("%+v", out)
			}
		})
	}
}

func TestForward_ResponseTrailers(t *testing.T) {
	o := newRecorder(t, answering("HTTP/1.1 200 OK\r\nTrailer: X-Sum, Content-Length\r\nTrailer: Set-Cookie, x-more\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Length: 7\r\nSet-Cookie: a=1\r\nX-Else: 1\r\nX-More: 2\r\n\r\n"))
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
	head, err := c.ReadHead()
	if err != nil || wiretest.HeaderValue(head, "Trailer") != "X-Sum, x-more" {
		t.Errorf("%q, %v", head, err)
	}
	body := wiretest.NewChunked(c.R)
	if b, err := io.ReadAll(body); string(b) != "ok" || err != nil || body.Trailers.String() != "X-Sum: 1\r\nX-More: 2\r\n" {
		t.Errorf("%q, %q, %v", b, body.Trailers.String(), err)
	}
	c.Probe()
	if te := wiretest.HeaderValue(o.requests()[0], "TE"); te != "trailers" {
		t.Errorf("TE: %q", te)
	}
}

// Events arrive as they are sent, and end when the streams are closed.
func TestForward_EventStream(t *testing.T) {
	unhurried(t, 200*time.Millisecond, func(limit time.Duration) error { // in which the header has to come
		next := make(chan string)
		defer close(next)
		o := newRecorder(t, func(s *session) {
			if s.head() == "" {
				return
			}
			s.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
			for e := range next {
				s.write(wiretest.Hex(len(e)) + "\r\n" + e + "\r\n")
			}
			io.Copy(io.Discard, s.r)
		})
		cfg := to(o)
		cfg.Timeout = limit // ends with the header
		g := newGate(t, cfg, wire.Limits{WriteIdle: limit, HeaderTimeout: limit}, nil)
		c := g.dial()
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		head, err := c.ReadHead() // flushed before any event
		if err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 ") {
			return fmt.Errorf("%q, %w", head, err)
		}
		body := wiretest.NewChunked(c.R)
		n := 0
		for end := time.Now().Add(5 * limit / 2); time.Now().Before(end); n++ {
			e := "data: " + wiretest.Itoa(n) + "\n\n"
			next <- e
			b := make([]byte, len(e))
			if _, err := io.ReadFull(body, b); err != nil || string(b) != e {
				return fmt.Errorf("event %d: %q, %w", n, b, err)
			}
		}
		if n := g.origin.Upgraded(); n != 1 {
			t.Errorf("%d streams are counted", n)
		}
		g.origin.CloseUpgraded()
		if _, err := io.ReadAll(body); err == nil {
			t.Error("the cut stream has a clean end")
		}
		return nil
	})
}

// When a client leaves a silent stream, the origin's connection is closed.
func TestForward_ClientLeavesSilentStream(t *testing.T) {
	ended := make(chan struct{})
	o := newRecorder(t, func(s *session) {
		if s.head() == "" {
			return
		}
		s.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		io.Copy(io.Discard, s.r)
		close(ended)
	})
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) { g.origin.waitSlice = 20 * time.Millisecond })
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := c.ReadHead(); err != nil {
		t.Fatal(err)
	}
	c.Conn.(*net.TCPConn).CloseWrite()
	c.Close()
	<-ended
	if out := g.outcome(0); out.Kind != KindClientGone {
		t.Errorf("%+v", out)
	}
}
