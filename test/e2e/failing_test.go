package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/anteroom/anteroom/internal/freeport"
)

// rawOrigin is an origin on a raw socket.
type rawOrigin struct {
	net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	seen  []string // request lines
	ended int      // connections
}

// newRawOrigin serves each connection with serve; next reads one request's header and returns its first line, "" at the end.
func newRawOrigin(t *testing.T, serve func(c net.Conn, next func() string)) *rawOrigin {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &rawOrigin{Listener: ln}
	o.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns = append(o.conns, c)
			o.mu.Unlock()
			o.wg.Go(func() {
				r := bufio.NewReader(c)
				serve(c, func() string { return o.next(r) })
				_ = c.Close()
				o.mu.Lock()
				o.ended++
				o.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		o.mu.Lock()
		for _, c := range o.conns {
			_ = c.Close()
		}
		o.mu.Unlock()
		o.wg.Wait()
	})
	return o
}

func (o *rawOrigin) next(r *bufio.Reader) string {
	first := ""
	for {
		l, err := r.ReadString('\n')
		switch {
		case err != nil:
			return ""
		case first == "":
			first = strings.TrimSpace(l)
		case l == "\r\n":
			o.mu.Lock()
			o.seen = append(o.seen, first)
			o.mu.Unlock()
			return first
		}
	}
}

func (o *rawOrigin) url() string { return "http://" + o.Addr().String() }

// counts returns the number of requests with this word in their first line, of connections, and of ended connections.
func (o *rawOrigin) counts(word string) (requests, conns, ended int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.seen {
		if strings.Contains(l, word) {
			requests++
		}
	}
	return requests, len(o.conns), o.ended
}

const rawOK = "HTTP/1.1 200 OK\r\nX-Origin: yes\r\nContent-Length: 2\r\n\r\nok"

// fullSocket returns an address that neither accepts nor refuses connections.
func fullSocket(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	c, err := net.Dial("tcp", addr) // the accept queue is full
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return "http://" + addr
}

// siteConfig is an origin with its own room, under /<id>.
type siteConfig struct{ id, server, settings string }

func ofSites(sites ...siteConfig) setup {
	s := setup{more: "origins:\n"}
	for _, o := range sites {
		s.more += fmt.Sprintf("  - {id: %s, servers: [%q]%s}\n", o.id, o.server, o.settings)
		s.rooms = append(s.rooms, fmt.Sprintf("{id: %s, origin: %s, paths: [/%s], admission: {rate: 1000, burst: 1000}}", o.id, o.id, o.id))
	}
	return s
}

// Each failure of an origin has its status and code, in the form for the kind of client, without internal details. Other origins are
// not affected.
func TestProxy_OriginFailures(t *testing.T) {
	t.Parallel()
	silent := func(_ net.Conn, next func() string) {
		for next() != "" {
		}
	}
	hangs, late := newRawOrigin(t, silent), newRawOrigin(t, silent)
	resets := newRawOrigin(t, func(_ net.Conn, next func() string) { next() })
	garbled := newRawOrigin(t, func(c net.Conn, next func() string) {
		next()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok")
		next()
	})
	plain := newRawOrigin(t, func(c net.Conn, _ func() string) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	held := newRawOrigin(t, silent)
	secure := httptest.NewTLSServer(nil)
	t.Cleanup(secure.Close)
	fine := newRawOrigin(t, func(c net.Conn, next func() string) {
		for next() != "" {
			_, _ = io.WriteString(c, rawOK)
		}
	})
	sites := []siteConfig{
		{"refused", "http://" + freeport.Address(t), ""},
		{"unknown", "http://origin.invalid", ""},
		{"full", fullSocket(t), ", connect_timeout: 1s"},
		{"untrusted", secure.URL, ""},
		{"plain", "https" + strings.TrimPrefix(plain.url(), "http"), ""},
		{"mute", "https" + strings.TrimPrefix(held.url(), "http"), ", connect_timeout: 1s"},
		{"reset", resets.url(), ""},
		{"garbled", garbled.url(), ""},
		{"hangs", hangs.url(), ", first_byte_timeout: 1s"},
		{"late", late.url(), ", timeout: 1s"},
		{"busy", held.url(), ", max_conns: 1, queue_timeout: 100ms, timeout: 10m, first_byte_timeout: 10m"},
		{"fine", fine.url(), ""},
	}
	g := start(t, ofSites(sites...))
	o := adminOf(t, g)
	holder, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Close() })
	if _, err := io.WriteString(holder, "GET /busy HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	until(t, "its only connection is in use", func() bool { n, _, _ := held.counts("GET"); return n == 1 })
	for _, row := range []struct {
		id     string
		status int
		code   string
		kind   string
		retry  string
		seen   *rawOrigin // which received every request once
	}{
		{"refused", 502, "origin_unreachable", "connect", "", nil},
		{"unknown", 502, "origin_unreachable", "connect", "", nil},
		{"full", 504, "origin_connect_timeout", "connect", "", nil},
		{"untrusted", 502, "origin_tls", "tls", "", nil},
		{"plain", 502, "origin_tls", "tls", "", nil},
		{"mute", 504, "origin_connect_timeout", "tls", "", nil},
		{"reset", 502, "origin_closed", "reset", "", resets},
		{"garbled", 502, "origin_bad_answer", "bad_response", "", garbled},
		{"hangs", 504, "gateway_timeout", "timeout", "", hangs},
		{"late", 504, "gateway_timeout", "timeout", "", late},
		{"busy", 503, "origin_busy", "queue_full", "1", nil},
	} {
		t.Run(row.id, func(t *testing.T) {
			t.Parallel()
			path, c := "/"+row.id, newClient(t, g)
			api := c.get(g, path).problem(row.status, row.code)
			page := c.get(g, path, asBrowser).want(row.status).has(headers{"Content-Type": "text/html*"})
			image := c.get(g, path, headers{"Sec-Fetch-Dest": "image"})
			post := c.ask(g, http.MethodPost, path, "x=1").problem(row.status, row.code)
			for _, a := range []answer{api, page, post, image} {
				if got := a.header.Get("Retry-After"); got != row.retry && a.code == row.status {
					t.Errorf("%s: Retry-After %q, want %q", a.asked, got, row.retry)
				}
				for _, s := range sites {
					if _, host, _ := strings.Cut(s.server, "//"); strings.Contains(a.body, host) {
						t.Errorf("%s: the answer tells of %s: %s", a.asked, host, a.body)
					}
				}
			}
			if image.code != row.status || image.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("for an image: %d %s %s", image.code, image.header.Get("Content-Type"), image.body)
			}
			if row.seen != nil {
				until(t, "the origin has read what it was sent", func() bool { n, _, _ := row.seen.counts(path); return n >= 4 })
				if n, _, _ := row.seen.counts(path); n != 4 {
					t.Errorf("the origin saw %d requests, want 4", n)
				}
			}
			line := fmt.Sprintf("anteroom_upstream_errors_total{kind=%q,origin=%q} 4", row.kind, row.id)
			until(t, line, func() bool { return o.metric(line) })
			c.get(g, "/fine").want(http.StatusOK)
		})
	}
}

