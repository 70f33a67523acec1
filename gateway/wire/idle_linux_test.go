//go:build !race

package wire

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire/wiretest"
	"github.com/anteroom/anteroom/internal/short"
)

// An idle connection holds neither the buffer of its last request nor that of its last response.
func TestConn_HoldsNoBufferWhileIdle(t *testing.T) {
	short.Skip(t, "measures memory")
	const page = 24 << 10
	for _, tc := range []struct {
		name, request  string
		ResponseHeader int
		handle         func(r *Request)
	}{
		{"a long answer", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", page, func(*Request) {}},
		{"a chunked body", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 0, func(r *Request) { r.ReadBody(nil, 100) }},
		{"values", "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\n\r\n", 0, func(r *Request) { r.PeekAll("cookie") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr, _, _ := directGate(t, Limits{}, func(r *Request) bool {
				tc.handle(r)
				var res fasthttp.Response
				res.SetBodyRaw(make([]byte, tc.ResponseHeader))
				r.Send(time.Now(), &res)
				return true
			})
			holdsLittle(t, addr, tc.request, tc.ResponseHeader+1)
		})
	}
}

// A hijacked connection does not hold the buffer of its request.
func TestConn_HoldsNoBufferOnceHijacked(t *testing.T) {
	short.Skip(t, "measures memory")
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var taken sync.Map
	s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		RequestOf(ctx).PeekAll("cookie")
		ctx.HijackSetNoResponse(true)
		ctx.Hijack(func(c net.Conn) {
			c = c.(interface{ UnsafeConn() net.Conn }).UnsafeConn()
			io.WriteString(c, "yours")
			taken.Store(c, true)
		})
	}}
	ServerOptions(s)
	s.KeepHijackedConns = true
	served := make(chan error, 1)
	go func() { served <- s.Serve(Listener(raw, Limits{}, respond)) }()
	defer func() {
		if err := errors.Join(s.Shutdown(), <-served); err != nil {
			t.Error(err)
		}
		for c := range taken.Range {
			c.(net.Conn).Close()
		}
	}()
	for _, ahead := range []string{"", "GET"} {
		holdsLittle(t, raw.Addr().String(), "GET /fast HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\n\r\n"+ahead, 5)
	}
}

// holdsLittle opens connections that send a request and read a part of the response, and checks the memory that each then holds.
func holdsLittle(t *testing.T, addr, request string, answer int) {
	t.Helper()
	const conns = 100
	buf := make([]byte, answer+4<<10)
	heap := func() int {
		runtime.GC() // pools
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(wiretest.Wait))
		io.WriteString(c, request)
		if _, err := io.ReadAtLeast(c, buf, answer); err != nil {
			t.Fatal(err)
		}
		heap() // the next gets other buffers
	}
	if each := (heap() - before) / conns; each > 6<<10 {
		t.Errorf("%d bytes each", each)
	}
}
