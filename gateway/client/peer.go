package client

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/forwarded"
)

// ForwardedFor is the default of the setting trusted_header.
const ForwardedFor = "x-forwarded-for"

// Peer is the client's end of a request, as far as trusted proxies in front of the gateway report it.
type Peer struct {
	Addr     netip.Addr
	Trusted  bool   // the connection comes from a trusted proxy
	Reported bool   // that proxy's header fields describe the client
	Secure   bool   // the client's connection uses TLS, to the gateway or to the proxy
	hop      []byte // the element of Forwarded that names Addr; part of the request
}

// PeerOf returns the client's end of a request. The address is that of the connection, which the PROXY protocol may have
// set, or, where the connection comes from a trusted proxy, the address in header, which is in lower case. No other field is
// read for the address, because a proxy that writes one field forwards the client's own values of the others.
func PeerOf(q *wire.Request, trusted []netip.Prefix, header string) Peer {
	p := Peer{Addr: q.Peer(), Secure: q.Secure()}
	if !forwarded.Contains(trusted, p.Addr) {
		return p
	}
	p.Trusted, p.Reported = true, q.Forwarded()
	switch {
	case header == "forwarded":
		if p.Reported {
			p.Addr, p.hop = forwarded.Walk(p.Addr, q.PeekAll(header), trusted, func(hop []byte) []byte { return parameter(hop, "for") })
			if proto := parameter(p.hop, "proto"); len(proto) > 0 {
				p.Secure = EqualFold(proto, "https")
			}
		}
		return p
	case header != ForwardedFor:
		p.Addr = single(p.Addr, q.PeekAll(header))
	case p.Reported:
		p.Addr, _ = forwarded.Walk(p.Addr, q.PeekAll(ForwardedFor), trusted, func(hop []byte) []byte { return hop })
	}
	if p.Reported {
		if proto := firstElement(lastLine(q.PeekAll("x-forwarded-proto"))); len(proto) > 0 {
			p.Secure = EqualFold(proto, "https") || EqualFold(proto, "wss")
		}
	}
	return p
}

// Target returns the host and the port that the client asked for, as a trusted proxy reports them in fields that belong to
// the trusted header; empty where it reports none.
func (p *Peer) Target(q *wire.Request, header string) (host, port []byte) {
	if header == "forwarded" {
		return parameter(p.hop, "host"), nil
	}
	host = firstElement(lastLine(q.PeekAll("x-forwarded-host")))
	return host, firstElement(lastLine(q.PeekAll("x-forwarded-port")))
}

// AppendChain appends the chain of addresses up to the trusted proxy to dst: what the proxy sent, in one line, where header
// is X-Forwarded-For, and otherwise the client's address alone. It appends nothing where no address was reported.
func (p *Peer) AppendChain(dst []byte, q *wire.Request, header string) []byte {
	if header != ForwardedFor {
		if p.Addr == q.Peer() {
			return dst
		}
		return p.Addr.AppendTo(dst)
	}
	for i, line := range q.PeekAll(ForwardedFor) {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, line...)
	}
	return dst
}

// Misnamed returns the field in which a trusted proxy reports the client although header is another field. The address of such a
// proxy then counts as the address of all its clients. Misnamed returns an empty string if nothing is wrong.
func (p *Peer) Misnamed(q *wire.Request, header string) string {
	if !p.Trusted || p.Addr != q.Peer() || !q.Forwarded() || q.Peek(header) != nil {
		return ""
	}
	for _, other := range [...]string{ForwardedFor, "forwarded"} {
		if q.Peek(other) != nil {
			return other
		}
	}
	return ""
}

// AddressField returns the field in which origins read the client's address; empty if it is one of the fields that every origin
// receives.
func AddressField(trustedHeader string) string {
	switch strings.ToLower(trustedHeader) {
	case "", ForwardedFor, "forwarded", "x-real-ip":
		return ""
	}
	return trustedHeader
}

// Network returns the network around an address, /24 or /64: what a household or a small site shares.
func Network(a netip.Addr) netip.Prefix {
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

// single returns the address in a field with exactly one address, and otherwise from. If a field has two addresses, the client may have invented
// one of them, so neither is used.
func single(from netip.Addr, lines [][]byte) netip.Addr {
	if len(lines) != 1 {
		return from
	}
	if a, ok := forwarded.ParseHop(lines[0]); ok {
		return a
	}
	return from
}

// parameter returns a parameter of an element of Forwarded (RFC 7239), without quotes.
func parameter(element []byte, name string) []byte {
	for pair := range bytes.SplitSeq(element, []byte(";")) {
		key, value, ok := bytes.Cut(bytes.TrimSpace(pair), []byte("="))
		if ok && EqualFold(key, name) {
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

func firstElement(list []byte) []byte {
	first, _, _ := bytes.Cut(list, []byte(","))
	return bytes.TrimSpace(first)
}
