package http1

import "encoding/binary"

// Kind is what a field means to a proxy.
type Kind uint8

const (
	KindKeep Kind = iota // end to end: forwarded
	kindDrop             // never forwarded: hop-by-hop, or written by the gateway itself
	KindHost
	KindLength
	kindCoding
	kindConnection
	kindUpgrade
	KindCookie
	kindExpect
	kindTE
	KindTrailer
	KindDate // in responses only
)

// lowerTable maps ASCII letters to lower case and other bytes to themselves.
var lowerTable = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			t[i] = byte(i) + 'a' - 'A'
		}
	}
	return
}()

// tokenTable has the characters of a token (RFC 9110 §5.6.2).
var tokenTable = func() (t [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" {
		t[c] = true
	}
	return
}()

// nameClass is 0 for bytes that no field name may have, 1 for letters, digits and dashes, and oddName for the rest.
var nameClass = func() (t [256]uint8) {
	for c := range t {
		switch l := lowerTable[c]; {
		case !tokenTable[c]:
		case 'a' <= l && l <= 'z', '0' <= l && l <= '9', l == '-':
			t[c] = 1
		default:
			t[c] = oddName
		}
	}
	return
}()

const oddName = 2

// IsTokenByte reports whether a token may contain c.
func IsTokenByte(c byte) bool { return tokenTable[c] }

// IsToken reports whether b is a token (RFC 9110 §5.6.2), as field names and methods are.
func IsToken(b []byte) bool {
	for _, c := range b {
		if !tokenTable[c] {
			return false
		}
	}
	return len(b) > 0
}

// EqualFold reports whether b equals s without regard to case. s is lower-case ASCII.
func EqualFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, c := range b {
		if lowerTable[c] != s[i] {
			return false
		}
	}
	return true
}

// EqualFoldBytes reports whether a equals b without regard to case.
func EqualFoldBytes(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if lowerTable[c] != lowerTable[b[i]] {
			return false
		}
	}
	return true
}

// PrefixFold reports whether b begins with s without regard to case. s is lower-case ASCII.
func PrefixFold(b []byte, s string) bool { return len(b) >= len(s) && EqualFold(b[:len(s)], s) }

// knownFields are the fields that mean something to a proxy, with their kinds in requests and in responses.
var knownFields = []struct {
	name              string
	request, response Kind
}{
	{"connection", kindConnection, kindConnection},
	{"content-length", KindLength, KindLength},
	{"cookie", KindCookie, KindKeep},
	{"date", KindKeep, KindDate},
	{"expect", kindExpect, KindKeep},
	{"forwarded", kindDrop, KindKeep},
	{"host", KindHost, KindKeep},
	{"http2-settings", kindDrop, KindKeep},
	{"keep-alive", kindDrop, kindDrop},
	{"path-info", kindDrop, KindKeep}, // like script-name
	{"proxy", kindDrop, KindKeep},     // CGI turns it into HTTP_PROXY
	{"proxy-authenticate", kindDrop, kindDrop},
	{"proxy-authorization", kindDrop, KindKeep},
	{"proxy-connection", kindDrop, kindDrop},
	{"script-name", kindDrop, KindKeep}, // gunicorn removes its value from the path, so a path could avoid its room
	{"te", kindTE, kindDrop},
	{"trailer", KindTrailer, KindTrailer},
	{"transfer-encoding", kindCoding, kindCoding},
	{"upgrade", kindUpgrade, kindUpgrade},
	{"x-original-url", kindDrop, KindKeep}, // some frameworks take the path, or its beginning, from these: a way around a room
	{"x-rewrite-url", kindDrop, KindKeep},
	{"x-script-name", kindDrop, KindKeep},
	{"x-real-ip", kindDrop, KindKeep},
}

// kindTable has the kinds of names by the low bits of their first letters, which are the same in both cases.
type kindTable [32]struct {
	lengths uint32 // bit n: there may be a name of n bytes; bit 31: of that many or more
	names   []namedKind
}

type namedKind struct {
	name   string
	kind   Kind
	prefix bool // all names that begin so are meant
}

var requestKinds, responseKinds = func() (request, response kindTable) {
	for _, f := range knownFields {
		request.add(f.name, f.request, false)
		response.add(f.name, f.response, false)
	}
	request.add("x-forwarded-", kindDrop, true)
	request.add("x-waiting-room-", kindDrop, true)
	return
}()

func (t *kindTable) add(name string, k Kind, prefix bool) {
	e := &t[name[0]&31]
	switch {
	case k == KindKeep:
		return
	case prefix:
		e.lengths |= ^uint32(0) << len(name)
	default:
		e.lengths |= 1 << len(name)
	}
	e.names = append(e.names, namedKind{name, k, prefix})
}

