package ophttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Guard authenticates requests by bearer token. Without tokens it admits requests of this machine only. T describes the holder of a token.
type Guard[T any] struct {
	local    T
	settings string
	now      func() time.Time
	log      *slog.Logger

	tokens   atomic.Pointer[[]digest[T]]
	required atomic.Bool
	attempts *Attempts
	cross    *http.CrossOriginProtection
}

// Credential is a token and its holder.
type Credential[T any] struct {
	Token  string
	Holder T
}

type digest[T any] struct {
	sum    [sha256.Size]byte
	holder T
}

// NewGuard returns a Guard without tokens. Requests have the holder local until SetTokens adds tokens; settings names the settings that do.
func NewGuard[T any](local T, settings string, now func() time.Time, log *slog.Logger) *Guard[T] {
	g := &Guard[T]{local: local, settings: settings, now: now, log: log, attempts: NewAttempts(), cross: http.NewCrossOriginProtection()}
	g.SetTokens(nil)
	return g
}

// SetTokens replaces all tokens.
func (g *Guard[T]) SetTokens(credentials []Credential[T]) {
	tokens := make([]digest[T], len(credentials))
	for i, c := range credentials {
		tokens[i] = digest[T]{sha256.Sum256([]byte(c.Token)), c.Holder}
	}
	g.tokens.Store(&tokens)
}

// RequireToken refuses requests without a token even while there is none: operators are authenticated in another way.
func (g *Guard[T]) RequireToken() { g.required.Store(true) }

// HasTokens reports whether a token is configured.
func (g *Guard[T]) HasTokens() bool { return len(*g.tokens.Load()) > 0 }

// Admit returns the holder of the request's token, or a *Problem. reads is set for requests that change nothing; others are refused when a
// page of another site sent them.
func (g *Guard[T]) Admit(r *http.Request, reads bool) (T, error) {
	var none T
	holder, err := g.identify(r)
	if err != nil {
		return none, err
	}
	// A token is never a cookie, so a browser does not add it to another site's requests. Without tokens this check is the protection.
	if !reads && g.cross.Check(r) != nil {
		return none, NewProblem(http.StatusForbidden, "cross_site", "changes requested by a page of another site are refused")
	}
	return holder, nil
}

func (g *Guard[T]) identify(r *http.Request) (T, error) {
	var none T
	tokens := *g.tokens.Load()
	if len(tokens) == 0 && !g.required.Load() {
		if err := g.CheckHost(r); err != nil {
			return none, err
		}
		// The page could not read the response, but a stream or profile that it requests runs for as long as it likes.
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			return none, NewProblem(http.StatusForbidden, "cross_site", "while no token is configured, requests from pages of other sites are refused")
		}
		return g.local, nil
	}
	token, err := bearer(r)
	if err != nil {
		return none, unauthorized(err.Error())
	}
	if holder, ok := match(tokens, token); ok {
		return holder, nil
	}
	if wait := g.attempts.Wrong(g.now(), r); wait > 0 {
		p := NewProblem(http.StatusTooManyRequests, "too_many_attempts", "this token is wrong, and so were too many others from this address: send the right token, or wait for Retry-After")
		p.RetryAfter = wait
		return none, p
	}
	g.log.WarnContext(r.Context(), "wrong token", "peer", r.RemoteAddr, "path", r.URL.Path)
	return none, unauthorized("no such token: it must be one of " + g.settings)
}

// CheckHost refuses, while no token is configured, requests that a proxy forwarded from another machine and requests whose Host is not a
// loopback name: another site can let its own name resolve to 127.0.0.1, which makes its pages same-origin.
func (g *Guard[T]) CheckHost(r *http.Request) error {
	switch {
	case g.HasTokens() || g.required.Load():
		return nil
	case r.Header.Get("X-Forwarded-For") != "" && !IsLoopback(r.RemoteAddr):
		return NewProblem(http.StatusForbidden, "token_required", "a proxy forwarded this request from another machine and no token is configured: set %s", g.settings)
	case !IsLoopback(r.Host):
		return NewProblem(http.StatusForbidden, "unknown_host", "while no token is configured, only loopback names are served, not %q: use 127.0.0.1 or localhost, or set %s", Shorten(r.Host), g.settings)
	}
	return nil
}

func unauthorized(detail string) *Problem {
	p := NewProblem(http.StatusUnauthorized, "unauthorized", "%s", detail)
	p.Challenge = true
	return p
}

// match compares token with every known one in constant time: the duration reveals neither how much of token is correct nor which known token it resembles.
func match[T any](tokens []digest[T], token string) (holder T, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for _, t := range tokens {
		if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			holder, ok = t.holder, true
		}
	}
	return holder, ok
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
