package proxy

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

func TestMain(m *testing.M) {
	code := twice{m}.Run()
	if code == 0 {
		if err := wiretest.LeftOver(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// directly makes gateways serve requests without fasthttp where they can.
var directly bool

// twice runs the tests with fasthttp and then without it.
type twice struct{ *testing.M }

func (m twice) Run() int {
	code := m.M.Run()
	once := func(name string) bool { return flag.Lookup("test."+name).Value.String() != "" }
	if code != 0 || once("fuzz") || once("bench") || once("list") {
		return code
	}
	directly = true
	return m.M.Run()
}

// recorder is an origin on a raw socket that keeps the bytes that it receives. serve serves each connection.
type recorder struct {
	t     *testing.T
	ln    net.Listener
	serve func(*session)
	wg    sync.WaitGroup

	mu    sync.Mutex
	heads []string
	conns []net.Conn
}

// session is one connection to a recorder.
type session struct {
	net.Conn
	r  *bufio.Reader
	o  *recorder
	nr int // requests read on it
}

func newRecorder(t *testing.T, serve func(*session)) *recorder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &recorder{t: t, ln: ln, serve: serve}
	o.run()
	return o
}

func (o *recorder) run() {
	o.wg.Add(1)
	go func() {
		defer o.wg.Done()
		for {
			c, err := o.ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns = append(o.conns, c)
			o.mu.Unlock()
			o.wg.Add(1)
			go func() {
				defer o.wg.Done()
				defer c.Close()
				o.serve(&session{Conn: c, r: bufio.NewReader(c), o: o})
			}()
		}
	}()
	o.t.Cleanup(o.close)
}

func (o *recorder) close() {
	o.ln.Close()
	o.mu.Lock()
	for _, c := range o.conns {
		c.Close()
	}
	o.mu.Unlock()
	o.wg.Wait()
}

func (o *recorder) url() string { return "http://" + o.ln.Addr().String() }

func (o *recorder) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.heads...)
}

// head reads one request header and records it; "" at the connection's end.
func (s *session) head() string {
	var b strings.Builder
	for {
		l, err := s.r.ReadString('\n')
		if err != nil {
			return ""
		}
		b.WriteString(l)
		if l == "\r\n" {
			break
		}
	}
	s.nr++
	s.o.mu.Lock()
	s.o.heads = append(s.o.heads, b.String())
	s.o.mu.Unlock()
	return b.String()
}

// body reads the body that head describes.
func (s *session) body(head string) ([]byte, error) {
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head), s.r)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(req.Body)
}

func (s *session) write(p string) { io.WriteString(s.Conn, p) }

