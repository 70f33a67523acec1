package proxy

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// The origin closes a kept connection without a byte of a response: an idempotent request is sent again, once, on a new
// connection.
func TestForward_RetriesIdempotentRequest(t *testing.T) {
	const get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, tc := range []struct {
		name, request string
		before        string // what the origin says to the second request of its first connection
		status        int
		sent          int // how often the origin saw /x
	}{
		{"GET", get, "", 200, 2},
		{"HEAD", "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", "", 200, 2},
		{"OPTIONS", "OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n", "", 200, 2},
		{"DELETE", "DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n", "", 200, 2},
		{"POST", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "", 502, 1},
		{"POST without a body", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "", 502, 1},
		{"PATCH without a body", "PATCH /x HTTP/1.1\r\nHost: a\r\n\r\n", "", 502, 1},
		{"PUT with a body", "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "", 502, 1},
		{"GET with a body", "GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "", 502, 1},
		{"own method", "BUY /x HTTP/1.1\r\nHost: a\r\n\r\n", "", 502, 1},
		{"after one byte", get, "H", 502, 1},
		{"after an informational answer", get, "HTTP/1.1 100 Continue\r\n\r\n", 502, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var conns atomic.Int32
			o := newRecorder(t, func(s *session) {
				first := conns.Add(1) == 1
				for {
					h := s.head()
					if h == "" {
						return
					}
					s.body(h)
					if first && s.nr == 2 {
						s.write(tc.before)
						return
					}
					if strings.HasPrefix(h, "HEAD") {
						s.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
						continue
					}
					s.write(okAnswer)
				}
			})
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			c.Probe()
			method, _, _ := strings.Cut(tc.request, " ")
			c.Send(tc.request)
			if status, head, _ := c.Final(method); status != tc.status {
				t.Errorf("status %d, want %d\n%s", status, tc.status, head)
			}
			if out := g.outcome(1); (out.Kind == KindReset) != (tc.status == 502) {
				t.Errorf("%+v", out)
			}
			n := 0
			for _, h := range o.requests() {
				if strings.Contains(h, " /x ") {
					n++
				}
			}
			if n != tc.sent {
				t.Errorf("the origin saw it %d times, want %d", n, tc.sent)
			}
			c.Probe()
		})
	}
}

// A request is not sent again after a new connection was closed without a response.
func TestForward_RetriesOnce(t *testing.T) {
	var conns atomic.Int32
	o := newRecorder(t, func(s *session) {
		first := conns.Add(1) == 1
		if s.head() != "" && first {
			s.write(okAnswer)
			s.head()
		}
	})
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	c.Probe()
	c.Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
	if status, _, body := c.Answer("GET"); status != 502 || body != KindReset {
		t.Errorf("%d %s", status, body)
	}
	if n := len(o.requests()); n != 3 {
		t.Errorf("the origin saw %d requests, want 3", n)
	}
}

// A server whose kept connection ends may be failing: the request is sent again to an equal server, if there is one.
func TestForward_RetriesOnAnotherServer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		out    bool // the other server is known to be out
		status int
	}{
		{"one as good", false, 200},
		{"one that is out", true, 502},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var conns atomic.Int32
			dying := newRecorder(t, func(s *session) { // it still accepts, as the system does for a process that ends
				if s.head() != "" && conns.Add(1) == 1 {
					s.write(okAnswer)
					s.head()
				}
			})
			other := newRecorder(t, answering(okAnswer))
			g := newGate(t, Config{Servers: []string{dying.url(), other.url()}}, wire.Limits{}, nil)
			c := g.dial()
			c.Probe()
			g.outcome(0)
			g.origin.mu.Lock()
			busy := g.origin.servers.all[1]
			busy.inUse += 10
			busy.hurt, busy.down = tc.out, tc.out
			g.origin.mu.Unlock()
			c.Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
			if status, _, body := c.Answer("GET"); status != tc.status {
				t.Errorf("%d %s, want %d", status, body, tc.status)
			}
			g.origin.drop(busy)
		})
	}
}

