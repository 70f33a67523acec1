package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
	"github.com/anteroom/anteroom/internal/short"
)

// directGate is a server whose requests are served by handler, and by fasthttp where handler returns false.
func directGate(t *testing.T, lim Limits, handler func(*Request) bool) (addr string, ln net.Listener, s *fasthttp.Server) {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln = Listener(raw, lim, handler)
	s = &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		if r := CheckRequest(ctx); r != nil {
			ctx.SetStatusCode(r.Status)
			return
		}
		b, err := RequestOf(ctx).ReadBody(nil, 100)
		fmt.Fprintf(ctx, "fasthttp %s %q %v", ctx.Method(), b, err)
	}}
	ServerOptions(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return raw.Addr().String(), ln, s
}

// respond is a direct handler that responds by Send, unless the target is /fast.
func respond(r *Request) bool {
	if strings.HasPrefix(string(r.Target()), "/fast") {
		return false
	}
	var res fasthttp.Response
	res.Header.SetNoDefaultContentType(true)
	switch string(r.Target()) {
	case "/empty":
		res.SetStatusCode(204)
	case "/last":
		res.SetConnectionClose()
		res.SetBodyString("bye")
	case "/read":
		b, err := r.ReadBody(nil, 100)
		res.SetBodyString(fmt.Sprintf("%q %v", b, err))
	default:
		res.SetBodyString("direct")
	}
	res.Header.Add("X-Ours", "1")
	res.Header.Add("X-Ours", "2")
	r.Send(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), &res)
	return true
}

func TestRequest_Send(t *testing.T) {
	addr, _, _ := directGate(t, Limits{}, respond)
	const date = "Date: Fri, 02 Jan 2026 03:04:05 GMT\r\nX-Ours: 1\r\nX-Ours: 2\r\n"
	for _, tc := range []struct {
		name, request, RequestHeader, Body string
		goesOn                             bool
	}{
		{"GET", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 6\r\n\r\n", "direct", true},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 6\r\n\r\n", "", true},
		{"204", "GET /empty HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 204 No Content\r\n" + date + "\r\n", "", true},
		{"the handler closes", "GET /last HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 3\r\nConnection: close\r\n\r\n", "bye", false},
		{"the client closes", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Close, x\r\n\r\n", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 6\r\nConnection: close\r\n\r\n", "direct", false},
		{"a body", "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 11\r\n\r\n", `"abc" <nil>`, true},
		{"a chunked body", "POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 11\r\n\r\n", `"abc" <nil>`, true},
		{"an unread body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 43\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\nConnection: \r\n", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 6\r\n\r\n", "direct", true},
		{"a body too long to drop", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\nx", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 6\r\nConnection: close\r\n\r\n", "direct", false},
		{"an expectation that is not met", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 6\r\nConnection: close\r\n\r\n", "direct", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := wiretest.Dial(t, addr)
			c.Send(tc.request)
			method, _, _ := strings.Cut(tc.request, " ")
			if _, head, body := c.Answer(method); head != tc.RequestHeader || body != tc.Body {
				t.Errorf("have\n%q %q\nwant\n%q %q", head, body, tc.RequestHeader, tc.Body)
			}
			if !tc.goesOn {
				c.Closed()
				return
			}
			c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if status, _, body := c.Answer("GET"); status != 200 || body != "direct" {
				t.Errorf("%d %q", status, body)
			}
		})
	}
}

// A request that the direct handler does not take or does not receive is passed to fasthttp's handler whole, in any order.
func TestListener_LeavesRequestsToFasthttp(t *testing.T) {
	addr, _, _ := directGate(t, Limits{}, respond)
	c := wiretest.Dial(t, addr)
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /fast HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab" +
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /fast HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n" +
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\nHost: a\r\n\r\n")
	for i, want := range []string{"direct", `fasthttp POST "ab" <nil>`, "direct", `fasthttp POST "" <nil>`, `fasthttp GET "" <nil>`, "direct", `fasthttp GET "" <nil>`} {
		if status, _, body := c.Answer("GET"); status != 200 || body != want {
			t.Errorf("%d: %d %q, want %q", i, status, body, want)
		}
	}
	c.Closed()
	c = wiretest.Dial(t, addr)
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for i, want := range []int{200, 400} {
		if status, _, _ := c.Answer("GET"); status != want {
			t.Errorf("%d: %d, want %d", i, status, want)
		}
	}
	c.Closed()
}

