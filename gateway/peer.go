package gateway

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/forwarded"
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
	if !forwarded.Contains(trusted, p.addr) {
		return p
	}
	p.trusted, p.told = true, q.Forwarded()
	switch {
	case header == "forwarded":
		if p.told {
			p.addr, p.hop = forwarded.Walk(p.addr, q.PeekAll(header), trusted, func(hop []byte) []byte { return parameter(hop, "for") })
			if proto := parameter(p.hop, "proto"); len(proto) > 0 {
				p.secure = equalFold(proto, "https")
			}
		}
		return p
	case header != forwardedFor:
		p.addr = single(p.addr, q.PeekAll(header))
	case p.told:
		p.addr, _ = forwarded.Walk(p.addr, q.PeekAll(forwardedFor), trusted, func(hop []byte) []byte { return hop })
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
	if a, ok := forwarded.ParseHop(lines[0]); ok {
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
