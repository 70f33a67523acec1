package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// zone is a DNS server on a socket.
type zone struct {
	*net.Resolver
	asked atomic.Int32 // for A records

	mu      sync.Mutex
	addrs   []string // of every name; IPv4
	code    dnsmessage.RCode
	clients []net.Conn
	hold    chan struct{} // not nil: answers wait for its end
}

func newZone(t *testing.T, addrs ...string) *zone {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{addrs: addrs}
	z.Resolver = &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
		if err == nil {
			z.set(func() { z.clients = append(z.clients, c) })
		}
		return c, err
	}}
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		for {
			buf := make([]byte, 1500)
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			wg.Go(func() {
				z.mu.Lock()
				hold := z.hold
				z.mu.Unlock()
				if hold != nil {
					select {
					case <-hold:
					case <-ended:
					}
				}
				if answer, err := z.answer(buf[:n]); err != nil {
					t.Error(err)
				} else {
					conn.WriteTo(answer, from)
				}
			})
		}
	})
	t.Cleanup(func() {
		conn.Close()
		for _, c := range z.clients { // Go reads on when a lookup is called off
			c.Close()
		}
		close(ended)
		wg.Wait()
	})
	return z
}

func (z *zone) answer(question []byte) ([]byte, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true, RCode: z.code}
	m.Additionals = nil
	if q.Type == dnsmessage.TypeA {
		z.asked.Add(1)
		for _, a := range z.addrs {
			if z.code == dnsmessage.RCodeSuccess {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 3600},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
				})
			}
		}
	}
	return m.Pack()
}

func (z *zone) set(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f()
}

// named returns a gateway in front of an origin with a host name.
func (z *zone) named(t *testing.T, port string) *gate {
	t.Helper()
	return newGate(t, Config{ID: "site", Servers: []string{"http://shop.example:" + port}, PreserveHost: true,
		ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait}, wire.Limits{}, func(g *gate) { g.origin.resolver = z })
}

// expire makes the addresses of the server's name outdated, and closes idle connections.
func (g *gate) expire() {
	n := g.origin.servers.all[0].name
	n.mu.Lock()
	n.at, n.retry = n.at.Add(-lookupLife), time.Time{}
	n.mu.Unlock()
	g.forget()
}

