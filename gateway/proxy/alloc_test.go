package proxy

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1/http1test"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

const (
	chunkedPost = "POST /shop/buy HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"ticket\": 4711}\r\n0\r\n\r\n"
	smallPost   = "POST /shop/buy HTTP/1.1\r\nHost: shop.example\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"ticket\": 4711}"
)

// plainSite starts an origin with a fixed response and a gateway in front of it, neither of which allocates by itself, and
// returns the gateway's address.
func plainSite(t testing.TB, answer string, only func([]byte) bool) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 8<<10)
				out := []byte(answer)
				for n := 0; ; {
					m, err := c.Read(buf[n:])
					if err != nil {
						return
					}
					if n += m; !bytes.Contains(buf[:n], []byte("\r\n\r\n")) {
						continue
					}
					n = 0
					if _, err := c.Write(out); err != nil {
						return
					}
				}
			}()
		}
	}()
	o, err := New(Config{Servers: []string{"http://" + ln.Addr().String()}, PreserveHost: true, MaxConns: 4096,
		Timeout: 30 * time.Second, FirstByteTimeout: 30 * time.Second, IdleTimeout: 60 * time.Second, QueueTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f := &Forward{
		ClientIP:   netip.MustParseAddr("192.0.2.1"),
		Proto:      "https",
		Session:    "c2Vzc2lvbi1pZC0xMjM0",
		DropCookie: func(name []byte) bool { return bytes.HasPrefix(name, []byte("wr_")) },
		OnHeader:   func(h *fasthttp.ResponseHeader) { h.Peek("X-Waiting-Room-Command") },
		OnlyWith:   only,
	}
	s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		if wire.CheckRequest(ctx) != nil {
			t.Error("refused")
			return
		}
		if out := o.Serve(ctx, f); out.Err != nil {
			t.Error(out.Err)
		}
	}}
	wire.ServerOptions(s)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(wire.Listener(front, wire.Limits{}, nil))
	t.Cleanup(func() {
		s.Shutdown()
		o.Close()
		ln.Close()
	})
	return front.Addr().String()
}

type looper struct {
	net.Conn
	req, buf []byte
	size     int
}

func newLooper(t testing.TB, addr, req string) *looper {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	l := &looper{Conn: c, req: []byte(req), buf: make([]byte, 64<<10)}
	c.Write(l.req)
	for n := 0; ; { // learn the answer's size
		m, err := c.Read(l.buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
		if i := bytes.Index(l.buf[:n], []byte("\r\n\r\n")); i >= 0 && bytes.HasSuffix(l.buf[:n], []byte("END")) {
			l.size = n
			return l
		}
	}
}

func (l *looper) once() error {
	if _, err := l.Write(l.req); err != nil {
		return err
	}
	_, err := io.ReadFull(l.Conn, l.buf[:l.size])
	return err
}

func kilobyte() string {
	return "HTTP/1.1 200 OK\r\nServer: shop\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\nSet-Cookie: cart=17; Path=/; HttpOnly\r\nCache-Control: private\r\nETag: \"4711\"\r\nContent-Length: 1024\r\n\r\n" +
		string(bytes.Repeat([]byte("x"), 1021)) + "END"
}

// Neither the plain path nor a small POST allocates.
func TestForward_DoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector drops pooled values at random")
	}
	plain, read := plainSite(t, kilobyte(), none), plainSite(t, kilobyte(), nil)
	for _, tc := range []struct{ name, addr, req string }{
		{"GET", plain, http1test.BrowserGet}, {"GET, its answer read", read, http1test.BrowserGet}, {"POST", plain, smallPost}, {"chunked POST", plain, chunkedPost},
	} {
		l := newLooper(t, tc.addr, tc.req)
		for range 100 {
			if err := l.once(); err != nil {
				t.Fatal(err)
			}
		}
		n := testing.AllocsPerRun(2000, func() {
			if err := l.once(); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations a request, want 0", tc.name, n)
		}
	}
}

func BenchmarkProxy(b *testing.B) {
	for _, bb := range []struct{ name, req string }{{"get", http1test.BrowserGet}, {"post", smallPost}} {
		b.Run(bb.name, func(b *testing.B) {
			addr := plainSite(b, kilobyte(), none)
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				l := newLooper(b, addr, bb.req)
				for pb.Next() {
					if err := l.once(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
