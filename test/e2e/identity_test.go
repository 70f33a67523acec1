package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/anteroom/anteroom/internal/redistest"
)

// login is the login of a site: it signs JWTs and serves the keys that verify them.
type login struct {
	*httptest.Server
	t     testing.TB
	mu    sync.Mutex
	keys  map[string]*ecdsa.PrivateKey
	away  atomic.Bool
	asked atomic.Int64
}

func newLogin(t testing.TB, kids ...string) *login {
	l := &login{t: t, keys: map[string]*ecdsa.PrivateKey{}}
	for _, kid := range kids {
		l.rotate(kid)
	}
	l.Server = httptest.NewServer(l)
	t.Cleanup(l.Close)
	return l
}

// rotate adds a key.
func (l *login) rotate(kid string) {
	l.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[kid] = k
}

func (l *login) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	l.asked.Add(1)
	if l.away.Load() {
		http.Error(w, "away", http.StatusBadGateway)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for kid, k := range l.keys {
		p, err := k.PublicKey.Bytes()
		if err != nil {
			l.t.Error(err)
		}
		b64 := base64.RawURLEncoding.EncodeToString
		keys = append(keys, fmt.Sprintf(`{"kty":"EC","crv":"P-256","use":"sig","alg":"ES256","kid":%q,"x":%q,"y":%q}`, kid, b64(p[1:33]), b64(p[33:])))
	}
	fmt.Fprintf(w, `{"keys":[%s]}`, strings.Join(keys, ","))
}

// token returns the JWT that the site issues at a login.
func (l *login) token(kid, account string) string {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	tok := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"sub": account, "iss": "https://shop.example", "aud": "waiting", "exp": time.Now().Add(time.Hour).Unix(),
	})
	tok.Header["kid"] = kid
	raw, err := tok.SignedString(l.keys[kid])
	if err != nil {
		l.t.Fatal(err)
	}
	return raw
}

