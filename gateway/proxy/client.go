package proxy

import (
	"errors"
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
type clientConn struct {
	net.Conn
	sock socket
	l    *listener
	lim  *Limits
	req  Request
	in   inbuf // bytes read beyond the header
	head head
	body body

	refusal   *Refusal
	delivered bool // fasthttp holds a header
	taken     bool // … and the handler has looked at it
	served    bool // it is not the connection's first
	answered  bool // Forward has sent the answer, or its beginning
	last      bool // no further request may be read
	gone      bool // the connection was aborted or is a tunnel's
	secure    bool // TLS
	peer      netip.Addr
	lent      *[]byte       // what a header was read into before fasthttp is asked
	ahead     int           // … and its length, where it is left to fasthttp
	preface   *prefacedConn // still to be read
	origin    prefaceOrigin // what it said

	state  atomic.Uint32 // connBusy, …
	values [][]byte      // of Request.PeekAll
	out    []byte        // of Request.Send

	readBy, writeBy time.Time // the deadlines in force
	ownWriteBy      bool      // the handler has set the one for writing
	interrupted     atomic.Bool

	bodyAt   time.Time   // when the body was first waited for
	bodyGot  int64       // bytes of it that had to be waited for
	replying atomic.Bool // the origin is answering: who talks both ways may take their time
	unread   atomic.Bool // the client may still be sending; Close, which shutdown calls too, asks

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
	connDirect         // a direct handler answers: Close waits for it
	connClosing        // … and Close was called meanwhile
	connClosed
)

// Read gives fasthttp the next request header that is not served directly, whole and checked. A
// header that is refused is replaced by an empty request, whose refusal CheckRequest then finds.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.lent != nil { // what Handshake has left to fasthttp
		n := copy(p, (*c.lent)[:c.ahead])
		if c.refusal == nil {
			c.head.raw = p[:n]
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
func (c *clientConn) serveDirectly() bool {
	h := &c.head
	if t := h.targetBytes(); c.refusal != nil || h.http10 || h.upgrade != -1 || len(t) == 0 || t[0] != '/' {
		return false
	}
	if !c.state.CompareAndSwap(connBusy, connDirect) {
		c.taken, c.last = true, true // closed as it came
		return true
	}
	taken := c.l.direct(&c.req)
	if !c.state.CompareAndSwap(connDirect, connBusy) {
		c.state.Store(connBusy)
		c.last = true
	}
	c.taken = c.taken || taken
	return taken
}

// next reads a header.
func (c *clientConn) next(p []byte) (int, error) {
	if c.delivered && !c.finish() {
		return 0, io.EOF
	}
	if c.last || c.gone {
		return 0, io.EOF
	}
	if c.preface != nil {
		if err := c.begunByPreface(); err != nil {
			return 0, err
		}
	}
	if c.in.buffered() == 0 {
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
		end, r := c.head.scan(p[:n], c.lim)
		switch {
		case end == n:
			c.deliver()
			return end, nil
		case end > 0:
			c.in.load(p[end:n])
			if c.brokenAhead() {
				return c.refuse(p, refuseChunks), nil
			}
			c.deliver()
			return end, nil
		case r != nil:
			return c.refuse(p, r), nil
		}
		c.in.load(p[:n])
	}
	if p == nil && c.lent == nil {
		c.lent = getBlock()
	}
	if p == nil {
		p = (*c.lent)[:c.lim.together()]
	}
	return c.readSlow(p)
}

// quietly serves requests before fasthttp has given the connection buffers of its own, for as long as there are none
// but direct ones: an idle connection then costs little more than its goroutine. What is left to fasthttp stays in lent.
func (c *clientConn) quietly() {
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
func (c *clientConn) giveBack() {
	if c.lent != nil {
		putBlock(c.lent)
		c.lent = nil
	}
}

// wait reads what comes first of the next request. A connection that has had one may be closed meanwhile.
// With p nil the block that it is read into is c.lent.
func (c *clientConn) wait(p []byte) (n int, err error) {
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
		c.lent, n, err = c.sock.readLent(c.lim.together())
	} else {
		n, err = c.recv(p)
	}
	if !c.state.CompareAndSwap(state, connBusy) {
		return 0, io.EOF
	}
	return n, err
}

// readSlow collects a header that did not come in one piece, or that was sent ahead.
func (c *clientConn) readSlow(p []byte) (int, error) {
	var deadline time.Time
	scanned := 0
	for {
		b := c.in.pending()
		if worthScanning(b, scanned, c.lim) {
			end, r := c.head.scan(b, c.lim)
			if end > len(p) {
				r = refuseHeaderLarge
			}
			if r != nil {
				return c.refuse(p, r), nil
			}
			if end > 0 {
				copy(p, b[:end])
				c.in.skip(end)
				c.head.raw = p[:end]
				if c.brokenAhead() {
					return c.refuse(p, refuseChunks), nil
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
		c.in.borrow()
		c.in.makeRoom(1)
		n, err := c.recv(c.in.b[c.in.w:])
		c.in.w += n
		if n == 0 {
			if isTimeout(err) {
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

func (c *clientConn) deliver() {
	c.delivered, c.served, c.taken, c.answered, c.refusal = true, true, false, false, nil
	c.started, c.ownWriteBy = false, false
	c.body.begin(&c.head)
	if c.head.length != 0 {
		c.unread.Store(true)
		c.bodyAt, c.bodyGot = time.Time{}, 0
		c.replying.Store(false)
	}
	if c.in.buffered() == 0 {
		c.in.release()
	}
}

// refused stands in for a header that is not let in.
const (
	refusedRequest = "GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
	refusedHead    = "HEAD / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
)

func (c *clientConn) refuse(p []byte, r *Refusal) int {
	head := c.head.methodEnd > 0 && c.head.isHead()
	c.head.reset()
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
func (c *clientConn) finish() bool {
	if !c.taken || c.last || c.gone {
		return false
	}
	if !c.body.done() {
		if !c.body.drain() {
			c.last = true
			return false
		}
		if c.in.buffered() == 0 {
			c.in.release()
		}
	}
	c.delivered, c.answered = false, false
	if c.head.length != 0 {
		c.unread.Store(false)
	}
	return true
}

// readSome reads body bytes; a silence longer than BodyIdle ends it, and so does next to nothing.
func (c *clientConn) readSome(p []byte) (int, error) {
	now := time.Now()
	most := c.lim.BodyIdle
	if !c.replying.Load() {
		if c.bodyAt.IsZero() {
			c.bodyAt = now
		}
		earned := time.Duration(c.bodyGot) * (time.Second / leastBodyRate)
		most = min(most, max(0, c.bodyAt.Sub(now)+c.lim.BodyIdle+earned))
	} else {
		c.bodyAt, c.bodyGot = time.Time{}, 0
	}
	if left := c.readBy.Sub(now); left < most*7/8 || left > most {
		if err := c.setReadBy(now.Add(most)); err != nil {
			return 0, err
		}
		if c.interrupted.Load() {
			c.Conn.SetReadDeadline(past) //nolint:errcheck // the read below tells
		}
	}
	n, err := c.recv(p)
	c.bodyGot += int64(n)
	if n > 0 {
		return n, nil
	}
	if isTimeout(err) {
		if c.interrupted.Load() {
			return 0, errInterrupted
		}
		return 0, errBodyIdle
	}
	return 0, err
}

var (
	past           = time.Unix(1, 0)
	errInterrupted = errors.New("proxy: the answer came before the body's end")
	errBodyIdle    = errors.New("proxy: the client stopped sending its body, or sends next to nothing")
)

func (c *clientConn) setReadBy(t time.Time) error {
	c.readBy = t
	return c.Conn.SetReadDeadline(t)
}

// await sets the deadline for a header's first byte: a new connection has the time of a header, a
// used one may be idle. One that differs little from the deadline in force is left as it is.
func (c *clientConn) await() error {
	d := c.lim.Idle
	if !c.served {
		d = c.lim.HeaderTimeout
	}
	by := time.Now().Add(d)
	if later := by.Sub(c.readBy); later >= 0 && later < d/16 {
		return nil
	}
	return c.setReadBy(by)
}

// silently ends an idle connection without the answer that fasthttp would give to a time-out.
func silently(err error) error {
	if isTimeout(err) {
		return io.EOF
	}
	return err
}

// SetReadDeadline is for a handler that has its own ideas.
func (c *clientConn) SetReadDeadline(t time.Time) error { return c.setReadBy(t) }

// SetDeadline is for TLS and hijackers.
func (c *clientConn) SetDeadline(t time.Time) error {
	c.readBy, c.writeBy = time.Time{}, time.Time{}
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline is for a handler that has its own ideas: its writes then keep to them.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.writeBy, c.ownWriteBy = time.Time{}, !t.IsZero()
	return c.Conn.SetWriteDeadline(t)
}

// Write is fasthttp's way to the client.
func (c *clientConn) Write(p []byte) (int, error) {
	if c.answered || c.gone {
		return len(p), nil
	}
	c.begin()
	c.settle()
	if c.ownWriteBy {
		return c.Conn.Write(p)
	}
	if err := c.send(p, time.Now()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// settle notes that nothing is left of the body, so Close need not wait for it.
func (c *clientConn) settle() {
	if c.head.length != 0 && c.body.done() {
		c.unread.Store(false)
	}
}

// begin marks the final answer's first byte, after which no 100 Continue may follow.
func (c *clientConn) begin() {
	if c.head.expect && !c.started {
		c.continueMu.Lock()
		c.started = true
		c.continueMu.Unlock()
	}
}

// send is the way to the client; one that does not take p for WriteIdle is given up.
func (c *clientConn) send(p []byte, now time.Time) error {
	if left := c.writeBy.Sub(now); left < c.lim.WriteIdle*3/4 || left > c.lim.WriteIdle {
		c.writeBy = now.Add(c.lim.WriteIdle)
		if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
			return err
		}
	}
	if c.sock.is() {
		_, err := c.sock.write(p)
		return err
	}
	_, err := c.Conn.Write(p)
	return err
}

// recv is the way from the client.
func (c *clientConn) recv(p []byte) (int, error) {
	if c.sock.is() {
		return c.sock.read(p)
	}
	return c.Conn.Read(p)
}

const continueLine = "HTTP/1.1 100 Continue\r\n\r\n"

// sendInterim passes an informational answer on.
func (c *clientConn) sendInterim(p []byte) error {
	if c.head.expect { // an upload may be about to send 100 Continue
		c.continueMu.Lock()
		defer c.continueMu.Unlock()
	}
	return c.send(p, time.Now())
}

// sendContinue asks the client for its body, unless the answer has begun.
func (c *clientConn) sendContinue() error {
	c.continueMu.Lock()
	defer c.continueMu.Unlock()
	if c.started {
		return errInterrupted // who was not told to continue may never send the body
	}
	return c.send([]byte(continueLine), time.Now())
}

// Close ends the connection. Where the client may still be sending, the answer would be lost to a
// reset if the socket were closed at once, so it is only half closed and read from for a moment.
func (c *clientConn) Close() error {
	for {
		switch state := c.state.Load(); state {
		case connDirect:
			if c.state.CompareAndSwap(connDirect, connClosing) {
				return nil
			}
		case connClosing, connClosed:
			return nil
		default:
			if c.state.CompareAndSwap(state, connClosed) {
				return c.shut()
			}
		}
	}
}

// closeWaiting closes the connection if nobody is being served on it.
func (c *clientConn) closeWaiting(state uint32) {
	if c.state.CompareAndSwap(state, connClosed) {
		c.shut() //nolint:errcheck // it is gone either way
	}
}

func (c *clientConn) shut() error {
	c.l.forget(c)
	if c.unread.CompareAndSwap(true, false) {
		linger(c.Conn)
	}
	return c.Conn.Close()
}

func linger(c net.Conn) {
	if !closeWrite(c) {
		return
	}
	if c.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	block := getBlock()
	defer putBlock(block)
	for n := 0; n < drainBytes; {
		m, err := c.Read(*block)
		if err != nil {
			return
		}
		n += m
	}
}

// abort cuts the connection so that the client cannot take what it has for the whole.
func (c *clientConn) abort() {
	c.gone, c.last = true, true
	c.unread.Store(false)
	abortConn(c.Conn)
}

// abortConn resets a connection: no FIN, no TLS close, so a body that ends with the connection is
// seen to be cut.
func abortConn(c net.Conn) {
	c = socketOf(c)
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		l.SetLinger(0) //nolint:errcheck // it is closed next
	}
	c.Close()
}

// closeWrite sends FIN (or a TLS close) and keeps reading possible.
func closeWrite(c net.Conn) bool {
	if p, ok := c.(*prefacedConn); ok {
		c = p.Conn
	}
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite() == nil
	}
	return false
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// RemoteAddr is the socket's other end, or what the PROXY protocol said it is.
func (c *clientConn) RemoteAddr() net.Addr {
	if c.origin.addr != nil {
		return c.origin.addr
	}
	return c.Conn.RemoteAddr()
}

// peerAddr is the address of the socket's other end, or what the PROXY protocol said it is.
func (c *clientConn) peerAddr() netip.Addr {
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
