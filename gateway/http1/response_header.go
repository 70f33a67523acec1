package http1

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrResponse is wrapped by every error about a response that is not valid HTTP.
var ErrResponse = errors.New("http1: the origin's response is not valid HTTP")

// ResponseError returns an error about a response that is not valid HTTP.
func ResponseError(what string) error { return fmt.Errorf("%w: %s", ErrResponse, what) }

const (
	MaxInterim         = 100 // informational responses before the final one
	MaxResponseHeaders = 500
)

// ResponseHeader is the result of one pass over a response header. Offsets are into Raw.
type ResponseHeader struct {
	Raw    []byte
	Lines  []Line
	Status int
	Reason []byte

	Length        int64 // -1 chunked, -2 until the connection ends
	HasLength     bool
	UpgradeOption bool
	KeepAlive     bool       // the origin keeps the connection open
	Upgrade       int        // index of the only Upgrade line, -1 none, -2 several
	Date          int        // index of the last Date line, -1 none
	Named         FieldNames // the fields that Connection names
	Announced     FieldNames // the fields that Trailer names
}

// Name returns the name of a line.
func (a *ResponseHeader) Name(l *Line) []byte { return a.Raw[l.Start:l.Colon] }

// Value returns the value of a line, without the blanks around it.
func (a *ResponseHeader) Value(l *Line) []byte { return a.Raw[l.value:l.valueEnd] }

// Scan reads a response header from the start of b and returns its length, or 0 while b is incomplete.
func (a *ResponseHeader) Scan(b []byte) (int, error) {
	*a = ResponseHeader{Raw: b, Lines: a.Lines[:0], Upgrade: -1, Date: -1, Length: -2, Named: a.Named.Emptied(), Announced: a.Announced.Emptied()}
	nl := bytes.IndexByte(b, '\n')
	if nl < 0 {
		if len(b) >= 5 && string(b[:5]) != "HTTP/" {
			return 0, ResponseError("it does not begin with HTTP/")
		}
		return 0, nil
	}
	http10, err := a.statusLine(b[:nl])
	if err != nil {
		return 0, err
	}
	a.KeepAlive = !http10
	hasCoding := false
	i := nl + 1
	for {
		nl := bytes.IndexByte(b[i:], '\n')
		if nl < 0 {
			return 0, nil
		}
		end := i + nl + 1
		if nl == 0 || b[end-2] != '\r' {
			return 0, ResponseError("a header line does not end with CRLF")
		}
		if nl == 1 {
			i = end
			break
		}
		if len(a.Lines) == MaxResponseHeaders {
			return 0, ResponseError("it has too many headers")
		}
		c := i
		for tokenTable[b[c]] {
			c++
		}
		if c == i || b[c] != ':' {
			return 0, ResponseError("a header name is not a token, or a line is folded")
		}
		v, e := trimmed(b, c+1, end-2)
		if !ValidValue(b[v:e]) {
			return 0, ResponseError("a header value holds a control character")
		}
		k := ResponseKind(b[i:c])
		a.Lines = append(a.Lines, Line{uint32(i), uint32(c), uint32(v), uint32(e), uint32(end), k})
		if k != KindKeep && k != kindDrop {
			if err := a.note(k, b[v:e], &hasCoding, http10); err != nil {
				return 0, err
			}
		}
		i = end
	}
	a.Raw = b[:i]
	if hasCoding {
		if a.HasLength {
			return 0, ResponseError("it has both Content-Length and Transfer-Encoding")
		}
		a.Length = -1
	}
	if a.Status < 200 || a.Status == 204 { // RFC 9110 §8.6: neither has a body
		if hasCoding || a.Length > 0 {
			if a.Status < 200 && a.Status != 101 {
				return 0, ResponseError("an informational response announces a body")
			}
			a.KeepAlive = false // a body may follow nevertheless, and be taken for the next response
		}
		a.HasLength = false
	}
	return i, nil
}

// statusLine parses `HTTP/1.x SP 3DIGIT [SP reason] CR`.
func (a *ResponseHeader) statusLine(l []byte) (http10 bool, err error) {
	if len(l) < 13 || l[len(l)-1] != '\r' {
		return false, ResponseError("the status line is malformed")
	}
	l = l[:len(l)-1]
	switch string(l[:9]) {
	case "HTTP/1.1 ":
	case "HTTP/1.0 ":
		http10 = true
	default:
		return false, ResponseError("its version is neither HTTP/1.1 nor HTTP/1.0")
	}
	for _, c := range l[9:12] {
		if c < '0' || c > '9' {
			return false, ResponseError("its status is not a number")
		}
		a.Status = a.Status*10 + int(c-'0')
	}
	if a.Status < 100 || len(l) > 12 && l[12] != ' ' {
		return false, ResponseError("its status is malformed")
	}
	if len(l) > 13 {
		a.Reason = l[13:]
		if !ValidValue(a.Reason) {
			return false, ResponseError("its reason phrase holds a control character")
		}
	}
	return http10, nil
}

func (a *ResponseHeader) note(k Kind, value []byte, hasCoding *bool, http10 bool) error {
	switch k {
	case KindLength:
		if a.HasLength {
			return ResponseError("it has more than one Content-Length")
		}
		n, ok := parseLength(value)
		if !ok {
			return ResponseError("its Content-Length is malformed")
		}
		a.Length, a.HasLength = n, true
	case kindCoding:
		if *hasCoding || http10 || !EqualFold(value, "chunked") {
			return ResponseError("its Transfer-Encoding is not exactly chunked")
		}
		*hasCoding = true
	case kindConnection:
		for rest := value; len(rest) > 0; {
			var e []byte
			e, rest = nextElement(rest)
			switch {
			case EqualFold(e, "close"):
				a.KeepAlive = false
			case EqualFold(e, "keep-alive"):
				a.KeepAlive = a.KeepAlive || http10
			case EqualFold(e, "upgrade"):
				a.UpgradeOption = true
			case len(e) > 0:
				a.Named.add(e)
			}
		}
	case kindUpgrade:
		if a.Upgrade == -1 {
			a.Upgrade = len(a.Lines) - 1
		} else {
			a.Upgrade = -2
		}
	case KindTrailer:
		for rest := value; len(rest) > 0; {
			var e []byte
			if e, rest = nextElement(rest); len(e) > 0 {
				a.Announced.add(e)
			}
		}
	case KindDate:
		a.Date = len(a.Lines) - 1
	}
	return nil
}

// HasAny reports whether f is true for the name of an end-to-end field.
func (a *ResponseHeader) HasAny(f func(name []byte) bool) bool {
	for i := range a.Lines {
		if l := &a.Lines[i]; l.Kind == KindKeep && f(a.Name(l)) {
			return true
		}
	}
	return false
}

// ContentType returns the value of Content-Type, nil if there is none.
func (a *ResponseHeader) ContentType() []byte {
	for i := range a.Lines {
		if l := &a.Lines[i]; l.Kind == KindKeep && l.Colon-l.Start == 12 && EqualFold(a.Name(l), "content-type") {
			return a.Value(l)
		}
	}
	return nil
}

// Bodiless reports whether the response has no body whatever its header says (RFC 9112 §6.3).
func (a *ResponseHeader) Bodiless(toHead bool) bool {
	return toHead || a.Status < 200 || a.Status == 204 || a.Status == 304
}
