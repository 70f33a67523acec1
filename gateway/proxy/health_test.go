package proxy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
	"github.com/anteroom/anteroom/internal/short"
)

// site is an origin whose responses to health checks and to other requests are set separately. "" closes the connection,
// "hang" stays silent.
type site struct {
	*recorder
	check, other atomic.Value
}

func newSite(t *testing.T) *site {
	s := &site{}
	s.check.Store(okAnswer)
	s.other.Store(okAnswer)
	s.recorder = newRecorder(t, func(c *session) {
		for h := c.head(); h != ""; h = c.head() {
			answer := s.other.Load().(string)
			if strings.HasPrefix(h, "GET /healthz ") {
				answer = s.check.Load().(string)
			}
			switch answer {
			case "":
				return
			case "hang":
				c.head()
				return
			}
			c.write(answer)
		}
	})
	return s
}

// asked returns the number of requests for a path, and the header of the last one.
func (s *site) asked(path string) (n int, last string) {
	for _, h := range s.requests() {
		if strings.HasPrefix(h, "GET "+path+" ") {
			n, last = n+1, h
		}
	}
	return n, last
}

const checkEvery = 250 * time.Millisecond // also what a check may take, on a busy machine

func checking(sites ...*site) Config {
	cfg := Config{ID: "site", PreserveHost: true, ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait,
		Health: HealthConfig{Path: "/healthz", Interval: checkEvery}}
	for _, s := range sites {
		cfg.Servers = append(cfg.Servers, s.url())
	}
	return cfg
}

func (g *gate) up(i int) bool { return g.origin.Stats().Servers[i].Up }

