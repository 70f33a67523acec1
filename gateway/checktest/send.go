package checktest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Site is what a proxy stands in front of. All are addresses.
type Site struct {
	Checks   string
	Visitors string // of the gateway's socket for visitors, which serves the paths below /.waiting-room
	Origin   string
	Open     bool // requests that could not be checked go on, where the proxy can be configured so
	Clean    bool // X-Waiting-Room-Session of a visitor and its aliases are removed before the check, where the proxy can be configured so
}

// message is a request on its way to the gateway or to the origin. Its target is sent byte for byte.
type message struct {
	method, target, host string
	header               http.Header
	body                 []byte
	upgrade              string // the protocol that the visitor asks for; empty: none
}

// received returns a visitor's request.
func received(r *http.Request) (message, error) {
	body, err := io.ReadAll(r.Body)
	m := message{method: r.Method, target: r.RequestURI, host: r.Host, header: r.Header.Clone(), body: body}
	if !strings.HasPrefix(m.target, "/") && m.target != "*" { // an absolute target
		m.target = r.URL.RequestURI()
	}
	if r.Header.Get("Upgrade") != "" && strings.EqualFold(r.Header.Get("Connection"), "upgrade") && len(body) == 0 {
		m.upgrade = r.Header.Get("Upgrade")
	}
	return m, err
}

// response is an answer, read as a whole.
type response struct {
	status int
	header http.Header
	body   []byte
}

// send sends a message on a connection of its own.
func send(addr string, m message) (*response, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	var out strings.Builder
	m.writeHead(&out)
	out.Write(m.body)
	if _, err := io.WriteString(c, out.String()); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: m.method})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return &response{res.StatusCode, res.Header, body}, err
}

// writeHead writes the header of a message.
func (m *message) writeHead(out *strings.Builder) {
	fmt.Fprintf(out, "%s %s HTTP/1.1\r\nHost: %s\r\n", m.method, m.target, m.host)
	for name, values := range m.header {
		for _, v := range values {
			if v != "" && !strings.EqualFold(name, "content-length") {
				fmt.Fprintf(out, "%s: %s\r\n", name, v)
			}
		}
	}
	if len(m.body) > 0 || m.header.Get("Content-Length") != "" {
		fmt.Fprintf(out, "Content-Length: %d\r\n", len(m.body))
	}
	out.WriteString("\r\n")
}

// tunnel forwards an upgrade to addr, and what both sides send after it.
func tunnel(w http.ResponseWriter, addr string, m message) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer c.Close()
	var out strings.Builder
	m.writeHead(&out)
	if _, err := io.WriteString(c, out.String()); err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	visitor, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer visitor.Close()
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(c, buffered); ended <- err }()
	go func() { _, err := io.Copy(visitor, c); ended <- err }()
	<-ended
}

// pass forwards a message to addr and its response to the visitor, after change.
func pass(w http.ResponseWriter, addr string, m message, change func(http.Header)) {
	upgrade := m.upgrade
	m.header = m.header.Clone()
	removeHopByHop(m.header)
	if upgrade != "" {
		m.header.Set("Connection", "Upgrade")
		m.header.Set("Upgrade", upgrade)
		tunnel(w, addr, m)
		return
	}
	res, err := send(addr, m)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if change != nil {
		change(res.header)
	}
	respond(w, res.status, res.header, res.body)
}

func respond(w http.ResponseWriter, status int, header http.Header, body []byte) {
	h := w.Header()
	for name, values := range header {
		if name != "Content-Length" {
			h[name] = slices.Clone(values)
		}
	}
	removeHopByHop(h)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the visitor may have left
}

// hopByHop are the fields of one connection.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// removeHopByHop removes the fields of one connection, and those that Connection names.
func removeHopByHop(h http.Header) {
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}

// isOwn reports whether the route of the gateway's own paths takes a request.
func isOwn(m message) bool { return strings.HasPrefix(m.target, "/.waiting-room/") }

// schemeOf returns the scheme of the visitor's connection.
func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// addressOf returns the address of the visitor's connection.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
