package proxy

import (
	"bytes"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
)

// fill copies the end-to-end fields to a header of fasthttp, which the gateway reads and changes. Date is left out,
// because fasthttp writes its own; appendEdited copies it.
func fill(h *fasthttp.ResponseHeader, a *http1.ResponseHeader) {
	h.Reset()
	h.SetNoDefaultContentType(true)
	h.SetStatusCode(a.Status)
	for i := range a.Lines {
		l := &a.Lines[i]
		switch l.Kind {
		case http1.KindKeep:
			if a.Named.Has(a.Name(l)) {
				continue
			}
			h.AddBytesKV(a.Name(l), a.Value(l))
		case http1.KindLength:
			if a.HasLength {
				h.AddBytesKV(a.Name(l), a.Value(l))
			}
		}
	}
}

// framing is the framing of the body that is sent to the client.
type framing uint8

const (
	frameNone framing = iota
	frameLength
	frameChunked
	frameClose
)

// response is a response on its way from the origin to the client.
type response struct {
	a      http1.ResponseHeader
	edited *fasthttp.ResponseHeader // the header where OnHeader may change it
	fields []field                  // of edited
	chunks http1.ChunkReader
	left   int64     // bytes of a body with a length
	now    time.Time // when the header arrived, until the first write after it

	http10   bool // the client's version
	early    bool // it began before the request had ended
	upgraded bool
	closing  bool // the client's connection ends with it
}

// field is a field of fasthttp's header.
type field struct {
	name, value []byte
	sent        bool
}

// appendEdited appends the header for the client after OnHeader has changed it: the origin's lines that are still in
// it, byte for byte, and then the new ones.
func (x *response) appendEdited(dst []byte, f framing) []byte {
	a, h := &x.a, x.edited
	if status := h.StatusCode(); status == a.Status {
		dst = appendStatus(dst, status, a.Reason)
	} else {
		dst = appendStatus(dst, status, []byte(fasthttp.StatusMessage(status)))
	}
	x.fields = x.fields[:0]
	for k, v := range h.All() {
		if !http1.FramingName(k) {
			x.fields = append(x.fields, field{k, v, false})
		}
	}
	for i := range a.Lines {
		l := &a.Lines[i]
		if l.Kind == http1.KindDate || l.Kind == http1.KindKeep && !a.Named.Has(a.Name(l)) && x.remains(l) {
			dst = append(dst, a.Raw[l.Start:l.End]...)
		}
	}
	for i := range x.fields {
		if f := &x.fields[i]; !f.sent {
			dst = append(dst, f.name...)
			dst = append(dst, ": "...)
			dst = append(dst, f.value...)
			dst = append(dst, "\r\n"...)
		}
	}
	return x.appendFraming(dst, f)
}

func appendStatus(dst []byte, status int, reason []byte) []byte {
	dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(status), 10)
	return append(append(append(dst, ' '), reason...), "\r\n"...)
}

// remains reports whether a line of the origin is still among the fields, and marks the field as sent. If fasthttp
// has a field only once, and not at all when it is empty, all lines of that name remain as long as the last one does.
func (x *response) remains(l *http1.Line) bool {
	a := &x.a
	name, value := a.Name(l), a.Value(l)
	single := http1.EqualFold(name, "content-type") || http1.EqualFold(name, "content-encoding") || http1.EqualFold(name, "server")
	if single {
		for i := range a.Lines {
			if m := &a.Lines[i]; m.Kind == http1.KindKeep && http1.EqualFoldBytes(a.Name(m), name) {
				value = a.Value(m)
			}
		}
	}
	there := false
	for i := range x.fields {
		f := &x.fields[i]
		if (single || !f.sent) && http1.EqualFoldBytes(f.name, name) {
			if bytes.Equal(f.value, value) {
				f.sent = true
				return true
			}
			there = true
		}
	}
	return single && len(value) == 0 && !there
}