func TestHealth_Checks(t *testing.T) {
	short.Skip(t, "waits for the clock")
	for _, tc := range []struct {
		name, ResponseHeader string
		healthy              bool
	}{
		{"200", okAnswer, true},
		{"204", "HTTP/1.1 204 No Content\r\n\r\n", true},
		{"302", "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", true},
		{"an informational answer first", "HTTP/1.1 103 Early Hints\r\n\r\n" + okAnswer, true},
		{"a body that does not end", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", true},
		{"404", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false},
		{"500", "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", false},
		{"no HTTP", "hello\r\n\r\n", false},
		{"ambiguous framing", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", false},
		{"closed", "", false},
		{"silent", "hang", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, b := newSite(t), newSite(t)
			a.check.Store(tc.ResponseHeader)
			var late atomic.Bool // a busy machine was, with checks of the other one
			g := newGate(t, checking(a, b), wire.Limits{}, func(g *gate) {
				g.origin.OnChange(func(c Change) { late.Store(late.Load() || c.Server == b.url() && !c.Up) })
			})
			g.origin.Start()
			if tc.healthy {
				wiretest.Eventually(t, "it was asked a few times", func() bool { n, _ := a.asked("/healthz"); return n > 2*checksDown })
				wiretest.Eventually(t, "it is in", func() bool { return g.up(0) })
				return
			}
			wiretest.Eventually(t, "it is out", func() bool { return !g.up(0) })
			for range 6 {
				g.ask()
			}
			if n, _ := a.asked("/"); n > 0 && !late.Load() {
				t.Errorf("%d requests went to a server that is out", n)
			}
			a.check.Store(okAnswer)
			wiretest.Eventually(t, "both are in", func() bool { return g.up(0) && g.up(1) })
			wiretest.Eventually(t, "it is asked again", func() bool { g.ask(); n, _ := a.asked("/"); return n > 0 })
		})
	}
}

// A single failed check has no effect, and neither has a single good one.
func TestHealth_NeedsTwoChecks(t *testing.T) {
	o := serversOf(t, 2)
	s := o.servers.all[0]
	for i, step := range []struct {
		ok, up bool
	}{{false, true}, {true, true}, {false, true}, {false, false}, {true, false}, {false, false}, {true, false}, {true, true}} {
		var err error
		if !step.ok {
			err = errTimeout
		}
		o.checked(s, err, noon)
		if up := o.Stats().Servers[0].Up; up != step.up {
			t.Fatalf("step %d: up %v, want %v", i, up, step.up)
		}
	}
}

func TestHealth_CheckRequest(t *testing.T) {
	a := newSite(t)
	g := newGate(t, checking(a), wire.Limits{}, nil)
	g.origin.Start()
	g.origin.Start() // once is enough
	wiretest.Eventually(t, "it was asked", func() bool { n, _ := a.asked("/healthz"); return n > 0 })
	_, head := a.asked("/healthz")
	want := "GET /healthz HTTP/1.1\r\nHost: " + a.ln.Addr().String() + "\r\nUser-Agent: anteroom-health\r\nAccept: */*\r\nConnection: close\r\n\r\n"
	if head != want {
		t.Errorf("%q\nwant %q", head, want)
	}
	if n := g.origin.InUse(); n != 0 {
		t.Errorf("a check takes %d of max_conns", n)
	}
	g.origin.Close()
	g.ask() // what was sent before has come now
	n, _ := a.asked("/healthz")
	g.ask()
	if m, _ := a.asked("/healthz"); m != n {
		t.Error("it was asked after Close")
	}
}

// Close does not wait for the response to a check.
func TestHealth_CloseDuringCheck(t *testing.T) {
	a := newSite(t)
	a.check.Store("hang")
	cfg := checking(a)
	cfg.Health.Interval = time.Hour
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o.Start()
	wiretest.Eventually(t, "it was asked", func() bool { n, _ := a.asked("/healthz"); return n > 0 })
	closed := make(chan struct{})
	go func() { o.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(wiretest.Wait):
		t.Fatal("Close waits for the check")
	}
}

// If all servers are out they are tried nevertheless, and an error includes that no server was healthy.
func TestForward_NoServerHealthy(t *testing.T) {
	const bad = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
	a, b := newSite(t), newSite(t)
	a.check.Store(bad)
	b.check.Store(bad)
	g := newGate(t, checking(a, b), wire.Limits{}, nil)
	g.origin.Start()
	wiretest.Eventually(t, "both are out", func() bool { return !g.up(0) && !g.up(1) })
	for range 6 {
		if got := g.ask(); got != "200 ok" {
			t.Error(got)
		}
	}
	na, _ := a.asked("/")
	nb, _ := b.asked("/")
	if na != 3 || nb != 3 {
		t.Errorf("%d and %d of 6 requests", na, nb)
	}
	a.other.Store("")
	b.other.Store("")
	g.forget()
	g.outcome(5) // a connection tells it after its response: the next one's could come before it
	c := g.dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
	if status, _, body := c.Answer("POST"); status != 502 || body != KindReset {
		t.Errorf("%d %s", status, body)
	}
	out := g.outcome(6)
	if out.Err == nil {
		t.Fatalf("the outcome of the POST has no error: %+v", out)
	}
	if !strings.Contains(out.Err.Error(), "no server was healthy") || !strings.Contains(out.Err.Error(), a.url()+": health check: status 503") {
		t.Errorf("the cause is not told: %v", out.Err)
	}
}

// A server with faulty responses is out for a while although it accepts connections, until a good response.
func TestServers_BadResponsesTakeOut(t *testing.T) {
	short.Skip(t, "waits for the clock")
	for _, tc := range []struct {
		name, ResponseHeader string
		out                  bool
	}{
		{"502", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", true},
		{"503", "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", true},
		{"504", "HTTP/1.1 504 Late\r\nContent-Length: 0\r\n\r\n", true},
		{"closed", "", true},
		{"no HTTP", "hello\r\n\r\n", true},
		{"silent", "hang", true},
		{"500", "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", false},
		{"404", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, b := newSite(t), newSite(t)
			a.other.Store(tc.ResponseHeader)
			cfg := Config{ID: "site", Servers: []string{a.url(), b.url()}, ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait}
			if tc.ResponseHeader == "hang" {
				cfg.FirstByteTimeout = 250 * time.Millisecond
			}
			var mu sync.Mutex
			var told []Change
			g := newGate(t, cfg, wire.Limits{}, func(g *gate) {
				g.origin.OnChange(func(c Change) { mu.Lock(); told = append(told, c); mu.Unlock() })
			})
			bad := 0
			for range 4 * strikesOut {
				if g.ask() != "200 ok" {
					bad++
				}
			}
			if !tc.out {
				if !g.up(0) || bad <= strikesOut {
					t.Errorf("up %v after %d such answers", g.up(0), bad)
				}
				return
			}
			if n, _ := a.asked("/"); n < strikesOut || n > 2*strikesOut-1 || bad < n {
				t.Errorf("it was asked %d times, %d requests failed; want %d or a few more, all of which fail", n, bad, strikesOut)
			}
			mu.Lock()
			if len(told) == 0 || told[0].Up || told[0].Server != a.url() {
				t.Errorf("told: %+v", told)
			}
			mu.Unlock()
			a.other.Store(okAnswer)
			wiretest.Eventually(t, "it is back", func() bool { g.ask(); return g.up(0) })
		})
	}
}

// Responses that break off are faults too.
func TestServers_CutResponsesTakeOut(t *testing.T) {
	a := newRecorder(t, func(s *session) {
		s.head()
		s.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok")
	})
	b := newSite(t)
	g := newGate(t, Config{ID: "site", Servers: []string{a.url(), b.url()}, ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait}, wire.Limits{}, nil)
	n := 0
	wiretest.Eventually(t, "it is out", func() bool {
		c := g.dial()
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.TryAnswer("GET")
		g.outcome(n)
		n++
		return !g.up(0)
	})
	if n > 3*strikesOut {
		t.Errorf("after %d requests", n)
	}
}

// The health of a server survives a change of the configuration.
func TestOrigin_AdoptsHealth(t *testing.T) {
	old := serversOf(t, 3)
	old.servers.all[1].inUse++
	old.failed(old.servers.all[1], fmt.Errorf("refused"), time.Now())
	old.checked(old.servers.all[2], errTimeout, time.Now())
	old.checked(old.servers.all[2], errTimeout, time.Now())
	next, err := New(Config{Servers: []string{old.servers.all[1].url, "http://192.0.2.9", old.servers.all[2].url, old.servers.all[0].url}, Health: HealthConfig{Path: "/"}})
	if err != nil {
		t.Fatal(err)
	}
	next.Adopt(old)
	for i, up := range []bool{false, true, false, true} {
		if s := next.Stats().Servers[i]; s.Up != up {
			t.Errorf("%s: up %v, want %v", s.Server, s.Up, up)
		}
	}
	unchecked := serversOf(t, 3)
	unchecked.Adopt(next)
	if st := unchecked.Stats(); st.Servers[1].Up || !st.Servers[2].Up {
		t.Errorf("%+v: nobody would bring back a server that a check took out", st)
	}
}
