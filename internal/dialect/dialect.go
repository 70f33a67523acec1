// Package dialect lists the proxies that ask the gateway about requests, with the header fields by which each describes a request and the
// responses that each can send to the visitor.
package dialect

import (
	"fmt"
	"slices"
	"strings"
)

// Dialect is a proxy's way to describe a request, with the responses that it can send to the visitor.
type Dialect uint8

// The dialects.
const (
	Nginx Dialect = iota
	Traefik
	Caddy
	Envoy
	GatewayAPI
	HAProxy
)

// Family is a way to describe the target, method and host of a request.
type Family uint8

// The families. In all of them X-Forwarded-For and X-Forwarded-Proto name the visitor's address and scheme.
const (
	Original  Family = iota // X-Original-URI, X-Original-Method and Host
	Forwarded               // X-Forwarded-Uri, X-Forwarded-Method and X-Forwarded-Host
	Prefixed                // the check has the method and the host of the request, and its target behind a prefix
)

var dialects = [...]struct {
	name   string
	family Family
	// cookies reports whether a cookie of a passing check reaches the visitor.
	cookies bool
	// deny reports whether a status of a denied check reaches the visitor.
	deny func(status int) bool
}{
	Nginx:      {"nginx", Original, true, func(s int) bool { return s == 401 || s == 403 }},
	Traefik:    {"traefik", Forwarded, true, redirectOrError},
	Caddy:      {"caddy", Forwarded, false, redirectOrError},
	Envoy:      {"envoy", Prefixed, true, redirectOrRefusal},
	GatewayAPI: {"gateway-api", Prefixed, false, redirectOrRefusal},
	HAProxy:    {"haproxy", Original, true, redirectOrError},
}

func isRedirect(s int) bool        { return s == 302 || s == 303 || s == 307 }
func isRefusal(s int) bool         { return s >= 400 && s < 500 }
func redirectOrRefusal(s int) bool { return isRedirect(s) || isRefusal(s) }
func redirectOrError(s int) bool   { return isRedirect(s) || isRefusal(s) || s == 503 }

// Names returns the names of the dialects.
func Names() []string {
	names := make([]string, len(dialects))
	for i := range dialects {
		names[i] = dialects[i].name
	}
	return names
}

// Parse returns the dialect with a name.
func Parse(name string) (Dialect, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return 0, fmt.Errorf("%q is not a dialect; use one of %s", name, strings.Join(Names(), ", "))
	}
	return Dialect(i), nil
}

// String returns the name.
func (d Dialect) String() string { return dialects[d].name }

// Family returns how the proxy describes a request.
func (d Dialect) Family() Family { return dialects[d].family }

// Cookies reports whether a cookie of a passing check reaches the visitor.
func (d Dialect) Cookies() bool { return dialects[d].cookies }

// RemovesFields reports whether the proxy removes the fields from a request that the response to a passing check lists in
// X-Envoy-Auth-Headers-To-Remove. Other proxies remove them by their own configuration.
func (d Dialect) RemovesFields() bool { return d == Envoy || d == GatewayAPI }

// CanDeny reports whether a status of a denied check reaches the visitor.
func (d Dialect) CanDeny(status int) bool { return dialects[d].deny(status) }

// CanDenyOverGRPC reports whether a status of a check that is denied over gRPC reaches the visitor: redirects and all errors do.
func CanDenyOverGRPC(status int) bool { return isRedirect(status) || status >= 400 && status < 600 }

// Denials describes the statuses for which CanDeny returns true.
func (d Dialect) Denials() string {
	switch {
	case d == Nginx:
		return "401 or 403"
	case d.CanDeny(503):
		return "302, 303, 307, 400 to 499 or 503"
	}
	return "302, 303, 307 or 400 to 499"
}
