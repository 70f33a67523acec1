package proxy

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// TLS on both sides: the origin's certificate is verified against the configured roots and name, and X-Forwarded-Proto
// describes the visitor's connection.
func TestTLS_BothSides(t *testing.T) {
	var seen []string
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Header.Get("X-Forwarded-Proto")+" "+r.RemoteAddr)
		w.Write(b)
	}))
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		tls  TLSConfig
		Kind string
	}{
		{"trusted", TLSConfig{CAFile: ca, ServerName: "example.com"}, ""},
		{"another name", TLSConfig{CAFile: ca, ServerName: "elsewhere.test"}, KindTLS},
		{"unknown authority", TLSConfig{ServerName: "example.com"}, KindTLS},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen = nil
			o, err := New(Config{Servers: []string{srv.URL}, TLS: tc.tls, ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
				if r := wire.CheckRequest(ctx); r != nil || !ctx.IsTLS() {
					t.Errorf("refused, or not TLS: %v", r)
				}
				if out := o.Serve(ctx, &Forward{}); out.Err != nil {
					ctx.SetStatusCode(out.Status)
					ctx.SetBodyString(out.Kind)
				}
			}}
			wire.ServerOptions(s)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go s.Serve(wire.Listener(tls.NewListener(ln, &tls.Config{Certificates: srv.TLS.Certificates}), wire.Limits{}, nil))
			defer s.Shutdown()
			conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(wiretest.Wait))
			c := &wiretest.Client{Conn: conn, T: t, R: bufio.NewReader(conn)}
			big := strings.Repeat("x", 100_000)
			for len(seen) < 20 && (len(seen) < 2 || seen[len(seen)-1] != seen[len(seen)-2]) { // a busy machine learns late that the upload was over
				c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + wiretest.Itoa(len(big)) + "\r\n\r\n" + big)
				_, head, body := c.Answer("POST")
				if tc.Kind != "" {
					if body != tc.Kind {
						t.Errorf("%s%s", head, body)
					}
					return
				}
				if body != big {
					t.Errorf("%s and %d bytes", head, len(body))
				}
			}
			if n := len(seen); seen[n-1] != seen[n-2] || !strings.HasPrefix(seen[0], "https ") {
				t.Errorf("the origin saw %q, want https on one connection", seen)
			}
		})
	}
}

// A response without a request may have been read from the socket already, as a record that TLS holds.
func TestTLS_DiscardsConnectionWithUnrequestedBytes(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	var conns atomic.Int32
	o := newRecorder(t, func(s *session) {
		first := conns.Add(1) == 1
		b := &wiretest.Bundle{Conn: s.Conn}
		c := tls.Server(b, &tls.Config{Certificates: srv.TLS.Certificates})
		s.Conn, s.r = c, bufio.NewReader(c)
		for s.head() != "" {
			b.Hold = first
			s.write(okAnswer)
			if b.Hold {
				s.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
				b.Hold = false
				b.Write(b.Held)
			}
		}
	})
	g := newGate(t, Config{Servers: []string{strings.Replace(o.url(), "http:", "https:", 1)}, TLS: TLSConfig{CAFile: ca, ServerName: "example.com"},
		ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait}, wire.Limits{}, nil)
	c := g.dial()
	for range 3 {
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if status, _, body := c.Answer("GET"); status != 200 || body != "ok" {
			t.Errorf("%d %q", status, body)
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections, want 2: one given up, one kept", n)
	}
}

// A handshake that does not finish ends after HeaderTimeout.
func TestTLS_SlowHandshake(t *testing.T) {
	s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(*fasthttp.RequestCtx) {}}
	wire.ServerOptions(s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(wire.Listener(tls.NewListener(ln, &tls.Config{}), wire.Limits{HeaderTimeout: 50 * time.Millisecond}, nil))
	defer s.Shutdown()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(wiretest.Wait))
	if _, err := c.Read(make([]byte, 1)); rawsocket.IsTimeout(err) {
		t.Error("the connection was kept")
	}
}

// Idle connections, fresh and used, end without a response.
func TestListener_ClosesIdleClients(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	newGate(t, to(o), wire.Limits{HeaderTimeout: 50 * time.Millisecond}, nil).dial().Closed()
	c := newGate(t, to(o), wire.Limits{Idle: 60 * time.Millisecond}, nil).dial()
	c.Probe()
	c.Closed()
}

// At shutdown the responses in progress have Connection: close, and the server ends.
func TestListener_ShutdownDuringResponses(t *testing.T) {
	release := make(chan struct{})
	o := newRecorder(t, func(s *session) {
		for s.head() != "" {
			<-release
			s.write(okAnswer)
		}
	})
	origin, err := New(to(o))
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	stopping := make(chan (<-chan struct{}), 1)
	s := &fasthttp.Server{Logger: wiretest.Quiet{}, MaxIdleWorkerDuration: 50 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		if wire.CheckRequest(ctx) == nil {
			stopping <- ctx.Done()
			origin.Serve(ctx, &Forward{})
		}
	}}
	wire.ServerOptions(s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(wire.Listener(ln, wire.Limits{}, nil))
	g := &gate{t: t, addr: ln.Addr().String()}
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	wiretest.Eventually(t, "the origin has it", func() bool { return len(o.requests()) == 1 })
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown() }()
	wiretest.Eventually(t, "new connections are refused", func() bool {
		c, err := net.Dial("tcp", g.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	<-<-stopping // it comes just after the sockets are closed
	close(release)
	if status, head, body := c.Answer("GET"); status != 200 || body != "ok" || wiretest.HeaderValue(head, "Connection") != "close" {
		t.Errorf("%s%s", head, body)
	}
	c.Closed()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A response that ends with the connection is whole only after a TLS close: an attacker who can cut the connection could
// shorten it.
func TestTLS_DetectsCutResponse(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	o := newRecorder(t, func(s *session) {
		c := tls.Server(s.Conn, &tls.Config{Certificates: srv.TLS.Certificates})
		below := s.Conn
		s.Conn, s.r = c, bufio.NewReader(c)
		whole := strings.HasPrefix(s.head(), "GET /whole ")
		s.write("HTTP/1.1 200 OK\r\n\r\nhello")
		if whole {
			c.CloseWrite()
		}
		below.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, below)
	})
	g := newGate(t, Config{Servers: []string{strings.Replace(o.url(), "http:", "https:", 1)}, TLS: TLSConfig{CAFile: ca, ServerName: "example.com"},
		ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait}, wire.Limits{}, nil)
	for i, whole := range []bool{true, false} {
		c := g.dial()
		c.Send("GET /" + map[bool]string{true: "whole", false: "cut"}[whole] + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := c.ReadHead(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(wiretest.NewChunked(c.R))
		if string(b) != "hello" || (err == nil) != whole {
			t.Errorf("whole %t: %q, %v", whole, b, err)
		}
		if out := g.outcome(i); (out.Kind == KindBodyCut) != !whole {
			t.Errorf("whole %t: %+v", whole, out)
		}
	}
}
