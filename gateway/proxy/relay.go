package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// maxWrite is the size of one write to a client.
const maxWrite = 32 << 10

// relay sends the response to the client as it arrives.
func (x *exchange) relay() {
	a, h, w := &x.a, x.h, x.r.Response()
	frame := frameNone
	switch {
	case a.Bodiless(h.IsHead()):
	case a.HasLength:
		frame = frameLength
	case h.HTTP10:
		frame = frameClose
	default:
		frame = frameChunked
	}
	x.closing = w.Closing() || frame == frameClose
	edited := x.edited
	plain := x.f.OnlyWith != nil && !a.HasAny(x.f.OnlyWith)
	if !plain {
		fill(edited, a)
		if x.f.OnHeader != nil {
			x.f.OnHeader(edited)
		}
		x.closing = x.closing || edited.ConnectionClose()
	}
	var events bool
	status := a.Status
	if plain {
		events = isEventStream(a.ContentType())
		x.out = x.appendUnchanged(x.outBack[:0], frame)
	} else {
		events = isEventStream(edited.ContentType())
		status = edited.StatusCode()
		x.out = x.appendEdited(x.outBack[:0], frame)
	}
	x.oc.in.Skip(0) // x.a is not used from here on
	x.oc.wait.patience, x.oc.wait.slice = x.o.cfg.IdleTimeout, x.o.waitSlice
	if events && frame != frameNone {
		t := &tunnel{oc: x.oc}
		x.o.tunnels.add(t)
		defer x.o.tunnels.remove(t)
	}

	w.Begin()
	if x.up.running {
		x.body.SetReplying(true)
	}
	x.outcome.Sent = true
	x.outcome.Status = status

	var err error
	if frame == frameNone {
		err = x.flush(x.out)
	} else {
		err = x.relayBody(frame)
	}
	if err == nil && x.up.running && a.KeepAlive && frame != frameClose && (frame == frameNone || a.Length != -2) {
		x.finishUpload()
	}
	x.stopUpload()
	switch {
	case err == nil && x.up.clientErr != nil:
		x.blameClient(x.up.clientErr) // the client has the whole response, the origin not the whole request
	case err == nil:
		// An origin that responds early may never read the rest of the body, and take it for a request; so may an
		// origin that ignores the body of a method that hardly ever has one.
		x.reuse = a.KeepAlive && !x.early && !h.OddBody() && x.oc.in.Buffered() == 0 && (x.up.complete || x.body.Ended()) &&
			(frame == frameNone || a.Length != -2)
	default:
		x.relayFailed(err, frame)
	}
}

func isEventStream(contentType []byte) bool {
	return http1.PrefixFold(contentType, "text/event-stream")
}

func (x *exchange) flush(p []byte) error {
	now := x.now
	if now.IsZero() {
		now = time.Now()
	}
	x.now = time.Time{}
	if err := x.r.Response().Write(p, now); err != nil {
		return clientError{err}
	}
	return nil
}

// relayBody sends the header, which is in x.out, and the body. What has arrived is sent in one write, and never waits
// for more.
func (x *exchange) relayBody(frame framing) error {
	x.left = x.a.Length
	if x.a.Length == -1 {
		x.chunks.Reset(true, http1.MaxResponseHeaders)
	}
	if len(x.out) > maxWrite/2 {
		if err := x.flush(x.out); err != nil {
			return err
		}
		x.out = x.outBack[:0]
	}
	buf := x.outBack[:maxWrite]
	head := len(x.out)
	ended := x.a.Length == 0
	if !ended && !x.ready(&x.oc.in) {
		if err := x.flush(x.out); err != nil {
			return err
		}
		head = 0
	}
	for {
		at, room := head, len(buf)
		if frame == frameChunked {
			at, room = head+http1.ChunkHead, len(buf)-http1.ChunkTail
		}
		n := 0
		var err error
		for !ended && n < room-at && (n == 0 || x.ready(&x.oc.in)) {
			var m int
			m, err = x.readBody(&x.oc.in, buf[at+n:room])
			n += m
			if err == io.EOF {
				err, ended = nil, true
			}
			if err != nil {
				break
			}
			ended = ended || x.atEnd()
		}
		x.outcome.BodyBytes += int64(n)
		if n > 0 || head > 0 {
			p := buf[:at+n]
			if frame == frameChunked {
				p = buf[:head]
				if n > 0 {
					p = frameAfter(buf, head, at, n)
				}
			}
			if ended && err == nil && frame == frameChunked && !x.a.Announced.Any() && len(p)+5 <= cap(p) {
				return x.flush(append(p, "0\r\n\r\n"...))
			}
			if ferr := x.flush(p); ferr != nil {
				return ferr
			}
			head = 0
		}
		if err != nil {
			return err
		}
		if ended {
			break
		}
	}
	if frame != frameChunked {
		return nil
	}
	p := append(buf[:0], "0\r\n"...)
	if x.a.Announced.Any() && x.a.Length == -1 {
		p = http1.AppendTrailers(p, x.chunks.Trailers, x.a.Announced.Has)
	}
	return x.flush(append(p, "\r\n"...))
}

// frameAfter frames the n bytes at buf[at:] as a chunk directly behind the first head bytes of buf, which move up to
// it.
func frameAfter(buf []byte, head, at, n int) []byte {
	chunk := http1.FrameChunk(buf, at, n)
	begin := at + n + http1.ChunkTail - len(chunk)
	if head > 0 {
		copy(buf[begin-head:], buf[:head])
	}
	return buf[begin-head : at+n+http1.ChunkTail]
}

// relayFailed ends the client's connection after a part of the response, so that the client does not take the part
// for the whole: it lacks bytes or the last chunk, or the connection is reset if its end would be the end of the
// body.
func (x *exchange) relayFailed(err error, frame framing) {
	x.r.CloseAfter()
	var client clientError
	switch {
	case errors.As(err, &client):
		x.fail(0, KindClientGone, err)
		x.r.Response().Fail()
		if rawsocket.IsTimeout(err) {
			x.r.Response().Abort() // the client does not read: this also frees the bytes that the kernel holds for it
		}
		return
	case x.up.clientErr != nil:
		x.blameClient(x.up.clientErr)
	case errors.Is(err, http1.ErrChunk):
		x.fail(0, KindBadResponse, err)
	case rawsocket.IsTimeout(err):
		x.fail(0, KindTimeout, err)
	default:
		x.fail(0, KindBodyCut, err)
	}
	if frame == frameClose {
		x.r.Response().Abort()
	}
}
