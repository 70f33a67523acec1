package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// identity is who asks, and for which tenants.
type identity struct {
	name    string
	admin   bool
	tenants []string
}

// sees says whether the groups of a tenant are its business.
func (i identity) sees(tenant string) bool { return i.admin || slices.Contains(i.tenants, tenant) }

// forTenant refuses what is asked for another's tenant by its name.
func (i identity) forTenant(tenant string) error {
	if i.sees(tenant) {
		return nil
	}
	return newProblem(http.StatusForbidden, "wrong_tenant", "the token %q is for the tenants %s, not %q: use that tenant's token, or the operators'",
		i.name, strings.Join(i.tenants, ", "), shorten(tenant))
}

// forAll refuses what concerns every tenant.
func (i identity) forAll() error {
	if i.admin {
		return nil
	}
	return newProblem(http.StatusForbidden, "operators_only", "this concerns all tenants, and the token %q is for %s only: use the operators' (admin.token)", i.name, strings.Join(i.tenants, ", "))
}

// guard decides who may ask.
type guard struct {
	tokens   []credential
	attempts *attempts
	cross    *http.CrossOriginProtection
	now      func() time.Time
	log      *slog.Logger
}

type credential struct {
	sum [sha256.Size]byte
	who identity
}

func newGuard(o Options) (*guard, error) {
	g := &guard{attempts: newAttempts(), cross: http.NewCrossOriginProtection(), now: o.Now, log: o.Log}
	seen := map[[sha256.Size]byte]string{}
	add := func(at, token string, who identity) error {
		sum := sha256.Sum256([]byte(token))
		if other, twice := seen[sum]; twice {
			return fmt.Errorf("%s is the same token as %s: give each its own", at, other)
		}
		seen[sum] = at
		g.tokens = append(g.tokens, credential{sum, who})
		return nil
	}
	if o.Token != "" {
		if err := add("admin.token", o.Token, identity{name: "admin", admin: true}); err != nil {
			return nil, err
		}
	}
	for i, t := range o.Tokens {
		at := fmt.Sprintf("api_tokens[%d]", i)
		switch {
		case t.Name == "":
			return nil, fmt.Errorf("%s.name is empty: name its holder, the log shows it", at)
		case t.Token == "":
			return nil, fmt.Errorf("%s (%s) is an empty token: put one into its token_file", at, t.Name)
		case len(t.Tenants) == 0:
			return nil, fmt.Errorf("%s.tenants (%s) is empty: list the tenants that it is for; admin.token is for all", at, t.Name)
		}
		for _, tenant := range t.Tenants {
			if !isWord(tenant, maxTenant, "") {
				return nil, fmt.Errorf("%s.tenants (%s) has %q: a tenant has 1 to 64 of A-Z a-z 0-9 . _ -", at, t.Name, tenant)
			}
		}
		if err := add(at, t.Token, identity{name: t.Name, tenants: t.Tenants}); err != nil {
			return nil, err
		}
	}
	if len(g.tokens) == 0 && o.RequireToken {
		return nil, errors.New("listen can be reached from other machines and there is no token: set admin.token or api_tokens, or listen on 127.0.0.1")
	}
	return g, nil
}

// admit gives the identity behind a request, or the problem that refuses it.
func (g *guard) admit(r *http.Request) (identity, error) {
	who, err := g.identify(r)
	if err != nil || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return who, err
	}
	// The API takes no cookies, so a foreign page has no credentials to ride on where tokens are asked for. Without tokens
	// this is the barrier.
	if err := g.cross.Check(r); err != nil {
		return identity{}, newProblem(http.StatusForbidden, "cross_site", "changes are not taken from pages of another site")
	}
	return who, nil
}

func (g *guard) identify(r *http.Request) (identity, error) {
	if len(g.tokens) == 0 {
		// A page of another site can point its own name at 127.0.0.1 and would then be same-origin; its Host header gives it away.
		if !loopbackName(r.Host) {
			return identity{}, newProblem(http.StatusForbidden, "unknown_host", "without a token the API answers for loopback names only, not %q: use 127.0.0.1 or localhost, or set admin.token", shorten(r.Host))
		}
		// It could not read an answer, but a stream that it asks for runs for as long as it likes.
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			return identity{}, newProblem(http.StatusForbidden, "cross_site", "without a token nothing is given to pages of another site")
		}
		return identity{name: "local", admin: true}, nil
	}
	given, err := bearer(r)
	if err != nil {
		return identity{}, unauthorized(err.Error())
	}
	who, found := g.match(given)
	if wait := g.attempts.judge(g.now(), peerOf(r), found); wait > 0 {
		p := newProblem(http.StatusTooManyRequests, "too_many_attempts", "too many wrong tokens came from this address; Retry-After says when the next is looked at")
		p.retryAfter = wait
		return identity{}, p
	}
	if !found {
		g.log.WarnContext(r.Context(), "wrong token", "peer", r.RemoteAddr, "path", r.URL.Path)
		return identity{}, unauthorized("no such token: it has to be admin.token or one of api_tokens")
	}
	return who, nil
}

func unauthorized(detail string) *problem {
	p := newProblem(http.StatusUnauthorized, "unauthorized", "%s", detail)
	p.challenge = true
	return p
}

// match compares with every token, each in constant time, so that the time tells neither how much of a guess was right nor
// which token it resembles.
func (g *guard) match(given string) (who identity, found bool) {
	sum := sha256.Sum256([]byte(given))
	for _, t := range g.tokens {
		if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			who, found = t.who, true
		}
	}
	return who, found
}

var (
	errNoToken    = errors.New("send the token as Authorization: Bearer <token>")
	errTwoHeaders = errors.New("more than one Authorization header: send one, Bearer <token>")
)

func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) > 1 {
		return "", errTwoHeaders
	}
	if len(values) == 0 {
		return "", errNoToken
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errNoToken
	}
	return token, nil
}

func loopbackName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

// peerOf is the network that an attempt counts against: an address, or the /64 that one IPv6 host usually commands. Zero
// when it cannot be told.
func peerOf(r *http.Request) netip.Prefix {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr := ap.Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
