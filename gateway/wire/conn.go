package wire

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// conn is a client's connection as fasthttp sees it: Read returns exactly one request header at a time, and Write
// discards what it is given once the response has been written past fasthttp. One goroutine at a time uses it, except
// that an upload may read the body in a goroutine of its own, and that Close may be called from anywhere.
type conn struct {
	link     rawsocket.Conn
	listener *listener
	peer     peer
	reader   reader
	writer   writer
	early    earlyHeader
	request  Request
	body     Body
	response Response

	phase  phase
	last   bool          // no further request may be read
	doing  atomic.Uint32 // an activity, for Close
	unread atomic.Bool   // the client may still be sending; read by Close
}

// phase is the progress of a connection from one header to the next. Only the goroutine that serves the connection uses it; doc.go has
// the diagram.
type phase uint8

const (
	phaseFresh    phase = iota // waiting for the first header
	phaseIdle                  // waiting for a further header
	phaseRead                  // a header was read, and no handler has accepted it
	phaseHandled               // a handler has accepted the request
	phaseAnswered              // the final response has begun: what fasthttp writes is discarded
	phaseDetached              // aborted, or a tunnel: fasthttp neither reads nor writes any more
)

// The activities of a connection, by which Close decides what it may do from another goroutine.
const (
	activityBusy    = iota // in fasthttp, or reading a header
	activityFresh          // waiting for the first header, before fasthttp serves the connection
	activityIdle           // waiting for a further header
	activityDirect         // a direct handler is running, or a body is being drained: Close only sets activityClosing
	activityClosing        // the same, and Close was called
	activityClosed
)

// peer is the other end of a connection.
type peer struct {
	addr    netip.Addr         // invalid until it is first asked for
	tls     bool               // the connection is TLS
	pending *proxyProtocolConn // has the PROXY header that still has to be read
	proxied proxyHeader        // the PROXY header that was read
}

func newConn(l *listener, c net.Conn) *conn {
	cc := &conn{listener: l, peer: peer{pending: proxyProtocolOf(c)}}
	if cc.peer.pending == c { // without TLS the wrapper is not needed
		c = cc.peer.pending.Conn
	}
	cc.link.Wrap(c)
	cc.reader.link, cc.reader.limits, cc.reader.buffer.Source = &cc.link, &l.limits, &cc.reader
	cc.writer.link, cc.writer.limits = &cc.link, &l.limits
	cc.request.c, cc.body.c, cc.response.c = cc, cc, cc
	return cc
}

// Read returns the next request header that is not served directly, whole and checked. A header that is refused is
// replaced by an empty request; CheckRequest then returns the refusal.
func (c *conn) Read(p []byte) (int, error) {
	if c.early.block != nil { // Handshake has left a header
		n := copy(p, c.early.header())
		if c.request.refusal == nil {
			c.request.header.Raw = p[:n]
		}
		c.early.release()
		return n, nil
	}
	for {
		n, err := c.next(p)
		if n == 0 || c.listener.direct == nil || !c.serveDirectly() {
			return n, err
		}
	}
}

// Write writes a response of fasthttp, unless one was written past it.
func (c *conn) Write(p []byte) (int, error) {
	if c.phase >= phaseAnswered {
		return len(p), nil
	}
	c.writer.begin()
	c.noteBodyEnd()
	return c.writer.Write(p)
}

// RemoteAddr returns the address of the socket's other end, or the one in the PROXY header.
func (c *conn) RemoteAddr() net.Addr {
	if c.peer.proxied.addr != nil {
		return c.peer.proxied.addr
	}
	return c.link.RemoteAddr()
}

// peerAddr returns the address of RemoteAddr.
func (c *conn) peerAddr() netip.Addr {
	if !c.peer.addr.IsValid() {
		switch a := c.RemoteAddr().(type) {
		case *net.TCPAddr:
			c.peer.addr, _ = netip.AddrFromSlice(a.IP)
			c.peer.addr = c.peer.addr.Unmap()
		default:
			c.peer.addr = netip.IPv4Unspecified()
		}
	}
	return c.peer.addr
}

// LocalAddr returns the socket's own address.
func (c *conn) LocalAddr() net.Addr { return c.link.LocalAddr() }

// SetDeadline is called by TLS and, once the handler has returned, by hijackers, which need nothing of the request.
func (c *conn) SetDeadline(t time.Time) error {
	c.noteBodyEnd()
	c.forgetHeader()
	c.reader.buffer.Release()
	c.reader.deadline, c.writer.deadline = time.Time{}, time.Time{}
	return c.link.SetDeadline(t)
}

// SetReadDeadline lets a handler set a deadline of its own.
func (c *conn) SetReadDeadline(t time.Time) error { return c.reader.setDeadline(t) }

// SetWriteDeadline lets a handler set a deadline of its own, which its writes then keep. It may be called during a write.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writer.ownDeadline.Store(true)
	return c.link.SetWriteDeadline(t)
}

