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

// Site holds the addresses that a proxy uses, and two choices of its configuration.
type Site struct {
	Checks   string // gateway, check.listen
	Visitors string // gateway, listen: the visitors' socket
	Origin   string
	Open     bool // requests whose check failed pass, if the proxy has such a mode
	Clean    bool // X-Waiting-Room-Session of a visitor and its aliases are removed before the check, if the proxy can do that
}

// asker sends a check about a request that r has brought. It returns the response for the visitor if the request is denied. Otherwise it changes
// m, which goes to the origin, and returns a change of the origin's response, or nil. An error means that the check has failed.
type asker func(r *http.Request, m message) (denied *response, change func(http.Header), err error)

// proxy returns a proxy that asks about each request which receive accepts. Requests below /.waiting-room/ go to the visitors' socket unasked.
// After an error of ask the visitor gets 500.
func proxy(s Site, receive func(*http.Request) (message, error), ask asker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := receive(r)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
			return
		case strings.HasPrefix(m.target, "/.waiting-room/"):
			pass(w, s.Visitors, m, nil)
			return
		}
		switch denied, change, err := ask(r, m); {
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
		case denied != nil:
			respond(w, denied)
		default:
			pass(w, s.Origin, m, change)
		}
	})
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

// response is a response, read as a whole.
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

// tunnel forwards an upgrade to addr, and then the bytes of both sides.
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

// pass forwards a message to addr and the response to the visitor. change, if not nil, changes its header first.
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
	respond(w, res)
}

func respond(w http.ResponseWriter, res *response) {
	h := w.Header()
	for name, values := range res.header {
		if name != "Content-Length" {
			h[name] = slices.Clone(values)
		}
	}
	removeHopByHop(h)
	w.WriteHeader(res.status)
	_, _ = w.Write(res.body) // the visitor may have left
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