// The time of failed attempts to connect to one server does not count for the server that responds.
func TestForward_MeasuresRespondingServer(t *testing.T) {
	mute, o := newRecorder(t, silent), newRecorder(t, answering(okAnswer))
	unhurried(t, 500*time.Millisecond, func(limit time.Duration) error {
		cfg := to(o)
		cfg.Servers, cfg.ConnectTimeout = []string{"https://" + mute.ln.Addr().String(), o.url()}, limit
		g := newGate(t, cfg, wire.Limits{}, nil)
		c := g.dial()
		for i := range 2 { // over a new connection, and over a kept one
			g.origin.mu.Lock()
			g.origin.servers.all[0].health = health{}
			g.origin.mu.Unlock()
			c.Probe()
			if out := g.outcome(i); out.Err != nil || out.FirstByte >= limit {
				return fmt.Errorf("request %d: %+v", i, out)
			}
		}
		if n := g.origin.servers.all[0].fails; n != 1 {
			t.Errorf("the first server failed %d times, want once since it was forgiven", n)
		}
		return nil
	})
}

// A connection is not reused after connLife, however short it has been idle.
func TestPool_EndsConnectionLife(t *testing.T) {
	var conns atomic.Int32
	o := newRecorder(t, func(s *session) {
		conns.Add(1)
		answering(okAnswer)(s)
	})
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	for i := range 2 {
		c.Probe()
		g.outcome(i)
	}
	if n := conns.Load(); n != 1 {
		t.Fatalf("%d connections, want 1", n)
	}
	g.origin.mu.Lock()
	g.origin.servers.all[0].idle[0].until = time.Now()
	g.origin.mu.Unlock()
	c.Probe()
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// An idle connection that has ended, or on which bytes arrived without a request, is not reused.
func TestPool_ChecksIdleConnections(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*session)
	}{
		{"an answer to nothing", func(s *session) {
			s.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			io.Copy(io.Discard, s.r)
		}},
		{"closed", func(s *session) {}},
		{"reset", func(s *session) { s.Conn.(*net.TCPConn).SetLinger(0) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var conns atomic.Int32
			unasked := make(chan struct{})
			o := newRecorder(t, func(s *session) {
				if conns.Add(1) > 1 {
					answering(okAnswer)(s)
					return
				}
				s.head()
				s.write(okAnswer)
				<-unasked
				tc.then(s)
			})
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			c.Probe()
			g.outcome(0)
			close(unasked)
			wiretest.Eventually(t, "the idle connection is seen to be unusable", func() bool {
				g.origin.mu.Lock()
				defer g.origin.mu.Unlock()
				return !g.origin.servers.all[0].idle[0].usable()
			})
			c.Send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n") // would not be repeated
			if status, _, body := c.Answer("POST"); status != 200 || body != "ok" {
				t.Errorf("%d %q", status, body)
			}
			if n := conns.Load(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
		})
	}
}

func silent(s *session) {
	for h := s.head(); h != ""; h = s.head() {
		s.body(h)
	}
}

// dripping sends a header line now and then, without end.
func dripping(s *session) {
	s.body(s.head())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for line, err := "HTTP/1.1 200 OK\r\n", error(nil); err == nil; line = "X-A: a\r\n" {
		_, err = io.WriteString(s.Conn, line)
		<-tick.C
	}
}