// An account whose JWT is in a cookie or in Authorization has one place and one session at two gateways, also while the site's keys
// change and while they cannot be fetched.
func TestOnePlace_SiteJWT(t *testing.T) {
	t.Parallel()
	site, in := newOrigin(t, nil), newLogin(t, "k1")
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 0, max_active: 5}",
		fmt.Sprintf("identity: {one_place: true, jwt_claim: sub, jwks_url: %q, jwt_cookie: sid, jwt_issuer: 'https://shop.example', jwt_audience: waiting, login_url: 'https://shop.example/login'}", in.URL))},
	}.withRedis(redistest.Server(t).URL())
	a, b := start(t, s), start(t, s)
	c := newClient(t, a, b)
	const path = "/.waiting-room/sale/tickets"

	c.ask(a, http.MethodPost, path, "").problem(http.StatusUnauthorized, "account_required")
	if p := newBrowser(t, a).get(a, "/", asBrowser).want(http.StatusUnauthorized); !strings.Contains(p.body, `href="https://shop.example/login"`) {
		t.Errorf("the page has no way to log in: %s", p.body)
	}
	ann := in.token("k1", "ann")
	phone := c.ask(a, http.MethodPost, path, "", headers{"Authorization": "Bearer " + ann}).want(http.StatusCreated).status()
	laptop := newBrowser(t, a, b)
	laptop.get(b, "/", asBrowser, headers{"Cookie": "sid=" + ann}).waits("waiting")
	if one, two := jti(t, phone.Token), jti(t, laptop.cookie(b, "wr_sale_ticket")); one != two {
		t.Fatalf("two places: %s, %s", one, two)
	}
	second := c.ask(b, http.MethodPost, path, "", headers{"Cookie": "sid=" + in.token("k1", "bob")}).want(http.StatusCreated).status()
	until(t, "the second account is behind the first", func() bool {
		st := c.poll(b, second.Token)
		return st.Position != nil && *st.Position == 2
	})

	// A JWT of a new key is valid with its first request. Then the keys cannot be fetched any more.
	in.rotate("k2")
	until(t, "the new key counts", func() bool {
		return c.ask(a, http.MethodPost, path, "", headers{"Cookie": "sid=" + in.token("k2", "carol")}).code == http.StatusCreated
	})
	in.away.Store(true)
	if again := c.ask(a, http.MethodPost, path, "", headers{"Cookie": "sid=" + in.token("k2", "ann")}).want(http.StatusOK).status(); jti(t, again.Token) != jti(t, phone.Token) {
		t.Error("while the keys are away the account has another place")
	}
	asked := in.asked.Load()
	stolen := newLogin(t, "k9").token("k9", "ann")
	for range 20 {
		c.ask(a, http.MethodPost, path, "", headers{"Cookie": "sid=" + stolen}).problem(http.StatusUnauthorized, "account_required")
	}
	if n := in.asked.Load() - asked; n > 2 {
		t.Errorf("a flood of unknown keys fetched %d times", n)
	}
	fresh := start(t, s) // starts while the keys cannot be fetched
	fresh.secret(ann)
	c.ask(fresh, http.MethodPost, path, "", headers{"Cookie": "sid=" + in.token("k2", "dora")}).problem(http.StatusServiceUnavailable, "accounts_unavailable")
	if st := c.ask(fresh, http.MethodGet, "/.waiting-room/sale/status", "", headers{"X-Waiting-Room-Token": phone.Token}).want(http.StatusOK).status(); st.State != "waiting" {
		t.Errorf("a place while the keys are away: %v", st)
	}

	adminOf(t, a).patch("rooms/sale", `{"rate":100,"burst":10}`).want(http.StatusOK)
	until(t, "the laptop is in", func() bool {
		return laptop.get(b, "/", asBrowser, headers{"Cookie": cookies(laptop, b) + "; sid=" + ann}).header.Get("X-Origin") != ""
	})
	var got status
	until(t, "the phone has the session", func() bool { // a gateway checks a ticket at most once a second
		got = c.ask(a, http.MethodGet, "/.waiting-room/sale/status", "", headers{"X-Waiting-Room-Token": phone.Token, "Authorization": "Bearer " + ann}).want(http.StatusOK).status()
		return got.Pass != ""
	})
	_, one := decode(t, laptop.cookie(b, "wr_sale_pass"))
	_, two := decode(t, got.Pass)
	if one.Sid != two.Sid || one.Sid == "" {
		t.Errorf("sessions %q and %q, want one", one.Sid, two.Sid)
	}
	for _, h := range site.last().Header.Values("Cookie") {
		if !strings.Contains(h, "sid=") {
			t.Errorf("the site's own cookie did not reach it: %q", h)
		}
	}
}

func cookies(c *client, g *gateway) string {
	return "wr_sale_ticket=" + c.cookie(g, "wr_sale_ticket") + "; wr_sale_nonce=" + c.cookie(g, "wr_sale_nonce")
}

func jti(t testing.TB, token string) string {
	t.Helper()
	_, claims := parts(t, token)
	return fmt.Sprint(claims["jti"])
}

// The account field is read only from trusted proxies. From others it is ignored and not forwarded.
func TestOnePlace_ForgedAccountHeader(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	s := setup{origin: site.URL, rooms: []string{
		room("paths: [/sale]", "admission: {rate: 0}", "identity: {one_place: true, header: X-Account}"),
	}, more: "trusted_proxies: [192.0.2.0/24]\n"}
	g := start(t, s)
	c := newClient(t, g)
	c.get(g, "/sale", headers{"X-Account": "ann"}).problem(http.StatusUnauthorized, "account_required")
	c.get(g, "/free", headers{"X-Account": "ann", "X_account": "ann", "X-Other": "kept"}).want(http.StatusOK)
	if h := site.last().Header; h.Get("X-Account") != "" || h["X_account"] != nil || h.Get("X-Other") != "kept" {
		t.Errorf("the site was told %v", h)
	}
	s.more, s.store = "", ownStore(g.dir)
	g.rewrite(s.yaml())
	g.signal(sighup)
	until(t, "loopback is trusted", func() bool { return c.get(g, "/sale", headers{"X-Account": "ann"}).code == http.StatusAccepted })
	c.get(g, "/free", headers{"X-Account": "ann"}).want(http.StatusOK)
	if h := site.last().Header; h.Get("X-Account") != "ann" {
		t.Errorf("the site was told %v", h)
	}
}
