package proxy

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
)

// A request is sent to its origin when its whole body has arrived, or enoughBody of it, or bodyPatience after the
// first wait for it.
const (
	enoughBody   = 16 << 10
	bodyPatience = time.Second
)

// awaitBody reads the beginning of the body and reports whether the request may be sent. If the body does not arrive
// in time, the claim is slow.
func (x *exchange) awaitBody() bool {
	b := x.body
	if b.Buffered() && x.up.first.Buffered() == 0 {
		return true // it is sent from the buffer where it is
	}
	b.SetPatience(x.o.patience)
	err := x.up.readFirst(b, x.o.cfg.MaxBody)
	b.SetPatience(0)
	if b.Waited() { // the origin's time begins when it can work
		x.started = time.Now()
	}
	x.claim.slow = err == wire.ErrBodyLate
	if err != nil && err != wire.ErrBodyLate {
		x.blameClient(err)
		return false
	}
	return true
}

// readFirst reads the beginning of the body, at most enoughBody of it.
func (u *upload) readFirst(b *wire.Body, limit int64) error {
	for u.first.Buffered() < enoughBody && !b.Ended() {
		_, err := u.first.FillFrom(b, enoughBody)
		if limit > 0 && int64(u.first.Buffered()) > limit {
			return b.Fail(wire.ErrBodyTooLarge)
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// appendFirst appends the beginning of the body, if it was read, framed like the rest.
func (u *upload) appendFirst(dst []byte, q *outgoing, b *wire.Body) []byte {
	p := u.first.Pending()
	u.firstLen = len(p)
	defer u.first.Release()
	if q.h.Length >= 0 {
		return append(dst, p...)
	}
	if len(p) > 0 {
		dst = strconv.AppendUint(dst, uint64(len(p)), 16)
		dst = append(append(append(dst, "\r\n"...), p...), "\r\n"...)
	}
	if !b.Ended() {
		return dst
	}
	return append(q.appendTrailers(append(dst, "0\r\n"...), b.Trailers()), "\r\n"...)
}

func (x *exchange) startUpload() {
	x.up.running = true
	x.up.endedAt.Store(0)
	go x.upload(x.body, x.oc)
}

var errFault = errors.New("proxy: panic in an upload")

// upload sends the body. After an error on the client's side the connection to the origin is closed before the end of
// the body, so that the origin never has a request that was not sent whole.
func (x *exchange) upload(b *wire.Body, oc *originConn) {
	defer func() {
		if r := recover(); r != nil {
			x.up.clientErr = fmt.Errorf("%w: %v\n%s", errFault, r, debug.Stack())
			x.up.endedAt.Store(time.Now().UnixNano())
			oc.Close()
		}
		x.up.done <- struct{}{}
	}()
	complete, err := x.copyBody(b, oc)
	x.up.endedAt.Store(time.Now().UnixNano())
	x.up.complete = complete
	if err != nil && err != wire.ErrInterrupted {
		x.up.clientErr = err
		oc.Close()
	}
}

// copyBody reports whether the whole body was sent. Its error is one on the client's side.
func (x *exchange) copyBody(b *wire.Body, oc *originConn) (bool, error) {
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	buf := *block
	chunked := x.h.Length < 0
	slow := x.claim.slow
	begin, end := 0, len(buf)
	if chunked {
		begin, end = http1.ChunkHead, len(buf)-http1.ChunkTail
	}
	total := int64(x.up.firstLen)
	for {
		n, err := b.Read(buf[begin:end])
		total += int64(n)
		if slow && (total >= enoughBody || b.Ended()) {
			slow = false
			x.o.arrived(&x.claim)
		}
		if limit := x.o.cfg.MaxBody; limit > 0 && total > limit {
			return false, b.Fail(wire.ErrBodyTooLarge)
		}
		if err != nil && err != io.EOF {
			return false, err
		}
		if n > 0 {
			p := buf[begin : begin+n]
			if chunked {
				p = http1.FrameChunk(buf, begin, n)
			}
			if oc.write(p, x.o.cfg.IdleTimeout, time.Now()) != nil {
				return false, nil // the response, or its absence, shows why
			}
		}
		if err == io.EOF || b.Ended() {
			break
		}
	}
	if !chunked {
		return true, nil
	}
	p := x.appendTrailers(append(buf[:0], "0\r\n"...), b.Trailers())
	return oc.write(append(p, "\r\n"...), x.o.cfg.IdleTimeout, time.Now()) == nil, nil
}

// finishUpload waits for an upload after its response: an origin that keeps its connection may want the rest, and
// many clients read nothing before they have sent everything. The limits on a slow body apply again.
func (x *exchange) finishUpload() {
	x.body.SetReplying(false)
	<-x.up.done
	x.up.running = false
}

// stopUpload ends an upload that the response has overtaken, and waits for its goroutine.
func (x *exchange) stopUpload() {
	if !x.up.running {
		return
	}
	select {
	case <-x.up.done:
	default:
		x.body.Interrupt()
		x.oc.Close() // wakes the writer, which might set a new deadline
		<-x.up.done
		x.body.EndInterrupt()
	}
	x.up.running = false
	if !x.up.complete {
		x.reuse = false
	}
}
