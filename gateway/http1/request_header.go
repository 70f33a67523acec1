package http1

import "bytes"

// Line is one line of a header, as offsets into the raw header.
type Line struct {
	Start, Colon, value, valueEnd, End uint32
	Kind                               Kind
}

// Limits bound a request header.
type Limits struct {
	Header int // bytes of request line and field lines together
	Target int // bytes of the request target
	Lines  int // field lines
}

// span is a part of the raw header.
type span struct{ start, end uint32 }

// RequestHeader is the result of one strict pass over a request header. It refers to the bytes that were scanned.
type RequestHeader struct {
	Raw []byte // the whole header, with the request line and the empty line that ends it

	method, target, host span // the target is in origin form: the authority of an absolute target is cut off

	Lines      []Line
	names      nameSet // of Lines
	Connection Connection
	Trailer    Trailer
	Cookies    int   // lines
	Length     int64 // of the body: -1 chunked, 0 none
	hasLength  bool
	HTTP10     bool
	Expect     bool // 100-continue, with a body
	Forwarded  bool // a Forwarded or X-Forwarded-… field is present
	TETrailers bool // TE: trailers
}

// Connection is what the Connection fields of a request list.
type Connection struct {
	Close     bool // close the connection after the response; the default of HTTP/1.0
	keepAlive bool
	upgrade   bool
	upgradeAt int        // index of the only Upgrade line, -1 none, -2 several
	Named     FieldNames // fields that belong to this connection only
	elements  int
}

// Trailer is what the Trailer fields of a request list.
type Trailer struct {
	Announced FieldNames
	elements  int
}

func (h *RequestHeader) bytes(s span) []byte { return h.Raw[s.start:s.end] }

// Method returns the method.
func (h *RequestHeader) Method() []byte { return h.bytes(h.method) }

// Target returns the target in origin form. It is empty, or begins with "?", where an absolute target had no path.
func (h *RequestHeader) Target() []byte { return h.bytes(h.target) }

// Host returns the value of Host, which only HTTP/1.0 requests may lack.
func (h *RequestHeader) Host() []byte { return h.bytes(h.host) }

// HasHost reports whether there is a Host field.
func (h *RequestHeader) HasHost() bool { return h.host.end != 0 }

// Name returns the name of a line.
func (h *RequestHeader) Name(l *Line) []byte { return h.Raw[l.Start:l.Colon] }

// Value returns the value of a line, without the blanks around it.
func (h *RequestHeader) Value(l *Line) []byte { return h.Raw[l.value:l.valueEnd] }

// IsHead reports whether the method is HEAD.
func (h *RequestHeader) IsHead() bool { return string(h.Method()) == "HEAD" }

// HasMethod reports whether the method has been read: it may have been before a header is refused.
func (h *RequestHeader) HasMethod() bool { return h.method.end > 0 }

// nameSet has a bit for each of some names. Several names share a bit. Most fields that the gateway looks for are in no request: without
// their bit, the names of the lines need not be compared.
type nameSet uint64

// nameBit returns the bit of the names of n bytes that begin with b, in upper or lower case.
func nameBit(n int, b byte) nameSet { return 1 << ((uint(n)*5 + uint(b|0x20)) % 64) }

// MayHave reports whether there may be a line with a name, which is in lower case.
func (h *RequestHeader) MayHave(name string) bool {
	return name != "" && h.names&nameBit(len(name), name[0]) != 0
}

// Named reports whether a line has a name, which is in lower case.
func (h *RequestHeader) Named(l *Line, name string) bool {
	return int(l.Colon-l.Start) == len(name) && EqualFold(h.Name(l), name)
}

// Reset forgets the header and the bytes that it refers to, and keeps its memory.
func (h *RequestHeader) Reset() {
	*h = RequestHeader{Lines: h.Lines[:0],
		Connection: Connection{upgradeAt: -1, Named: h.Connection.Named.Emptied()}, Trailer: Trailer{Announced: h.Trailer.Announced.Emptied()}}
}

// Scan reads a request header from the start of b. It returns the header's length, or 0 while b is incomplete, or a
// refusal. A header that it accepts means the same to every parser that follows RFC 9112.
func (h *RequestHeader) Scan(b []byte, lim *Limits) (int, *Refusal) {
	h.Reset()
	h.Raw = b
	i := 0
	if len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
		i = 2 // old clients send an empty line before a request (RFC 9112 §2.2)
	}
	n, r := h.scanRequestLine(b, i, lim)
	if r != nil || n == 0 {
		return h.unfinished(b, i, lim, r)
	}
	hasCoding, hosts := false, 0
	for i = n; ; {
		nl := bytes.IndexByte(b[i:], '\n')
		if nl < 0 {
			return h.unfinished(b, i, lim, nil)
		}
		end := i + nl + 1
		if nl == 0 || b[end-2] != '\r' {
			return 0, refuseBareLF
		}
		if nl == 1 {
			i = end
			break
		}
		if len(h.Lines) == lim.Lines {
			return 0, refuseHeaderCount
		}
		if end > lim.Header {
			return 0, RefuseHeaderLarge
		}
		if b[i] == ' ' || b[i] == '\t' {
			return 0, refuseFold
		}
		c, class := i, uint8(0)
		for nameClass[b[c]] != 0 { // ends at CR at the latest
			class |= nameClass[b[c]]
			c++
		}
		if c == i || b[c] != ':' {
			return 0, refuseName
		}
		v, e := trimmed(b, c+1, end-2)
		if !ValidValue(b[v:e]) {
			return 0, refuseValue
		}
		k := RequestKind(b[i:c])
		if k == kindDrop && (lowerTable[b[i]] == 'f' || PrefixFold(b[i:c], "x-forwarded-")) {
			h.Forwarded = true
		}
		if class >= oddName && Imitates(b[i:c]) {
			return 0, refuseImitation
		}
		h.Lines = append(h.Lines, Line{uint32(i), uint32(c), uint32(v), uint32(e), uint32(end), k})
		h.names |= nameBit(c-i, b[i])
		if k != KindKeep && k != kindDrop {
			if r := h.note(k, b[v:e], v, e, &hasCoding, &hosts); r != nil {
				return 0, r
			}
		}
		i = end
	}
	if i > lim.Header {
		return 0, RefuseHeaderLarge
	}
	h.Raw = b[:i]
	if r := h.conclude(hasCoding, hosts); r != nil {
		return 0, r
	}
	return i, nil
}

