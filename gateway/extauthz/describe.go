package extauthz

import (
	"bytes"
	"net/netip"
	"unsafe"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/forwarded"
)

type httpRequest = authv3.AttributeContext_HttpRequest

// describe writes the request of a CheckRequest, which a proxy at peer sent, into d. The client's address is that of its connection to
// the proxy. X-Forwarded-For is only read if that connection comes from one of proxies, or if the proxy does not report its address.
func describe(r *authv3.CheckRequest, peer netip.Addr, proxies []netip.Prefix, d *wire.Description) *check.Fault {
	h := r.GetAttributes().GetRequest().GetHttp()
	fields, fault := fieldsOf(h)
	switch {
	case fault != nil:
		return fault
	case len(h.GetPath()) == 0 || h.Path[0] != '/':
		return check.NoTarget
	case !http1.IsToken(bytesOf(h.Method)):
		return check.NoMethod
	case h.Host == "":
		return check.NoHost
	}
	secure, ok := secureOf(h, fields.proto)
	if !ok {
		return check.InvalidScheme
	}
	address, reported := sourceOf(r)
	if !reported {
		address = peer
	}
	if !reported || forwarded.Contains(proxies, address) {
		address, _ = forwarded.Walk(address, fields.chain, proxies, func(hop []byte) []byte { return hop })
	}
	d.Begin(bytesOf(h.Method), bytesOf(h.Path), bytesOf(h.Host), address, secure)
	each(h, func(name, value []byte) bool {
		if name[0] != ':' && check.IsDescribed(name) {
			d.Add(name, value)
		}
		return true
	})
	if fields.body || h.Body != "" || len(h.RawBody) > 0 {
		d.Add([]byte("Content-Length"), []byte("1")) // only whether there is a body counts
	}
	return nil
}

// fields are the values of fields of a check that are not fields of the described request.
type fields struct {
	proto []byte   // X-Forwarded-Proto; nil: none
	chain [][]byte // X-Forwarded-For
	body  bool     // the request has a body
}

// fieldsOf returns those fields, or a fault if h has fields that no HTTP/1.1 request can have, or that contradict its attributes.
func fieldsOf(h *httpRequest) (f fields, fault *check.Fault) {
	if len(h.GetHeaders()) > 0 && len(h.GetHeaderMap().GetHeaders()) > 0 {
		return f, check.InvalidRequest
	}
	for _, v := range h.GetHeaderMap().GetHeaders() {
		if v.GetValue() != "" && len(v.GetRawValue()) > 0 {
			return f, check.InvalidRequest
		}
	}
	protos := 0
	each(h, func(name, value []byte) bool {
		if len(name) > 0 && name[0] == ':' {
			if !agrees(h, name, value) {
				fault = check.InvalidRequest
			}
			return fault == nil
		}
		if !http1.IsToken(name) || !isLower(name) || !http1.ValidValue(value) {
			fault = check.InvalidRequest
			return false
		}
		switch string(name) {
		case "host":
			if string(value) != h.GetHost() {
				fault = check.NoHost
			}
		case "x-forwarded-proto":
			protos++
			f.proto = value
		case "x-forwarded-for":
			f.chain = append(f.chain, value)
		case "content-length":
			f.body = f.body || string(value) != "0"
		case "transfer-encoding":
			f.body = true
		}
		return fault == nil
	})
	if fault == nil && protos > 1 {
		fault = check.InvalidScheme
	}
	return f, fault
}

// agrees reports whether a pseudo-header field has the value of the attribute that describes the same part of the request.
func agrees(h *httpRequest, name, value []byte) bool {
	switch string(name) {
	case ":method":
		return string(value) == h.GetMethod()
	case ":path":
		return string(value) == h.GetPath()
	case ":authority":
		return string(value) == h.GetHost()
	case ":scheme":
		return string(value) == h.GetScheme()
	}
	return false
}

// secureOf reports whether the client's connection uses TLS. The scheme is that of the connection to Envoy. X-Forwarded-Proto is that of the
// client's connection to a proxy in front of Envoy; Envoy replaces it unless it trusts that proxy.
func secureOf(h *httpRequest, proto []byte) (secure, ok bool) {
	if h.GetScheme() != "" {
		if secure, ok = check.IsSecure(bytesOf(h.Scheme)); !ok {
			return false, false
		}
	}
	if proto != nil {
		return check.IsSecure(proto)
	}
	return secure, true
}

// sourceOf returns the address of the client's connection. reported is false if the proxy reports none, or one that is no IP address.
func sourceOf(r *authv3.CheckRequest) (a netip.Addr, reported bool) {
	text := r.GetAttributes().GetSource().GetAddress().GetSocketAddress().GetAddress()
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}

// each calls f for the fields of a request until f returns false.
func each(h *httpRequest, f func(name, value []byte) bool) {
	for name, value := range h.GetHeaders() {
		if !f(bytesOf(name), bytesOf(value)) {
			return
		}
	}
	for _, v := range h.GetHeaderMap().GetHeaders() {
		if !f(bytesOf(v.GetKey()), valueOf(v)) {
			return
		}
	}
}

func valueOf(v *corev3.HeaderValue) []byte {
	if raw := v.GetRawValue(); len(raw) > 0 {
		return raw
	}
	return bytesOf(v.GetValue())
}

func isLower(name []byte) bool {
	return bytes.IndexFunc(name, func(c rune) bool { return 'A' <= c && c <= 'Z' }) < 0
}

// bytesOf returns the bytes of s, which are only read.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