func TestForward_Timeouts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		set     func(*Config, time.Duration)
		origin  func(*session)
		request string
		status  int
		Kind    string
		seen    int
	}{
		{"first byte", func(c *Config, short time.Duration) { c.FirstByteTimeout = short }, silent, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 504, KindTimeout, 1},
		{"the whole", func(c *Config, short time.Duration) { c.Timeout = short }, silent, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 504, KindTimeout, 1},
		{"POST", func(c *Config, short time.Duration) { c.FirstByteTimeout = short }, silent, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 504, KindTimeout, 1},
		{"after an upload", func(c *Config, short time.Duration) { c.FirstByteTimeout = short }, silent, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 504, KindTimeout, 1},
		{"half a header", func(c *Config, short time.Duration) { c.FirstByteTimeout = short }, func(s *session) { s.head(); s.write("HTTP/1.1 200 OK\r\nX-A"); silent(s) }, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 504, KindTimeout, 1},
		{"a header in drops", func(c *Config, short time.Duration) { c.FirstByteTimeout = 4 * short }, dripping, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 504, KindTimeout, 1},
		{"a header in drops, the whole", func(c *Config, short time.Duration) { c.Timeout = 4 * short }, dripping, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 504, KindTimeout, 1},
		{"a header in drops after an upload", func(c *Config, short time.Duration) { c.FirstByteTimeout = 4 * short }, dripping,
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("a", 100000), 504, KindTimeout, 1},
		{"closed without an answer", func(*Config, time.Duration) {}, func(s *session) { s.head() }, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 502, KindReset, 1},
		{"half a header, closed", func(*Config, time.Duration) {}, func(s *session) { s.head(); s.write("HTTP/1.1 200 OK\r\nX-A") }, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 502, KindReset, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unhurried(t, 60*time.Millisecond, func(short time.Duration) error { // in which the origin has to be reached
				o := newRecorder(t, tc.origin)
				cfg := to(o)
				tc.set(&cfg, short)
				g := newGate(t, cfg, wire.Limits{}, nil)
				c := g.dial()
				c.Send(tc.request)
				status, _, body := c.Answer("GET")
				if n := len(o.requests()); status != tc.status || body != tc.Kind || n != tc.seen {
					return fmt.Errorf("%d %s, the origin saw %d requests; want %d %s, %d", status, body, n, tc.status, tc.Kind, tc.seen)
				}
				return nil
			})
		})
	}
}

// A response's body is cut after IdleTimeout without a byte.
func TestForward_IdleResponseBody(t *testing.T) {
	o := newRecorder(t, func(s *session) {
		if s.head() == "" {
			return
		}
		s.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		io.Copy(io.Discard, s.r)
	})
	cfg := to(o)
	cfg.IdleTimeout = 60 * time.Millisecond
	g := newGate(t, cfg, wire.Limits{}, nil)
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := c.ReadHead(); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(c.R); string(b) != "hello" {
		t.Errorf("%q", b)
	}
	if out := g.outcome(0); out.Kind != KindTimeout || out.Status != 200 || !out.Sent {
		t.Errorf("%+v", out)
	}
}

func refusing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

func TestForward_ConnectFailures(t *testing.T) {
	plain := newRecorder(t, func(s *session) { s.write("HTTP/1.1 400 Bad\r\n\r\n") })
	for _, tc := range []struct {
		name, server string
		Kind         string
	}{
		{"refused", refusing(t), KindConnect},
		{"no such name", "http://origin.invalid:80", KindConnect},
		{"not TLS", "https://" + plain.ln.Addr().String(), KindTLS},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGate(t, Config{Servers: []string{tc.server}, ConnectTimeout: wiretest.Wait}, wire.Limits{}, nil)
			c := g.dial()
			for range 3 { // one server alone is never passed over
				c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
				if status, _, body := c.Answer("POST"); status != 502 || body != tc.Kind {
					t.Errorf("%d %s, want 502 %s", status, body, tc.Kind)
				}
			}
		})
	}
}

