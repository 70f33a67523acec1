package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/anteroom/anteroom/gateway/access"
)

// Paths of the redirects. The registered redirect URL ends with CallbackPath.
const (
	LoginPath    = "/auth/login"
	CallbackPath = "/auth/callback"
	LogoutPath   = "/auth/logout"
)

// providerTimeout bounds one request to the provider.
const providerTimeout = 10 * time.Second

// Options of a SignIn. Issuer, ClientID and RedirectURL stay for its whole life; Reload replaces the others.
type Options struct {
	Issuer, ClientID, RedirectURL string
	ClientSecret                  string
	Scopes                        []string // besides openid
	Rules                         []Rule
	Idle                          time.Duration // a session ends after this time without a request
	Session                       time.Duration // and this long after the sign-in
}

// Rule grants a role to everybody whose claim has the value.
type Rule struct {
	Claim, Value string
	Grant        access.Grant
}

// Tools are what a SignIn uses of the program. The zero value is ready.
type Tools struct {
	Client *http.Client     // nil: a client of its own
	Log    *slog.Logger     // nil: discarded
	Now    func() time.Time // nil: time.Now
}

// SignIn signs operators in. It starts no goroutine; Run contacts the provider.
type SignIn struct {
	tools    Tools
	origin   string // of the redirect URL
	settings atomic.Pointer[settings]
	provider atomic.Pointer[provider]
}

// settings are options with what follows from them.
type settings struct {
	Options
	sessions, logins sealer
}

// provider is a provider that has described itself.
type provider struct {
	*oidc.Provider
	verifier *oidc.IDTokenVerifier
}

// New checks the options. Its error names the setting.
func New(o Options, tools Tools) (*SignIn, error) {
	tools.Log = cmp.Or(tools.Log, slog.New(slog.DiscardHandler))
	if tools.Now == nil {
		tools.Now = time.Now
	}
	tools.Client = cmp.Or(tools.Client, &http.Client{Timeout: providerTimeout})
	at, err := url.Parse(o.RedirectURL)
	if err != nil || at.Host == "" {
		return nil, fmt.Errorf("admin.oidc.redirect_url: %q is not a URL", o.RedirectURL)
	}
	s := &SignIn{tools: tools, origin: at.Scheme + "://" + at.Host}
	return s, s.Reload(o)
}

// Reload replaces the client secret, scopes, roles and lifetimes. With another secret all sessions end.
func (s *SignIn) Reload(o Options) error {
	if o.ClientSecret == "" {
		return errors.New("admin.oidc.client_secret_file is empty: sessions are sealed with the secret")
	}
	if old := s.settings.Load(); old != nil {
		o.Issuer, o.ClientID, o.RedirectURL = old.Issuer, old.ClientID, old.RedirectURL
	}
	s.settings.Store(&settings{Options: o, sessions: newSealer(&o, sessionCookie), logins: newSealer(&o, loginCookie)})
	return nil
}

// Ready reports whether the provider has described itself, so that operators can sign in.
func (s *SignIn) Ready() bool { return s.provider.Load() != nil }

// Run reads the provider's description, until it succeeds or ctx ends. Sessions that exist do not need it.
func (s *SignIn) Run(ctx context.Context) error {
	o := s.settings.Load()
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		p, err := s.discover(ctx, o)
		if err == nil {
			s.provider.Store(p)
			s.tools.Log.InfoContext(ctx, "operators can sign in", "issuer", o.Issuer)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		s.tools.Log.WarnContext(ctx, "cannot reach admin.oidc.issuer; operators cannot sign in until it replies, tokens and sessions stay valid", "issuer", o.Issuer, "retry_in", pause.String(), "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *SignIn) discover(ctx context.Context, o *settings) (*provider, error) {
	// The provider keeps the client of this context for its keys, and not the context's end.
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, s.tools.Client), o.Issuer)
	if err != nil {
		return nil, err
	}
	keys := oidc.ClientContext(context.WithoutCancel(ctx), s.tools.Client)
	return &provider{p, p.VerifierContext(keys, &oidc.Config{ClientID: o.ClientID, Now: s.tools.Now})}, nil
}

func (s *SignIn) client(p *provider, o *settings) *oauth2.Config {
	return &oauth2.Config{
		ClientID: o.ClientID, ClientSecret: o.ClientSecret, RedirectURL: o.RedirectURL, Endpoint: p.Endpoint(),
		Scopes: append([]string{oidc.ScopeOpenID}, o.Scopes...),
	}
}
