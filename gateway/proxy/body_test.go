package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// bodies serves requests with bodies and reports each body, or its fault.
func bodies(got chan<- string) func(*session) {
	return func(s *session) {
		for {
			h := s.head()
			if h == "" {
				return
			}
			b, err := s.body(h)
			if err != nil {
				got <- "cut after " + string(b)
				return
			}
			got <- string(b)
			s.write(okAnswer)
		}
	}
}

// After a fault inside a body that is being forwarded the origin has no whole request, the client receives 400 and the end of
// the connection, and the bytes behind it are not run as a request.
func TestBody_BrokenChunks(t *testing.T) {
	const next = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, tc := range []struct{ name, Body string }{
		{"0x5", "0x5\r\nhello\r\n0\r\n\r\n"},
		{"+5", "+5\r\nhello\r\n0\r\n\r\n"},
		{"-1", "-1\r\nhello\r\n0\r\n\r\n"},
		{"1_0", "1_0\r\nhello\r\n0\r\n\r\n"},
		{"empty size", "\r\nhello\r\n0\r\n\r\n"},
		{"blank before a size", " 5\r\nhello\r\n0\r\n\r\n"},
		{"blank after a size", "5 \r\nhello\r\n0\r\n\r\n"},
		{"tab after a size", "5\t\r\nhello\r\n0\r\n\r\n"},
		{"blank before an extension", "5 ;a\r\nhello\r\n0\r\n\r\n"},
		{"too many digits", "00000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"overflow", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n"},
		{"NUL in an extension", "5;a\x00\r\nhello\r\n0\r\n\r\n"},
		{"CR in an extension", "5;a\rb\r\nhello\r\n0\r\n\r\n"},
		{"LF in an extension", "5;a\nhello\r\n0\r\n\r\n"},
		{"LF after a size", "5\nhello\r\n0\r\n\r\n"},
		{"bare semicolon", "5;\r\nhello\r\n0\r\n\r\n"},
		{"extension of 64 KiB", "5;a=" + strings.Repeat("a", 64<<10) + "\r\nhello\r\n0\r\n\r\n"},
		{"data longer than its size", "4\r\nhello\r\n0\r\n\r\n"},
		{"data shorter than its size", "6\r\nhello\r\n0\r\n\r\n"},
		{"LF after data", "5\r\nhello\n0\r\n\r\n"},
		{"no CRLF after data", "5\r\nhello0\r\n\r\n"},
		{"two other bytes after data", "5\r\nhelloXX0\r\n\r\n"},
		{"LF after the last chunk", "5\r\nhello\r\n0\n\r\n"},
		{"LF ends the trailers", "5\r\nhello\r\n0\r\n\n"},
		{"a trailer without a colon", "5\r\nhello\r\n0\r\nX\r\n\r\n"},
		{"a folded trailer", "5\r\nhello\r\n0\r\nX: 1\r\n 2\r\n\r\n"},
		{"a blank before a trailer's colon", "5\r\nhello\r\n0\r\nX : 1\r\n\r\n"},
		{"trailers of 64 KiB", "5\r\nhello\r\n0\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := make(chan string, 4)
			o := newRecorder(t, bodies(got))
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + tc.Body + next)
			if status, head, body := c.Answer("POST"); status != 400 || body != http1.CodeFraming || wiretest.HeaderValue(head, "Connection") != "close" {
				t.Errorf("%s%s", head, body)
			}
			c.Closed()
			first := len(o.requests()) // 0 where the fault came with the header
			if len(tc.Body) < 1000 && first > 0 {
				t.Errorf("the origin saw %d requests", first)
			}
			if first > 0 {
				<-got
			}

			// The same fault after the origin has been contacted.
			c = g.dial()
			c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
			wiretest.Eventually(t, "the origin has the header", func() bool { return len(o.requests()) == first+1 })
			c.Send(tc.Body + next)
			if status, head, body := c.Answer("POST"); status != 400 || body != KindBadRequest || wiretest.HeaderValue(head, "Connection") != "close" {
				t.Errorf("%s%s", head, body)
			}
			c.Closed()
			if b := <-got; !strings.HasPrefix(b, "cut after hi") {
				t.Errorf("the origin got a whole body: %q", b)
			}
			if n := len(o.requests()); n != first+1 {
				t.Errorf("the origin saw %d requests", n)
			}
		})
	}
}

