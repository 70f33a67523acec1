package http1

import "bytes"

// line is one header line, as offsets into the raw header.
type Line struct {
	Start, Colon, value, valueEnd, End uint32
	Kind                               Kind
}

// headLimits bound a request header.
type Limits struct {
	Header int // bytes of request line and headers together
	Target int // bytes of the request target
	Lines  int // header lines
}

// head is what one strict pass over a request header found. Offsets are into raw.
type RequestHeader struct {
	Raw []byte // the whole header, request line and final empty line included

	Method, MethodEnd uint32
	target, targetEnd uint32 // in origin form: absolute targets are cut
	Lines             []Line

	host, HostEnd uint32
	Cookies       int
	Length        int64 // of the body: -1 chunked, 0 none
	hasLength     bool
	Http10        bool
	Close         bool // the client wants the connection closed after the answer
	keepAlive     bool // an HTTP/1.0 client asked to keep it
	upgradeOption bool // Connection: upgrade
	Upgrade       int  // index of the only Upgrade line, -1 none, -2 several
	TeTrailers    bool
	Expect        bool
	Forwarded     bool       // Forwarded or X-Forwarded-… is there
	Named         FieldNames // the headers that Connection names
	Announced     FieldNames // the fields that Trailer names
	listed        [2]int     // elements of Connection and of Trailer
}

func (h *RequestHeader) MethodBytes() []byte  { return h.Raw[h.Method:h.MethodEnd] }
func (h *RequestHeader) TargetBytes() []byte  { return h.Raw[h.target:h.targetEnd] }
func (h *RequestHeader) HostBytes() []byte    { return h.Raw[h.host:h.HostEnd] }
func (h *RequestHeader) Name(l *Line) []byte  { return h.Raw[l.Start:l.Colon] }
func (h *RequestHeader) Value(l *Line) []byte { return h.Raw[l.value:l.valueEnd] }
func (h *RequestHeader) IsHead() bool         { return string(h.MethodBytes()) == "HEAD" }

func (h *RequestHeader) Reset() {
	*h = RequestHeader{Lines: h.Lines[:0], Upgrade: -1, Named: h.Named.Emptied(), Announced: h.Announced.Emptied()}
}

// scan reads a request header from the start of b. It returns the header's length, or 0 while b
// does not hold all of it, or a refusal. Whatever it accepts reads the same to every parser that
// follows RFC 9112; that is what the fuzz targets hold it to.
func (h *RequestHeader) Scan(b []byte, lim *Limits) (int, *Refusal) {
	h.Reset()
	h.Raw = b
	i := 0
	if len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
		i = 2 // one empty line before a request is an old client's habit (RFC 9112 §2.2)
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
		for nameClass[b[c]] != 0 { // ends at the latest at CR
			class |= nameClass[b[c]]
			c++
		}
		if c == i || b[c] != ':' {
			return 0, refuseName
		}
		v, e := c+1, end-2
		for v < e && (b[v] == ' ' || b[v] == '\t') {
			v++
		}
		for e > v && (b[e-1] == ' ' || b[e-1] == '\t') {
			e--
		}
		if !validValue(b[v:e]) {
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

// note keeps what a header with a meaning of its own says.
func (h *RequestHeader) note(k Kind, value []byte, v, e int, hasCoding *bool, hosts *int) *Refusal {
	switch k {
	case KindHost:
		*hosts++
		h.host, h.HostEnd = uint32(v), uint32(e)
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
		if h.Http10 {
			return refuseCoding10
		}
		if !EqualFold(value, "chunked") {
			return codingRefusal(value)
		}
	case kindConnection:
		for rest := value; len(rest) > 0; {
			var e []byte
			e, rest = nextElement(rest)
			if h.listed[0]++; h.listed[0] > maxListed {
				return refuseConnectionNames
			}
			switch {
			case EqualFold(e, "close"):
				h.Close = true
			case EqualFold(e, "keep-alive"):
				h.keepAlive = true
			case EqualFold(e, "upgrade"):
				h.upgradeOption = true
			case len(e) > 0:
				h.Named.add(e)
			}
		}
	case kindUpgrade:
		if h.Upgrade == -1 {
			h.Upgrade = len(h.Lines) - 1
		} else {
			h.Upgrade = -2
		}
	case KindCookie:
		h.Cookies++
	case kindExpect:
		if !h.Http10 { // an HTTP/1.0 client's expectation is ignored (RFC 9110 §10.1.1)
			if !EqualFold(value, "100-continue") {
				return refuseExpect
			}
			h.Expect = true
		}
	case kindTE:
		h.TeTrailers = h.TeTrailers || listHas(value, "trailers")
	case KindTrailer:
		for rest := value; len(rest) > 0; {
			var e []byte
			if e, rest = nextElement(rest); !isToken(e) || ForbiddenTrailer(e) {
				return refuseTrailer
			}
			if h.listed[1]++; h.listed[1] > maxListed {
				return refuseTrailerNames
			}
			h.Announced.add(e)
		}
	}
	return nil
}

// codingRefusal tells a known coding that we do not speak (501) from nonsense (400). Of what two
// parsers could read in two ways, nothing is called known.
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

// conclude checks what only the whole header can tell.
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
		if !h.Http10 {
			return refuseNoHost
		}
	case h.host == h.HostEnd:
		return refuseNoHost
	case !ValidHost(h.HostBytes()):
		return refuseHost
	}
	if h.Http10 {
		h.Close = h.Close || !h.keepAlive
		h.upgradeOption = false
	}
	h.Expect = h.Expect && h.Length != 0
	return h.originForm()
}

// unfinished answers for a header that b does not hold whole: nothing yet, or a refusal where it
// has outgrown its limits or can no longer become valid.
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