// appendUnchanged appends the header as the origin sent it; consecutive lines are copied in one piece.
func (x *response) appendUnchanged(dst []byte, f framing) []byte {
	a := &x.a
	dst = appendStatus(dst, a.Status, a.Reason)
	run := -1
	for i := range a.Lines {
		l := &a.Lines[i]
		if (l.Kind == http1.KindKeep || l.Kind == http1.KindDate) && !a.Named.Has(a.Name(l)) {
			if run < 0 {
				run = int(l.Start)
			}
			continue
		}
		if run >= 0 {
			dst = append(dst, a.Raw[run:l.Start]...)
			run = -1
		}
	}
	if run >= 0 {
		dst = append(dst, a.Raw[run:len(a.Raw)-2]...)
	}
	return x.appendFraming(dst, f)
}

// appendFraming appends the lines that frame the body and the end of the header.
func (x *response) appendFraming(dst []byte, f framing) []byte {
	a := &x.a
	if a.Date < 0 && a.Status >= 200 { // RFC 9110 §6.6.1: a recipient without a Date adds one
		dst = append(dst, "Date: "...)
		dst = append(dst, http1.Date(x.now)...)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case f == frameChunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		if a.Announced.Any() {
			dst = x.appendAnnounced(dst)
		}
	case a.HasLength && (f == frameLength || f == frameNone):
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, a.Length, 10)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case x.upgraded:
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: "...)
		dst = append(dst, a.Value(&a.Lines[a.Upgrade])...)
		dst = append(dst, "\r\n"...)
	case a.Status == 426 && a.Upgrade >= 0: // required with this status (RFC 9110 §15.5.22)
		dst = append(dst, "Upgrade: "...)
		dst = append(dst, a.Value(&a.Lines[a.Upgrade])...)
		dst = append(dst, "\r\nConnection: Upgrade"...)
		if x.closing {
			dst = append(dst, ", close"...)
		}
		dst = append(dst, "\r\n"...)
	case x.closing:
		dst = append(dst, "Connection: close\r\n"...)
	case x.http10:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}

func (x *response) appendAnnounced(dst []byte) []byte {
	a := &x.a
	n := 0
	dst = dst[:len(dst)-2] // AppendAllowedNames begins with CRLF
	for i := range a.Lines {
		if l := &a.Lines[i]; l.Kind == http1.KindTrailer {
			dst, n = http1.AppendAllowedNames(dst, a.Value(l), n, nil)
		}
	}
	return append(dst, "\r\n"...)
}

// appendInterim appends an informational response for the client, without the fields by which origins command the
// gateway.
func appendInterim(dst []byte, a *http1.ResponseHeader) []byte {
	dst = appendStatus(dst, a.Status, a.Reason)
	for i := range a.Lines {
		l := &a.Lines[i]
		name := a.Name(l)
		if (l.Kind == http1.KindKeep || l.Kind == http1.KindDate) && !a.Named.Has(name) && !http1.PrefixFold(name, "x-waiting-room-") && !http1.PrefixFold(name, "cf-waiting-room-") {
			dst = append(dst, a.Raw[l.Start:l.End]...)
		}
	}
	return append(dst, "\r\n"...)
}

// ready reports whether readBody would return without waiting.
func (x *response) ready(in *http1.Buffer) bool {
	if in.Buffered() == 0 {
		return false
	}
	return x.a.Length != -1 || x.chunks.Ready(in)
}

// readBody reads decoded body bytes; io.EOF is the end that the header announced.
func (x *response) readBody(in *http1.Buffer, p []byte) (int, error) {
	switch {
	case x.a.Length == -1:
		return x.chunks.Read(in, p)
	case x.a.Length == -2:
		return in.Read(p)
	}
	if int64(len(p)) > x.left {
		p = p[:x.left]
	}
	n, err := in.Read(p)
	x.left -= int64(n)
	return n, http1.NoEOF(err)
}

// atEnd reports whether the body has ended, without another read.
func (x *response) atEnd() bool {
	switch x.a.Length {
	case -1:
		return x.chunks.Done()
	case -2:
		return false
	}
	return x.left == 0
}