// If the client stops inside its body, the origin's connection is cut too.
func TestBody_ClientStops(t *testing.T) {
	for _, tc := range []struct{ name, raw string }{
		{"Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello"},
		{"chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello"},
		{"no last chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"},
		{"trailers", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: 1\r\n"},
	} {
		for _, by := range []string{"end", "reset"} {
			t.Run(tc.name+", "+by, func(t *testing.T) {
				got := make(chan string, 4)
				o := newRecorder(t, bodies(got))
				g := newGate(t, to(o), wire.Limits{}, nil)
				c := g.dial()
				c.Send(tc.raw)
				wiretest.Eventually(t, "the request has begun", func() bool { return len(o.requests()) == 1 })
				if by == "reset" {
					c.Conn.(*net.TCPConn).SetLinger(0)
				}
				c.Close()
				if b := <-got; b != "cut after hello" && (by == "end" || b != "cut after ") { // a reset may overtake what came before it
					t.Errorf("the origin got %q", b)
				}
				if out := g.outcome(0); out.Kind != KindClientGone || out.Sent {
					t.Errorf("%+v", out)
				}
			})
		}
	}
}

// A body that arrives too slowly is given up, unless the origin's response has begun.
func TestBody_HasMinimumRate(t *testing.T) {
	const limit = 100 * time.Millisecond
	drip := func(t *testing.T, c *wiretest.Client, over <-chan struct{}) {
		tick := time.NewTicker(limit / 5)
		defer tick.Stop()
		deadline := time.After(wiretest.Wait)
		for {
			select {
			case <-tick.C:
				io.WriteString(c, "x") // fails once the gateway has enough
			case <-over:
				return
			case <-deadline:
				t.Error("the body was still taken at the end")
				return
			}
		}
	}
	t.Run("without an answer", func(t *testing.T) {
		ended := make(chan struct{})
		o := newRecorder(t, func(s *session) {
			s.head()
			io.Copy(io.Discard, s.r)
			close(ended)
		})
		g := newGate(t, to(o), wire.Limits{BodyIdle: limit}, nil)
		c := g.dial()
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n")
		drip(t, c, ended)
		if status, _, _ := c.Answer("POST"); status != 408 {
			t.Errorf("%d, want 408", status)
		}
	})
	t.Run("beside an answer", func(t *testing.T) {
		unhurried(t, 4*limit, func(calm time.Duration) error {
			enough := make(chan struct{})
			var cut error
			o := newRecorder(t, func(s *session) {
				s.head()
				s.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
				for begun := time.Now(); time.Since(begun) < 3*calm && cut == nil; {
					_, cut = s.r.ReadByte()
				}
				s.write("0\r\n\r\n")
				close(enough)
				io.Copy(io.Discard, s.r)
			})
			g := newGate(t, to(o), wire.Limits{BodyIdle: calm}, nil)
			c := g.dial()
			c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
			drip(t, c, enough)
			if cut != nil {
				return fmt.Errorf("the body ended: %w", cut)
			}
			if status, head, _, err := c.TryAnswer("POST"); status != 200 || err != nil {
				return fmt.Errorf("%s, %w", head, err)
			}
			return nil
		})
	})
}

func TestBody_Idle(t *testing.T) {
	got := make(chan string, 4)
	o := newRecorder(t, bodies(got))
	g := newGate(t, to(o), wire.Limits{BodyIdle: 50 * time.Millisecond}, nil)
	c := g.dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
	if status, head, _ := c.Answer("POST"); status != 408 || wiretest.HeaderValue(head, "Connection") != "close" {
		t.Errorf("%s", head)
	}
	c.Closed()
	if b := <-got; b != "cut after hello" {
		t.Errorf("the origin got %q", b)
	}
}

func TestRequest_HeaderTimeout(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{HeaderTimeout: 500 * time.Millisecond}, nil) // a busy machine may take a part of it to send the first bytes
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost:")
	if status, head, _ := c.Answer("GET"); status != 408 {
		t.Errorf("%s", head)
	}
	c.Closed()
}

