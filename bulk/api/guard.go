package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/operators"
)

// identity is who asks, and for which tenants.
type identity struct {
	name    string
	admin   bool
	tenants []string
	most    Ceilings
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
	attempts *operators.Attempts
	cross    *http.CrossOriginProtection
	now      func() time.Time
	log      *slog.Logger
}

type credential struct {
	sum [sha256.Size]byte
	who identity
}

func newGuard(o Options) (*guard, error) {
	g := &guard{attempts: operators.NewAttempts(), cross: http.NewCrossOriginProtection(), now: o.Now, log: o.Log}
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
		if err := add(at, t.Token, identity{name: t.Name, tenants: t.Tenants, most: t.Most}); err != nil {
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
		if err := g.named(r); err != nil {
			return identity{}, err
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
	if who, found := g.match(given); found {
		return who, nil
	}
	if wait := g.attempts.Wrong(g.now(), r); wait > 0 {
		p := newProblem(http.StatusTooManyRequests, "too_many_attempts", "too many wrong tokens came from this address, and this one is wrong too; send the right one, or wait for Retry-After")
		p.retryAfter = wait
		return identity{}, p
	}
	g.log.WarnContext(r.Context(), "wrong token", "peer", r.RemoteAddr, "path", r.URL.Path)
	return identity{}, unauthorized("no such token: it has to be admin.token or one of api_tokens")
}

// named refuses requests for names that are not this machine's, and those that a proxy took from another machine, where no token is configured: a page of another site can have its own name resolve
// to 127.0.0.1 and is then same-origin to its browser.
func (g *guard) named(r *http.Request) error {
	if len(g.tokens) > 0 {
		return nil
	}
	if r.Header.Get("X-Forwarded-For") != "" && !operators.IsLoopback(r.RemoteAddr) {
		return newProblem(http.StatusForbidden, "token_required", "a proxy passed this on from another machine, and there is no token: set admin.token or api_tokens")
	}
	if operators.IsLoopback(r.Host) {
		return nil
	}
	return newProblem(http.StatusForbidden, "unknown_host", "without a token only loopback names are answered, not %q: use 127.0.0.1 or localhost, or set admin.token", shorten(r.Host))
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
