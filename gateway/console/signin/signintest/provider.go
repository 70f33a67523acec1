// Package signintest runs a whole provider of OpenID Connect for tests: zitadel/oidc with its example storage and login page.
package signintest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Client of the provider, and the password of both of its users.
const (
	ClientID, ClientSecret = "anteroom", "q8Zt4LwYb8NcUe1HsJdAfG0pX2vRk7Q9"
	OtherID                = "another-client"
	Redirect               = "https://ops.example/auth/callback"
	Ann, Bob               = "test-user@127.0.0.1", "test-user2"
	password               = "verysecure"
)

// Provider is a provider with the users Ann and Bob.
type Provider struct {
	*httptest.Server
	Client *http.Client // for the program under test

	mu sync.Mutex
	// groups are the values of the claim groups, by user id.
	groups map[string][]string
	life   time.Duration                 // of ID tokens
	tokens func(response map[string]any) // changes responses of the token endpoint; may be nil
}

var register sync.Once

// New starts a provider. groups are the values of the claim groups by user name.
func New(t *testing.T, groups map[string][]string) *Provider {
	t.Helper()
	register.Do(func() {
		storage.RegisterClients(storage.WebClient(ClientID, ClientSecret, Redirect), storage.WebClient(OtherID, ClientSecret, Redirect))
	})
	p := &Provider{groups: groups, life: time.Hour}
	p.Server = httptest.NewUnstartedServer(nil)
	issuer := "http://" + p.Listener.Addr().String()
	store := &groupStorage{storage.NewStorage(storage.NewUserStore(issuer)), p}
	p.Config.Handler = p.changing(exampleop.SetupServer(issuer, store, slog.New(slog.DiscardHandler), false, op.WithAllowInsecure()))
	p.Start()
	transport := &http.Transport{}
	p.Client = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		p.Close()
	})
	return p
}

// SetLife sets the life of the ID tokens that follow.
func (p *Provider) SetLife(life time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = life
}

// ChangeTokens changes the responses of the token endpoint that follow.
func (p *Provider) ChangeTokens(change func(response map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens = change
}

func (p *Provider) changing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		change := p.tokens
		p.mu.Unlock()
		if change == nil || r.URL.Path != "/oauth/token" {
			next.ServeHTTP(w, r)
			return
		}
		recorded := httptest.NewRecorder()
		next.ServeHTTP(recorded, r)
		var response map[string]any
		body := recorded.Body.Bytes()
		if json.Unmarshal(body, &response) == nil && response["id_token"] != nil {
			change(response)
			body, _ = json.Marshal(response)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(recorded.Code)
		_, _ = io.Copy(w, bytes.NewReader(body))
	})
}

// SignIn follows the redirect to the provider as a browser does, signs a user in there, and returns the URL to which the provider
// redirects back.
func (p *Provider) SignIn(t *testing.T, to, user string) string {
	t.Helper()
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Transport: p.Client.Transport, Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if !strings.HasPrefix(r.URL.String(), p.URL) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	page, err := browser.Get(to)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(page.Body)
	page.Body.Close()
	id := page.Request.URL.Query().Get("authRequestID")
	if id == "" {
		t.Fatalf("the provider has no login page for %s: %d %s", to, page.StatusCode, text)
	}
	form := url.Values{"username": {user}, "password": {password}, "id": {id}}
	back, err := browser.PostForm(p.URL+"/login/username", form)
	if err != nil {
		t.Fatal(err)
	}
	text, _ = io.ReadAll(back.Body)
	back.Body.Close()
	location := back.Header.Get("Location")
	if !strings.HasPrefix(location, Redirect) {
		t.Fatalf("the provider does not redirect back: %d %q %s", back.StatusCode, location, text)
	}
	return location
}

// groupStorage adds the claim groups to the example storage, and its own life of ID tokens.
type groupStorage struct {
	*storage.Storage
	p *Provider
}

func (s *groupStorage) add(info *oidc.UserInfo, id string) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	name := map[string]string{"id1": Ann, "id2": Bob}[id]
	if groups, ok := s.p.groups[name]; ok {
		info.AppendClaims("groups", groups)
	}
}

func (s *groupStorage) SetUserinfoFromScopes(ctx context.Context, info *oidc.UserInfo, user, client string, scopes []string) error {
	s.add(info, user)
	return s.Storage.SetUserinfoFromScopes(ctx, info, user, client, scopes)
}

func (s *groupStorage) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string) error {
	s.add(info, request.GetSubject())
	return s.Storage.SetUserinfoFromRequest(ctx, info, request, scopes)
}

func (s *groupStorage) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	s.add(info, subject)
	return s.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin)
}

func (s *groupStorage) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	client, err := s.Storage.GetClientByClientID(ctx, id)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return &lifeClient{client, s.p.life}, err
}

type lifeClient struct {
	op.Client
	life time.Duration
}

func (c *lifeClient) IDTokenLifetime() time.Duration { return c.life }
