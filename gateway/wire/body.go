package wire

import (
	"errors"
	"io"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/valyala/fasthttp"
)

// body reads the request body of the header that was delivered last.
type Body struct {
	c        *conn
	length   int64 // -1 chunked
	left     int64
	chunks   http1.ChunkReader
	ended    bool
	asked    bool // 100 Continue was sent, or need not be
	err      error
	consumed bool      // a byte has left
	until    time.Time // when what is left is no longer waited for; zero: nothing is dropped yet
}

func (b *Body) begin(h *http1.RequestHeader) {
	b.length, b.left = h.Length, h.Length
	b.ended, b.err, b.consumed, b.until = h.Length == 0, nil, false, time.Time{}
	b.asked = !h.Expect
	if b.length < 0 {
		b.chunks.Reset(false, b.c.lim.Headers)
	}
}

func (b *Body) Ended() bool { return b.ended }

// brokenAhead looks through what has come of a chunked body with its header, so that one which is broken from the start
// is refused wherever it leads. Nothing is taken.
func (c *conn) brokenAhead() bool {
	if c.head.Length >= 0 || c.in.Buffered() == 0 {
		return false
	}
	return c.body.chunks.Malformed(c.in.Pending(), c.lim.Headers)
}

// Read implements io.Reader. A body that ends early or breaks its framing gives an error that
// stays; an interruption does not.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.ended {
		return 0, io.EOF
	}
	c := b.c
	if !b.asked && c.in.Buffered() == 0 {
		if err := c.sendContinue(); err == ErrInterrupted {
			return 0, err
		} else if err != nil {
			return 0, b.Fail(err)
		}
	}
	b.asked = true
	var n int
	var err error
	if b.length < 0 {
		n, err = b.chunks.Read(&c.in, p)
		if b.chunks.State == http1.ChunkDone {
			b.ended = true
		}
	} else {
		if int64(len(p)) > b.left {
			p = p[:b.left]
		}
		n, err = c.in.Read(p)
		if b.left -= int64(n); b.left == 0 {
			b.ended = true
		}
		err = http1.NoEOF(err)
	}
	b.consumed = b.consumed || n > 0
	if n > 0 && !errors.Is(err, http1.ErrChunk) {
		return n, nil
	}
	if err == nil && b.ended {
		return n, io.EOF
	}
	if err != nil && err != io.EOF && err != ErrInterrupted && err != ErrBodyLate {
		return n, b.Fail(err)
	}
	return n, err
}

// fail makes err the body's end, and with it the connection's: finish finds no other.
func (b *Body) Fail(err error) error {
	b.err = err
	return err
}

// buffered tells whether the whole body has arrived, so that reading it never waits.
func (b *Body) Buffered() bool {
	return b.length >= 0 && int64(b.c.in.Buffered()) >= b.left
}

// Started reports whether a byte of the body has been read.
func (b *Body) Started() bool { return b.consumed }

// AppendBuffered appends the rest of a body that is Buffered to dst and ends the body.
func (b *Body) AppendBuffered(dst []byte) []byte {
	p := b.c.in.Pending()[:b.left]
	dst = append(dst, p...)
	b.c.in.Skip(len(p))
	b.left, b.ended, b.asked, b.consumed = 0, true, true, true
	return dst
}

// Trailers returns the trailer lines of a chunked body that has ended.
func (b *Body) Trailers() []byte { return b.chunks.Trailers }

// SetPatience bounds how long reads may wait in all, from the first that waits; they then return ErrBodyLate. 0 is no
// bound.
func (b *Body) SetPatience(d time.Duration) { b.c.patience, b.c.patientTo = d, time.Time{} }

// Waited reports whether a read has waited for the client.
func (b *Body) Waited() bool { return !b.c.bodyAt.IsZero() }

// SetReplying tells whether a response is being sent: the client may then send as slowly as it likes.
func (b *Body) SetReplying(on bool) { b.c.replying.Store(on) }

// Interrupt ends reads that wait, and those to come, with ErrInterrupted.
func (b *Body) Interrupt() {
	b.c.interrupted.Store(true)
	b.c.Conn.SetReadDeadline(rawsocket.Past) //nolint:errcheck // wakes the reader
}

// EndInterrupt allows reads again.
func (b *Body) EndInterrupt() {
	b.c.interrupted.Store(false)
	b.c.setReadBy(time.Now().Add(b.c.lim.BodyIdle)) //nolint:errcheck // the next read tells
}

// drain drops the rest of the body, within bounds, and tells whether its end was found.
func (b *Body) drain() bool {
	switch {
	case b.ended:
		return true
	case b.err != nil, !b.asked, b.left > drainBytes:
		return false // a client that was not told to continue may send the body, or a request
	}
	block := http1.GetBlock()
	defer http1.PutBlock(block)
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
func CheckRequest(ctx *fasthttp.RequestCtx) *http1.Refusal {
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
	if c.head.Close {
		ctx.SetConnectionClose()
	}
	return nil
}

// ErrBodyTooLarge is what Request.ReadBody says of a body over its limit.
var ErrBodyTooLarge = errors.New("proxy: the request body is larger than allowed")
