package http1

import (
	"bytes"
	"net/netip"
)

// scanRequestLine reads `method SP target SP version CRLF` at b[i:] and returns the offset of the
// line after it, 0 while there is none.
func (h *RequestHeader) scanRequestLine(b []byte, i int, lim *Limits) (int, *Refusal) {
	nl := bytes.IndexByte(b[i:], '\n')
	if nl < 0 {
		if len(b)-i > lim.Target+len(" HTTP/1.1\r\n")+maxMethod {
			return 0, refuseTargetLong
		}
		// A client that speaks something else should not have to wait for its time-out.
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

// isVersion tells a well-formed HTTP version from rubbish.
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

// what a target is made of: visible ASCII without `#` (a fragment never travels), `\` (some take it
// for `/`), `<`, `>` and `"`. `{|}^` and the backquote are not URI characters either, but browsers send them.
var targetTable = func() (t [256]bool) {
	for c := '!'; c <= '~'; c++ {
		t[c] = true
	}
	for _, c := range `#\<>"` {
		t[c] = false
	}
	return
}()

func ValidTarget(b []byte) bool {
	for _, c := range b {
		if !targetTable[c] {
			return false
		}
	}
	return true
}

// cutAbsolute splits `http://authority/path?query`. A nil authority means that it is none.
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

// originForm turns an absolute target into origin form. An authority other than Host is refused:
// one of the two would route, the other would be believed.
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

// requestTarget is the target in origin form; `http://host?q` has no path of its own.
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

// validHost tells `reg-name[:port]`, an IPv4 address or a bracketed IPv6 address; no user-info, no
// path, no list, no escapes, no zone, no empty label but for a dot at the end.
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

const maxHost = 255 + len(":65535") // the longest name of the DNS, and a port

// validPort reads `:` and a port.
func validPort(b []byte) bool { return len(b) > 1 && b[0] == ':' && IsPort(b[1:]) }

// isPort reads 1 to 5 digits up to 65535.
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
