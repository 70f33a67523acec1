package gateway

import (
	"bytes"
	"net/netip"

	"github.com/anteroom/anteroom/gateway/proxy"
)

// peer is the other end of a request: the visitor, as far as the trusted proxies before us tell.
type peer struct {
	addr    netip.Addr // the visitor's
	trusted bool       // the connection comes from a trusted proxy
	told    bool       // … which tells of the visitor in headers
	secure  bool       // the visitor's side is TLS, ours or the proxy's
}

// peerOf finds the visitor: the connection's other end, which the PROXY protocol may have told, or, where that is a trusted proxy, the rightmost hop of
// X-Forwarded-For (else of Forwarded) that is not trusted. A hop that is no address ends the walk at the last one that
// was.
func peerOf(q *proxy.Request, trusted []netip.Prefix) peer {
	p := peer{addr: q.Peer(), secure: q.Secure()}
	if !contains(trusted, p.addr) {
		return p
	}
	p.trusted = true
	if p.told = q.Forwarded(); !p.told {
		return p
	}
	if lines := q.PeekAll("x-forwarded-for"); len(lines) > 0 {
		p.addr = walk(p.addr, lines, trusted, func(hop []byte) []byte { return hop })
		if proto := firstOf(lastLine(q.PeekAll("x-forwarded-proto"))); len(proto) > 0 {
			p.secure = equalFold(proto, "https") || equalFold(proto, "wss")
		}
		return p
	}
	if proto := firstOf(lastLine(q.PeekAll("x-forwarded-proto"))); len(proto) > 0 {
		p.secure = equalFold(proto, "https") || equalFold(proto, "wss")
	}
	if lines := q.PeekAll("forwarded"); len(lines) > 0 {
		p.addr = walk(p.addr, lines, trusted, func(hop []byte) []byte { return parameter(hop, "for") })
		if proto := parameter(firstOf(lastLine(lines)), "proto"); len(proto) > 0 {
			p.secure = equalFold(proto, "https")
		}
	}
	return p
}

// forwardedTarget is the host and the port that the visitor asked for, as a trusted proxy tells; empty where it does not.
func forwardedTarget(q *proxy.Request) (host, port []byte) {
	if host = firstOf(lastLine(q.PeekAll("x-forwarded-host"))); len(host) == 0 {
		host = parameter(firstOf(lastLine(q.PeekAll("forwarded"))), "host")
	}
	return host, firstOf(lastLine(q.PeekAll("x-forwarded-port")))
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// walk goes over the hops from the right, as long as they are trusted.
func walk(from netip.Addr, lines [][]byte, trusted []netip.Prefix, address func([]byte) []byte) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for line := lines[i]; len(line) > 0; {
			hop := line
			if comma := bytes.LastIndexByte(line, ','); comma >= 0 {
				line, hop = line[:comma], line[comma+1:]
			} else {
				line = nil
			}
			if hop = bytes.TrimSpace(hop); len(hop) == 0 {
				continue // an empty element of a list is none (RFC 9110 §5.6.1)
			}
			a, ok := parseHop(address(hop))
			if !ok {
				return from
			}
			if from = a; !contains(trusted, a) {
				return a
			}
		}
	}
	return from
}

// parseHop reads an address with or without a port, in brackets or not.
func parseHop(b []byte) (netip.Addr, bool) {
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

// parameter gives a parameter of an element of Forwarded (RFC 7239), without quotes.
func parameter(element []byte, name string) []byte {
	for pair := range bytes.SplitSeq(element, []byte(";")) {
		key, value, ok := bytes.Cut(bytes.TrimSpace(pair), []byte("="))
		if ok && equalFold(key, name) {
			return bytes.Trim(value, `"`)
		}
	}
	return nil
}

func lastLine(lines [][]byte) []byte {
	if len(lines) == 0 {
		return nil
	}
	return lines[len(lines)-1]
}

func firstOf(list []byte) []byte {
	first, _, _ := bytes.Cut(list, []byte(","))
	return bytes.TrimSpace(first)
}

// network is the part of an address that stands for a household or a site: /24 and /64.
func network(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