// CloseWaiting closes a connection that waits for its next request at once. A connection that is being served is closed after
// its response, which has Connection: close.
func TestListener_CloseWaiting(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var seen atomic.Int32
	addr, ln, _ := directGate(t, Limits{}, func(r *Request) bool {
		if seen.Add(1); string(r.Target()) == "/slow" {
			entered <- struct{}{}
			<-leave
		}
		return respond(r)
	})
	idle, busy := wiretest.Dial(t, addr), wiretest.Dial(t, addr)
	idle.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	idle.Answer("GET")
	busy.Send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	CloseWaiting(ln)
	idle.Closed()
	close(leave)
	if status, head, body := busy.Answer("GET"); status != 200 || body != "direct" || wiretest.HeaderValue(head, "Connection") != "close" {
		t.Errorf("%d %q %q", status, head, body)
	}
	busy.Closed()
	if n := seen.Load(); n != 2 {
		t.Errorf("%d requests reached the handler", n)
	}
}

// fasthttp's shutdown calls Close while a direct handler is running: the response is still sent.
func TestConn_CloseWaitsForDirectResponse(t *testing.T) {
	conns := make(chan *conn, 1)
	leave := make(chan struct{})
	addr, _, _ := directGate(t, Limits{}, func(r *Request) bool {
		conns <- r.c
		<-leave
		return respond(r)
	})
	c := wiretest.Dial(t, addr)
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if err := (<-conns).Close(); err != nil {
		t.Fatal(err)
	}
	close(leave)
	if status, _, body := c.Answer("GET"); status != 200 || body != "direct" {
		t.Errorf("%d %q", status, body)
	}
	c.Closed()
}

// The connection is closed if a direct handler takes a request and sends no response; fasthttp's handler is not called.
func TestListener_CallsDirectHandlerOnce(t *testing.T) {
	var seen atomic.Int32
	addr, _, _ := directGate(t, Limits{}, func(r *Request) bool { seen.Add(1); r.CloseAfter(); return true })
	c := wiretest.Dial(t, addr)
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	c.Closed()
	if n := seen.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A write to a hijacked connection can be cut off from another goroutine, as event streams are at shutdown.
func TestConn_CutsOffHijackedWrite(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken, cut := make(chan net.Conn, 1), make(chan error, 1)
	s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.HijackSetNoResponse(true)
		ctx.Hijack(func(c net.Conn) {
			c.SetWriteDeadline(time.Now().Add(2 * wiretest.Wait))
			taken <- c
			for p := make([]byte, 64<<10); ; {
				if _, err := c.Write(p); err != nil {
					cut <- err
					return
				}
			}
		})
	}}
	ServerOptions(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(Listener(raw, Limits{}, nil)) }()
	c := wiretest.Dial(t, raw.Addr().String())
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if err := (<-taken).SetWriteDeadline(rawsocket.Past); err != nil {
		t.Error(err)
	}
	if err := <-cut; !rawsocket.IsTimeout(err) {
		t.Errorf("cut off: %v", err)
	}
	if err := errors.Join(s.Shutdown(), <-served); err != nil {
		t.Error(err)
	}
}

// A proxy that still writes a refused header takes a reset for a gateway that is away, and may then forward the request.
func TestConn_LongHeaderIsReadToItsEnd(t *testing.T) {
	addr, _, _ := directGate(t, Limits{}, respond)
	c := wiretest.Dial(t, addr)
	c.Send("GET / HTTP/1.1\r\nHost: a\r\nX-Long: ")
	for range 16 {
		c.Send(strings.Repeat("a", 1<<16))
		if _, err := c.R.Peek(1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // a reset needs a moment to arrive
	}
	c.Send("\r\n\r\n")
	if status, _, _ := c.Answer("GET"); status != 431 {
		t.Errorf("status %d, want 431", status)
	}
	if _, err := c.R.ReadByte(); err != io.EOF {
		t.Errorf("after the response: %v, want the end of the connection", err)
	}
}

// fasthttp's shutdown closes idle connections one after the other. Connections that still drop the rest of a body must not
// delay it one by one.
func TestConn_CloseDoesNotWaitForBodies(t *testing.T) {
	short.Skip(t, "waits for the clock")
	addr, _, s := directGate(t, Limits{}, respond)
	for range 2 * int(wiretest.Wait/lingerTime) {
		c := wiretest.Dial(t, addr)
		c.Send("GET /fast HTTP/1.1\r\nHost: a\r\n\r\n") // from now on fasthttp serves the connection
		c.Answer("GET")
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
		c.Answer("POST")
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(wiretest.Wait):
		t.Error("shutdown took as long as all drains together")
		<-ended
	}
}