func TestBody_Limit(t *testing.T) {
	got := make(chan string, 4)
	o := newRecorder(t, bodies(got))
	cfg := to(o)
	cfg.MaxBody = 10
	g := newGate(t, cfg, wire.Limits{}, nil)
	for _, tc := range []struct {
		name, raw string
		status    int
	}{
		{"at the limit", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789", 200},
		{"above", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0123456789a", 413},
		{"far above", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n", 413},
		{"chunks at the limit", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n", 200},
		{"chunks above", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n1\r\na\r\n0\r\n\r\n", 413},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := g.dial()
			c.Send(tc.raw)
			if status, head, _ := c.Answer("POST"); status != tc.status {
				t.Errorf("%s", head)
			}
			if tc.status == 200 {
				if b := <-got; b != "0123456789" {
					t.Errorf("the origin got %q", b)
				}
				c.Probe()
				<-got
			}
		})
	}
	for len(got) > 0 {
		if b := <-got; !strings.HasPrefix(b, "cut") {
			t.Errorf("the origin got a body over the limit: %q", b)
		}
	}
}

// The gateway responds itself to a request whose body contains another request: that request never runs, and the connection
// either goes on behind the body or ends.
func TestBody_DroppedAfterEarlyResponse(t *testing.T) {
	hidden := "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
	pad := strings.Repeat("x", 8<<10)
	cl := func(n int, rest string) string {
		return "POST /ours HTTP/1.1\r\nHost: a\r\nContent-Length: " + wiretest.Itoa(n) + "\r\n\r\n" + rest
	}
	ch := func(rest string) string {
		return "POST /ours HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + rest
	}
	for _, tc := range []struct {
		name, raw string
		goesOn    bool
	}{
		{"Content-Length", cl(len(pad+hidden), pad+hidden), true},
		{"chunked", ch(wiretest.Hex(len(pad+hidden)) + "\r\n" + pad + hidden + "\r\n0\r\n\r\n"), true},
		{"short", cl(len(hidden), hidden), true},
		{"chunked, broken behind what came with the header", ch("5000\r\n" + strings.Repeat("x", 0x5000) + "\r\n5 \r\n" + hidden), false},
		{"too long to drain", cl(1<<20, strings.Repeat("x", 1<<20)), false},
		{"chunked, too long to drain", ch(strings.Repeat("8000\r\n"+strings.Repeat("x", 0x8000)+"\r\n", 20) + "0\r\n\r\n"), false},
		{"multipart with an epilogue", "POST /ours HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: " + wiretest.Itoa(len("--b--\r\n"+hidden)) + "\r\n\r\n--b--\r\n" + hidden, true},
		{"an expectation that was not answered", "POST /ours HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, answering(okAnswer))
			seen := make(chan string, 10)
			g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
				g.early = func(ctx *fasthttp.RequestCtx) bool {
					seen <- string(Target(ctx))
					if string(Target(ctx)) == "/probe" {
						return false
					}
					ctx.SetStatusCode(401)
					ctx.SetBodyString("sign in")
					return true
				}
			})
			c := g.dial()
			go io.WriteString(c.Conn, tc.raw) // it may be cut off
			if status, head, body := c.Answer("POST"); status != 401 || body != "sign in" {
				t.Errorf("%s%s", head, body)
			}
			if tc.goesOn {
				c.Probe()
			} else {
				c.Closed()
			}
			close(seen)
			for s := range seen {
				if s != "/ours" && s != "/probe" {
					t.Errorf("%s ran", s)
				}
			}
		})
	}
}

