package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
	"github.com/anteroom/anteroom/internal/short"
)

// The bytes of a body that have arrived are sent on, wherever in its framing the origin pauses.
func TestForward_FlushesWhatHasArrived(t *testing.T) {
	const stream = "5;x=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"
	const text = "hello world"
	decoded := func(n int) string {
		b, _ := io.ReadAll(wiretest.NewChunked(bufio.NewReader(strings.NewReader(stream[:n]))))
		return string(b)
	}
	for _, added := range []string{"as it came", "with a cookie of ours"} {
		t.Run(added, func(t *testing.T) {
			arrived := make(chan struct{})
			o := newRecorder(t, func(s *session) {
				for {
					var cut int
					if _, err := fmt.Sscanf(s.head(), "GET /%d ", &cut); err != nil {
						return
					}
					s.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + stream[:cut])
					select {
					case <-arrived:
					case <-t.Context().Done():
						return
					}
					s.write(stream[cut:])
				}
			})
			g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
				g.forward = func(_ *fasthttp.RequestCtx, f *Forward) {
					if added != "as it came" {
						f.OnlyWith, f.OnHeader = nil, func(h *fasthttp.ResponseHeader) { h.Add("Set-Cookie", "ours=1") }
					}
				}
			})
			c := g.dial()
			for cut := range len(stream) {
				c.Send("GET /" + wiretest.Itoa(cut) + " HTTP/1.1\r\nHost: a\r\n\r\n")
				head, err := c.ReadHead()
				if err != nil || strings.Contains(head, "ours=1") != (added != "as it came") {
					t.Fatalf("%q, %v", head, err)
				}
				body := wiretest.NewChunked(c.R)
				first := make([]byte, len(decoded(cut)))
				if n, err := io.ReadFull(body, first); err != nil {
					t.Fatalf("after %q the client has %q: %v", stream[:cut], first[:n], err)
				}
				arrived <- struct{}{}
				rest, err := io.ReadAll(body)
				if got := string(first) + string(rest); err != nil || got != text {
					t.Fatalf("cut after %q: %q, %v", stream[:cut], got, err)
				}
			}
		})
	}
}

// A long poll: the origin is silent for many wait slices, then responds.
func TestForward_LongPoll(t *testing.T) {
	answer := make(chan struct{})
	o := newRecorder(t, func(s *session) {
		for s.head() != "" {
			<-answer
			s.write(okAnswer)
		}
	})
	g := newGate(t, to(o), wire.Limits{WriteIdle: 500 * time.Millisecond, BodyIdle: 500 * time.Millisecond}, func(g *gate) {
		g.origin.waitSlice = 5 * time.Millisecond
	})
	c := g.dial()
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"} {
		c.Send(request)
		time.AfterFunc(time.Second, func() { answer <- struct{}{} })
		if status, head, _ := c.Answer("GET"); status != 200 {
			t.Error(head)
		}
	}
	if n := len(o.requests()); n != 2 {
		t.Errorf("the origin saw %d requests, want 2", n)
	}
}

// A client that reads slowly but steadily is not cut off, however many bytes the kernel would hold for it.
func TestForward_SlowSteadyReader(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	const limit = 4 * time.Second
	o := newRecorder(t, func(s *session) {
		if s.head() != "" {
			s.write("HTTP/1.1 200 OK\r\n\r\n")
			io.Copy(s.Conn, zeros{})
		}
	})
	g := newGate(t, to(o), wire.Limits{WriteIdle: limit}, nil)
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	readSteadily(t, c, 2*limit)
}

// readSteadily reads 160 KiB a second for a time, and catches up on a busy machine.
func readSteadily(t *testing.T, c *wiretest.Client, lasts time.Duration) {
	t.Helper()
	const every, part = 50 * time.Millisecond, 8 << 10
	tick := time.NewTicker(every)
	defer tick.Stop()
	begun, got := time.Now(), int64(0)
	for took := time.Duration(0); took < lasts; took = time.Since(begun) {
		<-tick.C
		n, err := io.CopyN(io.Discard, c.Conn, max(part, int64(time.Since(begun)/every)*part-got))
		if got += n; err != nil {
			t.Fatalf("cut after %s, %d bytes: %v", time.Since(begun), got, err)
		}
	}
}

// The same holds for a response of the handler's own, which is one write.
func TestRequest_SendToSlowSteadyReader(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	const limit, size = 4 * time.Second, 16 << 20
	for _, path := range []string{"/direct", "/fast"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			raw, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
				wire.CheckRequest(ctx)
				ctx.SetBody(make([]byte, size))
			}}
			wire.ServerOptions(s)
			served := make(chan error, 1)
			go func() {
				served <- s.Serve(wire.Listener(raw, wire.Limits{WriteIdle: limit}, func(r *wire.Request) bool {
					if string(r.Target()) == "/fast" {
						return false
					}
					var res fasthttp.Response
					res.SetBodyRaw(make([]byte, size))
					r.Send(time.Now(), &res)
					return true
				}))
			}()
			c := wiretest.Dial(t, raw.Addr().String())
			c.Send("GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			readSteadily(t, c, 2*limit)
			if _, err := io.Copy(io.Discard, c.Conn); err != nil {
				t.Errorf("cut when it read all: %v", err)
			}
			if err := errors.Join(s.Shutdown(), <-served); err != nil {
				t.Error(err)
			}
		})
	}
}
