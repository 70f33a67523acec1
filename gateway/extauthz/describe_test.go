package extauthz

import (
	"net/netip"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
)

func TestServer_HasChecksAndHealthOnly(t *testing.T) {
	s := New(nil)
	defer s.Close()
	for name := range s.grpc.GetServiceInfo() {
		if name != "envoy.service.auth.v3.Authorization" && name != "grpc.health.v1.Health" {
			t.Errorf("the service %s", name)
		}
	}
}

// The parsed request has exactly the fields of the description.
func FuzzDescribe(f *testing.F) {
	f.Add("GET", "/seats?a=b", "shop.test", "http", "accept", "text/html", "cookie", "a=b", "192.0.2.7")
	f.Add("GET", "/a%2f..;x=y//b", "shop.test:8080", "", ":path", "/a%2f..;x=y//b", "x-forwarded-for", "10.0.0.1, 192.0.2.7", "10.0.0.1")
	f.Add("POST\r\n", "/ HTTP/1.1\r\nX: y", "a\r\nb", "https", "x\r\ny", "z\r\n\r\n", "host", "other", "::1")
	f.Fuzz(func(t *testing.T, method, path, host, scheme, name, value, name2, value2, source string) {
		h := &httpRequest{Method: method, Path: path, Host: host, Scheme: scheme, Headers: map[string]string{name: value, name2: value2}}
		r := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: source},
			}}},
			Request: &authv3.AttributeContext_Request{Http: h},
		}}
		proxy := netip.MustParseAddr("10.0.0.2")
		var d wire.Description
		if describe(r, proxy, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, &d) != nil {
			return
		}
		q, refusal := d.Request(&http1.Limits{Header: 16 << 10, Target: 8 << 10, Lines: 100})
		if refusal != nil {
			return
		}
		if string(q.Method()) != method || string(q.Target()) != path || string(q.Host()) != host || !q.Peer().IsValid() {
			t.Errorf("%q %q %q is read as %q %q %q from %v", method, path, host, q.Method(), q.Target(), q.Host(), q.Peer())
		}
		read := q.Header()
		for i := range read.Lines {
			l := &read.Lines[i]
			got, v := string(read.Name(l)), string(read.Value(l))
			own := got == "Host" && v == host || got == "Content-Length" && v == "1"
			trimmed := func(s string) string { return strings.Trim(s, " \t") }
			if !own && (got != name || v != trimmed(value)) && (got != name2 || v != trimmed(value2)) {
				t.Errorf("the field %q: %q was not described", got, v)
			}
		}
	})
}
