package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

func TestTunnel_WebSocket(t *testing.T) {
	up := websocket.Upgrader{Subprotocols: []string{"seats"}, EnableCompression: true}
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.RequestURI+" "+r.Host)
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for {
			k, p, err := c.ReadMessage()
			if err != nil {
				return
			}
			if err := c.WriteMessage(k, p); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	g := newGate(t, Config{ID: "a", Servers: []string{srv.URL}, PreserveHost: true, IdleTimeout: wiretest.Wait}, wire.Limits{}, nil)
	d := websocket.Dialer{Subprotocols: []string{"seats"}, EnableCompression: true, HandshakeTimeout: wiretest.Wait}
	c, resp, err := d.Dial("ws://"+g.addr+"/seat%2Fmap?x=1;y", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Subprotocol() != "seats" || !strings.Contains(resp.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate") {
		t.Errorf("handshake: %v", resp.Header)
	}
	if want := "/seat%2Fmap?x=1;y " + g.addr; seen[0] != want {
		t.Errorf("origin saw %q, want %q", seen[0], want)
	}
	pong := make(chan string, 1)
	c.SetPongHandler(func(p string) error { pong <- p; return nil })
	if err := c.WriteControl(websocket.PingMessage, []byte("hi"), time.Now().Add(wiretest.Wait)); err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"a", strings.Repeat("b", 200000), ""} {
		if err := c.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			t.Fatal(err)
		}
		if _, p, err := c.ReadMessage(); err != nil || string(p) != m {
			t.Fatalf("echo of %d bytes: %d bytes, %v", len(m), len(p), err)
		}
	}
	if p := <-pong; p != "hi" {
		t.Errorf("pong %q", p)
	}
	if n := g.origin.Upgraded(); n != 1 {
		t.Errorf("%d upgraded connections are counted, want 1", n)
	}
	c.Close()
	if out := g.outcome(0); !out.Upgraded || out.Status != 101 {
		t.Errorf("%+v", out)
	}
}

