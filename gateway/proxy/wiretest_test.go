package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// wait is how long a test waits for what should come at once.
const wait = time.Minute

// leftOver returns an error if goroutines are still running that the tests have started, after a moment for them to end.
func leftOver() error {
	// fasthttp refreshes the Date header for the life of the process
	date := goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1")
	err := goleak.Find(date)
	for deadline := time.Now().Add(wait); err != nil && time.Now().Before(deadline); {
		err = goleak.Find(date) // pauses between its own attempts
	}
	return err
}

// quiet is a logger that drops what it is given.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// headerValue is the first value of a header in raw header bytes, "" if absent.
func headerValue(head, name string) string {
	for _, l := range strings.Split(head, "\r\n")[1:] {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// client is a raw connection to a gate.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dialGate(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(wait))
	t.Cleanup(func() { c.Close() })
	return &client{Conn: c, t: t, r: bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// answer reads one answer: status, raw header, body.
func (c *client) answer(method string) (int, string, string) {
	c.t.Helper()
	status, head, body, err := c.tryAnswer(method)
	if err != nil {
		c.t.Fatalf("answer: %v\n%s", err, head)
	}
	return status, head, body
}

// final reads answers up to the one that is not informational.
func (c *client) final(method string) (int, string, string) {
	c.t.Helper()
	for {
		if status, head, body := c.answer(method); status >= 200 {
			return status, head, body
		}
	}
}

func (c *client) tryAnswer(method string) (int, string, string, error) {
	head, err := c.readHead()
	if err != nil {
		return 0, head, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head), onlyReader{c.r})), &http.Request{Method: method})
	if err != nil {
		return 0, head, "", err
	}
	body, err := readExactly(resp, head, c.r, method)
	return resp.StatusCode, head, string(body), err
}

type onlyReader struct{ io.Reader }

func (c *client) readHead() (string, error) {
	var b strings.Builder
	for {
		l, err := c.r.ReadString('\n')
		b.WriteString(l)
		if err != nil {
			return b.String(), err
		}
		if l == "\r\n" {
			return b.String(), nil
		}
	}
}

// readExactly reads the body without taking a byte of what follows it.
func readExactly(resp *http.Response, head string, r *bufio.Reader, method string) ([]byte, error) {
	switch {
	case method == "HEAD" || resp.StatusCode == 204 || resp.StatusCode == 304 || resp.StatusCode < 200:
		return nil, nil
	case headerValue(head, "Transfer-Encoding") == "chunked":
		return io.ReadAll(newChunked(r))
	case resp.ContentLength >= 0:
		b := make([]byte, resp.ContentLength)
		n, err := io.ReadFull(r, b)
		return b[:n], err
	}
	return io.ReadAll(r)
}

// closed asserts that the connection ends with nothing more on it.
func (c *client) closed() {
	c.t.Helper()
	b, err := io.ReadAll(c.r)
	if len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		c.t.Errorf("want a closed connection, have %q, %v", b, err)
	}
}

// probe asserts that the connection still serves a request.
func (c *client) probe() {
	c.t.Helper()
	c.send("GET /probe HTTP/1.1\r\nHost: site\r\n\r\n")
	if status, head, _ := c.answer("GET"); status != 200 {
		c.t.Errorf("the connection is not usable: %s", head)
	}
}

// chunked is a plain decoder that stops at the body's last byte and keeps the trailers.
type chunkedBody struct {
	r        *bufio.Reader
	left     int
	done     bool
	trailers bytes.Buffer
}

func newChunked(r *bufio.Reader) *chunkedBody { return &chunkedBody{r: r} }

func (c *chunkedBody) Read(p []byte) (int, error) {
	if c.done {
		return 0, io.EOF
	}
	if c.left == 0 {
		l, err := c.r.ReadString('\n')
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(l), "%x", &c.left); err != nil {
			return 0, fmt.Errorf("chunk size %q: %w", l, err)
		}
		if c.left == 0 {
			for {
				l, err := c.r.ReadString('\n')
				if err != nil {
					return 0, io.ErrUnexpectedEOF
				}
				if l == "\r\n" {
					break
				}
				c.trailers.WriteString(l)
			}
			c.done = true
			return 0, io.EOF
		}
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	if c.left == 0 && err == nil {
		if crlf, _ := c.r.ReadString('\n'); crlf != "\r\n" {
			return n, fmt.Errorf("chunk end %q", crlf)
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// eventually polls until ok, which has to come soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(wait)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func itoa(n int) string { return fmt.Sprint(n) }
func hex(n int) string  { return fmt.Sprintf("%x", n) }

// bundle sends what is written to it in one piece, once it is let go.
type bundle struct {
	net.Conn
	held []byte
	hold bool
}

func (b *bundle) Write(p []byte) (int, error) {
	if b.hold {
		b.held = append(b.held, p...)
		return len(p), nil
	}
	return b.Conn.Write(p)
}
