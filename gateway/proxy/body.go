package proxy

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/valyala/fasthttp"
)

// body reads the request body of the header that was delivered last.
type body struct {
	c        *clientConn
	length   int64 // -1 chunked
	left     int64
	chunks   chunkReader
	ended    bool
	asked    bool // 100 Continue was sent, or need not be
	err      error
	consumed bool // a byte has left
}

func (b *body) begin(h *head) {
	b.length, b.left = h.length, h.length
	b.ended, b.err, b.consumed = h.length == 0, nil, false
	b.asked = !h.expect
	if b.length < 0 {
		b.chunks.reset(false)
	}
}

func (b *body) done() bool { return b.ended }

// Read implements io.Reader. A body that ends early or breaks its framing gives an error that
// stays; an interruption does not.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.ended {
		return 0, io.EOF
	}
	c := b.c
	if !b.asked && c.in.buffered() == 0 {
		if err := c.sendContinue(); err != nil {
			return 0, b.fail(err)
		}
	}
	b.asked = true
	var n int
	var err error
	if b.length < 0 {
		n, err = b.chunks.read(&c.in, p)
		if b.chunks.state == chunkDone {
			b.ended = true
		}
	} else {
		if int64(len(p)) > b.left {
			p = p[:b.left]
		}
		n, err = c.in.read(p)
		if b.left -= int64(n); b.left == 0 {
			b.ended = true
		}
		err = noEOF(err)
	}
	b.consumed = b.consumed || n > 0
	if n > 0 && !errors.Is(err, errChunk) {
		return n, nil
	}
	if err == nil && b.ended {
		return n, io.EOF
	}
	if err != nil && err != io.EOF && err != errInterrupted {
		return n, b.fail(err)
	}
	return n, err
}

func (b *body) fail(err error) error {
	b.err = err
	b.c.last = true
	return err
}

// buffered tells whether the whole body has arrived, so that reading it never waits.
func (b *body) buffered() bool {
	return b.length >= 0 && int64(b.c.in.buffered()) >= b.left
}

// drain drops the rest of the body, within bounds, and tells whether its end was found.
func (b *body) drain() bool {
	switch {
	case b.ended:
		return true
	case b.err != nil, !b.asked, b.left > drainBytes:
		return false // a client that was not told to continue may send the body, or a request
	}
	block := getBlock()
	defer putBlock(block)
	until := time.Now().Add(drainTime)
	for n := 0; n <= drainBytes; {
		if time.Now().After(until) {
			return false
		}
		m, err := b.Read(*block)
		n += m
		if err == io.EOF || b.ended {
			return true
		}
		if err != nil {
			return false
		}
	}
	return false
}

// CheckRequest is a handler's first call: it returns why the request is not let in, or nil. After a
// refusal the connection is closed, whatever is answered. The body, if any, is then
// ctx.RequestBodyStream; use ReadBody where it has to be in memory.
func CheckRequest(ctx *fasthttp.RequestCtx) *Refusal {
	c := clientOf(ctx)
	if c == nil {
		ctx.SetConnectionClose()
		return refuseUnprotected
	}
	c.taken = true
	if c.refusal != nil {
		ctx.SetConnectionClose()
		return c.refusal
	}
	if c.head.close {
		ctx.SetConnectionClose()
	}
	if c.body.length != 0 {
		ctx.Request.SetBodyStream(&c.body, int(c.body.length))
	}
	return nil
}

// Target is the request target in origin form, byte for byte as the client sent it (the authority
// of an absolute target is cut off). It is valid until the handler returns.
func Target(ctx *fasthttp.RequestCtx) []byte {
	c := clientOf(ctx)
	if c == nil || c.refusal != nil || len(c.head.raw) == 0 {
		return ctx.Request.Header.RequestURI()
	}
	if t := c.head.targetBytes(); len(t) > 0 && t[0] == '/' {
		return t
	}
	return c.head.appendTarget(nil)
}

// Peer is the address of the connection's other end, and whether the request has anything to say of
// those before it (Forwarded, X-Forwarded-…).
func Peer(ctx *fasthttp.RequestCtx) (addr netip.Addr, forwarded bool) {
	c := clientOf(ctx)
	if c == nil {
		return netip.Addr{}, true
	}
	return c.peerAddr(), c.head.forwarded
}

// Secure tells whether the request came by TLS: ours, or by the word of the PROXY protocol that of the peer before us.
func Secure(ctx *fasthttp.RequestCtx) bool {
	if c := clientOf(ctx); c != nil && c.origin.secure {
		return true
	}
	return ctx.IsTLS()
}

// CloseAfter makes the answer to this request the last on its connection, and say so.
func CloseAfter(ctx *fasthttp.RequestCtx) {
	if c := clientOf(ctx); c != nil {
		c.head.close = true
	}
	ctx.SetConnectionClose()
}

// ErrBodyTooLarge is what ReadBody says of a body over its limit.
var ErrBodyTooLarge = errors.New("proxy: the request body is larger than allowed")

// ReadBody reads the whole request body, at most limit bytes of it, into dst's room or more. It answers an expectation
// first.
func ReadBody(ctx *fasthttp.RequestCtx, dst []byte, limit int) ([]byte, error) {
	c := clientOf(ctx)
	if c == nil || c.body.ended && !c.body.consumed {
		return nil, nil
	}
	if c.body.length > int64(limit) {
		return nil, ErrBodyTooLarge
	}
	for b := dst[:0]; ; {
		b = slices.Grow(b, 256)
		n, err := c.body.Read(b[len(b):min(cap(b), limit+1)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return nil, ErrBodyTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// Drain is called after an answer of our own to a request whose body was not read: a body that is
// too long to be dropped, or that the client holds back, closes the connection, and the answer says
// so. Anything shorter is dropped after the answer has been sent. Without the call the same
// happens, but the answer does not announce it.
func Drain(ctx *fasthttp.RequestCtx) {
	c := clientOf(ctx)
	if c == nil || c.body.done() {
		return
	}
	if c.body.err != nil || !c.body.asked || c.body.left > drainBytes {
		c.last = true
		ctx.SetConnectionClose()
	}
}
