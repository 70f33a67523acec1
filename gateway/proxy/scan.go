package proxy

import "bytes"

// line is one header line, as offsets into the raw header.
type line struct {
	start, colon, value, valueEnd, end uint32
	kind                               kind
}

// headLimits bound a request header.
type headLimits struct {
	Header int // bytes of request line and headers together
	Target int // bytes of the request target
	Lines  int // header lines
}

// head is what one strict pass over a request header found. Offsets are into raw.
type head struct {
	raw []byte // the whole header, request line and final empty line included

	method, methodEnd uint32
	target, targetEnd uint32 // in origin form: absolute targets are cut
	lines             []line

	host, hostEnd uint32
	cookies       int
	length        int64 // of the body: -1 chunked, 0 none
	hasLength     bool
	http10        bool
	close         bool // the client wants the connection closed after the answer
	keepAlive     bool // an HTTP/1.0 client asked to keep it
	upgradeOption bool // Connection: upgrade
	upgrade       int  // index of the only Upgrade line, -1 none, -2 several
	teTrailers    bool
	expect        bool
	forwarded     bool       // Forwarded or X-Forwarded-… is there
	named         fieldNames // the headers that Connection names
	announced     fieldNames // the fields that Trailer names
	listed        [2]int     // elements of Connection and of Trailer
}

func (h *head) methodBytes() []byte { return h.raw[h.method:h.methodEnd] }
func (h *head) targetBytes() []byte { return h.raw[h.target:h.targetEnd] }
func (h *head) hostBytes() []byte   { return h.raw[h.host:h.hostEnd] }
func (h *head) name(l *line) []byte { return h.raw[l.start:l.colon] }
func (h *head) val(l *line) []byte  { return h.raw[l.value:l.valueEnd] }
func (h *head) isHead() bool        { return string(h.methodBytes()) == "HEAD" }

func (h *head) reset() {
	*h = head{lines: h.lines[:0], upgrade: -1, named: h.named.emptied(), announced: h.announced.emptied()}
}

// scan reads a request header from the start of b. It returns the header's length, or 0 while b
// does not hold all of it, or a refusal. Whatever it accepts reads the same to every parser that
// follows RFC 9112; that is what the fuzz targets hold it to.
func (h *head) scan(b []byte, lim *headLimits) (int, *Refusal) {
	h.reset()
	h.raw = b
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
		if len(h.lines) == lim.Lines {
			return 0, refuseHeaderCount
		}
		if end > lim.Header {
			return 0, refuseHeaderLarge
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
		k := requestKind(b[i:c])
		if k == kindDrop && (lowerTable[b[i]] == 'f' || prefixFold(b[i:c], "x-forwarded-")) {
			h.forwarded = true
		}
		if class >= oddName && imitates(b[i:c]) {
			return 0, refuseImitation
		}
		h.lines = append(h.lines, line{uint32(i), uint32(c), uint32(v), uint32(e), uint32(end), k})
		if k != kindKeep && k != kindDrop {
			if r := h.note(k, b[v:e], v, e, &hasCoding, &hosts); r != nil {
				return 0, r
			}
		}
		i = end
	}
	if i > lim.Header {
		return 0, refuseHeaderLarge
	}
	h.raw = b[:i]
	if r := h.conclude(hasCoding, hosts); r != nil {
		return 0, r
	}
	return i, nil
}

// note keeps what a header with a meaning of its own says.
func (h *head) note(k kind, value []byte, v, e int, hasCoding *bool, hosts *int) *Refusal {
	switch k {
	case kindHost:
		*hosts++
		h.host, h.hostEnd = uint32(v), uint32(e)
	case kindLength:
		if h.hasLength {
			return refuseTwoLengths
		}
		n, ok := parseLength(value)
		if !ok {
			return refuseLength
		}
		h.length, h.hasLength = n, true
	case kindCoding:
		if *hasCoding {
			return refuseCoding
		}
		*hasCoding = true
		if h.http10 {
			return refuseCoding10
		}
		if !equalFold(value, "chunked") {
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
			case equalFold(e, "close"):
				h.close = true
			case equalFold(e, "keep-alive"):
				h.keepAlive = true
			case equalFold(e, "upgrade"):
				h.upgradeOption = true
			case len(e) > 0:
				h.named.add(e)
			}
		}
	case kindUpgrade:
		if h.upgrade == -1 {
			h.upgrade = len(h.lines) - 1
		} else {
			h.upgrade = -2
		}
	case kindCookie:
		h.cookies++
	case kindExpect:
		if !h.http10 { // an HTTP/1.0 client's expectation is ignored (RFC 9110 §10.1.1)
			if !equalFold(value, "100-continue") {
				return refuseExpect
			}
			h.expect = true
		}
	case kindTE:
		h.teTrailers = h.teTrailers || listHas(value, "trailers")
	case kindTrailer:
		for rest := value; len(rest) > 0; {
			var e []byte
			if e, rest = nextElement(rest); !isToken(e) || forbiddenTrailer(e) {
				return refuseTrailer
			}
			if h.listed[1]++; h.listed[1] > maxListed {
				return refuseTrailerNames
			}
			h.announced.add(e)
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
		case equalFold(e, "gzip"), equalFold(e, "deflate"), equalFold(e, "compress"), equalFold(e, "x-gzip"), equalFold(e, "x-compress"):
			known = true
		case equalFold(e, "chunked") && known && len(rest) == 0:
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
func (h *head) conclude(hasCoding bool, hosts int) *Refusal {
	if hasCoding {
		if h.hasLength {
			return refuseBoth
		}
		h.length = -1
	}
	switch {
	case hosts > 1:
		return refuseTwoHosts
	case hosts == 0:
		if !h.http10 {
			return refuseNoHost
		}
	case h.host == h.hostEnd:
		return refuseNoHost
	case !validHost(h.hostBytes()):
		return refuseHost
	}
	if h.http10 {
		h.close = h.close || !h.keepAlive
		h.upgradeOption = false
	}
	h.expect = h.expect && h.length != 0
	return h.originForm()
}

// unfinished answers for a header that b does not hold whole: nothing yet, or a refusal where it
// has outgrown its limits or can no longer become valid.
func (h *head) unfinished(b []byte, lineStart int, lim *headLimits, r *Refusal) (int, *Refusal) {
	if r != nil {
		return 0, r
	}
	if len(b) > lim.Header {
		return 0, refuseHeaderLarge
	}
	if lineStart < len(b) && (b[lineStart] == ' ' || b[lineStart] == '\t') {
		if lineStart == 0 {
			return 0, refuseLine
		}
		return 0, refuseFold
	}
	return 0, nil
}
