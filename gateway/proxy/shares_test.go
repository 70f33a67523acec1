package proxy

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// slow returns the number of connections held by requests whose bodies have not arrived.
func (o *Origin) slow() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slots.claims.slow
}

// Requests whose bodies do not arrive hold no connection at first, and at most a quarter of them later. Other requests are
// served meanwhile, with or without a body.
func TestBody_HoldsNoConnectionBeforeItArrives(t *testing.T) {
	const most, held = 16, 64
	for _, row := range []struct {
		name     string
		patience time.Duration
		want     int
	}{{"within the first second", time.Hour, 0}, {"later", 5 * time.Millisecond, most / 4}} {
		for _, framing := range []string{"Content-Length: 1\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1\r\n"} {
			o := newRecorder(t, answering(okAnswer))
			cfg := to(o)
			cfg.MaxConns, cfg.QueueTimeout = most, time.Second
			g := newGate(t, cfg, wire.Limits{}, func(g *gate) { g.origin.patience = row.patience })
			clients := make([]*wiretest.Client, held)
			for i := range clients {
				clients[i] = g.dial()
				clients[i].Send("POST /held HTTP/1.1\r\nHost: a\r\n" + framing)
			}
			wiretest.Eventually(t, row.name+": the share of the slow is used", func() bool { return g.origin.InUse() == row.want })
			for range 5 {
				c := g.dial()
				c.Send("GET /honest HTTP/1.1\r\nHost: a\r\n\r\n")
				if status, _, body := c.Answer("GET"); status != 200 {
					t.Errorf("%s: a GET beside them: %d %s", row.name, status, body)
				}
				c.Send("POST /honest HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
				if status, _, body := c.Answer("POST"); status != 200 {
					t.Errorf("%s: a POST beside them: %d %s", row.name, status, body)
				}
				if n := g.origin.slow(); n > row.want {
					t.Errorf("%s: %d connections are held, want %d", row.name, n, row.want)
				}
			}
			for _, c := range clients { // a client that was only slow is served in the end
				c.Send(map[byte]string{'C': "x", 'T': "x\r\n0\r\n\r\n"}[framing[0]])
			}
			for _, c := range clients {
				if status, _, body := c.Answer("POST"); status != 200 {
					t.Fatalf("%s: a slow POST: %d %s", row.name, status, body)
				}
			}
			if n := g.origin.slow(); n != 0 {
				t.Errorf("%s: %d are still slow", row.name, n)
			}
		}
	}
}

// A claim is no longer slow once enoughBody has arrived.
func TestBody_IsSlowUntilEnoughArrived(t *testing.T) {
	o := newRecorder(t, func(s *session) { s.body(s.head()); s.write(okAnswer) })
	cfg := to(o)
	cfg.MaxConns = 4
	g := newGate(t, cfg, wire.Limits{}, nil)
	c := g.dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + wiretest.Itoa(enoughBody+1) + "\r\n\r\nb")
	wiretest.Eventually(t, "it is sent on without its body", func() bool { return len(o.requests()) == 1 && g.origin.slow() == 1 })
	c.Send(string(make([]byte, enoughBody-1)))
	wiretest.Eventually(t, "enough has come", func() bool { return g.origin.slow() == 0 && g.origin.InUse() == 1 })
	c.Send("e")
	if status, _, _ := c.Answer("POST"); status != 200 {
		t.Errorf("status %d", status)
	}
}

// Each row adds claims one after another; those from refused on are refused.
func TestShares_RefuseOverLimit(t *testing.T) {
	of := func(address string) clientKey { return ClientKey(netip.MustParseAddr(address)) }
	session := clientKey{1}
	same := func(c claim) func(int) claim { return func(int) claim { return c } }
	for _, row := range []struct {
		name    string
		shares  Shares
		claims  func(i int) claim
		refused int // the first that is; 20: none
	}{
		{"one address beyond half of the connections", Shares{Address: 3}, same(claim{address: of("192.0.2.1")}), 11},
		{"one address with a share above half", Shares{Address: 14}, same(claim{address: of("192.0.2.1")}), 14},
		{"no share", Shares{}, same(claim{address: of("192.0.2.1")}), 20},
		{"addresses of one /64", Shares{Address: 3}, func(i int) claim {
			return claim{address: ClientKey(netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}))}
		}, 11},
		{"addresses of many /64", Shares{Address: 3}, func(i int) claim {
			return claim{address: ClientKey(netip.AddrFrom16([16]byte{0x20, 1, 7: byte(i)}))}
		}, 20},
		{"an IPv4 address in two spellings", Shares{Address: 3}, func(i int) claim {
			return claim{address: of([]string{"192.0.2.1", "::ffff:192.0.2.1"}[i%2])}
		}, 11},
		{"one session from many addresses", Shares{Address: 3, Session: 5}, func(i int) claim {
			return claim{address: of(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()), session: session}
		}, 11},
		{"many without a session", Shares{Session: 5}, func(i int) claim {
			return claim{address: of(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String())}
		}, 20},
		{"tunnels of one address", Shares{Tunnels: 3}, same(claim{address: of("192.0.2.1"), tunnel: true}), 11},
		{"tunnels do not count as requests", Shares{Address: 3, Session: 3}, same(claim{address: of("192.0.2.1"), session: session, tunnel: true}), 20},
	} {
		o, err := New(Config{Servers: []string{"http://192.0.2.1"}, MaxConns: 20})
		if err != nil {
			t.Fatal(err)
		}
		o.SetShares(row.shares)
		var held []*claim
		refused := 20
		for i := range 20 {
			c := row.claims(i)
			if _, err := o.enter(&c, 0, nil); err == errShare {
				refused = i
				break
			} else if err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			held = append(held, &c)
		}
		if refused != row.refused {
			t.Errorf("%s: number %d is refused, want %d", row.name, refused, row.refused)
		}
		if refused < 20 { // others go on
			c := claim{address: of("203.0.113.9"), session: clientKey{9}}
			if _, err := o.enter(&c, 0, nil); err != nil {
				t.Errorf("%s: another client: %v", row.name, err)
			}
			held = append(held, &c)
			o.SetShares(Shares{})
			more := row.claims(refused)
			if _, err := o.enter(&more, 0, nil); err != nil {
				t.Errorf("%s: without the share: %v", row.name, err)
			}
			held = append(held, &more)
		}
		for _, c := range held {
			o.leave(c)
		}
		if k := &o.slots.claims; o.slots.inUse != 0 || k.first != nil || len(k.addresses)+len(k.sessions)+len(k.tunnels)+k.slow+k.crowds != 0 {
			t.Errorf("%s: left over: %d in use, %+v", row.name, o.slots.inUse, *k)
		}
	}
}

