package proxy

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"
)

// fill hands the end-to-end headers to fasthttp's form, which the gateway reads and changes. Date is
// not among them, because fasthttp takes it for its own; appendAnswer writes it.
func fill(h *fasthttp.ResponseHeader, a *answer) {
	h.Reset()
	h.SetNoDefaultContentType(true)
	h.SetStatusCode(a.status)
	for i := range a.lines {
		l := &a.lines[i]
		switch l.kind {
		case kindKeep:
			if a.named.has(a.name(l)) {
				continue
			}
			h.AddBytesKV(a.name(l), a.val(l))
		case kindLength:
			if a.hasLength {
				h.AddBytesKV(a.name(l), a.val(l))
			}
		}
	}
}

// framing is how the body travels to the client.
type framing uint8

const (
	frameNone framing = iota
	frameLength
	frameChunked
	frameClose
)

// field is a header of fasthttp's form.
type field struct {
	name, value []byte
	sent        bool
}

// appendAnswer writes the response header that the client gets after OnHeader has had its way with it: the origin's
// lines that are still there as they came, then what is new.
func (x *exchange) appendAnswer(dst []byte, f framing) []byte {
	a, h := &x.a, x.ours
	dst = append(dst, "HTTP/1.1 "...)
	status := h.StatusCode()
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	if status == a.status {
		dst = append(dst, a.reason...)
	} else {
		dst = append(dst, fasthttp.StatusMessage(status)...)
	}
	dst = append(dst, "\r\n"...)
	x.fields = x.fields[:0]
	for k, v := range h.All() {
		if !framingName(k) {
			x.fields = append(x.fields, field{k, v, false})
		}
	}
	for i := range a.lines {
		l := &a.lines[i]
		if l.kind == kindDate || l.kind == kindKeep && !a.named.has(a.name(l)) && x.remains(l) {
			dst = append(dst, a.raw[l.start:l.end]...)
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

// remains tells whether a line of the origin's is still among the fields, and takes it from them. Of a field that
// fasthttp has but once, and not at all where it is empty, all lines remain as long as the last one does.
func (x *exchange) remains(l *line) bool {
	a := &x.a
	name, value := a.name(l), a.val(l)
	single := equalFold(name, "content-type") || equalFold(name, "content-encoding") || equalFold(name, "server")
	if single {
		for i := range a.lines {
			if m := &a.lines[i]; m.kind == kindKeep && equalFoldBytes(a.name(m), name) {
				value = a.val(m)
			}
		}
	}
	there := false
	for i := range x.fields {
		f := &x.fields[i]
		if (single || !f.sent) && equalFoldBytes(f.name, name) {
			if bytes.Equal(f.value, value) {
				f.sent = true
				return true
			}
			there = true
		}
	}
	return single && len(value) == 0 && !there
}

// appendPlain writes it as the origin sent it, lines that travel together in one piece.
func (x *exchange) appendPlain(dst []byte, f framing) []byte {
	a := &x.a
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(a.status), 10)
	dst = append(dst, ' ')
	dst = append(dst, a.reason...)
	dst = append(dst, "\r\n"...)
	run := -1
	for i := range a.lines {
		l := &a.lines[i]
		if (l.kind == kindKeep || l.kind == kindDate) && !a.named.has(a.name(l)) {
			if run < 0 {
				run = int(l.start)
			}
			continue
		}
		if run >= 0 {
			dst = append(dst, a.raw[run:l.start]...)
			run = -1
		}
	}
	if run >= 0 {
		dst = append(dst, a.raw[run:len(a.raw)-2]...)
	}
	return x.appendFraming(dst, f)
}

// appendFraming ends a header with the lines that say how its body travels.
func (x *exchange) appendFraming(dst []byte, f framing) []byte {
	a := &x.a
	if a.date < 0 && a.status >= 200 { // RFC 9110 §6.6.1: who passes it on says when it came
		dst = append(dst, "Date: "...)
		dst = append(dst, dateAt(x.now)...)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case f == frameChunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		if a.announced.any() {
			dst = x.appendAnnounced(dst)
		}
	case a.hasLength && (f == frameLength || f == frameNone):
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, a.length, 10)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case x.upgraded:
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: "...)
		dst = append(dst, a.val(&a.lines[a.upgrade])...)
		dst = append(dst, "\r\n"...)
	case a.status == 426 && a.upgrade >= 0: // which without it says nothing (RFC 9110 §15.5.22)
		dst = append(dst, "Upgrade: "...)
		dst = append(dst, a.val(&a.lines[a.upgrade])...)
		dst = append(dst, "\r\nConnection: Upgrade"...)
		if x.closing {
			dst = append(dst, ", close"...)
		}
		dst = append(dst, "\r\n"...)
	case x.closing:
		dst = append(dst, "Connection: close\r\n"...)
	case x.h.http10:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}

func (x *exchange) appendAnnounced(dst []byte) []byte {
	a := &x.a
	n := 0
	dst = dst[:len(dst)-2] // appendAllowedNames begins with CRLF
	for i := range a.lines {
		if l := &a.lines[i]; l.kind == kindTrailer {
			dst, n = appendAllowedNames(dst, a.val(l), n, nil)
		}
	}
	return append(dst, "\r\n"...)
}

// appendInterim writes an informational answer as the client gets it. What an origin tells the gateway in a header of
// its final answer is not for the client here either.
func appendInterim(dst []byte, a *answer) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(a.status), 10)
	dst = append(dst, ' ')
	dst = append(dst, a.reason...)
	dst = append(dst, "\r\n"...)
	for i := range a.lines {
		l := &a.lines[i]
		name := a.name(l)
		if (l.kind == kindKeep || l.kind == kindDate) && !a.named.has(name) && !prefixFold(name, "x-waiting-room-") && !prefixFold(name, "cf-waiting-room-") {
			dst = append(dst, a.raw[l.start:l.end]...)
		}
	}
	return append(dst, "\r\n"...)
}
