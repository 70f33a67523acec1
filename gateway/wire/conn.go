package wire

import (
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// clientConn stands between a client's socket and fasthttp. Its Read gives exactly one request
// header at a time; its Write is what fasthttp answers with, swallowed where Forward has answered
// already. One goroutine at a time uses it, but for the body reader, which an upload may run apart.
type conn struct {
	net.Conn
	sock rawsocket.Socket
	l    *listener
	lim  *Limits
	req  Request
	res  Response
	in   http1.Buffer // bytes read beyond the header
	head http1.RequestHeader
	body Body

	refusal       *http1.Refusal
	delivered     bool // fasthttp holds a header
	taken         bool // … and the handler has looked at it
	served        bool // it is not the connection's first
	answered      bool // Forward has sent the answer, or its beginning
	last          bool // no further request may be read
	gone          bool // the connection was aborted or is a tunnel's
	secure        bool // TLS
	peer          netip.Addr
	lent          *[]byte            // what a header was read into before fasthttp is asked
	ahead         int                // … and its length, where it is left to fasthttp
	proxyProtocol *proxyProtocolConn // still to be read
	proxied       proxyHeader        // what it said

	state  atomic.Uint32 // connBusy, …
	values [][]byte      // of Request.PeekAll

	readBy, writeBy time.Time   // the deadlines in force
	ownWriteBy      atomic.Bool // the handler has set the one for writing
	interrupted     atomic.Bool

	bodyAt    time.Time     // when the body was first waited for
	bodyGot   int64         // bytes of it that had to be waited for
	patience  time.Duration // how long the body is waited for before readSome returns errImpatient; 0: until BodyIdle
	patientTo time.Time     // … and until when that is, from the first wait
	replying  atomic.Bool   // the origin is answering: who talks both ways may take their time
	unread    atomic.Bool   // the client may still be sending; Close, which shutdown calls too, asks

	// A 100 Continue goes out when an upload first reads; it must not mingle with an answer that
	// begins meanwhile. Only requests with an expectation ever lock.
	continueMu sync.Mutex
	started    bool // the final answer has begun
}

// The most of an unread body that is read and dropped so that the connection can go on, and how
// long that may take.
const (
	drainBytes = 256 << 10
	drainTime  = 3 * time.Second
	lingerTime = time.Second
	// Unless an answer is under way, a body has to come at this many bytes a second on average,
	// BodyIdle apart. A byte now and then would hold a connection to the origin for as long as it likes.
	leastBodyRate = 256
)

// What a connection is doing, for those who want to close it from elsewhere.
const (
	connBusy    = iota // with fasthttp, or with a header
	connFresh          // for the first request, before fasthttp knows of it
	connWaiting        // for the next request
	connDirect         // a direct handler answers, or the rest of a body is dropped: Close waits for it
	connClosing        // … and Close was called meanwhile
	connClosed
)

// Read gives fasthttp the next request header that is not served directly, whole and checked. A
// header that is refused is replaced by an empty request, whose refusal CheckRequest then finds.
func (c *conn) Read(p []byte) (int, error) {
	if c.lent != nil { // what Handshake has left to fasthttp
		n := copy(p, (*c.lent)[:c.ahead])
		if c.refusal == nil {
			c.head.Raw = p[:n]
		}
		c.giveBack()
		return n, nil
	}
	for {
		n, err := c.next(p)
		if n == 0 || c.l.direct == nil || !c.serveDirectly() {
			return n, err
		}
	}
}

// serveDirectly lets the direct handler have the request, and tells whether it took it.
func (c *conn) serveDirectly() bool {
	h := &c.head
	if t := h.TargetBytes(); c.refusal != nil || h.Http10 || h.Upgrade != -1 || len(t) == 0 || t[0] != '/' {
		return false
	}
	if !c.state.CompareAndSwap(connBusy, connDirect) {
		c.taken, c.last = true, true // closed as it came
		return true
	}
	taken := c.l.direct(&c.req)
	c.resume()
	c.taken = c.taken || taken
	return taken
}

// resume ends what Close had to wait for.
func (c *conn) resume() {
	if !c.state.CompareAndSwap(connDirect, connBusy) {
		c.state.Store(connBusy)
		c.last = true
	}
}

// next reads a header.
func (c *conn) next(p []byte) (int, error) {
	if c.delivered && !c.finish() {
		return 0, io.EOF
	}
	if c.last || c.gone {
		return 0, io.EOF
	}
	if c.proxyProtocol != nil {
		if err := c.beginWithProxyHeader(); err != nil {
			return 0, err
		}
	}
	if c.in.Buffered() == 0 {
		if err := c.await(); err != nil {
			return 0, err
		}
		n, err := c.wait(p)
		if n == 0 {
			return 0, silently(err)
		}
		if p == nil {
			p = (*c.lent)[:c.lim.together()]
		}
		end, r := c.head.Scan(p[:n], &c.l.heads)
		switch {
		case end == n:
			c.deliver()
			return end, nil
		case end > 0:
			c.in.Load(p[end:n])
			if c.brokenAhead() {
				return c.refuse(p, http1.RefuseChunks), nil
			}
			c.deliver()
			return end, nil
		case r != nil:
			return c.refuse(p, r), nil
		}
		c.in.Load(p[:n])
	}
	if p == nil && c.lent == nil {
		c.lent = http1.GetBlock()
	}
	if p == nil {
		p = (*c.lent)[:c.lim.together()]
	}
	return c.readSlow(p)
}

// quietly serves requests before fasthttp has given the connection buffers of its own, for as long as there are none
// but direct ones: an idle connection then costs little more than its goroutine. What is left to fasthttp stays in lent.
func (c *conn) quietly() {
	for {
		n, _ := c.next(nil)
		if n == 0 {
			c.giveBack()
			c.last = true
			return
		}
		if !c.serveDirectly() {
			c.ahead = n
			return
		}
	}
}

// giveBack returns the block that a header was read into.
func (c *conn) giveBack() {
	if c.lent != nil {
		http1.PutBlock(c.lent)
		c.lent = nil
	}
}

// wait reads what comes first of the next request. A connection that has had one may be closed meanwhile.
// With p nil the block that it is read into is c.lent.
func (c *conn) wait(p []byte) (n int, err error) {
	state := uint32(connWaiting)
	switch {
	case c.served:
	case p != nil:
		return c.recv(p)
	default:
		state = connFresh
	}
	c.state.CompareAndSwap(connBusy, state)
	if c.served && c.l.impatient.Load() {
		return 0, io.EOF
	}
	if p == nil {
		c.giveBack()
		c.lent, n, err = c.sock.ReadLent(c.lim.together())
	} else {
		n, err = c.recv(p)
	}
	if !c.state.CompareAndSwap(state, connBusy) {
		return 0, io.EOF
	}
	return n, err
}

// readSlow collects a header that did not come in one piece, or that was sent ahead.
func (c *conn) readSlow(p []byte) (int, error) {
	var deadline time.Time
	scanned := 0
	for {
		b := c.in.Pending()
		if worthScanning(b, scanned, c.lim) {
			end, r := c.head.Scan(b, &c.l.heads)
			if end > len(p) {
				r = http1.RefuseHeaderLarge
			}
			if r != nil {
				return c.refuse(p, r), nil
			}
			if end > 0 {
				copy(p, b[:end])
				c.in.Skip(end)
				c.head.Raw = p[:end]
				if c.brokenAhead() {
					return c.refuse(p, http1.RefuseChunks), nil
				}
				c.deliver()
				return end, nil
			}
		}
		scanned = len(b)
		if deadline.IsZero() {
			deadline = time.Now().Add(c.lim.HeaderTimeout)
			if err := c.setReadBy(deadline); err != nil {
				return 0, err
			}
		}
		c.in.Borrow()
		c.in.MakeRoom(1)
		n, err := c.recv(c.in.B[c.in.W:])
		c.in.W += n
		if n == 0 {
			if rawsocket.IsTimeout(err) {
				return c.refuse(p, refuseSlow), nil
			}
			return 0, err
		}
	}
}

// worthScanning saves a header that drips in from being scanned anew with each byte: a scan can
// only say more when a line has ended badly, when the header has ended, or when it is too long.
func worthScanning(b []byte, from int, lim *Limits) bool {
	if from == 0 || len(b) > lim.Header {
		return true
	}
	for i := from; i < len(b); i++ {
		if b[i] == '\n' && (b[i-1] != '\r' || i < 3 || b[i-2] == '\n') {
			return true
		}
	}
	return false
}

func (c *conn) deliver() {
	c.delivered, c.served, c.taken, c.answered, c.refusal = true, true, false, false, nil
	c.started = false
	if c.ownWriteBy.Load() {
		c.ownWriteBy.Store(false)
		c.writeBy = time.Time{}
	}
	c.body.begin(&c.head)
	if c.head.Length != 0 {
		c.unread.Store(true)
		c.bodyAt, c.bodyGot = time.Time{}, 0
		c.replying.Store(false)
	}
	if c.in.Buffered() == 0 {
		c.in.Release()
	}
}

// refused stands in for a header that is not let in.
const (
	refusedRequest = "GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
	refusedHead    = "HEAD / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
)

func (c *conn) refuse(p []byte, r *http1.Refusal) int {
	head := c.head.MethodEnd > 0 && c.head.IsHead()
	c.head.Reset()
	c.deliver()
	c.refusal, c.last = r, true
	c.unread.Store(true)
	if head {
		return copy(p, refusedHead)
	}
	return copy(p, refusedRequest)
}

// finish makes sure that the next byte is a request's first: what is left of the body is dropped,
// within bounds. It tells whether the connection can go on.
func (c *conn) finish() bool {
	if !c.taken || c.last || c.gone {
		return false
	}
	if !c.body.Ended() {
		if !c.state.CompareAndSwap(connBusy, connDirect) {
			return false
		}
		drained := c.body.drain()
		if c.resume(); !drained || c.last {
			c.last = true
			return false
		}
	}
	if c.in.Buffered() == 0 {
		c.in.Release()
	}
	c.delivered, c.answered = false, false
	if c.head.Length != 0 {
		c.unread.Store(false)
	}
	c.letGo()
	return true
}

// letGo forgets where the header was read into, which is somebody else's from now on.
func (c *conn) letGo() {
	c.head.Reset()
	clear(c.values[:cap(c.values)])
}

// RemoteAddr is the socket's other end, or what the PROXY protocol said it is.
func (c *conn) RemoteAddr() net.Addr {
	if c.proxied.addr != nil {
		return c.proxied.addr
	}
	return c.Conn.RemoteAddr()
}

// peerAddr is the address of the socket's other end, or what the PROXY protocol said it is.
func (c *conn) peerAddr() netip.Addr {
	if !c.peer.IsValid() {
		switch a := c.RemoteAddr().(type) {
		case *net.TCPAddr:
			c.peer, _ = netip.AddrFromSlice(a.IP)
			c.peer = c.peer.Unmap()
		default:
			c.peer = netip.IPv4Unspecified()
		}
	}
	return c.peer
}