func TestBody_ExpectContinue(t *testing.T) {
	got := make(chan string, 10)
	o := newRecorder(t, bodies(got))
	g := newGate(t, to(o), wire.Limits{}, nil)
	for _, expect := range []string{"100-continue", "100-Continue"} {
		c := g.dial()
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nExpect: " + expect + "\r\nContent-Length: 5\r\n\r\n")
		head, err := c.ReadHead()
		if err != nil || head != "HTTP/1.1 100 Continue\r\n\r\n" {
			t.Fatalf("%q, %v", head, err)
		}
		c.Send("hello")
		if status, head, _ := c.Answer("POST"); status != 200 {
			t.Error(head)
		}
		if b := <-got; b != "hello" {
			t.Errorf("the origin got %q", b)
		}
		c.Probe()
		<-got
	}
	// Who does not wait is not told, nor is an HTTP/1.0 client.
	c := g.dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello")
	if status, head, _ := c.Answer("POST"); status != 200 {
		t.Error(head)
	}
	c = g.dial()
	c.Send("POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello")
	if status, head, _ := c.Answer("POST"); status != 200 {
		t.Error(head)
	}
	for _, h := range o.requests() {
		if wiretest.HeaderValue(h, "Expect") != "" {
			t.Errorf("Expect was forwarded: %s", h)
		}
	}
}

// ReadBody reads the bodies of the gateway's own endpoints.
func TestRequest_ReadBody(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.early = func(ctx *fasthttp.RequestCtx) bool {
			b, err := ReadBody(ctx, nil, 10)
			switch {
			case err == wire.ErrBodyTooLarge:
				ctx.SetStatusCode(413)
			case err != nil:
				ctx.SetStatusCode(400)
			default:
				ctx.SetBody(b)
			}
			return true
		}
	})
	c := g.dial()
	for _, tc := range []struct {
		raw, Body string
		status    int
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 200},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello", 200},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world", "", 413},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n", "", 413},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense", http1.CodeFraming, 400},
	} {
		c.Send(tc.raw)
		if status, head, body := c.Answer("POST"); status != tc.status || body != tc.Body {
			t.Errorf("%q: %s%s", tc.raw, head, body)
		}
	}
	c.Closed()
}

// The origin's response ends while the client is still sending. An origin that keeps its connection receives the rest, and
// the client's connection goes on. Otherwise both are closed.
func TestForward_OriginRespondsEarly(t *testing.T) {
	const big = 50 << 20
	got := make(chan int64, 1)
	o := newRecorder(t, func(s *session) {
		for {
			h := s.head()
			if h == "" {
				return
			}
			switch {
			case strings.HasPrefix(h, "GET /probe"):
				s.write(okAnswer)
				continue
			case strings.HasPrefix(h, "POST /announced"):
				s.write("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno!")
			default:
				s.write("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
			}
			switch {
			case strings.HasPrefix(h, "POST /close"):
				return
			case strings.HasPrefix(h, "POST /reset"):
				s.Conn.(*net.TCPConn).SetLinger(0)
				return
			}
			b, _ := s.body(h)
			got <- int64(len(b))
		}
	})
	for _, tc := range []struct {
		target string
		size   int
		goesOn bool
	}{
		{"/stay", 100_000, true},
		{"/stay", big, true},
		{"/announced", 100_000, true}, // the rest is drained
		{"/announced", big, false},
		{"/close", 100_000, true},
		{"/close", big, false},
		{"/reset", big, false},
	} {
		t.Run(tc.target+" "+wiretest.Itoa(tc.size), func(t *testing.T) {
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				io.WriteString(c.Conn, "POST "+tc.target+" HTTP/1.1\r\nHost: a\r\nContent-Length: "+wiretest.Itoa(tc.size)+"\r\n\r\n")
				io.CopyN(c.Conn, zeros{}, int64(tc.size)) // it may be cut off
			}()
			if status, head, body := c.Answer("POST"); status != 413 || body != "no!" {
				t.Errorf("%s%s", head, body)
			}
			if tc.target == "/stay" {
				if n := <-got; n != int64(tc.size) {
					t.Errorf("the origin got %d bytes of %d", n, tc.size)
				}
			}
			if tc.target == "/announced" {
				defer func() { <-got }()
			}
			if tc.goesOn {
				<-sent
				c.Probe()
			} else {
				c.Closed()
			}
			if out := g.outcome(0); out.Err != nil || out.Status != 413 {
				t.Errorf("%+v", out)
			}
		})
	}
}

