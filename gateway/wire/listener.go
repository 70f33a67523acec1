package wire

import (
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// Limits bound what a client may send and how long it may take. A zero field means its default.
type Limits struct {
	Header        int           // bytes of request line and headers together; 16 KiB; more needs a ReadBufferSize as large
	Target        int           // bytes of the request target; 8 KiB
	Headers       int           // header lines; 100
	HeaderTimeout time.Duration // from a header's first byte to its last; 10 s
	BodyIdle      time.Duration // the longest silence inside a request body, and how far it may fall behind minBodyRate; 30 s
	WriteIdle     time.Duration // how long a client may take no bytes; 30 s
	Idle          time.Duration // between two requests of a connection; 75 s
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.Header, defaultHeader)
	setDefault(&l.Target, 8<<10)
	setDefault(&l.Headers, 100)
	setDefault(&l.HeaderTimeout, 10*time.Second)
	setDefault(&l.BodyIdle, 30*time.Second)
	setDefault(&l.WriteIdle, 30*time.Second)
	setDefault(&l.Idle, 75*time.Second)
	return l
}

const defaultHeader = 16 << 10

// OfDescribed returns the limits of a request that a Description describes: those of a visitor's request, with room for a Host field
// that the proxy has normalized.
func (l Limits) OfDescribed() http1.Limits {
	l = l.withDefaults()
	return http1.Limits{Header: l.Header + 1<<10, Target: l.Target, Lines: l.Headers + 1}
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// together returns how much is read at once where a header may begin. A body that arrives with it is checked before the
// origin is asked.
func (l *Limits) together() int { return max(l.Header, defaultHeader) }

// ServerOptions sets the fields of s that correctness depends on. Call it before Serve, and serve a Listener, whose Limits
// replace the server's time-outs. MaxConnsPerIP must stay 0, because it would wrap the connections.
func ServerOptions(s *fasthttp.Server) {
	s.StreamRequestBody = true
	s.DisablePreParseMultipartForm = true
	s.NoDefaultServerHeader = true
	s.NoDefaultContentType = true
	s.NoDefaultDate = false
	s.DisableHeaderNamesNormalizing = false
	s.SecureErrorLogMessage = true
	s.CloseOnShutdown = true
	s.ReduceMemoryUsage = false
	s.KeepHijackedConns = false
	s.MaxConnsPerIP = 0
	s.HeaderReceived = hideBody
	s.ExpectHandler = nil
	s.ContinueHandler = nil
	s.ReadBufferSize = max(s.ReadBufferSize, defaultHeader)
	s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 0, 0, 0
	s.LazyRequestTime = true
}

// hideBody keeps fasthttp from reading the body, which the connection reads, and from responding to an expectation: 100
// Continue is sent when the body is first read.
func hideBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if n := h.ContentLength(); n > 0 || n == -1 {
		h.SetContentLength(-2) // "none"
	}
	if len(h.Peek(fasthttp.HeaderExpect)) > 0 {
		h.Del(fasthttp.HeaderExpect)
	}
	return fasthttp.RequestConfig{}
}

// Listener wraps ln for a server set up by ServerOptions. Its connections pass fasthttp one checked request header at a
// time and keep the bodies. Wrap TLS and the PROXY protocol inside it:
// Listener(tls.NewListener(ProxyProtocolListener(ln, o), cfg), …).
//
// The direct handler, if it is not nil, serves most requests without fasthttp: all that are not refused, except those of
// HTTP/1.0 and those with an upgrade. It responds (by a proxy, Request.Answer or Request.Send) and returns true, or returns
// false before it has done anything; fasthttp and its handler then see the request. This saves a second parse of the header
// and a response that is written to be discarded.
func Listener(ln net.Listener, limits Limits, direct func(*Request) bool) net.Listener {
	return newListener(ln, limits, direct)
}

type listener struct {
	net.Listener
	limits    Limits
	headers   http1.Limits
	direct    func(*Request) bool
	stopping  atomic.Bool // each connection ends with its next response
	closeIdle atomic.Bool // connections do not wait for a further request

	mu    sync.Mutex
	conns map[*conn]struct{}
}

func newListener(ln net.Listener, limits Limits, direct func(*Request) bool) *listener {
	limits = limits.withDefaults()
	headers := http1.Limits{Header: limits.Header, Target: limits.Target, Lines: limits.Headers}
	return &listener{Listener: ln, limits: limits, headers: headers, direct: direct, conns: map[*conn]struct{}{}}
}

// Close closes the listener; each of its connections ends with its next response.
func (l *listener) Close() error {
	l.stopping.Store(true)
	return l.Listener.Close()
}

// CloseWaiting closes the connections of ln, a Listener, that wait for a further request.
func CloseWaiting(ln net.Listener) {
	if l, ok := ln.(*listener); ok {
		l.closeIdle.Store(true)
		l.closeAll(activityIdle)
	}
}

// CloseFresh closes the connections of ln, a Listener with a direct handler, that have not sent a byte yet.
func CloseFresh(ln net.Listener) {
	if l, ok := ln.(*listener); ok {
		l.closeAll(activityFresh)
	}
}

// closeAll closes the connections with an activity.
func (l *listener) closeAll(activity uint32) {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range all {
		c.closeIf(activity)
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// Accept returns the next connection, wrapped.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	rawsocket.BoundUnsent(rawsocket.Socket(c))
	cc := newConn(l, c)
	l.mu.Lock()
	l.conns[cc] = struct{}{}
	l.mu.Unlock()
	if t, ok := c.(handshaker); ok {
		cc.peer.tls = true
		return &tlsConn{cc, t}, nil
	}
	if l.direct != nil && cc.link.Raw() && l.limits.together() <= http1.BlockSize {
		return &earlyConn{cc}, nil
	}
	return cc, nil
}

// handshaker makes fasthttp take a connection for TLS.
type handshaker interface {
	Handshake() error
	ConnectionState() tls.ConnectionState
}

type tlsConn struct {
	*conn
	tls handshaker
}

// Handshake reads the PROXY header and makes the TLS handshake, within HeaderTimeout.
func (c *tlsConn) Handshake() error {
	if err := c.SetDeadline(time.Now().Add(c.listener.limits.HeaderTimeout)); err != nil {
		return err
	}
	if c.peer.pending != nil {
		if err := c.readProxyHeader(); err != nil {
			return err
		}
	}
	err := c.tls.Handshake()
	var notTLS tls.RecordHeaderError
	if errors.As(err, &notTLS) && notTLS.Conn != nil && http1.IsTokenByte(notTLS.RecordHeader[0]) {
		notTLS.Conn.Write([]byte(notTLSResponse)) //nolint:errcheck // it is closed next
		linger(notTLS.Conn)
	}
	return err
}

// notTLSResponse is for clients that send HTTP where TLS is expected.
const notTLSResponse = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nCache-Control: no-store\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 25\r\n\r\nThis port speaks HTTPS.\r\n"

// ConnectionState returns the state of the TLS connection.
func (c *tlsConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
