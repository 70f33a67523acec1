package check

import (
	"bytes"
	"net/netip"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/forwarded"
)

// Path is the path of checks. In dialects of the family Prefixed the target of the described request follows it.
const Path = "/.waiting-room/check"

// Fault is a reason to refuse a check.
type Fault struct {
	Name   string // label of the metric
	Detail string // for the operator; repeats nothing of the request
}

// The faults.
var (
	UnknownPeer    = &Fault{"peer", "The peer is not listed in check.trusted."}
	UnknownPath    = &Fault{"path", "The path of a check is " + Path + "."}
	NoTarget       = &Fault{"target", "The field that names the target of the request is missing, repeated or not a path."}
	NoMethod       = &Fault{"method", "The field that names the method of the request is missing or repeated."}
	NoHost         = &Fault{"host", "The field that names the host of the request is missing or repeated."}
	InvalidScheme  = &Fault{"scheme", "X-Forwarded-Proto is repeated, or neither http nor https."}
	InvalidRequest = &Fault{"request", "The check, or the request that it describes, is malformed."}
)

// Describe writes the request that the check q describes in a dialect into d. proxies are the networks whose X-Forwarded-For is believed in
// addition to the peer's.
func Describe(in dialect.Dialect, d *wire.Description, q *wire.Request, proxies []netip.Prefix) *Fault {
	rest, ok := bytes.CutPrefix(q.Target(), []byte(Path))
	if !ok || len(rest) > 0 && rest[0] != '/' && rest[0] != '?' {
		return UnknownPath
	}
	var method, target, host []byte
	switch in.Family() {
	case dialect.Prefixed:
		method, target, host = q.Method(), rest, q.Host()
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
		return InvalidScheme
	}
	address, _ := forwarded.Walk(q.Peer(), q.PeekAll("x-forwarded-for"), proxies, func(hop []byte) []byte { return hop })
	d.Begin(method, target, host, address, secure)
	h := q.Header()
	for i := range h.Lines {
		if l := &h.Lines[i]; IsDescribed(h.Name(l)) {
			d.Add(h.Name(l), h.Value(l))
		}
	}
	if in.Family() == dialect.Prefixed && h.Length > 0 {
		d.Add([]byte("Content-Length"), []byte("1")) // only whether there is a body counts
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

// scheme reports whether the visitor's connection uses TLS: by X-Forwarded-Proto, and false without it.
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

// IsSecure reports whether a scheme uses TLS. ok is false for schemes other than those of HTTP and WebSocket.
func IsSecure(scheme []byte) (secure, ok bool) {
	if http1.EqualFold(scheme, "https") || http1.EqualFold(scheme, "wss") {
		return true, true
	}
	return false, http1.EqualFold(scheme, "http") || http1.EqualFold(scheme, "ws")
}

// IsDescribed reports whether a field of a check is also a field of the described request: all but those that belong to the connection,
// that describe requests in some dialect, or that only the gateway writes.
func IsDescribed(name []byte) bool {
	switch http1.RequestKind(name) {
	case http1.KindKeep:
		return !http1.PrefixFold(name, "x-original-")
	case http1.KindCookie:
		return true
	}
	return http1.EqualFold(name, "upgrade") || http1.EqualFold(name, "x-waiting-room-token") || http1.EqualFold(name, "x-waiting-room-pass") || http1.EqualFold(name, "x-waiting-room-permit")
}
