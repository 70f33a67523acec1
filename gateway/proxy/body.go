package proxy

import (
	"errors"
	"io"
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
	consumed bool      // a byte has left
	until    time.Time // when what is left is no longer waited for; zero: nothing is dropped yet
}

func (b *body) begin(h *head) {
	b.length, b.left = h.length, h.length
	b.ended, b.err, b.consumed, b.until = h.length == 0, nil, false, time.Time{}
	b.asked = !h.expect
	if b.length < 0 {
		b.chunks.reset(false, b.c.lim.Headers)
	}
}

func (b *body) done() bool { return b.ended }

// brokenAhead looks through what has come of a chunked body with its header, so that one which is broken from the start
// is refused wherever it leads. Nothing is taken.
func (c *clientConn) brokenAhead() bool {
	if c.head.length >= 0 || c.in.buffered() == 0 {
		return false
	}
	chunks, ahead := &c.body.chunks, inbuf{b: c.in.pending(), w: c.in.buffered()}
	chunks.reset(false, c.lim.Headers)
	for chunks.state != chunkDone {
		if chunks.state == chunkData {
			n := min(chunks.left, uint64(ahead.buffered()))
			ahead.skip(int(n))
			if chunks.left -= n; chunks.left > 0 {
				return false
			}
			chunks.state = chunkDataEnd
			continue
		}
		if whole, err := chunks.step(&ahead); err != nil || !whole {
			return err != nil
		}
	}
	return false
}

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
		if err := c.sendContinue(); err == errInterrupted {
			return 0, err
		} else if err != nil {
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
	if err != nil && err != io.EOF && err != errInterrupted && err != errImpatient {
		return n, b.fail(err)
	}
	return n, err
}

// fail makes err the body's end, and with it the connection's: finish finds no other.
func (b *body) fail(err error) error {
	b.err = err
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
	b.until = time.Now().Add(drainTime)
	for n := 0; n <= drainBytes; {
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
// refusal the connection is closed, whatever is answered. Of the body, if any, ctx knows nothing: Request.ReadBody and
// Forward read it.
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
	return nil
}

// ErrBodyTooLarge is what Request.ReadBody says of a body over its limit.
var ErrBodyTooLarge = errors.New("proxy: the request body is larger than allowed")
