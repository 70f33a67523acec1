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

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/valyala/fasthttp"
)

// Limits bound what a client may send and how long it may take. A zero field means its default.
type Limits struct {
	Header        int           // bytes of request line and headers together; 16 KiB; more needs a ReadBufferSize as large
	Target        int           // bytes of the request target; 8 KiB
	Headers       int           // header lines; 100
	HeaderTimeout time.Duration // from a header's first byte to its last; 10 s
	BodyIdle      time.Duration // the longest silence inside a request body, and how far it may fall behind leastBodyRate; 30 s
	WriteIdle     time.Duration // the longest that a client may refuse to take bytes; 30 s
	Idle          time.Duration // between two requests of a connection; 75 s
}

func (l Limits) withDefaults() Limits {
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	or := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt(&l.Header, 16<<10)
	orInt(&l.Target, 8<<10)
	orInt(&l.Headers, 100)
	or(&l.HeaderTimeout, 10*time.Second)
	or(&l.BodyIdle, 30*time.Second)
	or(&l.WriteIdle, 30*time.Second)
	or(&l.Idle, 75*time.Second)
	return l
}

// together is how much is read at once where a header may begin: what comes with it is checked before the origin hears.
func (l *Limits) together() int { return max(l.Header, 16<<10) }

// ServerOptions sets the fields of s that correctness depends on. Call it before Serve, and serve a
// Listener, whose Limits take the place of the server's time-outs. MaxConnsPerIP has to stay 0: it
// would wrap the connections.
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
	d := Limits{}.withDefaults()
	if s.ReadBufferSize < d.Header {
		s.ReadBufferSize = d.Header
	}
	s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 0, 0, 0
	s.LazyRequestTime = true
}

// hideBody keeps fasthttp from reading the body, which is ours to read, and from answering an
// expectation, which is answered when the body is first asked for.
func hideBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if n := h.ContentLength(); n > 0 || n == -1 {
		h.SetContentLength(-2) // "none"
	}
	if len(h.Peek(fasthttp.HeaderExpect)) > 0 {
		h.Del(fasthttp.HeaderExpect)
	}
	return fasthttp.RequestConfig{}
}

// Listener wraps ln for a server set up by ServerOptions. Its connections give fasthttp one checked
// request header at a time and keep the bodies for Forward. Wrap TLS and PROXY protocol inside it:
// Listener(tls.NewListener(PrefaceListener(ln, o), cfg), …).
func Listener(ln net.Listener, limits Limits) net.Listener {
	return newListener(ln, limits, nil)
}

// Direct is Listener with a handler of its own for nearly all requests: those that have been let in, but for HTTP/1.0
// and upgrades. The handler answers by Request.Forward, Request.Answer or Request.Send and says true, or says false
// before it has done anything; fasthttp and its handler then see the request. It saves a second reading of the header
// and an answer that is written to be thrown away.
func Direct(ln net.Listener, limits Limits, handler func(*Request) bool) net.Listener {
	return newListener(ln, limits, handler)
}

type listener struct {
	net.Listener
	lim       Limits
	heads     http1.Limits
	direct    func(*Request) bool
	stopping  atomic.Bool // no connection outlives its next answer
	impatient atomic.Bool // nor waits for a next request

	mu    sync.Mutex
	conns map[*conn]struct{}
}

func newListener(ln net.Listener, limits Limits, direct func(*Request) bool) *listener {
	limits = limits.withDefaults()
	return &listener{Listener: ln, lim: limits, heads: http1.Limits{Header: limits.Header, Target: limits.Target, Lines: limits.Headers}, direct: direct}
}

// Close ends the listener; each of its connections lives until its next answer.
func (l *listener) Close() error {
	l.stopping.Store(true)
	return l.Listener.Close()
}

// CloseWaiting closes those connections of a Listener or Direct, ln, that have been served and wait for another request.
func CloseWaiting(ln net.Listener) {
	if l, ok := ln.(*listener); ok {
		l.impatient.Store(true)
		l.closeAll(connWaiting)
	}
}

// CloseFresh closes those connections of a Direct that have not said anything yet.
func CloseFresh(ln net.Listener) {
	if l, ok := ln.(*listener); ok {
		l.closeAll(connFresh)
	}
}

// closeAll closes the connections that are in a state.
func (l *listener) closeAll(state uint32) {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range all {
		c.closeWaiting(state)
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	cc := &conn{Conn: c, l: l, lim: &l.lim, proxyProtocol: proxyProtocolOf(c)}
	cc.req.c = cc
	if cc.proxyProtocol == c { // without TLS nobody else has to know of it
		cc.Conn = cc.proxyProtocol.Conn
	}
	rawsocket.BoundUnsent(rawsocket.SocketOf(c))
	cc.sock.Of(cc.Conn)
	cc.in.Src = bodySource{cc}
	cc.res.c = cc
	cc.body.c = cc
	l.mu.Lock()
	if l.conns == nil {
		l.conns = map[*conn]struct{}{}
	}
	l.conns[cc] = struct{}{}
	l.mu.Unlock()
	if t, ok := c.(handshaker); ok {
		cc.secure = true
		return &tlsClientConn{cc, t}, nil
	}
	if l.direct != nil && cc.sock.Valid() && l.lim.together() <= http1.BlockSize {
		return &quietConn{cc}, nil
	}
	return cc, nil
}

// quietConn is a plain connection that fasthttp takes for TLS: in the time of the handshake, before there are buffers
// for it, it serves all that is served directly.
type quietConn struct{ *conn }

func (c *quietConn) Handshake() error {
	c.quietly()
	return nil
}

func (c *quietConn) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

// handshaker is what makes fasthttp take a connection for TLS.
type handshaker interface {
	Handshake() error
	ConnectionState() tls.ConnectionState
}

type tlsClientConn struct {
	*conn
	tls handshaker
}

// Handshake has to be over in the time that a header has.
func (c *tlsClientConn) Handshake() error {
	if err := c.SetDeadline(time.Now().Add(c.lim.HeaderTimeout)); err != nil {
		return err
	}
	if c.proxyProtocol != nil {
		if err := c.readProxyHeader(); err != nil {
			return err
		}
	}
	err := c.tls.Handshake()
	var notTLS tls.RecordHeaderError
	if errors.As(err, &notTLS) && notTLS.Conn != nil && http1.TokenTable[notTLS.RecordHeader[0]] {
		notTLS.Conn.Write([]byte(answerNotTLS)) //nolint:errcheck // it is closed next
		linger(notTLS.Conn)
	}
	return err
}

// answerNotTLS is for those who speak HTTP where TLS is spoken.
const answerNotTLS = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nCache-Control: no-store\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 25\r\n\r\nThis port speaks HTTPS.\r\n"

func (c *tlsClientConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// clientOf finds our connection under a request; nil where the server does not use Listener.
func clientOf(ctx *fasthttp.RequestCtx) *conn {
	switch c := ctx.Conn().(type) {
	case *conn:
		return c
	case *quietConn:
		return c.conn
	case *tlsClientConn:
		return c.conn
	}
	return nil
}
