// Package wiretest has what the tests of gateway/wire, gateway/proxy and gateway/rawsocket share: a raw client, and waiting.
package wiretest

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

// Wait is how long a test waits for an event that should come at once.
const Wait = time.Minute

// LeftOver returns an error if goroutines of the tests are still running after Wait.
func LeftOver() error {
	// fasthttp refreshes the Date header for the life of the process
	date := goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1")
	err := goleak.Find(date)
	for deadline := time.Now().Add(Wait); err != nil && time.Now().Before(deadline); {
		err = goleak.Find(date) // pauses between its own attempts
	}
	return err
}

// Quiet is a logger that drops its input.
type Quiet struct{}

func (Quiet) Printf(string, ...any) {}

// HeaderValue returns the first value of a field in a raw header, "" if there is none.
func HeaderValue(head, name string) string {
	for _, l := range strings.Split(head, "\r\n")[1:] {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Client is a raw connection to a gateway.
type Client struct {
	net.Conn
	T *testing.T
	R *bufio.Reader
}

func Dial(t *testing.T, addr string) *Client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(Wait)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &Client{Conn: c, T: t, R: bufio.NewReader(c)}
}

func (c *Client) Send(s string) {
	c.T.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.T.Fatalf("send: %v", err)
	}
}

// Answer reads one response: status, raw header, body.
func (c *Client) Answer(method string) (int, string, string) {
	c.T.Helper()
	status, head, body, err := c.TryAnswer(method)
	if err != nil {
		c.T.Fatalf("answer: %v\n%s", err, head)
	}
	return status, head, body
}

// Final reads responses up to the first that is not informational.
func (c *Client) Final(method string) (int, string, string) {
	c.T.Helper()
	for {
		if status, head, body := c.Answer(method); status >= 200 {
			return status, head, body
		}
	}
}

func (c *Client) TryAnswer(method string) (int, string, string, error) {
	head, err := c.ReadHead()
	if err != nil {
		return 0, head, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head), onlyReader{c.R})), &http.Request{Method: method})
	if err != nil {
		return 0, head, "", err
	}
	body, err := readExactly(resp, head, c.R, method)
	return resp.StatusCode, head, string(body), err
}

type onlyReader struct{ io.Reader }

func (c *Client) ReadHead() (string, error) {
	var b strings.Builder
	for {
		l, err := c.R.ReadString('\n')
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
	case HeaderValue(head, "Transfer-Encoding") == "chunked":
		return io.ReadAll(NewChunked(r))
	case resp.ContentLength >= 0:
		b := make([]byte, resp.ContentLength)
		n, err := io.ReadFull(r, b)
		return b[:n], err
	}
	return io.ReadAll(r)
}

// Closed asserts that the connection ends without another byte.
func (c *Client) Closed() {
	c.T.Helper()
	b, err := io.ReadAll(c.R)
	if len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		c.T.Errorf("want a closed connection, have %q, %v", b, err)
	}
}

// Probe asserts that the connection still serves a request.
func (c *Client) Probe() {
	c.T.Helper()
	c.Send("GET /probe HTTP/1.1\r\nHost: site\r\n\r\n")
	if status, head, _ := c.Answer("GET"); status != 200 {
		c.T.Errorf("the connection is not usable: %s", head)
	}
}

// chunkedBody is a plain decoder that stops at the body's last byte and keeps the trailers.
type chunkedBody struct {
	r        *bufio.Reader
	left     int
	done     bool
	Trailers bytes.Buffer
}

func NewChunked(r *bufio.Reader) *chunkedBody { return &chunkedBody{r: r} }

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
				c.Trailers.WriteString(l)
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

// Eventually polls until ok returns true, and fails the test after Wait.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(Wait)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func Itoa(n int) string { return fmt.Sprint(n) }
func Hex(n int) string  { return fmt.Sprintf("%x", n) }

// Bundle collects writes in Held while Hold is set.
type Bundle struct {
	net.Conn
	Held []byte
	Hold bool
}

func (b *Bundle) Write(p []byte) (int, error) {
	if b.Hold {
		b.Held = append(b.Held, p...)
		return len(p), nil
	}
	return b.Conn.Write(p)
}
