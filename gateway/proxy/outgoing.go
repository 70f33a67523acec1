package proxy

import (
	"bytes"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
)

// outgoing is a request as it is sent to the origin.
type outgoing struct {
	r            *wire.Request
	h            *http1.RequestHeader
	f            *Forward
	preserveHost bool
	forwardPass  bool
	upgrade      string // the protocol that the client asks to change to
}

// appendRequest appends the header for the origin: the visitor's lines in their order, byte for byte, without
// hop-by-hop fields and the gateway's own, and then the gateway's. Those come last and are never taken from the
// visitor, so no Connection field can remove them.
func (x *outgoing) appendRequest(dst []byte, authority string) []byte {
	h, f := x.h, x.f
	dst = append(dst, h.Method()...)
	dst = append(dst, ' ')
	dst = h.AppendTarget(dst)
	dst = append(dst, " HTTP/1.1\r\n"...)
	host := f.Host
	if len(host) == 0 {
		host = h.Host()
	}
	own := !x.preserveHost || len(host) == 0
	if !h.HasHost() { // HTTP/1.0
		dst = appendHost(dst, host, authority, own)
	}
	run, cookies := -1, false // lines that are kept are copied in one piece
	for i := range h.Lines {
		l := &h.Lines[i]
		keep := false
		switch l.Kind {
		case http1.KindKeep:
			keep = !h.Connection.Named.Has(h.Name(l)) && (x.f.DropField == nil || !x.f.DropField(h.Name(l)))
		case http1.KindHost:
			keep = !own && len(f.Host) == 0 && h.Tidy(l)
		case http1.KindLength:
			keep = h.Tidy(l)
		}
		if keep {
			if run < 0 {
				run = i
			}
			continue
		}
		if run >= 0 {
			dst = append(dst, h.Raw[h.Lines[run].Start:l.Start]...)
			run = -1
		}
		switch l.Kind {
		case http1.KindHost:
			dst = appendHost(dst, host, authority, own)
		case http1.KindLength:
			dst = append(dst, "Content-Length: "...)
			dst = append(dst, h.Value(l)...)
			dst = append(dst, "\r\n"...)
		case http1.KindCookie:
			if !cookies {
				cookies = true
				dst = x.appendCookies(dst, i)
			}
		}
	}
	if run >= 0 {
		dst = append(dst, h.Raw[h.Lines[run].Start:h.Lines[len(h.Lines)-1].End]...)
	}
	return x.appendOwn(dst, host)
}

func appendHost(dst, host []byte, authority string, own bool) []byte {
	dst = append(dst, "Host: "...)
	if own {
		dst = append(dst, authority...)
	} else {
		dst = append(dst, host...)
	}
	return append(dst, "\r\n"...)
}

// appendCookies joins the cookie lines, of which the first is given, into one, because RFC 9112 allows only one, and
// removes the cookies that are not for the origin. A single line without such cookies is copied as it is.
func (x *outgoing) appendCookies(dst []byte, first int) []byte {
	h := x.h
	begin, dropped := len(dst), false
	dst = append(dst, h.Name(&h.Lines[first])...)
	dst = append(dst, ": "...)
	empty := len(dst)
	for i := range h.Lines[first:] {
		l := &h.Lines[first+i]
		if l.Kind != http1.KindCookie {
			continue
		}
		if h.Connection.Named.Has(h.Name(l)) {
			dropped = true
			continue
		}
		between := "; "
		for rest, more := h.Value(l), true; more; {
			var pair []byte
			if end := bytes.IndexByte(rest, ';'); end >= 0 {
				pair, rest = rest[:end], rest[end+1:]
			} else {
				pair, more = rest, false
			}
			bare := http1.TrimOWS(pair)
			switch {
			case len(bare) > 0 && x.f.DropCookie != nil && x.f.DropCookie(cookieName(bare)):
				dropped = true
			case len(dst) == empty:
				dst = append(dst, bare...)
				between = ";"
			default:
				if dst = append(dst, between...); between != ";" {
					pair = bare
				}
				dst = append(dst, pair...)
				between = ";"
			}
		}
	}
	switch {
	case h.Cookies == 1 && !dropped:
		l := &h.Lines[first]
		return append(dst[:begin], h.Raw[l.Start:l.End]...)
	case len(dst) == empty:
		return dst[:begin]
	}
	return append(dst, "\r\n"...)
}

