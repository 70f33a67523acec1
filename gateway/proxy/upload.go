package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"time"
)

// noMore ends what was read ahead.
type noMore struct{}

func (noMore) readSome([]byte) (int, error) { return 0, io.EOF }

// checkAhead looks through what has arrived of a chunked body before the origin is contacted, so
// that one which is broken from the start never gets there. A body that has arrived whole is kept,
// and travels with the header.
func (x *exchange) checkAhead() error {
	b := &x.c.body
	encoded, decoded := inbuf{src: noMore{}}, &x.whole
	size := x.c.in.buffered()
	if size >= blockSize {
		return nil // so much was sent ahead that it is checked on its way
	}
	encoded.load(x.c.in.pending())
	defer encoded.release()
	decoded.borrow()
	x.chunks.reset(false)
	for {
		n, err := x.chunks.read(&encoded, decoded.b[decoded.w:])
		decoded.w += n
		switch {
		case err == io.EOF || x.chunks.state == chunkDone:
			if limit := x.o.cfg.MaxBody; limit > 0 && int64(decoded.w) > limit {
				return ErrBodyTooLarge
			}
			x.ahead = true
			x.c.in.skip(size - encoded.buffered())
			b.ended, b.asked, b.consumed = true, true, true
			return nil
		case errors.Is(err, errChunk):
			return err
		case err != nil:
			return nil // the rest is still to come
		}
	}
}

// appendAhead writes a body that was read ahead, as one chunk.
func (x *exchange) appendAhead(dst []byte) []byte {
	if p := x.whole.pending(); len(p) > 0 {
		dst = strconv.AppendUint(dst, uint64(len(p)), 16)
		dst = append(dst, "\r\n"...)
		dst = append(dst, p...)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "0\r\n"...)
	if x.c.head.trailer {
		dst = appendTrailers(dst, x.chunks.trailers, x.travels)
	}
	return append(dst, "\r\n"...)
}

func (x *exchange) startUpload() {
	x.up.running = true
	x.up.endedAt.Store(0)
	x.c.interrupted.Store(false)
	go x.upload(x.c, x.oc)
}

var errFault = errors.New("proxy: fault in an upload")

// upload copies the body. A fault of the client's cuts the origin off before the body's end, so that
// the origin never has a request that was not sent whole.
func (x *exchange) upload(c *clientConn, oc *originConn) {
	defer func() {
		if r := recover(); r != nil {
			x.up.clientErr = fmt.Errorf("%w: %v\n%s", errFault, r, debug.Stack())
			x.up.endedAt.Store(time.Now().UnixNano())
			oc.Conn.Close()
		}
		x.up.done <- struct{}{}
	}()
	complete, err := x.copyBody(c, oc)
	x.up.endedAt.Store(time.Now().UnixNano())
	x.up.complete = complete
	if err != nil && err != errInterrupted {
		x.up.clientErr = err
		oc.Conn.Close()
	}
}

// copyBody tells whether the whole body was written; its error is the client's alone.
func (x *exchange) copyBody(c *clientConn, oc *originConn) (bool, error) {
	block := getBlock()
	defer putBlock(block)
	buf := *block
	chunked := c.body.length < 0
	begin, end := 0, len(buf)
	if chunked {
		begin, end = chunkHead, len(buf)-chunkTail
	}
	var total int64
	for {
		n, err := c.body.Read(buf[begin:end])
		total += int64(n)
		if limit := x.o.cfg.MaxBody; limit > 0 && total > limit {
			return false, c.body.fail(ErrBodyTooLarge)
		}
		if err != nil && err != io.EOF {
			return false, err
		}
		if n > 0 {
			p := buf[begin : begin+n]
			if chunked {
				p = frameChunk(buf, begin, n)
			}
			if oc.write(p, x.o.cfg.IdleTimeout, time.Now()) != nil {
				return false, nil // the answer, or its absence, says why
			}
		}
		if err == io.EOF || c.body.done() {
			break
		}
	}
	if !chunked {
		return true, nil
	}
	p := append(buf[:0], "0\r\n"...)
	if c.head.trailer {
		p = appendTrailers(p, c.body.chunks.trailers, x.travels)
	}
	return oc.write(append(p, "\r\n"...), x.o.cfg.IdleTimeout, time.Now()) == nil, nil
}

// finishUpload lets an upload go on whose answer is over: an origin that keeps its connection may want the rest, and
// many clients read nothing before they have sent it all. The client has to be as quick as before the answer began.
func (x *exchange) finishUpload() {
	x.c.replying.Store(false)
	<-x.up.done
	x.up.running = false
}

// stopUpload ends an upload that the answer has overtaken and waits for its goroutine.
func (x *exchange) stopUpload() {
	if !x.up.running {
		return
	}
	select {
	case <-x.up.done:
	default:
		x.c.interrupted.Store(true)
		x.c.Conn.SetReadDeadline(past) //nolint:errcheck // wakes the reader
		x.oc.Conn.Close()              // wakes the writer, which might set a deadline anew
		<-x.up.done
		x.c.interrupted.Store(false)
		x.c.setReadBy(time.Now().Add(x.c.lim.BodyIdle)) //nolint:errcheck // the next read tells
	}
	x.up.running = false
	if !x.up.complete {
		x.reuse = false
	}
}

const (
	chunkHead = 6 // "ffff\r\n"
	chunkTail = 2
	hexDigits = "0123456789abcdef"
)

// frameChunk writes a chunk's size before the n bytes at buf[at:] and its end behind them, in place;
// there has to be room for both. n is at most 0xffff.
func frameChunk(buf []byte, at, n int) []byte {
	i := at
	i--
	buf[i] = '\n'
	i--
	buf[i] = '\r'
	for v := n; ; v >>= 4 {
		i--
		buf[i] = hexDigits[v&15]
		if v < 16 {
			break
		}
	}
	buf[at+n], buf[at+n+1] = '\r', '\n'
	return buf[i : at+n+2]
}

// socketOf finds the socket under TLS and the like.
func socketOf(c net.Conn) net.Conn {
	for {
		t, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = t.NetConn()
	}
}