// refreshed sends requests until the name has been looked up again, for which a request does not wait long.
func (g *gate) refreshed() {
	g.t.Helper()
	n := g.origin.servers.all[0].name
	wiretest.Eventually(g.t, "the name was looked up again", func() bool {
		if _, err := n.addresses(g.t.Context()); err != nil {
			g.t.Error(err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		return time.Since(n.at) < lookupLife
	})
}

// forget drops the idle connections.
func (g *gate) forget() {
	s := g.origin.servers.all[0]
	g.origin.mu.Lock()
	defer g.origin.mu.Unlock()
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
}

// ask sends a request on a new connection and returns the status and body once the exchange has ended.
func (g *gate) ask() string {
	g.t.Helper()
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	status, _, body := c.Answer("GET")
	wiretest.Eventually(g.t, "no connection is in use", func() bool { return g.origin.InUse() == 0 })
	return fmt.Sprintf("%d %s", status, body)
}

// twins are origins at 127.0.0.2 and 127.0.0.3, at one port, that respond with their address.
func twins(t *testing.T) (port string) {
	t.Helper()
	serve := func(ln net.Listener) {
		addr := ln.Addr().(*net.TCPAddr).IP.String()
		o := &recorder{t: t, ln: ln, serve: answering(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(addr), addr))}
		o.run()
	}
	for range 20 {
		a, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(a.Addr().String())
		b, err := net.Listen("tcp", "127.0.0.3:"+port)
		if err != nil {
			a.Close()
			continue
		}
		serve(a)
		serve(b)
		return port
	}
	t.Fatal("no port is free at both addresses")
	return ""
}

func TestName_SeveralAddresses(t *testing.T) {
	port := twins(t)
	z := newZone(t, "127.0.0.2", "127.0.0.3")
	g := z.named(t, port)
	got, begun := map[string]int{}, time.Now()
	for range 10 {
		got[g.ask()]++
		g.forget()
	}
	if got["200 127.0.0.2"] != 5 || got["200 127.0.0.3"] != 5 {
		t.Errorf("connections are not spread: %v", got)
	}
	if n, took := z.asked.Load(), time.Since(begun); n < 1 || n > 1+int32(took/lookupLife) {
		t.Errorf("%d lookups in %s, want 1", n, took)
	}

	// One that refuses is followed by the next, and comes last for a while.
	z.set(func() { z.addrs = []string{"127.0.0.4", "127.0.0.3"} })
	g.expire()
	g.refreshed()
	for range 4 {
		if got := g.ask(); got != "200 127.0.0.3" {
			t.Error(got)
		}
		g.forget()
	}
	if !g.origin.Stats().Servers[0].Up {
		t.Error("the server is out, though one of its addresses serves")
	}
	n := g.origin.servers.all[0].name
	for range 4 {
		addrs, err := n.addresses(t.Context())
		if err != nil || addrs[0] != netip.MustParseAddr("127.0.0.3") {
			t.Error(addrs, err)
		}
	}
}

// If the address of a name changes, new connections use the new one lookupLife after the last lookup.
func TestName_Moves(t *testing.T) {
	port := twins(t)
	z := newZone(t, "127.0.0.2")
	g := z.named(t, port)
	if got := g.ask(); got != "200 127.0.0.2" {
		t.Fatal(got)
	}
	z.set(func() { z.addrs = []string{"127.0.0.3"} })
	g.forget()
	if got := g.ask(); got != "200 127.0.0.2" {
		t.Errorf("%s; want what was found a moment ago", got)
	}
	g.expire()
	g.refreshed()
	if got := g.ask(); got != "200 127.0.0.3" {
		t.Errorf("%s; want the new address", got)
	}
	if until := lifeEnd(noon).Sub(noon); until > connLife || until < connLife*9/10 {
		t.Errorf("a connection lives %v", until)
	}
}

// A connection is not kept after connLife.
func TestPool_ConnectionsEnd(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	for range 2 {
		c.Probe()
		wiretest.Eventually(t, "the connection is kept", func() bool { return g.origin.Stats().Servers[0].Idle == 1 })
	}
	g.origin.mu.Lock()
	old := g.origin.servers.all[0].idle[0]
	old.until = time.Now()
	g.origin.mu.Unlock()
	c.Probe()
	c.Probe()
	wiretest.Eventually(t, "another one is kept", func() bool {
		g.origin.mu.Lock()
		defer g.origin.mu.Unlock()
		idle := g.origin.servers.all[0].idle
		return len(idle) == 1 && idle[0] != old
	})
}

// While the resolver fails or does not respond, the last addresses are used.
func TestName_ResolverFails(t *testing.T) {
	port := twins(t)
	z := newZone(t, "127.0.0.2")
	g := z.named(t, port)
	g.ask()
	z.set(func() { z.code = dnsmessage.RCodeServerFailure })
	n := g.origin.servers.all[0].name
	for again := true; again; { // until a busy machine asks within the pause
		g.expire()
		if got := g.ask(); got != "200 127.0.0.2" {
			t.Errorf("the resolver fails: %s", got)
		}
		var until time.Time
		wiretest.Eventually(t, "the lookup has failed", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			until = n.retry
			return n.flight == nil && !until.IsZero()
		})
		before := z.asked.Load()
		g.forget()
		g.ask()
		if again = z.asked.Load() != before; again && time.Now().Before(until) {
			t.Fatal("a resolver that has just failed was asked again at once")
		}
	}
	hold := make(chan struct{}) // never let go before the test ends
	z.set(func() { z.code, z.hold = dnsmessage.RCodeSuccess, hold })
	g.expire()
	if got := g.ask(); got != "200 127.0.0.2" {
		t.Errorf("the resolver is silent: %s", got)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.flight == nil {
		t.Error("the request waited for the lookup's end")
	}
}

// The last addresses are used after a change of the configuration too.
func TestName_ResolverFailsAtReload(t *testing.T) {
	port := twins(t)
	z := newZone(t, "127.0.0.2")
	before := z.named(t, port)
	before.ask()
	z.set(func() { z.code = dnsmessage.RCodeServerFailure })
	g := z.named(t, port)
	g.origin.Adopt(before.origin)
	if got := g.ask(); got != "200 127.0.0.2" {
		t.Errorf("the resolver fails: %s", got)
	}
	z.set(func() { z.code, z.addrs = dnsmessage.RCodeSuccess, []string{"127.0.0.3"} })
	g = z.named(t, port)
	g.origin.Adopt(before.origin)
	wiretest.Eventually(t, "the resolver's answer serves", func() bool {
		g.forget()
		return g.ask() == "200 127.0.0.3"
	})
}

func TestName_Unknown(t *testing.T) {
	z := newZone(t)
	z.code = dnsmessage.RCodeNameError
	g := z.named(t, "80")
	if got := g.ask(); got != "502 "+KindConnect {
		t.Error(got)
	}
	if out := g.outcome(0); out.Err == nil || out.Status != 502 {
		t.Errorf("%+v", out)
	}
}

// counted is a resolver that counts its lookups.
type counted struct {
	*zone
	n atomic.Int32
}

func (c *counted) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	c.n.Add(1)
	return c.zone.LookupNetIP(ctx, network, host)
}

// Requests that need an address at the same time share one lookup. A request whose time ends first does not wait for it.
func TestName_SharesLookups(t *testing.T) {
	z := newZone(t, "127.0.0.2")
	z.hold = make(chan struct{})
	o, err := New(Config{Servers: []string{"http://shop.example"}})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	c := &counted{zone: z}
	o.resolver = c
	n := o.servers.all[0].name
	brief, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.addresses(brief); err == nil {
		t.Error("no address is known, and no error is told")
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if a, err := n.addresses(t.Context()); err != nil || len(a) != 1 {
				t.Error(a, err)
			}
		})
	}
	close(z.hold)
	wg.Wait()
	if n := c.n.Load(); n != 1 {
		t.Errorf("%d lookups, want 1", n)
	}
}

// An origin that a reload has replaced still looks up names for its last requests.
func TestName_LookupAfterClose(t *testing.T) {
	port := twins(t)
	z := newZone(t, "127.0.0.2")
	g := z.named(t, port)
	g.origin.Close()
	if got := g.ask(); got != "200 127.0.0.2" {
		t.Error(got)
	}
	// … and for those that were waiting for the first lookup then.
	held := newZone(t, "127.0.0.2")
	held.hold = make(chan struct{})
	h := held.named(t, port)
	c := h.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	wiretest.Eventually(t, "a lookup of the name", func() bool {
		n := h.origin.servers.all[0].name
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.flight != nil
	})
	h.origin.Close()
	close(held.hold)
	if status, _, body := c.Answer("GET"); status != 200 || body != "127.0.0.2" {
		t.Error(status, body)
	}
	if n := g.origin.Stats().Servers[0].Idle; n != 0 {
		t.Errorf("%d connections are kept by a closed origin", n)
	}
}