func cookieName(pair []byte) []byte {
	for i, c := range pair {
		if c == '=' {
			return http1.TrimOWS(pair[:i])
		}
	}
	return pair
}

// appendOwn appends the gateway's own fields, and the framing.
func (x *outgoing) appendOwn(dst, host []byte) []byte {
	h, f := x.h, x.f
	peer := x.r.Peer()
	client := f.ClientIP
	if !client.IsValid() {
		client = peer
	}
	dst = append(dst, "X-Forwarded-For: "...)
	if len(f.ForwardedFor) > 0 {
		dst = append(dst, f.ForwardedFor...)
		dst = append(dst, ", "...)
	}
	dst = peer.AppendTo(dst)
	dst = append(dst, "\r\nX-Real-IP: "...)
	dst = client.AppendTo(dst)
	if f.ClientHeader != "" {
		dst = append(dst, "\r\n"...)
		dst = append(dst, f.ClientHeader...)
		dst = append(dst, ": "...)
		dst = client.AppendTo(dst)
	}
	dst = append(dst, "\r\nX-Forwarded-Proto: "...)
	switch {
	case f.Proto != "":
		dst = append(dst, f.Proto...)
	case x.r.Secure():
		dst = append(dst, "https"...)
	default:
		dst = append(dst, "http"...)
	}
	if len(f.ForwardedHost) > 0 && http1.ValidHost(f.ForwardedHost) {
		host = f.ForwardedHost
	}
	if len(host) > 0 {
		dst = append(dst, "\r\nX-Forwarded-Host: "...)
		dst = append(dst, host...)
	}
	if http1.IsPort(f.ForwardedPort) {
		dst = append(dst, "\r\nX-Forwarded-Port: "...)
		dst = append(dst, f.ForwardedPort...)
	}
	if f.Session != "" {
		dst = append(dst, "\r\nX-Waiting-Room-Session: "...)
		dst = append(dst, f.Session...)
	}
	if x.forwardPass && len(f.Pass) > 0 {
		dst = append(dst, "\r\nX-Waiting-Room-Pass: "...)
		dst = append(dst, f.Pass...)
	}
	if len(f.Permit) > 0 {
		dst = append(dst, "\r\nX-Waiting-Room-Permit: "...)
		dst = append(dst, f.Permit...)
	}
	if f.TraceParent != "" {
		dst = append(dst, "\r\ntraceparent: "...)
		dst = append(dst, f.TraceParent...)
	}
	if f.TraceState != "" {
		dst = append(dst, "\r\ntracestate: "...)
		dst = append(dst, f.TraceState...)
	}
	switch {
	case h.TETrailers && x.upgrade != "":
		dst = append(dst, "\r\nTE: trailers\r\nConnection: TE, Upgrade"...)
	case h.TETrailers:
		dst = append(dst, "\r\nTE: trailers\r\nConnection: TE"...)
	case x.upgrade != "":
		dst = append(dst, "\r\nConnection: Upgrade"...)
	}
	if x.upgrade != "" {
		dst = append(dst, "\r\nUpgrade: "...)
		dst = append(dst, x.upgrade...)
	}
	if h.Length < 0 {
		dst = append(dst, "\r\nTransfer-Encoding: chunked"...)
		if h.Trailer.Announced.Any() {
			dst = x.appendTrailerNames(dst)
		}
	}
	return append(dst, "\r\n\r\n"...)
}

// appendTrailerNames announces those of the client's trailers that may be forwarded.
func (x *outgoing) appendTrailerNames(dst []byte) []byte {
	h := x.h
	n := 0
	for i := range h.Lines {
		l := &h.Lines[i]
		if l.Kind != http1.KindTrailer {
			continue
		}
		dst, n = http1.AppendAllowedNames(dst, h.Value(l), n, x.f.DropField)
	}
	return dst
}

// appendTrailers appends those of the client's trailer lines that may be forwarded.
func (x *outgoing) appendTrailers(dst, lines []byte) []byte {
	if !x.h.Trailer.Announced.Any() {
		return dst
	}
	return http1.AppendTrailers(dst, lines, x.travels)
}

// travels reports whether a trailer may be forwarded, if it may follow a body at all. Fields that are dropped from
// the header are dropped here too, because some programs merge the two.
func (x *outgoing) travels(name []byte) bool {
	return x.h.Trailer.Announced.Has(name) && (x.f.DropField == nil || !x.f.DropField(name))
}
