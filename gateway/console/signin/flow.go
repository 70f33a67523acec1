package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/anteroom/anteroom/internal/ophttp"
)

// loginLife is the time that a person has for signing in at the provider.
const loginLife = 10 * time.Minute

// login is a sign-in that has begun, as its cookie holds it.
type login struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // of PKCE
	Next     string `json:"next"`
	Expires  int64  `json:"expires"` // Unix time
}

// Login redirects a browser to the provider.
func (s *SignIn) Login(w http.ResponseWriter, r *http.Request) error {
	p, o := s.provider.Load(), s.settings.Load()
	if p == nil {
		return unavailable(o, nil)
	}
	l := login{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), Next: local(r.FormValue("next")), Expires: s.tools.Now().Add(loginLife).Unix()}
	// Lax: the provider's redirect back is a navigation from another site.
	http.SetCookie(w, o.logins.seal(l, http.SameSiteLaxMode, int(loginLife.Seconds())))
	http.Redirect(w, r, s.client(p, o).AuthCodeURL(l.State, oidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)), http.StatusSeeOther)
	return nil
}

// local returns next if it is a path of this server, otherwise the path of the console.
func local(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return "/"
	}
	return next
}

// Callback ends a sign-in: it exchanges the provider's code and sets the cookie of a session. Each sign-in ends once.
func (s *SignIn) Callback(w http.ResponseWriter, r *http.Request) error {
	p, o := s.provider.Load(), s.settings.Load()
	if p == nil {
		return unavailable(o, nil)
	}
	var l login
	began := o.logins.open(r, &l)
	http.SetCookie(w, o.logins.end(http.SameSiteLaxMode))
	query := r.URL.Query()
	switch {
	case !began || s.tools.Now().Unix() >= l.Expires:
		return failed("this browser has not begun a sign-in within the last 10 minutes; begin again at "+LoginPath, nil)
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(l.State)) != 1:
		return failed("the state is not that of the sign-in which this browser has begun; begin again at "+LoginPath, nil)
	case query.Has("iss") && query.Get("iss") != o.Issuer:
		return failed("the response is of another provider than admin.oidc.issuer", nil)
	case query.Has("error"):
		return refused("the provider refused the sign-in: " + ophttp.Shorten(query.Get("error")))
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), s.tools.Client), providerTimeout)
	defer cancel()
	c, subject, err := s.exchange(ctx, p, o, query.Get("code"), &l)
	if err != nil {
		return err
	}
	kept := o.matching(c)
	if len(kept) == 0 {
		s.tools.Log.WarnContext(ctx, "signed in at the provider, but no rule of admin.oidc.roles fits", "who", c.name(subject), "subject", subject)
		return refused("no rule of admin.oidc.roles grants " + c.name(subject) + " a role")
	}
	now := s.tools.Now().Unix()
	s.set(w, o, record{Subject: subject, Name: c.name(subject), Claims: kept, CSRF: random(), Began: now, Used: now})
	s.tools.Log.InfoContext(ctx, "operator signed in", "who", c.name(subject), "subject", subject)
	http.Redirect(w, r, l.Next, http.StatusSeeOther)
	return nil
}

// exchange returns the claims and the subject of the person whom the provider authenticated.
func (s *SignIn) exchange(ctx context.Context, p *provider, o *settings, code string, l *login) (claims, string, error) {
	tokens, err := s.client(p, o).Exchange(ctx, code, oauth2.VerifierOption(l.Verifier))
	if err != nil {
		if _, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			return nil, "", failed("the provider did not accept the code; it can be used once. Begin again at "+LoginPath, err)
		}
		return nil, "", unavailable(o, err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	id, err := p.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, "", failed("the provider's ID token is not valid; the gateway's log has the reason", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(l.Nonce)) != 1 {
		return nil, "", failed("the provider's ID token is not of this sign-in", errors.New("the nonce differs"))
	}
	c := claims{}
	if err := id.Claims(&c); err != nil {
		return nil, "", failed("the provider's ID token has no claims", err)
	}
	if azp, ok := c["azp"].(string); (ok || len(id.Audience) > 1) && azp != o.ClientID {
		return nil, "", failed("the provider's ID token is for another client", fmt.Errorf("azp is %q", azp))
	}
	if !slices.Contains(id.Audience, o.ClientID) || id.Subject == "" {
		return nil, "", failed("the provider's ID token is not about a person who signed in here", nil)
	}
	if o.lacks(c) || !c.verified() {
		s.addUserInfo(ctx, p, tokens, c, id.Subject)
	}
	return c, id.Subject, nil
}

// addUserInfo adds the claims that only the provider's user info has. Those of the ID token, which is signed, stay.
func (s *SignIn) addUserInfo(ctx context.Context, p *provider, tokens *oauth2.Token, c claims, subject string) {
	if p.UserInfoEndpoint() == "" {
		return
	}
	info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	more := claims{}
	if err == nil {
		err = info.Claims(&more)
	}
	if err == nil && info.Subject != subject {
		err = errors.New("it is about another subject")
	}
	if err != nil {
		s.tools.Log.WarnContext(ctx, "cannot read the provider's user info; only the claims of the ID token count", "error", err)
		return
	}
	for name, value := range more {
		// A verified address counts only together with the claim that verifies it.
		if _, there := c[name]; !there && (name != "email_verified" || c["email"] == nil || c["email"] == more["email"]) {
			c[name] = value
		}
	}
}

func failed(detail string, cause error) error {
	p := ophttp.NewProblem(http.StatusBadRequest, "sign_in_failed", "%s", detail)
	p.Cause = cause
	return p
}

func refused(detail string) error {
	return ophttp.NewProblem(http.StatusForbidden, "sign_in_refused", "%s", detail)
}

func unavailable(o *settings, cause error) error {
	p := ophttp.NewProblem(http.StatusServiceUnavailable, "sign_in_unavailable", "the provider %s does not reply; use a token, or try again", o.Issuer)
	p.RetryAfter, p.Cause = 5*time.Second, cause
	return p
}
