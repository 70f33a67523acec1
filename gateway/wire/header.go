package wire

import (
	"io"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// next reads the next request header into p, or into the block of c.early if p is nil. It returns the header's length.
func (c *conn) next(p []byte) (int, error) {
	if c.phase >= phaseRead && !c.finish() || c.last {
		return 0, io.EOF
	}
	if c.peer.pending != nil {
		if err := c.beginWithProxyHeader(); err != nil {
			return 0, err
		}
	}
	in := &c.reader.buffer
	if in.Buffered() == 0 {
		if err := c.reader.awaitHeader(c.phase == phaseFresh); err != nil {
			return 0, err
		}
		n, err := c.wait(p)
		if n == 0 {
			return 0, silently(err)
		}
		if p == nil {
			p = c.early.space(c.listener.limits.together())
		}
		end, refusal := c.request.header.Scan(p[:n], &c.listener.headers)
		switch {
		case refusal != nil:
			return c.refuse(p, refusal), nil
		case end == 0:
			in.Load(p[:n])
			return c.readSlowly(p)
		case end < n:
			in.Load(p[end:n])
			if c.body.malformedAhead() {
				return c.refuse(p, http1.RefuseChunks), nil
			}
		}
		c.deliver()
		return end, nil
	}
	if p == nil {
		p = c.early.space(c.listener.limits.together())
	}
	return c.readSlowly(p)
}

// wait reads the first bytes of a request into p, or into a block for c.early if p is nil. While it waits, an idle
// connection may be closed from elsewhere.
func (c *conn) wait(p []byte) (n int, err error) {
	activity := uint32(activityIdle)
	if c.phase == phaseFresh {
		if p != nil {
			return c.link.Read(p)
		}
		activity = activityFresh
	}
	c.doing.CompareAndSwap(activityBusy, activity)
	if activity == activityIdle && c.listener.closeIdle.Load() {
		return 0, io.EOF
	}
	if p == nil {
		c.early.release()
		c.early.block, n, err = c.link.ReadLent(c.listener.limits.together())
	} else {
		n, err = c.link.Read(p)
	}
	if !c.doing.CompareAndSwap(activity, activityBusy) {
		return 0, io.EOF
	}
	return n, err
}

// readSlowly reads a header that arrives in pieces, or that was pipelined behind another request.
func (c *conn) readSlowly(p []byte) (int, error) {
	in := &c.reader.buffer
	var deadline time.Time
	scanned := 0
	for {
		b := in.Pending()
		if worthScanning(b, scanned, c.listener.headers.Header) {
			end, refusal := c.request.header.Scan(b, &c.listener.headers)
			if end > len(p) {
				refusal = http1.RefuseHeaderLarge
			}
			if refusal != nil {
				return c.refuse(p, refusal), nil
			}
			if end > 0 {
				copy(p, b[:end])
				in.Skip(end)
				c.request.header.Raw = p[:end]
				if c.body.malformedAhead() {
					return c.refuse(p, http1.RefuseChunks), nil
				}
				c.deliver()
				return end, nil
			}
		}
		scanned = len(b)
		if deadline.IsZero() {
			deadline = time.Now().Add(c.listener.limits.HeaderTimeout)
			if err := c.reader.setDeadline(deadline); err != nil {
				return 0, err
			}
		}
		n, err := in.FillFrom(&c.link, 0)
		if n == 0 {
			if rawsocket.IsTimeout(err) {
				return c.refuse(p, refuseSlow), nil
			}
			return 0, err
		}
	}
}

// worthScanning reports whether a scan of b can find more than that of its first from bytes did: it can if a line has
// ended badly, if the header has ended or if it is too long. A header that arrives byte by byte is not scanned each time.
func worthScanning(b []byte, from, limit int) bool {
	if from == 0 || len(b) > limit {
		return true
	}
	for i := from; i < len(b); i++ {
		if b[i] == '\n' && (b[i-1] != '\r' || i < 3 || b[i-2] == '\n') {
			return true
		}
	}
	return false
}

// What fasthttp reads in place of a header that is refused.
const (
	refusedRequest = "GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
	refusedHead    = "HEAD / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
)

// refuse makes a refused request the current one.
func (c *conn) refuse(p []byte, r *http1.Refusal) int {
	h := &c.request.header
	head := h.HasMethod() && h.IsHead()
	h.Reset()
	c.deliver()
	c.request.refusal, c.last = r, true
	c.unread.Store(true)
	if head {
		return copy(p, refusedHead)
	}
	return copy(p, refusedRequest)
}
