package checktest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/anteroom/anteroom/gateway/check"
)

// checkPath is the prefix of the path of checks that keep the path of the request.
const checkPath = "/.waiting-room/check"

// The fields of a request that a check over HTTP has: at least those that bypass rules and the kind of a request depend on.
var (
	allowed         = []string{"authorization", "cookie", "accept", "accept-language", "user-agent", "upgrade", "purpose", "x-http-method-override", "x-http-method", "x-method-override", "access-control-request-method", "origin"}
	allowedPrefixes = []string{"sec-", "x-forwarded-", "x-waiting-room-"}
)

func isAllowed(name string) bool {
	return slices.Contains(allowed, name) || slices.ContainsFunc(allowedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// receiveEnvoy returns a visitor's request as Envoy's connection manager changes it with use_remote_address: true. After
// source/common/http/conn_manager_utility.cc: X-Forwarded-For is extended, X-Forwarded-Proto replaced, and x-envoy-… of a visitor removed. With
// Site.Clean a filter header_mutation before the check removes the session.
func (s Site) receiveEnvoy(r *http.Request) (message, error) {
	m, err := received(r)
	removeHopByHop(m.header)
	if m.upgrade != "" { // stays in the chain of filters
		m.header.Set("Upgrade", m.upgrade)
	}
	if s.Clean {
		for _, name := range check.SessionNames(false) {
			remove(m.header, name)
		}
	}
	for name := range m.header {
		if strings.HasPrefix(strings.ToLower(name), "x-envoy-") {
			m.header.Del(name)
		}
	}
	m.header.Set("X-Forwarded-For", strings.Join(append(m.header.Values("X-Forwarded-For"), addressOf(r)), ","))
	m.header.Set("X-Forwarded-Proto", schemeOf(r))
	return m, err
}

// envoy returns a proxy that asks as Envoy's filter ext_authz does. After an error of ask the visitor gets status_on_error, 503 here, unless
// failure_mode_allow (Site.Open) lets the request pass.
func envoy(s Site, ask asker) http.Handler {
	return proxy(s, s.receiveEnvoy, func(r *http.Request, m message) (*response, func(http.Header), error) {
		denied, change, err := ask(r, m)
		switch {
		case err == nil:
			return denied, change, nil
		case s.Open:
			m.header.Set("X-Envoy-Auth-Failure-Mode-Allowed", "true")
			return nil, nil, nil
		}
		return &response{status: http.StatusServiceUnavailable}, nil, nil
	})
}

// askHTTP sends the HTTP check of a request: its method, its host, its path behind a prefix, and the allowed fields, repeated ones joined with
// commas. It has no body. 200 replaces X-Waiting-Room-Session of the request.
func askHTTP(addr string, m message) (*response, error) {
	check := message{method: m.method, target: checkPath + m.target, host: m.host, header: http.Header{"Content-Length": {"0"}}}
	for name, values := range m.header {
		if isAllowed(strings.ToLower(name)) {
			check.header[name] = []string{strings.Join(values, ",")}
		}
	}
	res, err := send(addr, check)
	if err != nil {
		return nil, err
	}
	if session := res.header.Get("X-Waiting-Room-Session"); session != "" && res.status == http.StatusOK {
		m.header.Set("X-Waiting-Room-Session", session)
	}
	return res, nil
}

// Envoy returns a proxy that asks as Envoy's filter ext_authz with http_service does, with failure_mode_allow: Site.Open and the lists of
// fields above. After Envoy v1.37, source/extensions/filters/common/ext_authz/ext_authz_http_impl.cc: 200 passes; 5xx and a missing response are
// errors; the visitor gets any other response. After 200, Set-Cookie is added to the origin's response, and the fields that
// x-envoy-auth-headers-to-remove lists are removed from the request.
func Envoy(s Site) http.Handler {
	return envoy(s, func(_ *http.Request, m message) (*response, func(http.Header), error) {
		res, err := askHTTP(s.Checks, m)
		switch {
		case err != nil:
			return nil, nil, err
		case res.status >= 500:
			return nil, nil, fmt.Errorf("the check has the status %d", res.status)
		case res.status != http.StatusOK:
			return res, nil, nil
		}
		for _, line := range res.header.Values("X-Envoy-Auth-Headers-To-Remove") {
			for name := range strings.SplitSeq(line, ",") {
				remove(m.header, strings.TrimSpace(name))
			}
		}
		return nil, func(h http.Header) {
			for _, line := range res.header.Values("Set-Cookie") {
				h.Add("Set-Cookie", line)
			}
		}, nil
	})
}

// GatewayAPI returns a proxy that asks as a route of the Gateway API with the filter ExternalAuth and protocol: HTTP does, behind a
// RequestHeaderModifier that removes X-Waiting-Room-Session and its aliases with underscores or dots. After apis/v1/httproute_types.go of Gateway
// API v1.6.1 and GEP-1494: 200 passes, the visitor gets any other response; after 200, allowedResponseHeaders are copied to the request, and
// nothing to the origin's response. Without a response to the check the request fails.
func GatewayAPI(s Site) http.Handler {
	s.Open = false
	return envoy(s, func(_ *http.Request, m message) (*response, func(http.Header), error) {
		for _, name := range check.SessionNames(false) {
			if !strings.Contains(name, "_") || !strings.Contains(name, ".") { // a RequestHeaderModifier removes at most 16 fields
				remove(m.header, name)
			}
		}
		res, err := askHTTP(s.Checks, m)
		if err != nil || res.status != http.StatusOK {
			return res, nil, err
		}
		return nil, nil, nil
	})
}

// EnvoyGRPC returns a proxy that asks as Envoy's filter ext_authz with grpc_service does, with failure_mode_allow: Site.Open. After Envoy
// v1.37, source/extensions/filters/common/ext_authz/check_request_utils.cc and ext_authz_grpc_impl.cc: a check has all fields of the
// request, repeated ones joined with commas, and the address of the visitor's connection; OK passes with the changes of ok_response;
// otherwise the visitor gets denied_response.
func EnvoyGRPC(s Site, client authv3.AuthorizationClient) http.Handler {
	return envoy(s, func(r *http.Request, m message) (*response, func(http.Header), error) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		res, err := client.Check(ctx, checkRequest(m, addressOf(r), schemeOf(r)))
		if err != nil {
			return nil, nil, err
		}
		if res.GetStatus().GetCode() != 0 {
			return deniedResponse(res.GetDeniedResponse()), nil, nil
		}
		ok := res.GetOkResponse()
		apply(m.header, ok.GetHeaders())
		for _, name := range ok.GetHeadersToRemove() {
			remove(m.header, name)
		}
		return nil, func(h http.Header) { apply(h, ok.GetResponseHeadersToAdd()) }, nil
	})
}

// remove removes a field, whose name may have any case.
func remove(h http.Header, name string) {
	for n := range h {
		if strings.EqualFold(n, name) {
			delete(h, n)
		}
	}
}

// checkRequest returns the CheckRequest of a message.
func checkRequest(m message, address, scheme string) *authv3.CheckRequest {
	h := &authv3.AttributeContext_HttpRequest{
		Method: m.method, Path: m.target, Host: m.host, Scheme: scheme, Protocol: "HTTP/1.1", Size: int64(len(m.body)),
		Headers: map[string]string{":method": m.method, ":path": m.target, ":authority": m.host, ":scheme": scheme},
	}
	for name, values := range m.header {
		h.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	source := &corev3.SocketAddress{Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 40001}}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:  &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: source}}},
		Request: &authv3.AttributeContext_Request{Http: h},
	}}
}

// deniedResponse returns a denied_response; 403 without one.
func deniedResponse(d *authv3.DeniedHttpResponse) *response {
	res := &response{http.StatusForbidden, http.Header{}, []byte(d.GetBody())}
	if code := int(d.GetStatus().GetCode()); code > 0 {
		res.status = code
	}
	apply(res.header, d.GetHeaders())
	return res
}

// apply applies changes to a header.
func apply(h http.Header, changes []*corev3.HeaderValueOption) {
	for _, c := range changes {
		if c.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			remove(h, c.GetHeader().GetKey())
		}
		h.Add(c.GetHeader().GetKey(), c.GetHeader().GetValue())
	}
}
