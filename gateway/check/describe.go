package check

import (
	"bytes"
	"net/netip"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/forwarded"
)

// Path is the path of checks; dialects that append the path of the described request do so behind it.
const Path = "/.waiting-room/check"

// Fault is why a check is refused. Detail is a sentence for the operator, which repeats nothing of the request.
type Fault struct{ Name, Detail string }

// The faults. Name is the label of the metric.
var (
	UnknownPeer     = &Fault{"peer", "The peer is not listed in check.trusted."}
	UnknownPath     = &Fault{"path", "The path of a check is " + Path + "."}
	NoTarget        = &Fault{"target", "The field that names the target of the request is missing, repeated or not a path."}
	NoMethod        = &Fault{"method", "The field that names the method of the request is missing or repeated."}
	NoHost          = &Fault{"host", "The field that names the host of the request is missing or repeated."}
	DoubtfulScheme  = &Fault{"scheme", "X-Forwarded-Proto is repeated, or neither http nor https."}
	DoubtfulRequest = &Fault{"request", "The check, or the request that it describes, is malformed."}
)

// Describe describes to into the request that the check q, in dialect d, asks about. proxies are the networks whose X-Forwarded-For is believed beyond the
// proxy that sent the check.
func Describe(d dialect.Dialect, into *wire.Description, q *wire.Request, proxies []netip.Prefix) *Fault {
	path := q.Target()
	rest, ok := bytes.CutPrefix(path, []byte(Path))
	if !ok || len(rest) > 0 && rest[0] != '/' && rest[0] != '?' {
		return UnknownPath
	}
	var method, target, host []byte
	switch d.Family() {
	case dialect.Itself:
		method, target, host = q.Method(), rest, q.Host()
		if len(target) == 0 || target[0] == '?' {
			return NoTarget
		}
	case dialect.Original:
		method, target, host = single(q, "x-original-method"), single(q, "x-original-uri"), q.Host()
	case dialect.Forwarded:
		method, target, host = single(q, "x-forwarded-method"), single(q, "x-forwarded-uri"), single(q, "x-forwarded-host")
	}
	switch {
	case len(target) == 0 || target[0] != '/':
		return NoTarget
	case len(method) == 0:
		return NoMethod
	case len(host) == 0:
		return NoHost
	}
	secure, ok := scheme(q)
	if !ok {
		return DoubtfulScheme
	}
	address, _ := forwarded.Walk(q.Peer(), q.PeekAll("x-forwarded-for"), proxies, func(hop []byte) []byte { return hop })
	into.Begin(method, target, host, address, secure)
	h := q.Header()
	for i := range h.Lines {
		if l := &h.Lines[i]; Keeps(h.Name(l)) {
			into.Add(h.Name(l), h.Value(l))
		}
	}
	if d.Family() == dialect.Itself && h.Length > 0 {
		into.Add([]byte("Content-Length"), []byte("1"))
	}
	return nil
}

// single returns the value of the only field with a name; nil where there is none or more than one.
func single(q *wire.Request, name string) []byte {
	values := q.PeekAll(name)
	if len(values) != 1 {
		return nil
	}
	return values[0]
}

// scheme returns whether the visitor's connection uses TLS. A proxy that does not write X-Forwarded-Proto has plain visitors.
func scheme(q *wire.Request) (secure, ok bool) {
	values := q.PeekAll("x-forwarded-proto")
	switch {
	case len(values) == 0:
		return false, true
	case len(values) > 1:
		return false, false
	}
	return IsSecure(values[0])
}

// IsSecure reports whether a scheme is one of connections that use TLS. ok is false for schemes other than those of HTTP and WebSocket.
func IsSecure(scheme []byte) (secure, ok bool) {
	if http1.EqualFold(scheme, "https") || http1.EqualFold(scheme, "wss") {
		return true, true
	}
	return false, http1.EqualFold(scheme, "http") || http1.EqualFold(scheme, "ws")
}

// Keeps reports whether a field of a check is a field of the described request: all but those that belong to the connection,
// that describe requests in some dialect, or that only the gateway writes.
func Keeps(name []byte) bool {
	switch http1.RequestKind(name) {
	case http1.KindKeep:
		return !http1.PrefixFold(name, "x-original-")
	case http1.KindCookie:
		return true
	}
	return http1.EqualFold(name, "upgrade") || http1.EqualFold(name, "x-waiting-room-token") || http1.EqualFold(name, "x-waiting-room-pass") || http1.EqualFold(name, "x-waiting-room-permit")
}
