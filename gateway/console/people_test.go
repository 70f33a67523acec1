package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/console/signin"
	"github.com/anteroom/anteroom/gateway/console/signin/signintest"
)

// tab is a browser with its cookies, in front of the console of a bench.
type tab struct {
	b       *bench
	cookies map[string]*http.Cookie
	csrf    string
}

func (b *bench) newTab() *tab { return &tab{b: b, cookies: map[string]*http.Cookie{}} }

// ask sends a request as the console's page does. Headers replace the page's.
func (c *tab) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	c.b.t.Helper()
	own := []string{"Authorization:", "Sec-Fetch-Site: same-origin"}
	if method != "GET" {
		own = append(own, "Origin: https://ops.example", "X-CSRF-Token: "+c.csrf)
	}
	var pairs []string
	for _, cookie := range c.cookies {
		pairs = append(pairs, cookie.Name+"="+cookie.Value)
	}
	if len(pairs) > 0 {
		own = append(own, "Cookie: "+strings.Join(pairs, "; "))
	}
	w := c.b.ask(method, path, body, append(own, headers...)...)
	for _, cookie := range w.Result().Cookies() {
		if cookie.MaxAge < 0 {
			delete(c.cookies, cookie.Name)
			continue
		}
		c.cookies[cookie.Name] = cookie
	}
	return w
}

// login begins a sign-in and returns the provider's URL.
func (c *tab) login() string {
	c.b.t.Helper()
	w := c.ask("GET", signin.LoginPath+"?next=/%3Froom%3Dsale", "", "Sec-Fetch-Site: none")
	want(c.b.t, w, 303)
	return w.Header().Get("Location")
}

// back follows the provider's redirect, which is a navigation from another site.
func (c *tab) back(location string) *httptest.ResponseRecorder {
	c.b.t.Helper()
	return c.ask("GET", strings.TrimPrefix(location, "https://ops.example"), "", "Sec-Fetch-Site: cross-site")
}

// signIn signs a user in.
func (c *tab) signIn(p *signintest.Provider, user string) {
	c.b.t.Helper()
	want(c.b.t, c.back(p.SignIn(c.b.t, c.login(), user)), 303)
	w := c.ask("GET", "/admin/v1/me", "")
	want(c.b.t, w, 200)
	c.csrf, _ = decode(c.b.t, w.Body.Bytes())["csrf"].(string)
}

// rules are the rules of the tests.
var rules = []signin.Rule{
	{Claim: "groups", Value: "sale-ops", Grant: access.Grant{Role: access.Operator, Rooms: []string{"sale"}}},
	{Claim: "groups", Value: "lookers", Grant: access.Grant{Role: access.Viewer}},
	{Claim: "email", Value: "test-user2@zitadel.ch", Grant: access.Grant{Role: access.Admin}},
}

func signInOptions(p *signintest.Provider) signin.Options {
	return signin.Options{
		Issuer: p.URL, ClientID: signintest.ClientID, ClientSecret: signintest.ClientSecret, RedirectURL: signintest.Redirect,
		Scopes: []string{"email", "profile"}, Rules: rules, Idle: 30 * time.Minute, Session: 12 * time.Hour,
	}
}

// set sets the clock to that of a provider.
func (b *bench) set(now time.Time) { b.clock.passed.Store(int64(now.Sub(time.Unix(1_800_000_000, 0)))) }