// One of several servers cannot be reached: the others serve all requests, idempotent or not, and that server is out for a
// while.
func TestForward_SkipsUnreachableServer(t *testing.T) {
	a := newRecorder(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"))
	b := newRecorder(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb"))
	g := newGate(t, Config{Servers: []string{a.url(), refusing(t), b.url()}}, wire.Limits{}, nil)
	c := g.dial()
	got, begun := map[string]int{}, time.Now()
	for range 30 {
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
		status, _, body := c.Answer("POST")
		if status != 200 {
			t.Fatal(status, body)
		}
		got[body]++
	}
	if got["a"] < 10 || got["b"] < 10 {
		t.Errorf("shares: %v", got)
	}
	took := time.Since(begun) // by which it may have been tried again after one, two, four seconds
	if n, most := g.origin.servers.all[1].fails, 1+bits.Len64(uint64(took/failedBase)); n < 1 || n > most {
		t.Errorf("the dead server was tried %d times in %s, want once to %d times", n, took, most)
	}
}

// The outcome of a request has no error of an unreachable server if another one responded, also on a kept connection.
func TestForward_ForgetsErrorOfOtherServer(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	cfg := to(o)
	cfg.Servers = []string{refusing(t), o.url()}
	g := newGate(t, cfg, wire.Limits{}, nil)
	c := g.dial()
	for i := range 3 {
		c.Probe()
		if out := g.outcome(i); out.Err != nil || out.Kind != "" || out.Status != 200 {
			t.Errorf("request %d: %+v", i, out)
		}
	}
}

func TestServers_LeastConnections(t *testing.T) {
	release := make(chan struct{})
	held := newRecorder(t, func(s *session) {
		for s.head() != "" {
			<-release
			s.write(okAnswer)
		}
	})
	free := newRecorder(t, answering(okAnswer))
	g := newGate(t, Config{Servers: []string{held.url(), free.url()}}, wire.Limits{}, nil)
	var wg sync.WaitGroup
	stuck := g.dial()
	for i := 0; len(held.requests()) == 0; i++ {
		stuck.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		wiretest.Eventually(t, "some server has the request", func() bool { return len(held.requests())+len(free.requests()) > i })
		if len(held.requests()) == 0 {
			stuck.Answer("GET")
		}
	}
	before := len(free.requests())
	c := g.dial()
	for range 10 {
		c.Probe()
	}
	if n := len(free.requests()) - before; n != 10 {
		t.Errorf("the free server got %d of 10", n)
	}
	close(release)
	stuck.Answer("GET")
	wg.Wait()
}

func TestQueue_LimitsAndOrder(t *testing.T) {
	release := make(chan struct{})
	o := newRecorder(t, func(s *session) {
		for s.head() != "" {
			<-release
			s.write(okAnswer)
		}
	})
	cfg := to(o)
	cfg.MaxConns, cfg.QueueTimeout = 2, 50*time.Millisecond
	g := newGate(t, cfg, wire.Limits{}, nil)
	get := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	a, b, c := g.dial(), g.dial(), g.dial()
	a.Send(get)
	b.Send(get)
	wiretest.Eventually(t, "both are with the origin", func() bool { return len(o.requests()) == 2 })
	c.Send(get)
	if status, _, body := c.Answer("GET"); status != 503 || body != KindQueueFull {
		t.Errorf("%d %s", status, body)
	}
	g.origin.cfg.QueueTimeout = wiretest.Wait
	c.Send(get)
	wiretest.Eventually(t, "the third waits", func() bool {
		g.origin.mu.Lock()
		defer g.origin.mu.Unlock()
		return g.origin.slots.waiting.Len() == 1
	})
	close(release)
	for _, x := range []*wiretest.Client{a, b, c} {
		if status, _, _ := x.Answer("GET"); status != 200 {
			t.Error(status)
		}
	}
}

// After a panic in a callback the slot, the connection and the goroutine are released, and the handler's recover can respond.
func TestForward_CallbackPanics(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.early = func(ctx *fasthttp.RequestCtx) (answered bool) {
			if string(Target(ctx)) != "/panic" {
				return false
			}
			defer func() {
				answered = true
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
				ctx.Response.Reset()
				ctx.SetStatusCode(500)
			}()
			g.origin.Serve(ctx, &Forward{OnHeader: func(*fasthttp.ResponseHeader) { panic("callback") }})
			return false
		}
	})
	c := g.dial()
	for range 3 {
		c.Send("POST /panic HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
		if status, _, _ := c.Answer("POST"); status != 500 {
			t.Error(status)
		}
	}
	c.Probe()
}

// A request whose body the handler has read cannot be forwarded.
func TestForward_RefusesReadBody(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.forward = func(ctx *fasthttp.RequestCtx, _ *Forward) { ReadBody(ctx, nil, 100) }
	})
	c := g.dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
	if status, _, body := c.Answer("POST"); status != 500 || body != KindInternal {
		t.Errorf("%d %s", status, body)
	}
	c.Probe()
}