func TestOrigin_CloseUpgraded(t *testing.T) {
	o := newRecorder(t, func(s *session) {
		s.head()
		s.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(s.Conn, s.r)
	})
	g := newGate(t, to(o), wire.Limits{}, nil)
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if head, err := c.ReadHead(); err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Fatal(head, err)
	}
	wiretest.Eventually(t, "the tunnel is counted", func() bool { return g.origin.Upgraded() == 1 })
	g.origin.CloseUpgraded()
	c.Closed()
	g.outcome(0)
	if n := g.origin.Upgraded(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// An idle tunnel ends. One direction may be silent as long as the other is not.
func TestTunnel_Idle(t *testing.T) {
	unhurried(t, 400*time.Millisecond, func(idle time.Duration) error {
		o := newRecorder(t, func(s *session) {
			s.head()
			s.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
			tick := time.NewTicker(idle / 6)
			defer tick.Stop()
			for range 18 {
				s.write("x")
				<-tick.C
			}
			io.Copy(io.Discard, s.r)
		})
		cfg := to(o)
		cfg.IdleTimeout = idle
		g := newGate(t, cfg, wire.Limits{}, nil)
		c := g.dial()
		c.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		if _, err := c.ReadHead(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c.R)
		if out := g.outcome(0); out.Kind != KindTimeout || !out.Upgraded {
			t.Errorf("%+v", out)
		}
		if len(b) != 18 || err != nil {
			return fmt.Errorf("%q, %w; want what the origin sent for three times the limit, then the end", b, err)
		}
		return nil
	})
}

// The end of one direction ends the other, which then fails too: the first error is reported.
func TestTunnel_ReportsFirstError(t *testing.T) {
	client, theirs := net.Pipe()
	origin, others := net.Pipe()
	for _, c := range []net.Conn{client, theirs, origin, others} {
		defer c.Close()
	}
	tun := &tunnel{oc: &originConn{link: rawsocket.Conn{Conn: origin}}}
	back := make(chan struct{})
	go func() {
		defer close(back)
		tun.copy(client, origin, 0) // has no limit
	}()
	tun.copy(origin, client, 50*time.Millisecond)
	<-back
	if !rawsocket.IsTimeout(tun.why) {
		t.Errorf("%v; want a time-out of the client", tun.why)
	}
}

// A tunnel holds one of MaxConns.
func TestTunnel_HoldsSlot(t *testing.T) {
	o := newRecorder(t, func(s *session) {
		if h := s.head(); wiretest.HeaderValue(h, "Upgrade") == "" {
			s.write(okAnswer)
			return
		}
		s.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(io.Discard, s.r)
	})
	cfg := to(o)
	cfg.MaxConns = 1
	g := newGate(t, cfg, wire.Limits{}, nil)
	up, c := g.dial(), g.dial()
	up.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if _, err := up.ReadHead(); err != nil {
		t.Fatal(err)
	}
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if status, head, _ := c.Answer("GET"); status != 503 {
		t.Error(head)
	}
	up.Close()
	g.outcome(1)
	c.Probe()
}

// Bytes directly behind the handshake arrive in both directions, and so do half-closes.
func TestTunnel_HalfClose(t *testing.T) {
	for _, first := range []string{"client", "origin"} {
		t.Run(first+" ends first", func(t *testing.T) {
			got := make(chan string, 1)
			o := newRecorder(t, func(s *session) {
				if s.head() == "" {
					return
				}
				s.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: Echo\r\n\r\nfrom the origin")
				if first == "origin" {
					s.Conn.(*net.TCPConn).CloseWrite()
				}
				b, _ := io.ReadAll(s.r)
				got <- string(b)
				if first == "client" {
					s.write(", later")
				}
			})
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			c.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\nfrom the client")
			if head, err := c.ReadHead(); err != nil || wiretest.HeaderValue(head, "Upgrade") != "Echo" || wiretest.HeaderValue(head, "Connection") != "Upgrade" {
				t.Fatal(head, err)
			}
			want := "from the origin"
			if first == "client" {
				c.Conn.(*net.TCPConn).CloseWrite()
				want += ", later"
			}
			b, err := io.ReadAll(c.R)
			if string(b) != want || err != nil {
				t.Errorf("client got %q, %v; want %q", b, err, want)
			}
			if first == "origin" {
				c.Send(", later")
				c.Conn.(*net.TCPConn).CloseWrite()
			}
			wantOrigin := "from the client"
			if first == "origin" {
				wantOrigin += ", later"
			}
			if b := <-got; b != wantOrigin {
				t.Errorf("origin got %q, want %q", b, wantOrigin)
			}
			if out := g.outcome(0); out.Err != nil {
				t.Errorf("%+v", out)
			}
		})
	}
}

func TestTunnel_Refused(t *testing.T) {
	const ask = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	switched := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	for _, tc := range []struct {
		name, request, ResponseHeader string
		status                        int
		asked                         bool // the origin saw Upgrade
		usable                        bool // the client's connection goes on
	}{
		{"the origin declines", "GET / HTTP/1.1\r\nHost: a\r\n" + ask, "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno", 426, true, true},
		{"the origin serves", "GET / HTTP/1.1\r\nHost: a\r\n" + ask, okAnswer, 200, true, true},
		{"not asked for", "GET / HTTP/1.1\r\nHost: a\r\n", switched, 502, false, true},
		{"another protocol", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n", switched, 502, true, true},
		{"101 without Connection", "GET / HTTP/1.1\r\nHost: a\r\n" + ask, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", 502, true, true},
		{"Upgrade without Connection", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n", okAnswer, 200, false, true},
		{"h2c", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: h2c\r\n", okAnswer, 200, false, true},
		{"h2c in a list", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c, websocket\r\n", okAnswer, 200, false, true},
		{"HTTP/2.0", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: HTTP/2.0\r\n", okAnswer, 200, false, true},
		{"TLS", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n", okAnswer, 200, false, true},
		{"two Upgrade lines", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", okAnswer, 200, false, true},
		{"POST", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" + ask, okAnswer, 200, false, true},
		{"GET with a body", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n" + ask + "\r\nhi", okAnswer, 200, false, true},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\n" + ask, okAnswer, 200, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, answering(tc.ResponseHeader))
			g := newGate(t, to(o), wire.Limits{}, nil)
			c := g.dial()
			req := tc.request
			if !strings.Contains(req, "\r\n\r\n") {
				req += "\r\n"
			}
			c.Send(req)
			if status, head, _ := c.Answer("GET"); status != tc.status {
				t.Errorf("status %d, want %d\n%s", status, tc.status, head)
			}
			if head := o.requests()[0]; (wiretest.HeaderValue(head, "Upgrade") != "") != tc.asked || (wiretest.HeaderValue(head, "Connection") != "") != tc.asked || wiretest.HeaderValue(head, "HTTP2-Settings") != "" {
				t.Errorf("the origin saw:\n%s", head)
			}
			if tc.usable && tc.status != 502 {
				c.Send("GET / HTTP/1.1\r\nHost: a\r\n" + ask + "\r\n")
				c.Answer("GET")
			} else if !tc.usable {
				c.Closed()
			}
		})
	}
}
