package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawSite is an origin on a socket that sends exactly the bytes of a test. A request for /enter receives a plain response; serve handles
// any other request and the rest of its connection.
type rawSite struct {
	t     testing.TB
	ln    net.Listener
	serve func(c *rawConn, head string)
	group sync.WaitGroup

	mu    sync.Mutex
	heads []string
	conns []net.Conn
}

// rawConn is one end of a connection on which bytes are read and written as they are.
type rawConn struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func newRawSite(t testing.TB, serve func(c *rawConn, head string)) *rawSite {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawSite{t: t, ln: ln, serve: serve}
	s.group.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

func (s *rawSite) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.group.Go(func() {
			defer func() { _ = c.Close() }()
			s.converse(&rawConn{c.(*net.TCPConn), s.t, bufio.NewReaderSize(c, 256<<10)})
		})
	}
}

func (s *rawSite) converse(c *rawConn) {
	for {
		head, err := c.readHead()
		if err != nil {
			return
		}
		if strings.Contains(head, " /enter ") {
			c.write("HTTP/1.1 200 OK\r\nX-Origin: yes\r\nContent-Length: 2\r\n\r\nin")
			continue
		}
		s.mu.Lock()
		s.heads = append(s.heads, head)
		s.mu.Unlock()
		s.serve(c, head)
	}
}

// close ends every connection, so that a running serve fails.
func (s *rawSite) close() {
	_ = s.ln.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

func (s *rawSite) url() string { return "http://" + s.ln.Addr().String() }

// requests returns the headers that serve has received.
func (s *rawSite) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.heads...)
}

// passOf admits a visitor and returns the header line with the pass.
func passOf(t testing.TB, g *gateway) string {
	t.Helper()
	a := newClient(t, g).get(g, "/enter").want(http.StatusOK)
	pass := a.header.Get("X-Waiting-Room-Pass")
	if pass == "" {
		t.Fatalf("no X-Waiting-Room-Pass in %v", a.header)
	}
	return "X-Waiting-Room-Pass: " + pass + "\r\n"
}

// dialRaw opens a connection to the visitors' socket.
func dialRaw(t testing.TB, g *gateway) *rawConn {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &rawConn{c.(*net.TCPConn), t, bufio.NewReaderSize(c, 256<<10)}
}

func (c *rawConn) write(s string) { _, _ = io.WriteString(c.TCPConn, s) }

// Read first returns the buffered bytes.
func (c *rawConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// readHead reads a header up to its empty line.
func (c *rawConn) readHead() (string, error) {
	var b strings.Builder
	for {
		line, err := c.r.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return b.String(), fmt.Errorf("after %q: %w", b.String(), err)
		}
		if line == "\r\n" {
			return b.String(), nil
		}
	}
}

// answer reads a header and fails the test if the status differs.
func (c *rawConn) answer(status int) string {
	c.t.Helper()
	head, err := c.readHead()
	if err != nil || !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", status)) {
		c.t.Fatalf("want %d, have %v\n%s", status, err, head)
	}
	return head
}

// expect reads len(want) bytes and fails the test if they differ from want.
func (c *rawConn) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.r, got); err != nil || string(got) != want {
		c.t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}
