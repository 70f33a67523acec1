package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/internal/operators"
)

// localName is who the audit log names when no token is asked for.
const localName = "local"

// guard decides who may ask.
type guard struct {
	listen   string
	tokens   atomic.Pointer[[]credential] // replaced as a whole
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
	g := &guard{listen: o.Listen, attempts: operators.NewAttempts(), cross: http.NewCrossOriginProtection(), now: o.Now, log: o.Log}
	return g, g.setTokens(o.Tokens)
}

// setTokens takes other tokens, all or none of them.
func (g *guard) setTokens(tokens []Token) error {
	seen := map[string]bool{}
	credentials := make([]credential, 0, len(tokens))
	for i, t := range tokens {
		at := fmt.Sprintf("admin.tokens[%d]", i)
		switch {
		case t.Name == "":
			return fmt.Errorf("%s.name is empty: name its holder, the audit log shows it", at)
		case seen[t.Name]:
			return fmt.Errorf("%s.name %q is given twice: the audit log could not tell its holders apart", at, t.Name)
		case t.Token == "":
			return fmt.Errorf("%s (%s) is an empty token: put one into its token_file", at, t.Name)
		case t.Role != Read && t.Role != Write:
			return fmt.Errorf("%s.role %q: use read or write", at, t.Role)
		}
		seen[t.Name] = true
		credentials = append(credentials, credential{sum: sha256.Sum256([]byte(t.Token)), who: identity{t.Name, t.Role}})
	}
	if len(credentials) == 0 && !operators.IsLoopback(g.listen) {
		return fmt.Errorf("admin.listen %q can be reached from other machines and there is no token: set admin.token or admin.tokens, or listen on 127.0.0.1", g.listen)
	}
	g.tokens.Store(&credentials)
	return nil
}

// admit gives the identity behind a request, or the problem that refuses it.
func (g *guard) admit(r *http.Request) (identity, error) {
	who, err := g.identify(r)
	if err != nil {
		return identity{}, err
	}
	if safe(r) {
		return who, nil
	}
	// The API takes no cookies, so a foreign page has no credentials to ride on
	// where tokens are asked for. On loopback without tokens this is the barrier.
	if err := g.cross.Check(r); err != nil {
		return identity{}, newProblem(http.StatusForbidden, "cross_site", "changes are not taken from pages of another site")
	}
	if who.role != Write {
		return identity{}, newProblem(http.StatusForbidden, "read_only", fmt.Sprintf("the token %q has the role read; this needs write", who.name))
	}
	return who, nil
}

func safe(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead ||
		strings.HasPrefix(r.URL.Path, "/debug/pprof/") // its one POST reads
}

func (g *guard) identify(r *http.Request) (identity, error) {
	tokens := *g.tokens.Load()
	if len(tokens) == 0 {
		if err := g.named(r); err != nil {
			return identity{}, err
		}
		// It could not read an answer, but a profile that it asks for runs for as long as it likes.
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			return identity{}, newProblem(http.StatusForbidden, "cross_site", "without a token nothing is given to pages of another site")
		}
		return identity{localName, Write}, nil
	}
	given, err := bearer(r)
	if err != nil {
		p := newProblem(http.StatusUnauthorized, "unauthorized", err.Error())
		p.challenge = true
		return identity{}, p
	}
	if who, found := match(tokens, given); found {
		return who, nil
	}
	if wait := g.attempts.Wrong(g.now(), r); wait > 0 {
		p := newProblem(http.StatusTooManyRequests, "too_many_attempts", "too many wrong tokens came from this address, and this one is wrong too; send the right one, or wait for Retry-After")
		p.retryAfter = wait
		return identity{}, p
	}
	g.log.WarnContext(r.Context(), "wrong admin token", "peer", r.RemoteAddr, "path", r.URL.Path)
	p := newProblem(http.StatusUnauthorized, "unauthorized", "no such token")
	p.challenge = true
	return identity{}, p
}

// named refuses requests for names that are not this machine's, where no token is configured: a page of another site can have its own name resolve
// to 127.0.0.1 and is then same-origin to its browser.
func (g *guard) named(r *http.Request) error {
	if len(*g.tokens.Load()) > 0 || operators.IsLoopback(r.Host) {
		return nil
	}
	return newProblem(http.StatusForbidden, "unknown_host", fmt.Sprintf("without a token only loopback names are answered, not %q: use 127.0.0.1 or localhost, or set admin.token", r.Host))
}

// match compares with every token, each in constant time, so that the time
// tells neither how much of a guess was right nor which token it resembles.
func match(tokens []credential, given string) (identity, bool) {
	sum := sha256.Sum256([]byte(given))
	var who identity
	found := 0
	for _, t := range tokens {
		if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			who, found = t.who, 1
		}
	}
	return who, found == 1
}

var (
	errNoToken    = errors.New("send the token as Authorization: Bearer <token>")
	errTwoHeaders = errors.New("more than one Authorization header")
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
