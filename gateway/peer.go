package gateway

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/anteroom/anteroom/gateway/proxy"
)

// forwardedFor is the default of Options.TrustedHeader.
const forwardedFor = "x-forwarded-for"

// peer is the visitor's end of a request, as far as the trusted proxies in front of the gateway report it.
type peer struct {
	addr    netip.Addr // the visitor's
	trusted bool       // the connection comes from a trusted proxy
	told    bool       // … whose headers report on the visitor
	secure  bool       // the visitor's side is TLS, ours or the proxy's
	hop     []byte     // the element of Forwarded that the visitor's address comes from; part of the request's header
}

// peerOf returns the visitor's end of a request: the other end of the connection, which the PROXY protocol may have named, or, where that is a trusted
// proxy, the address in header, which is in lower case. No other header is read for the address, because a proxy that writes
// one of them passes the visitor's own spelling of the rest on.
func peerOf(q *proxy.Request, trusted []netip.Prefix, header string) peer {
	p := peer{addr: q.Peer(), secure: q.Secure()}
	if !contains(trusted, p.addr) {
		return p
	}
	p.trusted, p.told = true, q.Forwarded()
	switch {
	case header == "forwarded":
		if p.told {
			p.addr, p.hop = walk(p.addr, q.PeekAll(header), trusted, func(hop []byte) []byte { return parameter(hop, "for") })
			if proto := parameter(p.hop, "proto"); len(proto) > 0 {
				p.secure = equalFold(proto, "https")
			}
		}
		return p
	case header != forwardedFor:
		p.addr = single(p.addr, q.PeekAll(header))
	case p.told:
		p.addr, _ = walk(p.addr, q.PeekAll(forwardedFor), trusted, func(hop []byte) []byte { return hop })
	}
	if p.told {
		if proto := firstOf(lastLine(q.PeekAll("x-forwarded-proto"))); len(proto) > 0 {
			p.secure = equalFold(proto, "https") || equalFold(proto, "wss")
		}
	}
	return p
}

// ownHeader returns the header in which origins read the visitor's address, where that is none of those that every origin
// is sent.
func ownHeader(trustedHeader string) string {
	switch strings.ToLower(trustedHeader) {
	case "", forwardedFor, "forwarded", "x-real-ip":
		return ""
	}
	return trustedHeader
}

// warnMisnamed logs, once for a configuration, that a trusted proxy names a visitor in a header that is not believed: without
// that the address of the proxy stands for all of its visitors, and the limits of one address bind all of them.
func (v *visit) warnMisnamed() {
	header := v.state.options.TrustedHeader
	if v.peer.addr != v.req.Peer() || !v.req.Forwarded() || v.req.Peek(header) != nil || v.state.misnamed.Load() {
		return
	}
	for _, other := range [...]string{forwardedFor, "forwarded"} {
		if v.req.Peek(other) != nil && !v.state.misnamed.Swap(true) {
			v.g.log.Warn("a trusted proxy names the visitor in a header that is not believed; all its visitors share its address. If the proxy always writes that header, set trusted_header to it",
				"proxy", v.req.Peer().String(), "header", other, "trusted_header", header)
		}
	}
}

// single returns the address in a header that holds one. Of two addresses one may be the visitor's own, so neither is believed.
func single(from netip.Addr, lines [][]byte) netip.Addr {
	if len(lines) != 1 {
		return from
	}
	if a, ok := parseHop(lines[0]); ok {
		return a
	}
	return from
}

// forwardedTarget returns the host and the port that the visitor asked for, as a trusted proxy reports them; empty where it
// does not.
func (v *visit) forwardedTarget() (host, port []byte) {
	if v.state.options.TrustedHeader == "forwarded" {
		return parameter(v.peer.hop, "host"), nil
	}
	host = firstOf(lastLine(v.req.PeekAll("x-forwarded-host")))
	return host, firstOf(lastLine(v.req.PeekAll("x-forwarded-port")))
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// No chain of trusted proxies is longer than hopsMost, and no element longer than hopMost bytes: what a visitor adds to the
// header beyond that is not looked at.
const (
	hopsMost = 32
	hopMost  = 512
)

// walk follows the hops from the right as long as they are trusted, at most hopsMost, and returns the address at which it ends. A hop
// that is no address ends it at the last one that was. last is the hop that was looked at last: all on its right are trusted, so
// a trusted proxy wrote it.
func walk(from netip.Addr, lines [][]byte, trusted []netip.Prefix, address func([]byte) []byte) (addr netip.Addr, last []byte) {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for line := lines[i]; len(line) > 0; {
			if hops++; hops > hopsMost {
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
			if len(hop) > hopMost {
				return from, nil
			}
			a, ok := parseHop(address(hop))
			if !ok {
				return from, hop
			}
			if from, last = a, hop; !contains(trusted, a) {
				return a, hop
			}
		}
	}
	return from, last
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