// newSignInBench returns a console beside a provider.
func newSignInBench(t *testing.T, change ...func(*signin.Options)) (*bench, *signintest.Provider) {
	t.Helper()
	p := signintest.New(t, map[string][]string{signintest.Ann: {"sale-ops", "lookers", "others"}})
	o := signInOptions(p)
	for _, f := range change {
		f(&o)
	}
	var b *bench
	s, err := signin.New(o, signin.Tools{Client: p.Client, Now: func() time.Time { return b.clock.now() }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, func(o *Options) { o.SignIn = s })
	b.set(time.Now()) // the provider's clock
	return b, p
}

func TestSignIn_GivesRolesOfTheClaims(t *testing.T) {
	b, p := newSignInBench(t)
	want(t, b.ask("GET", "/auth", "", "Authorization:"), 200, `{"token":true,"oidc":{"login":"/auth/login","ready":true}}`)
	ann := b.newTab()
	wantCode(t, ann.ask("GET", "/admin/v1/me", ""), 401, "unauthorized")
	to := ann.login()
	query, _ := url.Parse(to)
	if q := query.Query(); q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("nonce") == "" || q.Get("state") == "" {
		t.Errorf("the provider is asked without PKCE, nonce or state: %s", to)
	}
	w := ann.back(p.SignIn(t, to, signintest.Ann))
	want(t, w, 303)
	if got := w.Header().Get("Location"); got != "/?room=sale" {
		t.Errorf("back at %q, want the page that was asked for", got)
	}
	cookie := ann.cookies["__Host-anteroom_session"]
	if cookie == nil || !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Fatalf("the session's cookie is %v", cookie)
	}
	if ann.cookies["__Host-anteroom_login"] != nil {
		t.Error("the cookie of the sign-in stays")
	}
	w = ann.ask("GET", "/admin/v1/me", "")
	want(t, w, 200)
	me := decode(t, w.Body.Bytes())
	ann.csrf, _ = me["csrf"].(string)
	delete(me, "csrf")
	delete(me, "expires_at")
	delete(me, "idle_until")
	text, _ := json.Marshal(me)
	if got, wanted := string(text), `{"grants":[{"role":"operator","rooms":["sale"]},{"role":"viewer"}],"name":"test-user@zitadel.ch","two_person":[],"via":"oidc"}`; got != wanted {
		t.Errorf("me is %s, want %s", got, wanted)
	}

	// Her roles hold in their rooms, and her name is in the audit log.
	want(t, ann.ask("POST", "/admin/v1/rooms/sale/pause", ""), 200)
	wantCode(t, ann.ask("POST", "/admin/v1/rooms/vip/pause", ""), 403, "room_not_allowed")
	want(t, ann.ask("GET", "/admin/v1/rooms/vip", ""), 200)
	wantCode(t, ann.ask("POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`), 403, "role_required")
	entries, err := b.core.Audit(t.Context(), 1, nil)
	if err != nil || len(entries) != 1 || entries[0].Who != "test-user@zitadel.ch" {
		t.Errorf("the audit log has %v (%v)", entries, err)
	}

	// Bob's claims are in the user info only, and another rule fits.
	bob := b.newTab()
	bob.signIn(p, signintest.Bob)
	want(t, bob.ask("POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`), 200)

	want(t, ann.ask("POST", "/auth/logout", ""), 204)
	wantCode(t, ann.ask("GET", "/admin/v1/me", ""), 401, "unauthorized")
}

func TestSignIn_RefusesForgeries(t *testing.T) {
	b, p := newSignInBench(t)
	for _, row := range []struct {
		name string
		do   func(c *tab) *httptest.ResponseRecorder
		says string
	}{
		{"another state", func(c *tab) *httptest.ResponseRecorder {
			return c.back(setParameter(p.SignIn(t, c.login(), signintest.Ann), "state", "x"))
		}, "state"},
		{"the state of another browser", func(c *tab) *httptest.ResponseRecorder {
			location := p.SignIn(t, b.newTab().login(), signintest.Ann)
			c.login()
			return c.back(location)
		}, "state"},
		{"a browser that did not begin", func(c *tab) *httptest.ResponseRecorder {
			location := p.SignIn(t, c.login(), signintest.Ann)
			return b.newTab().back(location)
		}, "has not begun"},
		{"after ten minutes", func(c *tab) *httptest.ResponseRecorder {
			location := p.SignIn(t, c.login(), signintest.Ann)
			b.set(b.clock.now().Add(10 * time.Minute))
			defer func() { b.set(time.Now()) }()
			return c.back(location)
		}, "within the last 10 minutes"},
		{"the same redirect twice", func(c *tab) *httptest.ResponseRecorder {
			location := p.SignIn(t, c.login(), signintest.Ann)
			want(t, c.back(location), 303)
			return c.back(location)
		}, "has not begun"},
		{"a code twice, with the cookie kept", func(c *tab) *httptest.ResponseRecorder {
			location := p.SignIn(t, c.login(), signintest.Ann)
			kept := c.cookies["__Host-anteroom_login"]
			want(t, c.back(location), 303)
			c.cookies["__Host-anteroom_login"] = kept
			return c.back(location)
		}, "did not accept the code"},
		{"another browser's code under the own state", func(c *tab) *httptest.ResponseRecorder {
			stolen, _ := url.Parse(p.SignIn(t, b.newTab().login(), signintest.Ann))
			return c.back(setParameter(p.SignIn(t, c.login(), signintest.Ann), "code", stolen.Query().Get("code")))
		}, "did not accept the code"},
		{"another nonce", func(c *tab) *httptest.ResponseRecorder {
			return c.back(p.SignIn(t, setParameter(c.login(), "nonce", "x"), signintest.Ann))
		}, "not of this sign-in"},
		{"an ID token that has expired", func(c *tab) *httptest.ResponseRecorder {
			p.SetLife(-time.Hour)
			defer p.SetLife(time.Hour)
			return c.back(p.SignIn(t, c.login(), signintest.Ann))
		}, "not valid"},
		{"an ID token that was changed", func(c *tab) *httptest.ResponseRecorder {
			p.ChangeTokens(func(response map[string]any) {
				response["id_token"] = changeClaim(t, response["id_token"].(string), "sub", "id2")
			})
			defer p.ChangeTokens(nil)
			return c.back(p.SignIn(t, c.login(), signintest.Ann))
		}, "not valid"},
		{"no ID token", func(c *tab) *httptest.ResponseRecorder {
			p.ChangeTokens(func(response map[string]any) { delete(response, "id_token") })
			defer p.ChangeTokens(nil)
			return c.back(p.SignIn(t, c.login(), signintest.Ann))
		}, "not valid"},
		{"the response of another provider", func(c *tab) *httptest.ResponseRecorder {
			return c.back(setParameter(p.SignIn(t, c.login(), signintest.Ann), "iss", "https://other.example"))
		}, "another provider"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := b.newTab()
			w := row.do(c)
			wantCode(t, w, 400, "sign_in_failed")
			if !strings.Contains(w.Body.String(), row.says) {
				t.Errorf("the problem is %s, want one about %q", w.Body, row.says)
			}
			for _, cookie := range w.Result().Cookies() {
				if cookie.Name == "__Host-anteroom_session" {
					t.Error("the response sets a session")
				}
			}
		})
	}
}

// An ID token of the same provider for another client is refused, whatever else is right.
func TestSignIn_RefusesAnotherAudience(t *testing.T) {
	b, p := newSignInBench(t)
	other, err := signin.New(func() signin.Options { o := signInOptions(p); o.ClientID = signintest.OtherID; return o }(), signin.Tools{Client: p.Client})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := newBench(t, func(o *Options) { o.SignIn = other })
	second.set(time.Now())
	// The victim's browser signs in at the other client with the nonce of a sign-in here.
	c := b.newTab()
	here := c.login()
	nonce, _ := url.Parse(here)
	var raw string
	p.ChangeTokens(func(response map[string]any) { raw = response["id_token"].(string) })
	there := second.newTab()
	wantCode(t, there.back(p.SignIn(t, setParameter(there.login(), "nonce", nonce.Query().Get("nonce")), signintest.Ann)), 400, "sign_in_failed")
	p.ChangeTokens(func(response map[string]any) { response["id_token"] = raw })
	w := c.back(p.SignIn(t, here, signintest.Ann))
	wantCode(t, w, 400, "sign_in_failed")
	if raw == "" || !strings.Contains(w.Body.String(), "ID token is not valid") {
		t.Errorf("the problem is %s", w.Body)
	}
	// Without the other's token the same sign-in succeeds.
	p.ChangeTokens(nil)
	b.newTab().signIn(p, signintest.Ann)
}

func TestSignIn_RefusesPersonsWithoutARole(t *testing.T) {
	b, p := newSignInBench(t, func(o *signin.Options) { o.Rules = rules[:2] })
	c := b.newTab()
	w := c.back(p.SignIn(t, c.login(), signintest.Bob))
	wantCode(t, w, 403, "sign_in_refused")
	if len(c.cookies) != 0 {
		t.Errorf("cookies of a person without a role: %v", c.cookies)
	}
	wantCode(t, b.newTab().back(signintest.Redirect+"?state=x&error=access_denied"), 400, "sign_in_failed")
	c.login()
	state := loginState(t, c)
	wantCode(t, c.back(signintest.Redirect+"?error=access_denied&state="+state), 403, "sign_in_refused")
}

// loginState begins a sign-in and returns its state.
func loginState(t *testing.T, c *tab) string {
	to, err := url.Parse(c.login())
	if err != nil {
		t.Fatal(err)
	}
	return url.QueryEscape(to.Query().Get("state"))
}

func TestSession_RefusesOtherSites(t *testing.T) {
	b, p := newSignInBench(t)
	bob := b.newTab()
	bob.signIn(p, signintest.Bob)
	const path = "/admin/v1/rooms/sale/pause"
	for _, row := range []struct {
		name   string
		method string
		code   string
		header []string
	}{
		{"no Origin", "POST", "cross_site", []string{"Origin:"}},
		{"another Origin", "POST", "cross_site", []string{"Origin: https://evil.example"}},
		{"plain HTTP", "POST", "cross_site", []string{"Origin: http://ops.example"}},
		{"an opaque Origin", "POST", "cross_site", []string{"Origin: null"}},
		{"another site", "POST", "cross_site", []string{"Sec-Fetch-Site: cross-site"}},
		{"a sibling", "POST", "cross_site", []string{"Sec-Fetch-Site: same-site"}},
		{"no CSRF token", "POST", "csrf", []string{"X-CSRF-Token:"}},
		{"another CSRF token", "POST", "csrf", []string{"X-CSRF-Token: x" + bob.csrf}},
		{"a read of another site", "GET", "cross_site", []string{"Sec-Fetch-Site: cross-site"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			wantCode(t, bob.ask(row.method, path, "", row.header...), 403, row.code)
			wantCode(t, bob.ask(row.method, "/auth/logout", "", row.header...), 403, row.code)
		})
	}
	want(t, bob.ask("POST", path, "", "Sec-Fetch-Site:"), 200) // a browser without fetch metadata
	// Another session's CSRF token is no proof.
	ann := b.newTab()
	ann.signIn(p, signintest.Ann)
	wantCode(t, ann.ask("POST", path, "", "X-CSRF-Token: "+bob.csrf), 403, "csrf")
	// A request with a token is judged by the token alone, and so is one with a wrong token.
	want(t, bob.ask("GET", "/admin/v1/me", "", "Authorization: Bearer "+readToken), 200, `{"name":"wall","via":"token","grants":[{"role":"viewer"}],"two_person":[]}`)
	wantCode(t, bob.ask("GET", "/admin/v1/me", "", "Authorization: Bearer wrong"), 401, "unauthorized")
}

func TestSession_Ends(t *testing.T) {
	b, p := newSignInBench(t)
	start := b.clock.now()
	ann := b.newTab()
	ann.signIn(p, signintest.Ann)
	me := func() int { return ann.ask("GET", "/admin/v1/me", "").Code }

	// In use it is renewed, at most once a minute.
	first := ann.cookies["__Host-anteroom_session"].Value
	b.set(start.Add(59 * time.Second))
	if me() != 200 || ann.cookies["__Host-anteroom_session"].Value != first {
		t.Error("the cookie is renewed within a minute")
	}
	for b.clock.now().Sub(start) < 11*time.Hour+20*time.Minute {
		b.set(b.clock.now().Add(29 * time.Minute))
		if me() != 200 {
			t.Fatalf("a session in use ended after %s", b.clock.now().Sub(start))
		}
	}
	kept := *ann.cookies["__Host-anteroom_session"]
	b.set(start.Add(12 * time.Hour))
	if me() != 401 {
		t.Error("the session is longer than its longest life")
	}
	b.set(time.Unix(start.Unix(), 0).Add(12*time.Hour - time.Second))
	ann.cookies[kept.Name] = &kept
	if me() != 200 {
		t.Error("the session ended early")
	}

	b.set(time.Now())
	ann.signIn(p, signintest.Ann)
	idle := *ann.cookies["__Host-anteroom_session"]
	b.set(b.clock.now().Add(30 * time.Minute))
	ann.cookies[idle.Name] = &idle
	if me() != 401 {
		t.Error("an idle session goes on")
	}
}

// A cookie opens nothing after it was changed, under another name, or with another secret. With fewer rules it grants less at once.
func TestSession_CookieIsSealed(t *testing.T) {
	b, p := newSignInBench(t)
	ann := b.newTab()
	ann.signIn(p, signintest.Ann)
	value := ann.cookies["__Host-anteroom_session"].Value
	ask := func(cookie string) int {
		return b.ask("GET", "/admin/v1/me", "", "Authorization:", "Cookie: "+cookie).Code
	}
	if got := ask("__Host-anteroom_session=" + value); got != 200 {
		t.Fatalf("the session's own cookie: %d", got)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(value)
	for i := range raw {
		raw[i] ^= 1
		if got := ask("__Host-anteroom_session=" + base64.RawURLEncoding.EncodeToString(raw)); got != 401 {
			t.Fatalf("byte %d changed: %d", i, got)
		}
		raw[i] ^= 1
	}
	c := b.newTab()
	c.login()
	for _, cookie := range []string{
		"anteroom_session=" + value, "__Host-anteroom_session=" + value + "; __Host-anteroom_session=" + value, "__Host-anteroom_session=" + value[:len(value)/2],
		"__Host-anteroom_session=" + c.cookies["__Host-anteroom_login"].Value, "__Host-anteroom_session=",
	} {
		if got := ask(cookie); got != 401 {
			t.Errorf("the cookie %.60q: %d", cookie, got)
		}
	}
	o := signInOptions(p)
	o.Rules = rules[1:2]
	if err := b.console.o.SignIn.Reload(o); err != nil {
		t.Fatal(err)
	}
	want(t, ann.ask("GET", "/admin/v1/rooms", ""), 200)
	wantCode(t, ann.ask("POST", "/admin/v1/rooms/sale/pause", ""), 403, "read_only")
	o.Rules = rules[2:]
	if err := b.console.o.SignIn.Reload(o); err != nil {
		t.Fatal(err)
	}
	wantCode(t, ann.ask("GET", "/admin/v1/rooms", ""), 401, "unauthorized")
	o.Rules, o.ClientSecret = rules, "another-secret-0123456789abcdef"
	if err := b.console.o.SignIn.Reload(o); err != nil {
		t.Fatal(err)
	}
	wantCode(t, ann.ask("GET", "/admin/v1/rooms", ""), 401, "unauthorized")
}

// A provider that is away stops nothing: tokens work, and operators can sign in as soon as it replies.
func TestSignIn_WaitsForTheProvider(t *testing.T) {
	p := signintest.New(t, map[string][]string{signintest.Ann: {"lookers"}})
	away := make(chan struct{})
	tried := make(chan struct{}, 64)
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		select {
		case <-away:
			return p.Client.Transport.RoundTrip(r)
		default:
			tried <- struct{}{}
			return nil, context.DeadlineExceeded
		}
	})}
	var b *bench
	s, err := signin.New(signInOptions(p), signin.Tools{Client: client, Now: func() time.Time { return b.clock.now() }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b = newBench(t, func(o *Options) { o.SignIn, o.Tokens = s, o.Tokens[:1] })
	b.set(time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-tried
	want(t, b.ask("GET", "/admin/v1/rooms", ""), 200)
	want(t, b.ask("GET", "/auth", ""), 200, `{"token":true,"oidc":{"login":"/auth/login","ready":false}}`)
	w := b.newTab().ask("GET", signin.LoginPath, "")
	wantCode(t, w, 503, "sign_in_unavailable")
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(away)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	b.newTab().signIn(p, signintest.Ann)
	cancel()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// With sign-in and without tokens a listener needs no token, even on loopback, and nobody is admitted without a session.
func TestSignIn_ReplacesTokens(t *testing.T) {
	p := signintest.New(t, nil)
	s, err := signin.New(signInOptions(p), signin.Tools{Client: p.Client})
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{"0.0.0.0:9090", "127.0.0.1:9090"} {
		b := newBench(t, func(o *Options) { o.SignIn, o.Tokens, o.Listen = s, nil, listen })
		wantCode(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization:", "Host: localhost:9090"), 401, "unauthorized")
		want(t, b.ask("GET", "/auth", "", "Authorization:", "Host: ops.example"), 200, `{"token":false,"oidc":{"login":"/auth/login","ready":false}}`)
	}
}

func setParameter(location, name, value string) string {
	u, _ := url.Parse(location)
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func changeClaim(t *testing.T, token, name string, value any) string {
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := decode(t, text)
	claims[name] = value
	text, _ = json.Marshal(claims)
	parts[1] = base64.RawURLEncoding.EncodeToString(text)
	return strings.Join(parts, ".")
}
