package proxy

import (
	"bytes"
	"errors"
	"fmt"
)

// errResponse is the sentinel of every answer that is not HTTP.
var errResponse = errors.New("proxy: the origin's answer is not valid HTTP")

func responseError(what string) error { return fmt.Errorf("%w: %s", errResponse, what) }

const (
	maxInterim         = 100 // informational answers before the final one
	maxResponseHeaders = 500
)

// answer is what one pass over a response header found. Offsets are into raw.
type answer struct {
	raw    []byte
	lines  []line
	status int
	reason []byte

	length        int64 // -1 chunked, -2 until the connection ends
	hasLength     bool
	upgradeOption bool
	keepAlive     bool       // the origin keeps the connection
	upgrade       int        // index of the only Upgrade line, -1 none, -2 several
	date          int        // index of the last Date line, -1 none
	named         fieldNames // the headers that Connection names
	announced     fieldNames // the fields that Trailer names
}

func (a *answer) name(l *line) []byte { return a.raw[l.start:l.colon] }
func (a *answer) val(l *line) []byte  { return a.raw[l.value:l.valueEnd] }

// scan reads a response header from the start of b and returns its length, or 0 while b does not
// hold it whole.
func (a *answer) scan(b []byte) (int, error) {
	*a = answer{raw: b, lines: a.lines[:0], upgrade: -1, date: -1, length: -2, named: a.named.emptied(), announced: a.announced.emptied()}
	nl := bytes.IndexByte(b, '\n')
	if nl < 0 {
		if len(b) >= 5 && string(b[:5]) != "HTTP/" {
			return 0, responseError("it does not begin with HTTP/")
		}
		return 0, nil
	}
	http10, err := a.statusLine(b[:nl])
	if err != nil {
		return 0, err
	}
	a.keepAlive = !http10
	hasCoding := false
	i := nl + 1
	for {
		nl := bytes.IndexByte(b[i:], '\n')
		if nl < 0 {
			return 0, nil
		}
		end := i + nl + 1
		if nl == 0 || b[end-2] != '\r' {
			return 0, responseError("a header line does not end with CRLF")
		}
		if nl == 1 {
			i = end
			break
		}
		if len(a.lines) == maxResponseHeaders {
			return 0, responseError("it has too many headers")
		}
		c := i
		for tokenTable[b[c]] {
			c++
		}
		if c == i || b[c] != ':' {
			return 0, responseError("a header name is not a token, or a line is folded")
		}
		v, e := c+1, end-2
		for v < e && (b[v] == ' ' || b[v] == '\t') {
			v++
		}
		for e > v && (b[e-1] == ' ' || b[e-1] == '\t') {
			e--
		}
		if !validValue(b[v:e]) {
			return 0, responseError("a header value holds a control character")
		}
		k := responseKind(b[i:c])
		a.lines = append(a.lines, line{uint32(i), uint32(c), uint32(v), uint32(e), uint32(end), k})
		if k != kindKeep && k != kindDrop {
			if err := a.note(k, b[v:e], &hasCoding, http10); err != nil {
				return 0, err
			}
		}
		i = end
	}
	a.raw = b[:i]
	if hasCoding {
		if a.hasLength {
			return 0, responseError("it has both Content-Length and Transfer-Encoding")
		}
		a.length = -1
	}
	if a.status < 200 || a.status == 204 { // RFC 9110 §8.6: neither has a body
		if hasCoding || a.length > 0 {
			if a.status < 200 && a.status != 101 {
				return 0, responseError("an informational answer announces a body")
			}
			a.keepAlive = false // it may come nevertheless, and be taken for the next answer
		}
		a.hasLength = false
	}
	return i, nil
}

// statusLine reads `HTTP/1.x SP 3DIGIT [SP reason] CR`.
func (a *answer) statusLine(l []byte) (http10 bool, err error) {
	if len(l) < 13 || l[len(l)-1] != '\r' {
		return false, responseError("the status line is malformed")
	}
	l = l[:len(l)-1]
	switch string(l[:9]) {
	case "HTTP/1.1 ":
	case "HTTP/1.0 ":
		http10 = true
	default:
		return false, responseError("its version is neither HTTP/1.1 nor HTTP/1.0")
	}
	for _, c := range l[9:12] {
		if c < '0' || c > '9' {
			return false, responseError("its status is not a number")
		}
		a.status = a.status*10 + int(c-'0')
	}
	if a.status < 100 || len(l) > 12 && l[12] != ' ' {
		return false, responseError("its status is malformed")
	}
	if len(l) > 13 {
		a.reason = l[13:]
		if !validValue(a.reason) {
			return false, responseError("its reason phrase holds a control character")
		}
	}
	return http10, nil
}

func (a *answer) note(k kind, value []byte, hasCoding *bool, http10 bool) error {
	switch k {
	case kindLength:
		if a.hasLength {
			return responseError("it has more than one Content-Length")
		}
		n, ok := parseLength(value)
		if !ok {
			return responseError("its Content-Length is malformed")
		}
		a.length, a.hasLength = n, true
	case kindCoding:
		if *hasCoding || http10 || !equalFold(value, "chunked") {
			return responseError("its Transfer-Encoding is not exactly chunked")
		}
		*hasCoding = true
	case kindConnection:
		for rest := value; len(rest) > 0; {
			var e []byte
			e, rest = nextElement(rest)
			switch {
			case equalFold(e, "close"):
				a.keepAlive = false
			case equalFold(e, "keep-alive"):
				a.keepAlive = a.keepAlive || http10
			case equalFold(e, "upgrade"):
				a.upgradeOption = true
			case len(e) > 0:
				a.named.add(e)
			}
		}
	case kindUpgrade:
		if a.upgrade == -1 {
			a.upgrade = len(a.lines) - 1
		} else {
			a.upgrade = -2
		}
	case kindTrailer:
		for rest := value; len(rest) > 0; {
			var e []byte
			if e, rest = nextElement(rest); len(e) > 0 {
				a.announced.add(e)
			}
		}
	case kindDate:
		a.date = len(a.lines) - 1
	}
	return nil
}

// hasAny tells whether a name among the headers that travel satisfies f.
func (a *answer) hasAny(f func(name []byte) bool) bool {
	for i := range a.lines {
		if l := &a.lines[i]; l.kind == kindKeep && f(a.name(l)) {
			return true
		}
	}
	return false
}

func (a *answer) contentType() []byte {
	for i := range a.lines {
		if l := &a.lines[i]; l.kind == kindKeep && l.colon-l.start == 12 && equalFold(a.name(l), "content-type") {
			return a.val(l)
		}
	}
	return nil
}

// bodiless tells an answer that ends with its header whatever the header says (RFC 9112 §6.3).
func (a *answer) bodiless(toHead bool) bool {
	return toHead || a.status < 200 || a.status == 204 || a.status == 304
}
