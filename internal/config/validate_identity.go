package config

import (
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/anteroom/anteroom/internal/settings"
)

// meanings are headers that can name neither an account nor an address.
var meanings = []string{"host", "cookie", "authorization", "connection", "content-length", "content-type", "transfer-encoding",
	"upgrade", "te", "trailer", "expect", "user-agent", "accept", "origin", "referer", "via", "date", "idempotency-key"}

// hasMeaning reports whether a header, in lower case, neither names an account nor an address.
func hasMeaning(name string) bool {
	return slices.Contains(meanings, name) || strings.HasPrefix(name, "x-forwarded-") && name != forwardedFor ||
		strings.HasPrefix(name, "x-waiting-room-") || strings.HasPrefix(name, "sec-")
}

func (c roomChecker) identity(at string, i *Identity) {
	if name := strings.ToLower(i.Header); name != "" {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			c.Add(at+".header", "%q is not a header name; use for instance X-Account-Id", settings.Clip(i.Header))
		case hasMeaning(name) || name == forwardedFor || name == "forwarded" || name == "x-real-ip":
			c.Add(at+".header", "%q has another meaning; use a header of your proxy's own, for instance X-Account-Id", i.Header)
		case name == strings.ToLower(c.cfg.TrustedHeader):
			c.Add(at+".header", "%q is trusted_header, which names the visitor's address; use a header of your proxy's own, for instance X-Account-Id", i.Header)
		case len(c.cfg.TrustedProxies) == 0:
			c.Add(at+".header", "is believed from trusted_proxies only, and that is empty; name your proxies there")
		}
	}
	switch {
	case i.JWTClaim != "" && i.JWKSURL == "":
		c.Add(at+".jwks_url", "is missing: without keys the claim %q cannot be checked", settings.Clip(i.JWTClaim))
	case i.JWKSURL != "" && i.JWTClaim == "":
		c.Add(at+".jwt_claim", "is missing: it names the claim with the account, most often sub")
	case i.JWTClaim == "" && (i.JWTCookie != "" || i.JWTIssuer != "" || i.JWTAudience != ""):
		c.Add(at+".jwt_claim", "is missing, and jwt_cookie, jwt_issuer and jwt_audience are used with it only")
	}
	if i.JWKSURL != "" {
		if u, err := url.Parse(i.JWKSURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "" {
			c.Add(at+".jwks_url", "is not an address; use for instance https://shop.example/.well-known/jwks.json")
		}
	}
	switch {
	case i.JWTCookie == "":
	case !httpguts.ValidHeaderFieldName(i.JWTCookie):
		c.Add(at+".jwt_cookie", "%q is not a cookie name", settings.Clip(i.JWTCookie))
	case strings.HasPrefix(strings.TrimPrefix(i.JWTCookie, "__Host-"), "wr_"):
		c.Add(at+".jwt_cookie", "%q is a cookie of the gateway, which is not forwarded to the site; use the cookie of the site's own sign-in", i.JWTCookie)
	}
	if i.OnePlace && i.Header == "" && i.JWTClaim == "" {
		c.Add(at+".one_place", "needs an account; give header, or jwt_claim and jwks_url")
	}
	if i.LoginURL != "" {
		u, err := url.Parse(i.LoginURL)
		path := err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(i.LoginURL, "/") && !strings.HasPrefix(i.LoginURL, "//") && !strings.Contains(i.LoginURL, "\\")
		if !path && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			c.Add(at+".login_url", "%q is not an address; use a path such as /login, or one that begins with https://", settings.Clip(i.LoginURL))
		}
	}
}

// mostRequests is the largest number in guard.requests_per_session.
const mostRequests = 100_000

// Requests returns the limit of requests_per_session; the zero value is no limit.
func (g *Guard) Requests() (Quota, error) {
	if g.RequestsPerSession == "" {
		return Quota{}, nil
	}
	return ParseQuota(g.RequestsPerSession, mostRequests)
}

// Permits returns the limit of permits_per_session; the zero value is no limit.
func (g *Guard) Permits() (Quota, error) {
	if g.PermitsPerSession == "" {
		return Quota{}, nil
	}
	return ParseQuota(g.PermitsPerSession, mostRequests)
}

// identityWarnings warns of identity settings that are usually a mistake.
func identityWarnings(path string, room *Room, warn func(path, message string)) {
	i := &room.Identity
	switch {
	case !i.OnePlace && (i.Header != "" || i.JWTClaim != ""):
		warn(path+".identity.one_place", "is false: accounts are named, and not used")
	case i.OnePlace && i.Anonymous == "allow":
		warn(path+".identity.anonymous", "allow: a visitor who logs out, or never logs in, has a place beside the account's")
	case i.OnePlace && slices.Contains(room.Paths, "/") && len(room.Bypass) == 0 && strings.HasPrefix(i.LoginURL, "/"):
		warn(path+".identity.login_url", "lies in the room, which nobody enters without an account; let its path past the room with bypass")
	case i.OnePlace && slices.Contains(room.Paths, "/") && len(room.Bypass) == 0 && i.LoginURL == "":
		warn(path+".paths", "everything is behind the room, and nobody enters it without an account: they must be able to log in elsewhere, or by a bypass")
	}
	if i.OnePlace && i.JWTClaim != "" && i.Header == "" && i.JWTCookie == "" {
		warn(path+".identity.jwt_cookie", "is empty: browsers send no Authorization header when they open a page, so only programs have accounts")
	}
	if i.OnePlace && strings.HasPrefix(i.JWKSURL, "http://") {
		warn(path+".identity.jwks_url", "is plain http: an attacker on the way can replace the keys, and so name any account")
	}
	if i.OnePlace && i.JWTClaim != "" && i.JWTIssuer == "" && i.JWTAudience == "" {
		warn(path+".identity.jwt_audience", "neither it nor jwt_issuer is set: every JWT of these keys is accepted, for whatever it was issued")
	}
}