// note records a field that means something to a proxy.
func (h *RequestHeader) note(k Kind, value []byte, v, e int, hasCoding *bool, hosts *int) *Refusal {
	switch k {
	case KindHost:
		*hosts++
		h.host = span{uint32(v), uint32(e)}
	case KindLength:
		if h.hasLength {
			return refuseTwoLengths
		}
		n, ok := parseLength(value)
		if !ok {
			return refuseLength
		}
		h.Length, h.hasLength = n, true
	case kindCoding:
		if *hasCoding {
			return refuseCoding
		}
		*hasCoding = true
		if h.HTTP10 {
			return refuseCoding10
		}
		if !EqualFold(value, "chunked") {
			return codingRefusal(value)
		}
	case kindConnection:
		for rest := value; len(rest) > 0; {
			var e []byte
			e, rest = nextElement(rest)
			if h.Connection.elements++; h.Connection.elements > maxListed {
				return refuseConnectionNames
			}
			switch {
			case EqualFold(e, "close"):
				h.Connection.Close = true
			case EqualFold(e, "keep-alive"):
				h.Connection.keepAlive = true
			case EqualFold(e, "upgrade"):
				h.Connection.upgrade = true
			case len(e) > 0:
				h.Connection.Named.add(e)
			}
		}
	case kindUpgrade:
		if h.Connection.upgradeAt == -1 {
			h.Connection.upgradeAt = len(h.Lines) - 1
		} else {
			h.Connection.upgradeAt = -2
		}
	case KindCookie:
		h.Cookies++
	case kindExpect:
		if !h.HTTP10 { // expectations of HTTP/1.0 clients are ignored (RFC 9110 §10.1.1)
			if !EqualFold(value, "100-continue") {
				return refuseExpect
			}
			h.Expect = true
		}
	case kindTE:
		h.TETrailers = h.TETrailers || listHas(value, "trailers")
	case KindTrailer:
		for rest := value; len(rest) > 0; {
			var e []byte
			if e, rest = nextElement(rest); !IsToken(e) || ForbiddenTrailer(e) {
				return refuseTrailer
			}
			if h.Trailer.elements++; h.Trailer.elements > maxListed {
				return refuseTrailerNames
			}
			h.Trailer.Announced.add(e)
		}
	}
	return nil
}

// codingRefusal returns 501 for a coding that is known but not implemented, and 400 for anything else. A list that
// two parsers could read differently is never called known.
func codingRefusal(value []byte) *Refusal {
	known := false
	for rest := value; len(rest) > 0; {
		var e []byte
		e, rest = nextElement(rest)
		switch {
		case EqualFold(e, "gzip"), EqualFold(e, "deflate"), EqualFold(e, "compress"), EqualFold(e, "x-gzip"), EqualFold(e, "x-compress"):
			known = true
		case EqualFold(e, "chunked") && known && len(rest) == 0:
		default:
			return refuseCoding
		}
	}
	if known {
		return refuseCodingKnown
	}
	return refuseCoding
}

// conclude checks what needs the whole header.
func (h *RequestHeader) conclude(hasCoding bool, hosts int) *Refusal {
	if hasCoding {
		if h.hasLength {
			return refuseBoth
		}
		h.Length = -1
	}
	switch {
	case hosts > 1:
		return refuseTwoHosts
	case hosts == 0:
		if !h.HTTP10 {
			return refuseNoHost
		}
	case h.host.start == h.host.end:
		return refuseNoHost
	case !ValidHost(h.Host()):
		return refuseHost
	}
	if h.HTTP10 {
		h.Connection.Close = h.Connection.Close || !h.Connection.keepAlive
		h.Connection.upgrade = false
	}
	h.Expect = h.Expect && h.Length != 0
	return h.originForm()
}

// unfinished returns the result for an incomplete header: nothing yet, or a refusal if it is over a limit or cannot
// become valid any more.
func (h *RequestHeader) unfinished(b []byte, lineStart int, lim *Limits, r *Refusal) (int, *Refusal) {
	if r != nil {
		return 0, r
	}
	if len(b) > lim.Header {
		return 0, RefuseHeaderLarge
	}
	if lineStart < len(b) && (b[lineStart] == ' ' || b[lineStart] == '\t') {
		if lineStart == 0 {
			return 0, refuseLine
		}
		return 0, refuseFold
	}
	return 0, nil
}