// After the response has ended the limits on an upload apply again: it may neither break off nor arrive too slowly.
func TestForward_UploadAfterResponse(t *testing.T) {
	for _, tc := range []struct {
		name, Kind string
		then       func(*wiretest.Client)
	}{
		{"stops", KindBodyTimeout, func(*wiretest.Client) {}},
		{"leaves", KindClientGone, func(c *wiretest.Client) { c.Close() }},
		{"breaks its framing", KindBadRequest, func(c *wiretest.Client) { c.Send("zz\r\n") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unhurried(t, 100*time.Millisecond, func(idle time.Duration) error { // in which the origin has to answer
				ended := make(chan string, 1)
				o := newRecorder(t, func(s *session) {
					if h := s.head(); h != "" {
						s.write(okAnswer)
						b, err := s.body(h)
						if err == nil {
							b = append(b, " whole"...)
						}
						ended <- string(b)
					}
				})
				lim := wire.Limits{}
				if tc.Kind == KindBodyTimeout {
					lim.BodyIdle = idle
				}
				g := newGate(t, to(o), lim, nil)
				c := g.dial()
				c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
				if status, head, _ := c.Answer("POST"); status != 200 {
					return errors.New(head)
				}
				tc.then(c)
				if b := <-ended; b != "hello" {
					t.Errorf("the origin got %q", b)
				}
				if out := g.outcome(0); out.Kind != tc.Kind || !out.Sent || out.Status != 200 {
					t.Errorf("%+v", out)
				}
				if tc.Kind != KindClientGone {
					c.Closed()
				}
				return nil
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Both directions run at once: the origin echoes while it reads, and neither waits for the end of the other.
func TestForward_FullDuplex(t *testing.T) {
	o := newRecorder(t, func(s *session) {
		h := s.head()
		if h == "" {
			return
		}
		s.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		in := wiretest.NewChunked(s.r)
		buf := make([]byte, 1<<10)
		for {
			n, err := in.Read(buf)
			if n > 0 {
				s.write(wiretest.Hex(n) + "\r\n" + string(buf[:n]) + "\r\n")
			}
			if err != nil {
				break
			}
		}
		s.write("0\r\n\r\n")
	})
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	if _, err := c.ReadHead(); err != nil {
		t.Fatal(err)
	}
	body := wiretest.NewChunked(c.R)
	for _, m := range []string{"one", "two", "three"} {
		c.Send(wiretest.Hex(len(m)) + "\r\n" + m + "\r\n")
		b := make([]byte, len(m))
		if _, err := io.ReadFull(body, b); err != nil || string(b) != m {
			t.Fatalf("%q, %v", b, err)
		}
	}
	c.Send("0\r\n\r\n")
	if b, err := io.ReadAll(body); err != nil || len(b) > 0 {
		t.Fatalf("%q, %v", b, err)
	}
	if out := g.outcome(0); out.Err != nil {
		t.Errorf("%+v", out)
	}
}

func TestForward_RequestTrailers(t *testing.T) {
	got := make(chan string, 1)
	o := newRecorder(t, func(s *session) {
		h := s.head()
		if h == "" {
			return
		}
		body := wiretest.NewChunked(s.r)
		io.Copy(io.Discard, body)
		got <- wiretest.HeaderValue(h, "Trailer") + "|" + body.Trailers.String()
		s.write(okAnswer)
	})
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-More\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\nX-Else: 2\r\nContent-Length: 5\r\nHost: b\r\nCookie: c=1\r\nX-Forwarded-For: 1.2.3.4\r\nAuthorization: x\r\nx-more: 3\r\n\r\n")
	if status, head, _ := c.Answer("POST"); status != 200 {
		t.Fatal(head)
	}
	if s := <-got; s != "X-Sum, X-More|X-Sum: 1\r\nx-more: 3\r\n" {
		t.Errorf("the origin got %q", s)
	}
}

// A field that is dropped from the header is dropped from the trailers too, whether the body was read ahead or not.
func TestForward_DropsTrailersOfDroppedFields(t *testing.T) {
	heads, got := make(chan string, 1), make(chan string, 1)
	o := newRecorder(t, func(s *session) {
		h := s.head()
		if h == "" {
			return
		}
		heads <- wiretest.HeaderValue(h, "Trailer")
		body := wiretest.NewChunked(s.r)
		io.Copy(io.Discard, body)
		got <- body.Trailers.String()
		s.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok") // the next one comes on a connection of its own
	})
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.forward = func(_ *fasthttp.RequestCtx, f *Forward) {
			f.DropField = func(name []byte) bool { return http1.EqualFold(name, "x-account") }
		}
	})
	const head, rest = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Account, X-Sum\r\n\r\n2\r\nhi\r\n", "0\r\nX-Account: ann\r\nX-Sum: 1\r\n\r\n"
	for _, parts := range [][]string{{head + rest}, {head, rest}} {
		c := g.dial()
		c.Send(parts[0])
		select {
		case names := <-heads:
			if names != "X-Sum" {
				t.Errorf("announced: %q", names)
			}
		case <-time.After(wiretest.Wait):
			t.Fatal("the origin got no header")
		}
		for _, part := range parts[1:] {
			c.Send(part)
		}
		if status, head, _ := c.Answer("POST"); status != 200 {
			t.Fatal(head)
		}
		if s := <-got; s != "X-Sum: 1\r\n" {
			t.Errorf("in %d parts the origin got %q", len(parts), s)
		}
	}
}

// 64 MB in each direction pass through buffers of a fixed size.
func TestForward_StreamsInFixedMemory(t *testing.T) {
	const size = 64 << 20
	o := newRecorder(t, func(s *session) {
		h := s.head()
		if h == "" {
			return
		}
		if n, err := io.CopyN(io.Discard, s.r, size); err != nil {
			t.Errorf("the origin got %d bytes: %v", n, err)
		}
		s.write("HTTP/1.1 200 OK\r\nContent-Length: " + wiretest.Itoa(size) + "\r\n\r\n")
		io.CopyN(s.Conn, zeros{}, size)
	})
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	c.Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: " + wiretest.Itoa(size) + "\r\n\r\n")
	grown := growth(func() {
		if _, err := io.CopyN(c.Conn, zeros{}, size); err != nil {
			t.Fatal(err)
		}
		if head, err := c.ReadHead(); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 ") {
			t.Fatal(head, err)
		}
		if n, err := io.CopyN(io.Discard, c.R, size); err != nil {
			t.Fatal(n, err)
		}
	})
	if grown > 8<<20 {
		t.Errorf("128 MB through the proxy allocated %d bytes", grown)
	}
	if out := g.outcome(0); out.Err != nil || out.BodyBytes != size {
		t.Errorf("%+v", out)
	}
}

// The response to a client that reads no bytes is given up, and the origin's connection is closed.
func TestForward_ClientDoesNotRead(t *testing.T) {
	ended := make(chan struct{})
	o := newRecorder(t, func(s *session) {
		if s.head() == "" {
			return
		}
		s.write("HTTP/1.1 200 OK\r\n\r\n")
		io.Copy(s.Conn, zeros{})
		close(ended)
	})
	g := newGate(t, to(o), wire.Limits{WriteIdle: 100 * time.Millisecond}, nil)
	c := g.dial()
	c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-ended
	if out := g.outcome(0); out.Kind != KindClientGone {
		t.Errorf("%+v", out)
	}
	if b, _ := io.ReadAll(c.R); bytes.HasSuffix(b, []byte("0\r\n\r\n")) {
		t.Error("the answer has a clean end")
	}
}

// An origin that ignores the body of a GET would read it as the next request, so its connection is not reused.
func TestForward_DoesNotReuseConnectionAfterGetBody(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST"} {
		t.Run(method, func(t *testing.T) {
			o := newRecorder(t, answering(okAnswer))
			g := newGate(t, to(o), wire.Limits{}, nil)
			for range 2 {
				c := g.dial()
				c.Send(method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab")
				c.Answer(method)
				wiretest.Eventually(t, "the exchange is over", func() bool { return g.origin.InUse() == 0 })
			}
			o.mu.Lock()
			n := len(o.conns)
			o.mu.Unlock()
			if want := map[string]int{"GET": 2, "HEAD": 2, "POST": 1}[method]; n != want {
				t.Errorf("%d connections, want %d", n, want)
			}
		})
	}
}