// serveDirectly calls the direct handler, and reports whether the request is done.
func (c *conn) serveDirectly() bool {
	h := &c.request.header
	if t := h.Target(); c.request.refusal != nil || h.HTTP10 || h.HasUpgrade() || len(t) == 0 || t[0] != '/' {
		return false
	}
	if !c.doing.CompareAndSwap(activityBusy, activityDirect) { // closed as the header arrived
		c.phase, c.last = phaseHandled, true
		return true
	}
	taken := c.listener.direct(&c.request)
	c.resume()
	if taken {
		c.accept()
	}
	return taken
}

// accept records that a handler has taken the request.
func (c *conn) accept() {
	if c.phase == phaseRead {
		c.phase = phaseHandled
	}
}

// resume ends activityDirect. If Close was called meanwhile, the connection serves no further request.
func (c *conn) resume() {
	if !c.doing.CompareAndSwap(activityDirect, activityBusy) {
		c.doing.Store(activityBusy)
		c.last = true
	}
}

// deliver makes the header that was read the current request.
func (c *conn) deliver() {
	h := &c.request.header
	c.phase, c.request.refusal = phaseRead, nil
	c.writer.reset(h.Expect)
	c.body.begin(h)
	if h.Length != 0 {
		c.unread.Store(true)
		c.reader.startBody()
	}
	c.reader.releaseEmpty()
}

// finish ends the current request: the rest of its body is dropped, within bounds, so that the next byte is the first of
// a request. It reports whether the connection can serve another.
func (c *conn) finish() bool {
	if c.phase < phaseHandled || c.phase == phaseDetached || c.last {
		return false
	}
	if !c.body.Ended() {
		if !c.doing.CompareAndSwap(activityBusy, activityDirect) {
			return false
		}
		drained := c.body.drain()
		if c.resume(); !drained || c.last {
			c.last = true
			return false
		}
	}
	c.reader.releaseEmpty()
	c.phase = phaseIdle
	if c.request.header.Length != 0 {
		c.unread.Store(false)
	}
	c.forgetHeader()
	return true
}

// detach ends what fasthttp may do with the connection.
func (c *conn) detach() { c.phase, c.last = phaseDetached, true }

// noteBodyEnd records that the body has ended, so that Close does not wait for the client.
func (c *conn) noteBodyEnd() {
	if c.request.header.Length != 0 && c.body.Ended() {
		c.unread.Store(false)
	}
}

// forgetHeader drops the references to the block that the header was read into, which others use from now on.
func (c *conn) forgetHeader() {
	c.request.header.Reset()
	clear(c.request.values[:cap(c.request.values)])
}

// earlyConn is a plain connection that fasthttp takes for TLS. In the time of the handshake, before fasthttp has
// allocated buffers for it, it serves everything that is served directly: an idle connection then costs little more than
// its goroutine.
type earlyConn struct{ *conn }

// Handshake serves requests until one is left to fasthttp.
func (c *earlyConn) Handshake() error {
	for {
		n, _ := c.next(nil)
		if n == 0 {
			c.early.release()
			c.last = true
			return nil
		}
		if !c.serveDirectly() {
			c.early.n = n
			return nil
		}
	}
}

// ConnectionState returns an empty state.
func (c *earlyConn) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

// earlyHeader is a header that was read into a block of the pool, because fasthttp has no buffer yet.
type earlyHeader struct {
	block *[]byte
	n     int // length of the header that is left to fasthttp
}

func (e *earlyHeader) header() []byte { return (*e.block)[:e.n] }

// space returns the first n bytes of the block.
func (e *earlyHeader) space(n int) []byte {
	if e.block == nil {
		e.block = http1.GetBlock()
	}
	return (*e.block)[:n]
}

func (e *earlyHeader) release() {
	if e.block != nil {
		http1.PutBlock(e.block)
		e.block = nil
	}
}

// connOf returns the connection of a request, or nil if its server does not use Listener.
func connOf(c net.Conn) *conn {
	switch c := c.(type) {
	case *conn:
		return c
	case *earlyConn:
		return c.conn
	case *tlsConn:
		return c.conn
	}
	return nil
}

// CheckRequest must be a handler's first call. It returns why the request is refused, or nil. After a refusal the
// connection is closed whatever the response. ctx has no request body: Request.ReadBody and proxies read it.
func CheckRequest(ctx *fasthttp.RequestCtx) *http1.Refusal {
	c := connOf(ctx.Conn())
	if c == nil {
		ctx.SetConnectionClose()
		return refuseUnprotected
	}
	c.accept()
	if r := c.request.refusal; r != nil {
		ctx.SetConnectionClose()
		return r
	}
	if c.request.header.Connection.Close {
		ctx.SetConnectionClose()
	}
	return nil
}

// TakeOver returns the socket (or the TLS connection) under a connection that a handler has hijacked, so that nothing of
// the server's is kept while it lasts. The caller closes it.
func TakeOver(c net.Conn) net.Conn {
	if h, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
		c = h.UnsafeConn()
	}
	cc := connOf(c)
	if cc == nil {
		return c
	}
	cc.listener.forget(cc)
	return cc.link.Conn
}

// Socket returns the socket under a connection, which may be TLS.
func Socket(c net.Conn) net.Conn { return rawsocket.Socket(c) }

// silently ends an idle connection without the response that fasthttp would send on a time-out.
func silently(err error) error {
	if rawsocket.IsTimeout(err) {
		return io.EOF
	}
	return err
}
