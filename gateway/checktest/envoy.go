package checktest

import (
	"context"
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

// The fields of a request that a check has. Those that rules of bypass and the kind of a request depend on have to be among them.
var (
	allowed         = []string{"authorization", "cookie", "accept", "accept-language", "user-agent", "upgrade", "purpose", "x-http-method-override", "x-http-method", "x-method-override", "access-control-request-method", "origin"}
	allowedPrefixes = []string{"sec-", "x-forwarded-", "x-waiting-room-"}
)

func isAllowed(name string) bool {
	return slices.Contains(allowed, name) || slices.ContainsFunc(allowedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// fromEnvoy changes a request as Envoy's connection manager does with use_remote_address: true. After source/common/http/conn_manager_utility.cc:
// X-Forwarded-For is extended, X-Forwarded-Proto replaced, and x-envoy-… of a visitor removed. With Site.Clean a
// filter header_mutation before the check removes the session.
func (s Site) fromEnvoy(r *http.Request) (message, error) {
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

// ask returns the HTTP check of a request: its method, host and path behind a prefix, and the allowed fields, repeated ones joined with
// commas. It has no body.
func ask(addr string, m message) (*response, error) {
	check := message{method: m.method, target: checkPath + m.target, host: m.host, header: http.Header{"Content-Length": {"0"}}}
	for name, values := range m.header {
		if isAllowed(strings.ToLower(name)) {
			check.header[name] = []string{strings.Join(values, ",")}
		}
	}
	return send(addr, check)
}

// Envoy returns a proxy that asks as Envoy's filter ext_authz with http_service does, with failure_mode_allow: Site.Open and the lists of
// fields above. After Envoy v1.37, source/extensions/filters/common/ext_authz/ext_authz_http_impl.cc: 200 passes; 5xx and no answer are
// errors, for which the visitor gets status_on_error, 503 here, without a body; any other answer is the visitor's. Of 200, X-Waiting-Room-Session replaces the
// field of the request, Set-Cookie is added to the response, and the fields that x-envoy-auth-headers-to-remove lists are removed.
func Envoy(s Site) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := s.fromEnvoy(r)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
			return
		case isOwn(m):
			pass(w, s.Visitors, m, nil)
			return
		}
		res, err := ask(s.Checks, m)
		switch {
		case err != nil || res.status >= 500:
			unchecked(w, s, m)
			return
		case res.status != http.StatusOK:
			respond(w, res.status, res.header, res.body)
			return
		}
		if session := res.header.Get("X-Waiting-Room-Session"); session != "" {
			m.header.Set("X-Waiting-Room-Session", session)
		}
		for _, line := range res.header.Values("X-Envoy-Auth-Headers-To-Remove") {
			for name := range strings.SplitSeq(line, ",") {
				remove(m.header, strings.TrimSpace(name))
			}
		}
		pass(w, s.Origin, m, func(h http.Header) {
			for _, line := range res.header.Values("Set-Cookie") {
				h.Add("Set-Cookie", line)
			}
		})
	})
}

// unchecked carries out failure_mode_allow for a request without an answer.
func unchecked(w http.ResponseWriter, s Site, m message) {
	if !s.Open {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	m.header.Set("X-Envoy-Auth-Failure-Mode-Allowed", "true")
	pass(w, s.Origin, m, nil)
}

// remove removes a field whose name need not be canonical.
func remove(h http.Header, name string) {
	for n := range h {
		if strings.EqualFold(n, name) {
			delete(h, n)
		}
	}
}

// GatewayAPI returns a proxy that asks as a route of the Gateway API with the filter ExternalAuth and protocol: HTTP does, behind a
// RequestHeaderModifier that removes X-Waiting-Room-Session and its aliases with underscores or dots. After apis/v1/httproute_types.go of Gateway API v1.6.1 and
// GEP-1494: 200 passes, any other answer is the visitor's; of 200, allowedResponseHeaders are copied to the request, and nothing reaches
// the visitor. Without an answer the request fails.
func GatewayAPI(s Site) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := s.fromEnvoy(r)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
			return
		case isOwn(m):
			pass(w, s.Visitors, m, nil)
			return
		}
		for _, odd := range "_." { // a RequestHeaderModifier removes at most 16 fields
			for _, name := range []string{"x-waiting-room-session", "x_waiting-room-session", "x-waiting_room-session", "x_waiting_room-session",
				"x-waiting-room_session", "x_waiting-room_session", "x-waiting_room_session", "x_waiting_room_session"} {
				remove(m.header, strings.ReplaceAll(name, "_", string(odd)))
			}
		}
		res, err := ask(s.Checks, m)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case res.status != http.StatusOK:
			respond(w, res.status, res.header, res.body)
			return
		}
		if session := res.header.Get("X-Waiting-Room-Session"); session != "" {
			m.header.Set("X-Waiting-Room-Session", session)
		}
		pass(w, s.Origin, m, nil)
	})
}

// EnvoyGRPC returns a proxy that asks as Envoy's filter ext_authz with grpc_service does, with failure_mode_allow: Site.Open. After Envoy
// v1.37, source/extensions/filters/common/ext_authz/check_request_utils.cc and ext_authz_grpc_impl.cc: a check has all fields of the
// request, repeated ones joined with commas, and the address of the visitor's connection; OK passes with the changes of ok_response; an
// error is status_on_error, 503 here; otherwise the visitor gets denied_response.
func EnvoyGRPC(s Site, client authv3.AuthorizationClient) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := s.fromEnvoy(r)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
			return
		case isOwn(m):
			pass(w, s.Visitors, m, nil)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		a, err := client.Check(ctx, checkRequest(m, addressOf(r), schemeOf(r)))
		if err != nil {
			unchecked(w, s, m)
			return
		}
		if a.GetStatus().GetCode() != 0 {
			deny(w, a.GetDeniedResponse())
			return
		}
		ok := a.GetOkResponse()
		apply(m.header, ok.GetHeaders())
		for _, name := range ok.GetHeadersToRemove() {
			remove(m.header, name)
		}
		pass(w, s.Origin, m, func(h http.Header) { apply(h, ok.GetResponseHeadersToAdd()) })
	})
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

// deny sends a denied_response, or 403 without one.
func deny(w http.ResponseWriter, d *authv3.DeniedHttpResponse) {
	status := http.StatusForbidden
	if code := int(d.GetStatus().GetCode()); code > 0 {
		status = code
	}
	h := http.Header{}
	apply(h, d.GetHeaders())
	respond(w, status, h, []byte(d.GetBody()))
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
