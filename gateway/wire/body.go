package wire

import (
	"errors"
	"io"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// ErrBodyTooLarge is returned by Request.ReadBody for a body over its limit, and by proxies.
var ErrBodyTooLarge = errors.New("wire: the request body is larger than allowed")

// Body is the body of the current request.
type Body struct {
	c        *conn
	length   int64 // -1 chunked
	left     int64
	chunks   http1.ChunkReader
	err      error
	ended    bool
	asked    bool // 100 Continue was sent, or the client does not expect it
	consumed bool // a byte has been read
}

func (b *Body) begin(h *http1.RequestHeader) {
	b.length, b.left = h.Length, h.Length
	b.ended, b.err, b.consumed = h.Length == 0, nil, false
	b.asked = !h.Expect
	b.c.reader.pace.drainEnds = time.Time{}
	if b.length < 0 {
		b.chunks.Reset(false, b.c.listener.limits.Headers)
	}
}

// malformedAhead reports whether the part of a chunked body that arrived with its header, which is not delivered yet, is
// malformed: such a request is refused before anything handles it.
func (b *Body) malformedAhead() bool {
	ahead := b.c.reader.buffer.Pending()
	return b.c.request.header.Length < 0 && len(ahead) > 0 && b.chunks.Malformed(ahead, b.c.listener.limits.Headers)
}

// Ended reports whether the body has been read to its end.
func (b *Body) Ended() bool { return b.ended }

// Started reports whether a byte of the body has been read.
func (b *Body) Started() bool { return b.consumed }

// Read reads the body, and asks the client for it first if it waits for that. An error is permanent, except ErrBodyLate
// and ErrInterrupted.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.ended {
		return 0, io.EOF
	}
	in := &b.c.reader.buffer
	if !b.asked && in.Buffered() == 0 {
		if err := b.c.writer.sendContinue(); err == ErrInterrupted {
			return 0, err
		} else if err != nil {
			return 0, b.Fail(err)
		}
	}
	b.asked = true
	var n int
	var err error
	if b.length < 0 {
		n, err = b.chunks.Read(in, p)
		b.ended = b.ended || b.chunks.Done()
	} else {
		if int64(len(p)) > b.left {
			p = p[:b.left]
		}
		n, err = in.Read(p)
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

// Fail ends the body with an error, and with it the connection, because the start of the next request cannot be found.
func (b *Body) Fail(err error) error {
	b.err = err
	return err
}

// Buffered reports whether the whole body has arrived, so that reading it never waits.
func (b *Body) Buffered() bool {
	return b.length >= 0 && int64(b.c.reader.buffer.Buffered()) >= b.left
}

// AppendBuffered appends the rest of a Buffered body to dst and ends the body.
func (b *Body) AppendBuffered(dst []byte) []byte {
	in := &b.c.reader.buffer
	p := in.Pending()[:b.left]
	dst = append(dst, p...)
	in.Skip(len(p))
	b.left, b.ended, b.asked, b.consumed = 0, true, true, true
	return dst
}

// Trailers returns the trailer lines of a chunked body that has ended.
func (b *Body) Trailers() []byte { return b.chunks.Trailers }

// SetPatience bounds how long reads may wait in all, from the first that waits; they then return ErrBodyLate. 0 is no
// bound.
func (b *Body) SetPatience(d time.Duration) {
	p := &b.c.reader.pace
	p.patience, p.patienceEnds = d, time.Time{}
}

// Waited reports whether a read has waited for the client.
func (b *Body) Waited() bool { return !b.c.reader.pace.start.IsZero() }

// SetReplying sets whether a response is being sent; the limits on a slow body are then off.
func (b *Body) SetReplying(on bool) { b.c.reader.replying.Store(on) }

// Interrupt ends reads that wait, and those to come, with ErrInterrupted.
func (b *Body) Interrupt() {
	b.c.reader.interrupted.Store(true)
	b.c.link.SetReadDeadline(rawsocket.Past) //nolint:errcheck // wakes the reader
}

// EndInterrupt allows reads again.
func (b *Body) EndInterrupt() {
	b.c.reader.interrupted.Store(false)
	b.c.reader.setDeadline(time.Now().Add(b.c.reader.limits.BodyIdle)) //nolint:errcheck // the next read fails
}

// cannotDrain reports whether the connection cannot go on because the body is too long to be dropped, has failed or is
// held back: a client that received no 100 Continue may send the body next, or a request.
func (b *Body) cannotDrain() bool { return b.err != nil || !b.asked || b.left > drainBytes }

// drain drops the rest of the body, within bounds, and reports whether its end was found.
func (b *Body) drain() bool {
	if b.ended || b.cannotDrain() {
		return b.ended
	}
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	b.c.reader.pace.drainEnds = time.Now().Add(drainTime)
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