// answering responds to every request of a connection with the same raw response.
func answering(answer string) func(*session) {
	return func(s *session) {
		for {
			h := s.head()
			if h == "" {
				return
			}
			if l := wiretest.HeaderValue(h, "Content-Length"); l != "" {
				var n int64
				fmt.Sscan(l, &n)
				io.CopyN(io.Discard, s.r, n)
			} else if wiretest.HeaderValue(h, "Transfer-Encoding") != "" {
				io.Copy(io.Discard, wiretest.NewChunked(s.r))
			}
			s.write(answer)
		}
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// gate is a fasthttp server in front of an origin.
type gate struct {
	t       *testing.T
	addr    string
	origin  *Origin
	forward func(ctx *fasthttp.RequestCtx, f *Forward)
	early   func(ctx *fasthttp.RequestCtx) bool // responds itself and returns true

	mu       sync.Mutex
	outcomes []Outcome
	news     chan struct{}
}

func newGate(t *testing.T, cfg Config, lim wire.Limits, set func(*gate)) *gate {
	t.Helper()
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o.patience = 5 * time.Millisecond
	g := &gate{t: t, origin: o, news: make(chan struct{}, 1000)}
	if set != nil {
		set(g)
	}
	s := &fasthttp.Server{Handler: g.handle, Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond}
	wire.ServerOptions(s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr().String()
	served := make(chan error, 1)
	front := wire.Listener(ln, lim, nil)
	if directly {
		front = wire.Listener(ln, lim, g.direct)
	}
	go func() { served <- s.Serve(front) }()
	t.Cleanup(func() {
		o.CloseUpgraded()
		lookOut(s)
		if err := s.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		o.Close()
		if n := o.InUse(); n != 0 {
			t.Errorf("%d connections are still counted as in use", n)
		}
	})
	return g
}

// lookOut waits a moment for connections whose clients have left, because Shutdown checks only every 100 ms.
func lookOut(s *fasthttp.Server) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 50 {
		if s.GetOpenConnectionsCount() == 0 {
			return
		}
		<-tick.C
	}
}

func (g *gate) handle(ctx *fasthttp.RequestCtx) {
	if r := wire.CheckRequest(ctx); r != nil {
		ctx.SetStatusCode(r.Status)
		ctx.SetBodyString(r.Code)
		return
	}
	if g.early != nil && g.early(ctx) {
		Drain(ctx)
		return
	}
	f := &Forward{OnlyWith: none} // as the gateway has it for most answers
	if g.forward != nil {
		g.forward(ctx, f)
	}
	out := g.origin.Serve(ctx, f)
	if out.Err != nil && !out.Sent {
		ctx.SetStatusCode(out.Status)
		ctx.SetBodyString(out.Kind)
		Drain(ctx)
	}
	g.note(out)
}

// direct is handle without fasthttp.
func (g *gate) direct(r *wire.Request) bool {
	if g.early != nil || g.forward != nil {
		return false // they want its context
	}
	out := g.origin.Forward(r, &Forward{OnlyWith: none})
	if out.Err != nil && !out.Sent {
		var res fasthttp.Response
		res.SetStatusCode(out.Status)
		res.SetBodyString(out.Kind)
		r.Send(time.Now(), &res)
	}
	g.note(out)
	return true
}

func (g *gate) note(out Outcome) {
	g.mu.Lock()
	g.outcomes = append(g.outcomes, out)
	g.mu.Unlock()
	g.news <- struct{}{}
}

func (g *gate) dial() *wiretest.Client {
	g.t.Helper()
	return wiretest.Dial(g.t, g.addr)
}

// none is an OnlyWith with which every response is forwarded unchanged.
func none([]byte) bool { return false }

// outcome waits for the n-th outcome, from 0.
func (g *gate) outcome(n int) Outcome {
	g.t.Helper()
	timeout := time.After(wiretest.Wait)
	for {
		g.mu.Lock()
		if len(g.outcomes) > n {
			defer g.mu.Unlock()
			return g.outcomes[n]
		}
		g.mu.Unlock()
		select {
		case <-g.news:
		case <-timeout:
			g.t.Fatalf("outcome %d has not come", n)
		}
	}
}

func to(o *recorder) Config {
	return Config{ID: "site", Servers: []string{o.url()}, PreserveHost: true, IdleTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, ConnectTimeout: wiretest.Wait}
}

// unhurried runs a case with a time limit that a busy machine may exceed, and repeats it with longer limits if it fails. A real
// fault fails with each of them.
func unhurried(t *testing.T, limit time.Duration, run func(limit time.Duration) error) {
	t.Helper()
	for times := 1; ; times++ {
		err := run(limit)
		if err == nil {
			return
		}
		if times == 3 {
			t.Fatalf("with a limit of %s: %v", limit, err)
		}
		limit *= 4
	}
}

// growth returns the number of bytes that are allocated while f runs.
func growth(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

// Shorthands for RequestOf(ctx) and its methods.

// Serve forwards the request of ctx.
func (o *Origin) Serve(ctx *fasthttp.RequestCtx, f *Forward) Outcome {
	return o.Forward(wire.RequestOf(ctx), f)
}

// Target returns the target of ctx's request.
func Target(ctx *fasthttp.RequestCtx) []byte { return wire.RequestOf(ctx).Target() }

// ReadBody reads the body of ctx's request.
func ReadBody(ctx *fasthttp.RequestCtx, dst []byte, limit int) ([]byte, error) {
	return wire.RequestOf(ctx).ReadBody(dst, limit)
}

// Drain prepares a response that fasthttp sends.
func Drain(ctx *fasthttp.RequestCtx) {
	if wire.RequestOf(ctx).Drain() {
		ctx.SetConnectionClose()
	}
}

// Answer sends a response in one piece.
func Answer(ctx *fasthttp.RequestCtx, now time.Time, status int, lines, body []byte) bool {
	return wire.RequestOf(ctx).Answer(now, status, lines, body)
}
