// Package forwarded finds a client's address in the headers of trusted proxies, without allocating.
package forwarded

import (
	"bytes"
	"net/http"
	"net/netip"
)

// By returns the address of the client that sent r: the peer of its connection or, if the peer is trusted, the last address in
// X-Forwarded-For that is not of a trusted proxy. It returns the zero address if the peer has none.
func By(r *http.Request, trusted []netip.Prefix) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	peer := ap.Addr().Unmap().WithZone("")
	if !Contains(trusted, peer) {
		return peer
	}
	var lines [][]byte
	for _, line := range r.Header.Values("X-Forwarded-For") {
		lines = append(lines, []byte(line))
	}
	addr, _ := Walk(peer, lines, trusted, func(hop []byte) []byte { return hop })
	return addr
}

// Contains reports whether one of the prefixes holds a.
func Contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// HopsMost and HopMost limit what Walk reads: the elements of the header, and the bytes of an element. A visitor may have added the rest.
const (
	HopsMost = 32
	HopMost  = 512
)

// Walk follows the hops from the right as long as they are trusted, at most HopsMost, and returns the first address that is not
// trusted, or the last one read. A hop that is not an address ends the walk at the address before. last is the last hop that was read; a trusted proxy
// wrote it, because all hops on its right are trusted.
func Walk(from netip.Addr, lines [][]byte, trusted []netip.Prefix, address func([]byte) []byte) (addr netip.Addr, last []byte) {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for line := lines[i]; len(line) > 0; {
			if hops++; hops > HopsMost {
				return from, last
			}
			hop := line
			if comma := bytes.LastIndexByte(line, ','); comma >= 0 {
				line, hop = line[:comma], line[comma+1:]
			} else {
				line = nil
			}
			if hop = bytes.TrimSpace(hop); len(hop) == 0 {
				continue // an empty element of a list is none (RFC 9110 §5.6.1)
			}
			if len(hop) > HopMost {
				return from, nil
			}
			a, ok := ParseHop(address(hop))
			if !ok {
				return from, hop
			}
			if from, last = a, hop; !Contains(trusted, a) {
				return a, hop
			}
		}
	}
	return from, last
}

// ParseHop reads an address with or without a port, in brackets or not.
func ParseHop(b []byte) (netip.Addr, bool) {
	if len(b) == 0 || len(b) > 64 {
		return netip.Addr{}, false
	}
	if a, ok := parse4(b); ok {
		return a, true
	}
	s := string(b)
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone(""), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if s[0] == '[' && s[len(s)-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : len(s)-1]); err == nil {
			return a.Unmap().WithZone(""), true
		}
	}
	return netip.Addr{}, false
}

// parse4 reads four decimal numbers, without allocating; it takes no other spelling, as netip does.
func parse4(b []byte) (netip.Addr, bool) {
	var out [4]byte
	part, digits, value := 0, 0, 0
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9' && (digits == 0 || value != 0):
			value = value*10 + int(c-'0')
			if digits++; value > 255 {
				return netip.Addr{}, false
			}
		case c == '.' && digits > 0 && part < 3:
			out[part] = byte(value)
			part, digits, value = part+1, 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	out[part] = byte(value)
	return netip.AddrFrom4(out), part == 3 && digits > 0
}
