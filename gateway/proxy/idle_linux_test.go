//go:build !race

package proxy

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// A connection that has been served and waits holds no buffer: not what its last request was read into, nor what its
// answer was written in.
func TestIdleConnectionsHoldNoBuffers(t *testing.T) {
	const page = 24 << 10
	for _, tc := range []struct {
		name, request string
		answer        int
		handle        func(r *Request)
	}{
		{"a long answer", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", page, func(*Request) {}},
		{"a chunked body", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 0, func(r *Request) { r.ReadBody(nil, 100) }},
		{"values", "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\n\r\n", 0, func(r *Request) { r.PeekAll("cookie") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const conns = 100
			addr, _, _ := directGate(t, Limits{}, func(r *Request) bool {
				tc.handle(r)
				var res fasthttp.Response
				res.SetBodyRaw(make([]byte, tc.answer))
				r.Send(time.Now(), &res)
				return true
			})
			buf := make([]byte, 2*page)
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
				c.SetDeadline(time.Now().Add(wait))
				io.WriteString(c, tc.request)
				if _, err := io.ReadAtLeast(c, buf, tc.answer+1); err != nil {
					t.Fatal(err)
				}
				heap() // the next gets other buffers
			}
			if each := (heap() - before) / conns; each > 6<<10 {
				t.Errorf("%d bytes each", each)
			}
		})
	}
}
