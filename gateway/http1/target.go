package http1

import (
	"bytes"
	"net/netip"
)

// scanRequestLine reads `method SP target SP version CRLF` at b[i:] and returns the offset of the next line, or 0
// while the line is incomplete.
func (h *RequestHeader) scanRequestLine(b []byte, i int, lim *Limits) (int, *Refusal) {
	nl := bytes.IndexByte(b[i:], '\n')
	if nl < 0 {
		if len(b)-i > lim.Target+len(" HTTP/1.1\r\n")+maxMethod {
			return 0, refuseTargetLong
		}
		// A client of another protocol should not have to wait for its time-out.
		if len(b) > i && !tokenTable[b[i]] && b[i] != '\r' {
			return 0, refuseLine
		}
		return 0, nil
	}
	end := i + nl
	if nl == 0 || b[end-1] != '\r' {
		return 0, refuseBareLF
	}
	l := b[i : end-1]
	m := 0
	for m < len(l) && tokenTable[l[m]] {
		m++
	}
	if m == 0 || m == len(l) || l[m] != ' ' || m > maxMethod {
		return 0, refuseLine
	}
	t := bytes.IndexByte(l[m+1:], ' ')
	if t <= 0 {
		return 0, refuseLine
	}
	target, version := l[m+1:m+1+t], l[m+2+t:]
	switch string(version) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		h.HTTP10 = true
	default:
		if isVersion(version) {
			return 0, refuseVersion
		}
		return 0, refuseLine
	}
	if len(target) > lim.Target {
		return 0, refuseTargetLong
	}
	h.method = span{uint32(i), uint32(i + m)}
	h.target = span{uint32(i + m + 1), uint32(i + m + 1 + t)}
	switch string(l[:m]) {
	case "CONNECT", "TRACE":
		return 0, refuseMethod
	}
	if !ValidTarget(target) {
		return 0, refuseTarget
	}
	if target[0] != '/' && !(len(target) == 1 && target[0] == '*' && string(l[:m]) == "OPTIONS") {
		if authority, _ := cutAbsolute(target); authority == nil {
			return 0, refuseTarget
		}
	}
	return end + 1, nil
}

const maxMethod = 32

// isVersion reports whether b is a well-formed HTTP version.
func isVersion(b []byte) bool {
	if !bytes.HasPrefix(b, []byte("HTTP/")) {
		return false
	}
	digits := 0
	for _, c := range b[5:] {
		if c != '.' && (c < '0' || c > '9') {
			return false
		}
		digits++
	}
	return digits > 0 && digits <= 3
}

// targetTable has the characters of a target: visible ASCII without `#` (fragments are not sent), `\` (some parsers
// read it as `/`), `<`, `>` and `"`. `{|}^` and the backquote are not URI characters either, but browsers send them.
var targetTable = func() (t [256]bool) {
	for c := '!'; c <= '~'; c++ {
		t[c] = true
	}
	for _, c := range `#\<>"` {
		t[c] = false
	}
	return
}()

// ValidTarget reports whether b consists of characters of a target.
func ValidTarget(b []byte) bool {
	for _, c := range b {
		if !targetTable[c] {
			return false
		}
	}
	return true
}

// cutAbsolute splits `http://authority/path?query`. The authority is nil if target has another form.
func cutAbsolute(target []byte) (authority, rest []byte) {
	switch {
	case PrefixFold(target, "http://"):
		target = target[len("http://"):]
	case PrefixFold(target, "https://"):
		target = target[len("https://"):]
	default:
		return nil, nil
	}
	n := 0
	for n < len(target) && target[n] != '/' && target[n] != '?' {
		n++
	}
	if n == 0 {
		return nil, nil
	}
	return target[:n], target[n:]
}

// originForm reduces an absolute target to origin form. An authority that differs from Host is refused, because
// servers disagree on which of the two counts.
func (h *RequestHeader) originForm() *Refusal {
	t := h.Target()
	if t[0] == '/' || len(t) == 1 {
		return nil
	}
	authority, rest := cutAbsolute(t)
	if h.host.start == h.host.end || !EqualFoldBytes(authority, h.Host()) {
		return refuseAuthority
	}
	h.target.start = h.target.end - uint32(len(rest))
	return nil
}

// AppendTarget appends the target in origin form, with the path that an absolute target without a path stands for.
func (h *RequestHeader) AppendTarget(dst []byte) []byte {
	t := h.Target()
	if len(t) == 0 || t[0] == '?' {
		if len(t) == 0 && string(h.Method()) == "OPTIONS" {
			return append(dst, '*') // RFC 9112 §3.2.4
		}
		dst = append(dst, '/')
	}
	return append(dst, t...)
}

// ValidHost reports whether b is `reg-name[:port]`, an IPv4 address or a bracketed IPv6 address. User-info, paths,
// lists, escapes, zones and empty labels are invalid, except a dot at the end.
func ValidHost(b []byte) bool {
	if len(b) > maxHost {
		return false
	}
	if b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 0 || end != len(b)-1 && !validPort(b[end+1:]) {
			return false
		}
		a, err := netip.ParseAddr(string(b[1:end]))
		return err == nil && a.Is6() && a.Zone() == ""
	}
	label := 0
	for i, c := range b {
		switch {
		case 'a' <= lowerTable[c] && lowerTable[c] <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '~':
			label++
		case c == '.' && label > 0:
			label = 0
		case c == ':' && i > 0:
			return validPort(b[i:])
		default:
			return false
		}
	}
	return true
}

const maxHost = 255 + len(":65535") // the longest DNS name and a port

// validPort reports whether b is `:` and a port.
func validPort(b []byte) bool { return len(b) > 1 && b[0] == ':' && IsPort(b[1:]) }

// IsPort reports whether b is a port: 1 to 5 digits, at most 65535.
func IsPort(b []byte) bool {
	if len(b) == 0 || len(b) > 5 {
		return false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n <= 65535
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= lowerTable[c] && lowerTable[c] <= 'f'
}
