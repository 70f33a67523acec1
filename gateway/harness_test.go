package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// Two goroutines of fasthttp are no leaks: the clock of the Date header never ends, the cleaner of a worker pool ends at its next run.
func TestMain(m *testing.M) {
	redistest.MainNoLeaks(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// site is an origin that records its requests.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newSite(t testing.TB, name string, answer http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, fmt.Sprintf("%s %s session=%v cookie=%q body=%q", r.Method, r.RequestURI,
			r.Header.Get("X-Waiting-Room-Session") != "", r.Header.Get("Cookie"), body))
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		fmt.Fprintf(w, "%s %s %s", name, r.Method, r.RequestURI)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// policy returns a policy that admits burst visitors immediately and then one a second; with 0 it admits nobody for an hour.
func policy(burst int64) admission.Policy {
	p := admission.Policy{
		Enabled: true, Method: admission.FIFO, Rate: 1, Burst: burst * 1000, Absence: 10 * time.Minute,
		ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: admission.OnErrorWait,
	}
	if burst == 0 {
		p.Burst, p.MinWait = 1000, time.Hour
	}
	return p
}

// bench is a gateway on loopback with real origins and a real store.
type bench struct {
	*Gateway
	t      testing.TB
	addr   string
	core   *admission.Core
	prefix string
	reg    *prometheus.Registry
	logs   *syncBuffer
	stop   func()
	o      Options
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var testSecret = []byte("0pX2vRk7Q9-mZt4LwYb8NcUe1HsJdAfG")

func testRing(t testing.TB) *token.Ring {
	t.Helper()
	r, err := token.NewRing("anteroom", []token.Key{{ID: "k1", Alg: token.HS256, Secret: testSecret, Active: true}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func originAt(id string, servers ...string) proxy.Config {
	return proxy.Config{
		ID: id, Servers: servers, Timeout: time.Minute, ConnectTimeout: 10 * time.Second, FirstByteTimeout: time.Minute,
		IdleTimeout: time.Minute, QueueTimeout: 10 * time.Second, MaxConns: 100, PreserveHost: true,
	}
}

// start runs a gateway with a short tick, so that tests end soon. Rooms without an origin use the first one.
func start(t testing.TB, client redis.UniversalClient, prefix string, o Options) *bench {
	t.Helper()
	return startTicking(t, client, prefix, 20*time.Millisecond, o)
}

// calm is the tick of a gateway that does little besides what a test measures.
const calm = 500 * time.Millisecond

func startTicking(t testing.TB, client redis.UniversalClient, prefix string, tick time.Duration, o Options) *bench {
	t.Helper()
	return startAt(t, client, prefix, tick, nil, o)
}

// startAt runs a gateway by a clock of the test; nil: Redis's.
func startAt(t testing.TB, client redis.UniversalClient, prefix string, tick time.Duration, now func() int64, o Options) *bench {
	t.Helper()
	b := &bench{t: t, prefix: prefix, reg: prometheus.NewRegistry(), logs: &syncBuffer{}}
	o.Log = slog.New(slog.NewJSONHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.Registerer = b.reg
	m := metrics.New(b.reg, "test")
	core, err := admission.New(admission.Options{
		Client: client, Prefix: prefix, Timeout: 10 * time.Second, Tick: tick, Log: o.Log, Observe: m.ObserveStore, Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Core, b.core = core, core
	if o.Ring == nil {
		o.Ring = testRing(t)
	}
	o.IDKey = testSecret
	g, err := New(o, m)
	if err != nil {
		t.Fatal(err)
	}
	b.Gateway, b.o = g, o
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := core.Run(ctx); err != nil {
			t.Errorf("core: %v", err)
		}
	})
	running.Go(func() {
		if err := g.Serve(ln); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	b.stop = sync.OnceFunc(func() {
		down, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		if err := g.Shutdown(down); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		cancel()
		running.Wait()
		for _, u := range g.state.Load().origins {
			u.Close()
		}
	})
	t.Cleanup(b.stop)
	for _, r := range g.state.Load().rooms {
		eventually(t, "the room is known", func() bool { return r.queue.Snapshot().Known || !core.Up() })
	}
	return b
}

func one(t testing.TB, rooms ...Room) (*bench, *site) {
	t.Helper()
	return oneTicking(t, 20*time.Millisecond, rooms...)
}

func oneTicking(t testing.TB, tick time.Duration, rooms ...Room) (*bench, *site) {
	t.Helper()
	s := newSite(t, "shop", nil)
	for i := range rooms {
		rooms[i].Renew = true
		rooms[i].MaxSession = 12 * time.Hour
		rooms[i].PollBudget = 20000
	}
	b := startTicking(t, redistest.Client(t), redistest.Prefix(t), tick, Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: rooms,
	})
	return b, s
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		pause(2 * time.Millisecond)
	}
}

// pause waits between two checks of a condition.
func pause(d time.Duration) { <-time.After(d) }

// call sends a request: "GET /path", then header lines, then an empty line and the body.
type response struct {
	status  int
	header  http.Header
	body    string
	cookies map[string]string
	closed  bool
}

func (b *bench) call(lines ...string) *response {
	b.t.Helper()
	a, err := b.try(lines...)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// try sends a request on a new connection: the request line without the version, header lines and, after an empty line, the body.
func (b *bench) try(lines ...string) (*response, error) {
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	return exchange(c, bufio.NewReader(c), lines...)
}

func exchange(c net.Conn, r *bufio.Reader, lines ...string) (*response, error) {
	head, body := lines, ""
	if i := slices.Index(lines, ""); i >= 0 {
		head, body = lines[:i], strings.Join(lines[i+1:], "\n")
	}
	var out strings.Builder
	out.WriteString(head[0] + " HTTP/1.1\r\n")
	if !slices.ContainsFunc(head, func(l string) bool { return strings.HasPrefix(l, "Host:") }) {
		out.WriteString("Host: shop.test\r\n")
	}
	for _, l := range head[1:] {
		out.WriteString(l + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&out, "Content-Length: %d\r\n", len(body))
	}
	out.WriteString("\r\n" + body)
	if _, err := io.WriteString(c, out.String()); err != nil {
		return nil, err
	}
	method, _, _ := strings.Cut(head[0], " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	a := &response{status: resp.StatusCode, header: resp.Header, body: string(b), cookies: map[string]string{}, closed: resp.Close}
	for _, k := range resp.Cookies() {
		a.cookies[k.Name] = k.Value
	}
	return a, nil
}

// jar returns the Cookie field that a client sends after a response.
func (a *response) jar() string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(a.cookies)) {
		pairs = append(pairs, name+"="+a.cookies[name])
	}
	return "Cookie: " + strings.Join(pairs, "; ")
}

var varying = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`), "JWT"},
	{regexp.MustCompile(`(wr_[a-z0-9-]+_nonce=)[A-Za-z0-9_-]{22}`), "${1}NONCE"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`), "TIME"},
	{regexp.MustCompile(`"eta":\{"seconds":\d+,"low":\d+,"high":\d+\}`), `"eta":ETA`},
	{regexp.MustCompile(`"refresh_after":\d+`), `"refresh_after":N`},
	{regexp.MustCompile(`(?m)^Retry-After: \d+$`), "Retry-After: N"},
	{regexp.MustCompile(`Max-Age=(89\d|900)\b`), "Max-Age=TTL"},
}

// text returns the whole response, with placeholders for values that differ between runs.
func (a *response) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", a.status)
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		if name == "Date" || name == "Content-Length" {
			continue
		}
		for _, v := range a.header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	b.WriteString("\n" + a.body)
	s := b.String()
	for _, v := range varying {
		s = v.re.ReplaceAllString(s, v.to)
	}
	return s
}

func (a *response) is(t testing.TB, want string) {
	t.Helper()
	if got := a.text(); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("answer:\n%s\nwant:\n%s", got, want)
	}
}

func (a *response) code(t testing.TB, want int) *response {
	t.Helper()
	if a.status != want {
		t.Fatalf("status %d, want %d: %s", a.status, want, a.text())
	}
	return a
}

var fieldPattern = regexp.MustCompile(`"([a-z_]+)":("[^"]*"|[0-9.]+|true|false)`)

// field returns a member of a flat JSON response.
func (a *response) field(name string) string {
	for _, m := range fieldPattern.FindAllStringSubmatch(a.body, -1) {
		if m[1] == name {
			return strings.Trim(m[2], `"`)
		}
	}
	return ""
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }

const (
	asPage = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
	asJSON = "Accept: application/json"
)