// A persistent connection ends when it is used: a GET is sent once more, a POST is not.
func TestProxy_KeepAliveConnectionEnds(t *testing.T) {
	t.Parallel()
	site := newRawOrigin(t, func(c net.Conn, next func() string) {
		if next() != "" {
			_, _ = io.WriteString(c, rawOK)
			next() // the next request gets no response
		}
	})
	g := start(t, ofSites(siteConfig{"shop", site.url(), ""}))
	c := newClient(t, g)
	c.get(g, "/shop/1").want(http.StatusOK)
	c.get(g, "/shop/2").want(http.StatusOK)
	if n, _, _ := site.counts("/shop/2"); n != 2 {
		t.Errorf("the GET was sent %d times, want 2: without an answer, and anew", n)
	}
	c.ask(g, http.MethodPost, "/shop/3", "a=1").problem(http.StatusBadGateway, "origin_closed")
	if n, _, _ := site.counts("/shop/3"); n != 1 {
		t.Errorf("the POST was sent %d times, want once", n)
	}
}

// If a visitor disconnects during an upload or a response, the gateway closes the connection to the origin, so that no other visitor
// receives the rest.
func TestProxy_VisitorDisconnects(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, request string }{
		{"download", "GET /shop/endless HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"upload", "POST /shop/upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhello"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			site := newRawOrigin(t, func(c net.Conn, next func() string) {
				for {
					switch l := next(); {
					case l == "":
						return
					case strings.Contains(l, "endless"):
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
						for {
							if _, err := c.Write(slices.Repeat([]byte("HTTP/1.1 200 OK\r\n"), 1000)); err != nil {
								return
							}
						}
					case strings.Contains(l, "upload"):
						_, _ = io.Copy(io.Discard, c)
						return
					}
					_, _ = io.WriteString(c, rawOK)
				}
			})
			g := start(t, ofSites(siteConfig{"shop", site.url(), ""}))
			conn, err := net.Dial("tcp", g.addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, row.request); err != nil {
				t.Fatal(err)
			}
			until(t, "the origin has the request", func() bool { _, n, _ := site.counts(""); return n == 1 })
			if row.name == "download" {
				if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
			_ = conn.Close()
			until(t, "its connection has ended", func() bool { _, _, ended := site.counts(""); return ended == 1 })
			for range 3 {
				if a := newClient(t, g).get(g, "/shop").want(http.StatusOK); a.body != "ok" {
					t.Errorf("%q", a.body)
				}
			}
			if _, conns, _ := site.counts(""); conns != 2 {
				t.Errorf("%d connections, want the one that ended and another", conns)
			}
		})
	}
}