func TestForward_RefusesUnprotectedListener(t *testing.T) {
	o, err := New(Config{Servers: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	var ctx fasthttp.RequestCtx
	ctx.Init(&fasthttp.Request{}, nil, nil)
	if r := wire.CheckRequest(&ctx); r == nil || r.Code != wire.CodeUnprotected {
		t.Errorf("%v", r)
	}
	if out := o.Serve(&ctx, &Forward{}); out.Kind != KindInternal || out.Status != 500 {
		t.Errorf("%+v", out)
	}
}

func TestNew_RefusesConfig(t *testing.T) {
	for _, servers := range [][]string{nil, {"shop:9000"}, {"ftp://a"}, {"http://u@a"}, {"http://a/path"}, {"http://a?q"}, {"http://"}, {"http://a b"}, make([]string, 65)} {
		if _, err := New(Config{ID: "shop", Servers: servers}); err == nil || !strings.Contains(err.Error(), `"shop"`) {
			t.Errorf("%q: %v", servers, err)
		}
	}
	if _, err := New(Config{ID: "shop", Servers: []string{"https://a"}, TLS: TLSConfig{CAFile: "absent.pem"}}); err == nil || !strings.Contains(err.Error(), "ca_file") {
		t.Error(err)
	}
}

// trapHeader is a request whose body ends with the bytes at which trap panics.
var trapHeader = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + wiretest.Itoa(enoughBody+5) + "\r\n\r\n"

// trap is a connection that panics when those bytes are read.
type trap struct {
	net.Conn
	got atomic.Int64
}

func (c *trap) Read(p []byte) (int, error) {
	if c.got.Load() == int64(len(trapHeader)+enoughBody) {
		panic("a fault of the test")
	}
	n, err := c.Conn.Read(p)
	c.got.Add(int64(n))
	return n, err
}

type trapped struct{ net.Listener }

func (l trapped) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trap{Conn: c}, nil
}

// A panic in the goroutine of an upload ends the request as an internal error.
func TestForward_UploadPanics(t *testing.T) {
	o := newRecorder(t, func(s *session) { s.body(s.head()) })
	origin, err := New(to(o))
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	became := make(chan Outcome, 1)
	s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		wire.CheckRequest(ctx)
		out := origin.Serve(ctx, &Forward{})
		ctx.SetStatusCode(out.Status)
		Drain(ctx)
		became <- out
	}}
	wire.ServerOptions(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(wire.Listener(trapped{raw}, wire.Limits{}, nil)) }()
	c := wiretest.Dial(t, raw.Addr().String())
	c.Send(trapHeader + strings.Repeat("b", enoughBody))
	if status, _, _ := c.Answer("POST"); status != 500 {
		t.Errorf("status %d", status)
	}
	c.Closed()
	if out := <-became; out.Kind != KindInternal || origin.InUse() != 0 {
		t.Errorf("%+v, %d in use", out, origin.InUse())
	}
	if err := errors.Join(s.Shutdown(), <-served); err != nil {
		t.Error(err)
	}
}
