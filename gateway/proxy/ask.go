package proxy

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// connectAndAsk gets a connection, sends the request and reads the final header. It sends a request a second time
// only if a kept connection turned out to be closed before any byte of a response, and the request is idempotent and
// has no body; and then only once, on a new connection.
func (x *exchange) connectAndAsk() bool {
	var tried uint64
	var after *server // with the kept connection that turned out to be closed
	deadline := x.deadline()
	for {
		s, oc, out := x.o.pick(x.started, tried, after)
		if s == nil {
			return false // fail was called for the last server
		}
		x.allOut = x.allOut || out && tried == 0
		if oc != nil && (!x.started.Before(oc.until) || !oc.usable()) {
			oc.Close()
			x.o.drop(s)
			continue
		}
		if oc == nil {
			if !deadline.IsZero() && !time.Now().Before(deadline) {
				x.o.drop(s)
				x.fail(504, KindTimeout, errTimeout)
				return false
			}
			var kind string
			var err error
			begun := time.Now()
			if oc, kind, err = s.dial(context.Background(), x.o.cfg.ConnectTimeout, deadline); err != nil {
				x.o.failed(s, err, begun)
				tried |= s.bit
				x.late = true
				if x.allOut {
					err = x.o.noneHealthy(err)
				}
				x.fail(502, kind, err)
				if rawsocket.IsTimeout(err) {
					x.fail(504, kind, err)
				}
				continue
			}
			x.o.worked(s, time.Now())
		}
		x.outcome.Err, x.outcome.Kind = nil, "" // left by a server that could not be connected to
		reused := oc.reused
		x.oc, x.srv, x.outcome.Server = oc, s, s.url
		err := x.ask(deadline)
		if err == nil {
			return true
		}
		if reused && after == nil && !x.anyByte && isClosed(err) && x.h.Idempotent() {
			oc.in.Release()
			oc.Close()
			x.o.drop(s)
			x.oc, x.srv = nil, nil
			after, x.late = s, true
			continue
		}
		x.stopUpload()
		if x.allOut {
			err = x.o.noneHealthy(err)
		}
		x.blame(err)
		return false
	}
}

var errBodyRead = errors.New("proxy: Forward was called after the request's body was read")

var errTimeout = errors.New("proxy: the origin did not respond in time")

// deadline returns when the response's header has to be there; zero if there is none, as for uploads, which take
// their time.
func (x *exchange) deadline() time.Time {
	if t := x.o.cfg.Timeout; t > 0 && (x.body.Ended() || x.body.Buffered()) {
		return x.started.Add(t)
	}
	return time.Time{}
}

// isClosed reports whether err only means that the connection has ended.
func isClosed(err error) bool {
	return err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ask sends the request and reads the final header into x.a.
func (x *exchange) ask(deadline time.Time) error {
	cfg, oc := &x.o.cfg, x.oc
	x.req = x.up.appendFirst(x.appendRequest(x.req[:0], oc.server.authority), &x.outgoing, x.body)
	if !x.body.Ended() && x.body.Buffered() {
		x.req = x.body.AppendBuffered(x.req)
	}
	x.sentAt = x.started
	if !oc.reused || x.late { // after waiting for a connection, another server or the queue
		x.sentAt = time.Now()
	}
	oc.reused = true
	var werr error
	if x.body.Ended() && oc.link.Raw() {
		oc.ask = pendingAsk{request: x.req, idle: cfg.IdleTimeout}
	} else {
		werr = oc.write(x.req, cfg.IdleTimeout, x.sentAt)
	}
	oc.wait.begun = x.sentAt
	oc.wait.slice, oc.wait.patience, oc.wait.onSlice = x.o.waitSlice, cfg.FirstByteTimeout, x.onSlice
	if !deadline.IsZero() {
		if left := deadline.Sub(x.sentAt); left < oc.wait.patience || oc.wait.patience == 0 {
			oc.wait.patience = max(left, time.Millisecond)
		}
	}
	if werr == nil && !x.body.Ended() {
		if p := oc.wait.patience; p > 0 && p < oc.wait.slice {
			oc.wait.slice = p
		}
		oc.wait.patience = 0 // an upload has limits of its own; whileWaiting limits the time after it
		x.startUpload()
	}
	// After a failed write there may still be a response: an origin may refuse to read the rest of the request.
	err := x.readHeader()
	if oc.ask.err != nil {
		werr = oc.ask.err
	}
	oc.ask = pendingAsk{}
	if err != nil && werr != nil && isClosed(err) {
		return werr
	}
	return err
}

// readHeader reads up to the final header, and forwards the informational responses before it.
func (x *exchange) readHeader() error {
	oc := x.oc
	limit := oc.wait.patience // for the whole header, in however many reads
	for interim := 0; ; interim++ {
		n, err := 0, error(nil)
		for {
			if oc.in.Buffered() > 0 {
				x.anyByte = true
				if n, err = x.a.Scan(oc.in.Pending()); err != nil {
					return err
				}
				if n > 0 {
					break
				}
			}
			if x.anyByte {
				if err = x.allot(limit); err != nil {
					return err
				}
			}
			if err = oc.in.Fill(); err != nil {
				if err == http1.ErrBufferFull {
					return http1.ResponseError("its header is larger than 32 KiB")
				}
				if x.anyByte {
					err = http1.NoEOF(err)
				}
				return err
			}
		}
		oc.in.Keep(n) // not Skip: x.a refers to the buffer until the next Fill
		if x.a.Status >= 200 || x.a.Status == 101 {
			return nil
		}
		if interim == http1.MaxInterim {
			return http1.ResponseError("it sends informational responses without end")
		}
		// The gateway answers expectations itself; a forwarded 100 would be a second one.
		if !x.h.HTTP10 && (x.a.Status != 100 || !x.h.Expect) {
			x.out = appendInterim(x.outBack[:0], &x.a)
			if err := x.r.Response().WriteInterim(x.out); err != nil {
				return clientError{err}
			}
		}
	}
}

// allot limits the next read of a header to what is left of the limit since the request was sent.
func (x *exchange) allot(limit time.Duration) error {
	if limit == 0 {
		return x.whileWaiting() // the upload limits the time
	}
	now := time.Now()
	left := limit - now.Sub(x.sentAt)
	if left <= 0 {
		return errTimeout
	}
	x.oc.wait.begun, x.oc.wait.patience = now, left
	return nil
}

// clientError is an error on the client's side.
type clientError struct{ error }

func (e clientError) Unwrap() error { return e.error }

// whileWaiting is called now and then while the origin is silent. It ends the wait if the client has left, and
// FirstByteTimeout after the end of an upload.
func (x *exchange) whileWaiting() error {
	if x.up.running {
		at := x.up.endedAt.Load()
		if at == 0 {
			return nil // the upload would fail
		}
		if d := x.o.cfg.FirstByteTimeout; !x.outcome.Sent && d > 0 && time.Since(time.Unix(0, at)) >= d-d/8 {
			return errTimeout
		}
	}
	if x.r.Response().ClientLeft() {
		return clientError{errClientLeft}
	}
	return nil
}

var errClientLeft = errors.New("proxy: the client left before the end of the response")
