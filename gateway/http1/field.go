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

func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenTable[c] {
			return false
		}
	}
	return len(b) > 0
}

// EqualFold reports whether b is s without regard to case. s is lower-case ASCII.
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

// EqualFoldBytes reports whether a is b without regard to case.
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

// RequestKind returns the kind of a request field.
func RequestKind(name []byte) Kind {
	switch lowerTable[name[0]] {
	case 'c':
		switch len(name) {
		case 6:
			if EqualFold(name, "cookie") {
				return KindCookie
			}
		case 10:
			if EqualFold(name, "connection") {
				return kindConnection
			}
		case 14:
			if EqualFold(name, "content-length") {
				return KindLength
			}
		}
	case 'e':
		if EqualFold(name, "expect") {
			return kindExpect
		}
	case 'f':
		if EqualFold(name, "forwarded") {
			return kindDrop
		}
	case 'h':
		if EqualFold(name, "host") {
			return KindHost
		}
		if EqualFold(name, "http2-settings") {
			return kindDrop
		}
	case 'k':
		if EqualFold(name, "keep-alive") {
			return kindDrop
		}
	case 'p':
		switch len(name) {
		case 5: // CGI turns it into HTTP_PROXY
			if EqualFold(name, "proxy") {
				return kindDrop
			}
		case 9: // like script-name below
			if EqualFold(name, "path-info") {
				return kindDrop
			}
		case 16, 18, 19:
			if EqualFold(name, "proxy-connection") || EqualFold(name, "proxy-authenticate") || EqualFold(name, "proxy-authorization") {
				return kindDrop
			}
		}
	case 's': // gunicorn removes its value from the path, so a path could avoid its room
		if EqualFold(name, "script-name") {
			return kindDrop
		}
	case 't':
		switch len(name) {
		case 2:
			if EqualFold(name, "te") {
				return kindTE
			}
		case 7:
			if EqualFold(name, "trailer") {
				return KindTrailer
			}
		case 17:
			if EqualFold(name, "transfer-encoding") {
				return kindCoding
			}
		}
	case 'u':
		if EqualFold(name, "upgrade") {
			return kindUpgrade
		}
	case 'x':
		switch len(name) {
		case 13, 14: // some frameworks take the path, or its beginning, from these: a way around a room
			if EqualFold(name, "x-rewrite-url") || EqualFold(name, "x-original-url") || EqualFold(name, "x-script-name") {
				return kindDrop
			}
		}
		if EqualFold(name, "x-real-ip") || PrefixFold(name, "x-forwarded-") || PrefixFold(name, "x-waiting-room-") {
			return kindDrop
		}
	}
	return KindKeep
}

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

// Imitates reports whether some servers confuse a name with a reserved one.
func Imitates(name []byte) bool {
	var buf [64]byte
	return RequestKind(dashed(&buf, name)) != KindKeep
}

// ResponseKind returns the kind of a response field.
func ResponseKind(name []byte) Kind {
	switch lowerTable[name[0]] {
	case 'c':
		switch len(name) {
		case 10:
			if EqualFold(name, "connection") {
				return kindConnection
			}
		case 14:
			if EqualFold(name, "content-length") {
				return KindLength
			}
		}
	case 'd':
		if EqualFold(name, "date") {
			return KindDate
		}
	case 'k':
		if EqualFold(name, "keep-alive") {
			return kindDrop
		}
	case 'p':
		if EqualFold(name, "proxy-connection") || EqualFold(name, "proxy-authenticate") {
			return kindDrop
		}
	case 't':
		switch len(name) {
		case 2:
			if EqualFold(name, "te") {
				return kindDrop
			}
		case 7:
			if EqualFold(name, "trailer") {
				return KindTrailer
			}
		case 17:
			if EqualFold(name, "transfer-encoding") {
				return kindCoding
			}
		}
	case 'u':
		if EqualFold(name, "upgrade") {
			return kindUpgrade
		}
	}
	return KindKeep
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

// validValue reports whether a field value has no control character except HTAB. Bytes above 0x7f are opaque to HTTP
// and pass (RFC 9110 §5.5). It checks eight bytes at a time.
func validValue(b []byte) bool {
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
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
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

// FramingName reports whether a response field says how its connection carries the message. The gateway writes these
// itself.
func FramingName(k []byte) bool {
	switch k[0] | 0x20 {
	case 'c':
		return len(k) == 14 && EqualFold(k, "content-length") || len(k) == 10 && EqualFold(k, "connection")
	case 't':
		return len(k) == 17 && EqualFold(k, "transfer-encoding") || len(k) == 7 && EqualFold(k, "trailer")
	case 'k':
		return EqualFold(k, "keep-alive")
	}
	return false
}