// Whether a claim is refused depends only on the claims that are held.
func TestShares_FollowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 40).Draw(t, "connections")
		o, err := New(Config{Servers: []string{"http://192.0.2.1"}, MaxConns: most})
		if err != nil {
			t.Fatal(err)
		}
		share := rapid.IntRange(0, most)
		s := Shares{Address: share.Draw(t, "address"), Session: share.Draw(t, "session"), Tunnels: share.Draw(t, "tunnels")}
		o.SetShares(s)
		var held []*claim
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				c := &claim{address: clientKey{byte(rapid.IntRange(0, 3).Draw(t, "address"))}, session: clientKey{byte(rapid.IntRange(0, 2).Draw(t, "session"))},
					tunnel: rapid.Float64().Draw(t, "tunnel") < 0.1, slow: rapid.Float64().Draw(t, "slow") < 0.1}
				slow, address, session := 0, 0, 0
				for _, h := range held {
					if h.slow {
						slow++
					}
					if h.tunnel == c.tunnel && h.address == c.address {
						address++
					}
					if h.counted() && c.counted() && h.session == c.session {
						session++
					}
				}
				limit := s.Address
				if c.tunnel {
					limit = s.Tunnels
				}
				var want error
				switch {
				case c.slow && slow >= max(1, most/4):
					want = errSlowShare
				case len(held) > most/2 && (limit > 0 && address >= limit || s.Session > 0 && c.counted() && session >= s.Session):
					want = errShare
				case len(held) == most:
					want = errQueueFull
				}
				_, err := o.enter(c, 0, nil)
				if !errors.Is(err, want) {
					t.Fatalf("%d of %d in use: %v, want %v", len(held), most, err, want)
				}
				if err == nil {
					held = append(held, c)
				}
			},
			"leave": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				for range rapid.IntRange(1, len(held)).Draw(t, "how many") {
					i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
					o.leave(held[i])
					held = append(held[:i], held[i+1:]...)
				}
			},
			"arrive": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				o.arrived(held[rapid.IntRange(0, len(held)-1).Draw(t, "which")])
			},
		})
	})
}

// Requests in the queue count, so that one client cannot fill it. A full queue is reported as crowded if one client holds more
// than a quarter of the connections.
func TestShares_CountTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := New(Config{Servers: []string{"http://192.0.2.1"}, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		o.SetShares(Shares{Address: 6})
		greedy := func() *claim { return &claim{address: clientKey{1}} }
		var held []*claim
		for range 4 {
			held = append(held, greedy())
			if _, err := o.enter(held[len(held)-1], 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		ends := make(chan error, 3)
		for range 2 {
			go func() { _, err := o.enter(greedy(), time.Second, still); ends <- err }()
		}
		synctest.Wait()
		if _, err := o.enter(greedy(), time.Second, still); err != errShare {
			t.Errorf("a seventh request of one client: %v", err)
		}
		other := &claim{address: clientKey{2}}
		go func() { _, err := o.enter(other, time.Minute, still); ends <- err }()
		for range 2 {
			var crowd crowdedError
			if err := <-ends; !errors.As(err, &crowd) || !errors.Is(err, errQueueFull) {
				t.Errorf("%v, want a queue that one client has filled", err)
			}
		}
		o.leave(held[0])
		if err := <-ends; err != nil {
			t.Errorf("another client in the queue: %v", err)
		}
		for _, c := range append(held[1:], other) {
			o.leave(c)
		}
		for i := range 4 {
			o.enter(&claim{address: clientKey{byte(i)}}, 0, nil)
		}
		if _, err := o.enter(&claim{address: clientKey{9}}, 0, nil); err != errQueueFull {
			t.Errorf("%v, want a queue that many have filled", err)
		}
	})
}