// of is small enough to be inlined: most names have no entry of their length.
func (t *kindTable) of(name []byte) Kind {
	if t[name[0]&31].lengths>>min(len(name), 31)&1 == 0 {
		return KindKeep
	}
	return t.find(name)
}

func (t *kindTable) find(name []byte) Kind {
	for i := range t[name[0]&31].names {
		f := &t[name[0]&31].names[i]
		if len(f.name) == len(name) && EqualFold(name, f.name) || f.prefix && PrefixFold(name, f.name) {
			return f.kind
		}
	}
	return KindKeep
}

// RequestKind returns the kind of a request field. The name must not be empty.
func RequestKind(name []byte) Kind { return requestKinds.of(name) }

// ResponseKind returns the kind of a response field. The name must not be empty.
func ResponseKind(name []byte) Kind { return responseKinds.of(name) }

// dashed returns a name with dashes in the place of everything that is neither letter nor digit, as CGI and its
// descendants read it. It is cut at 64 bytes, more than the names that matter here have.
func dashed(buf *[64]byte, name []byte) []byte {
	n := copy(buf[:], name)
	for i, c := range buf[:n] {
		if nameClass[c] == oddName {
			buf[i] = '-'
		}
	}
	return buf[:n]
}

// IsAlias reports whether a program that confuses some characters of names, as CGI and its descendants do, reads name
// as want, which is in lower case. A name is an alias of itself.
func IsAlias(name []byte, want string) bool {
	if len(name) != len(want) {
		return false
	}
	for i, c := range name {
		w := want[i]
		dashes := (c == '-' || nameClass[c] == oddName) && (w == '-' || nameClass[w] == oddName)
		if lowerTable[c] != w && !dashes {
			return false
		}
	}
	return true
}

// Imitates reports whether some servers confuse a name with one that means something to a proxy.
func Imitates(name []byte) bool {
	var buf [64]byte
	return RequestKind(dashed(&buf, name)) != KindKeep
}

// ForbiddenTrailer reports whether a field must not follow a body: fields that frame, route, authenticate or control
// the message (RFC 9110 §6.5.1), and the gateway's own.
func ForbiddenTrailer(name []byte) bool {
	var buf [64]byte
	name = dashed(&buf, name)
	if RequestKind(name) != KindKeep || PrefixFold(name, "content-") || PrefixFold(name, "if-") || PrefixFold(name, "x-forwarded") || PrefixFold(name, "x-real-ip") {
		return true
	}
	for _, s := range [...]string{"authorization", "set-cookie", "www-authenticate", "location", "range",
		"cache-control", "max-forwards", "pragma", "age", "date", "expires", "retry-after", "vary", "warning"} {
		if EqualFold(name, s) {
			return true
		}
	}
	return false
}

const (
	ones = 0x0101010101010101
	high = 0x8080808080808080
)

// ValidValue reports whether a field value has no control character except HTAB. Bytes above 0x7f are opaque to HTTP
// and pass (RFC 9110 §5.5). It checks eight bytes at a time.
func ValidValue(b []byte) bool {
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		del := x ^ 0x7f*ones
		if ((x-0x20*ones)&^x|(del-ones)&^del)&high != 0 && !validValueSlow(b[:8]) {
			return false
		}
		b = b[8:]
	}
	return validValueSlow(b)
}

func validValueSlow(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// TrimOWS returns b without the blanks and tabs around it.
func TrimOWS(b []byte) []byte {
	from, to := trimmed(b, 0, len(b))
	return b[from:to]
}

// trimmed returns the bounds of b[from:to] without the blanks and tabs around it.
func trimmed(b []byte, from, to int) (int, int) {
	for from < to && (b[from] == ' ' || b[from] == '\t') {
		from++
	}
	for to > from && (b[to-1] == ' ' || b[to-1] == '\t') {
		to--
	}
	return from, to
}

// nextElement returns the first element of a comma-separated list, and the rest of the list.
func nextElement(list []byte) (element, rest []byte) {
	for i, c := range list {
		if c == ',' {
			return TrimOWS(list[:i]), list[i+1:]
		}
	}
	return TrimOWS(list), nil
}

// listHas reports whether a comma-separated list has an element, given in lower case.
func listHas(list []byte, element string) bool {
	for len(list) > 0 {
		var e []byte
		if e, list = nextElement(list); EqualFold(e, element) {
			return true
		}
	}
	return false
}

// parseLength parses a Content-Length: at most 18 digits, without leading zeros.
func parseLength(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// FramingName reports whether a response field describes how its connection carries the message. The gateway writes these
// fields itself.
func FramingName(name []byte) bool {
	switch ResponseKind(name) {
	case KindLength, kindConnection, kindCoding, KindTrailer:
		return true
	}
	return EqualFold(name, "keep-alive")
}
