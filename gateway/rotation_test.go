package gateway

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// backend is an origin that verifies passes by the published keys, which it keeps until fetch.
type backend struct {
	keys     atomic.Pointer[map[string]any]
	accepted atomic.Int64
	mu       sync.Mutex
	refused  []string
}

func (o *backend) fetch(t *testing.T, b *bench) {
	t.Helper()
	var set struct {
		Keys []struct{ Kty, X, Y, Kid, Alg string }
	}
	if err := json.Unmarshal([]byte(b.call("GET /.waiting-room/jwks.json").code(t, 200).body), &set); err != nil {
		t.Fatal(err)
	}
	keys := map[string]any{}
	for _, k := range set.Keys {
		x, errX := base64.RawURLEncoding.DecodeString(k.X)
		y, errY := base64.RawURLEncoding.DecodeString(k.Y)
		if errX != nil || errY != nil {
			t.Fatal(errX, errY)
		}
		keys[k.Alg+k.Kid] = ed25519.PublicKey(x)
		if k.Kty == "EC" {
			public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
			if err != nil {
				t.Fatal(err)
			}
			keys[k.Alg+k.Kid] = public
		}
	}
	o.keys.Store(&keys)
}

func (o *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Session", r.Header.Get("X-Waiting-Room-Session"))
	_, err := jwt.NewParser(jwt.WithValidMethods([]string{"ES256", "EdDSA"}), jwt.WithIssuer("anteroom"), jwt.WithAudience("sale"), jwt.WithExpirationRequired()).
		Parse(r.Header.Get("X-Waiting-Room-Pass"), func(t *jwt.Token) (any, error) {
			if key := (*o.keys.Load())[fmt.Sprint(t.Header["alg"], t.Header["kid"])]; key != nil && t.Header["typ"] == "pass+jwt" {
				return key, nil
			}
			return nil, fmt.Errorf("the backend has no key %v", t.Header)
		})
	if err == nil {
		o.accepted.Add(1)
		return
	}
	o.mu.Lock()
	o.refused = append(o.refused, err.Error())
	o.mu.Unlock()
}

// crowd sends requests with all tokens that it has ever received, to gateways in random order.
type crowd struct {
	gateways []*bench
	requests atomic.Int64
	mu       sync.Mutex
	tokens   map[string][]string // by the path at which they are shown
	refused  []string
	load     func() // waits until the crowd has sent more requests
}

func (c *crowd) keep(path, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if token != "" {
		c.tokens[path] = append(c.tokens[path], token)
	}
}

func (c *crowd) ask(g *bench, path, field string) {
	var token string
	c.mu.Lock()
	if all := c.tokens[path]; len(all) > 0 {
		token = all[rand.IntN(len(all))]
	}
	c.mu.Unlock()
	if token == "" {
		return
	}
	a, err := g.try("GET "+path, asJSON, field+": "+token)
	// A visitor whose pass is refused starts another session.
	same := err == nil && (field != "X-Waiting-Room-Pass" || a.header.Get("Session") == sidOf(token))
	if same && a.status == 200 && a.field("state") == map[bool]string{true: "waiting"}[field == "X-Waiting-Room-Token"] {
		c.keep(path, a.header.Get("X-Waiting-Room-Pass"))
		c.keep(path, a.field("token"))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = append(c.refused, fmt.Sprintf("GET %s with %s: %+v, %v", path, kidOf(token), a, err))
}

func (c *crowd) run(end chan struct{}) {
	const pass, ticket = "/sale", "/.waiting-room/line/status"
	for {
		select {
		case <-end:
			return
		default:
		}
		g := c.gateways[rand.IntN(len(c.gateways))]
		switch rand.IntN(10) {
		case 0:
			if a, err := g.try("GET "+pass, asJSON); err == nil {
				c.keep(pass, a.header.Get("X-Waiting-Room-Pass"))
			}
		case 1:
			if a, err := g.try("POST /.waiting-room/line/tickets"); err == nil {
				c.keep(ticket, a.field("token"))
			}
		case 2, 3, 4, 5:
			c.ask(g, pass, "X-Waiting-Room-Pass")
		default:
			c.ask(g, ticket, "X-Waiting-Room-Token")
		}
		c.requests.Add(1)
	}
}

// kidOf returns the header of a token.
func kidOf(token string) string {
	head, _, _ := strings.Cut(token, ".")
	text, _ := base64.RawURLEncoding.DecodeString(head)
	return string(text)
}

// sidOf returns the session of a pass.
func sidOf(pass string) string {
	parts := strings.Split(pass, ".")
	text, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct{ SID string }
	_ = json.Unmarshal(text, &claims)
	return claims.SID
}

// rejected returns how many tokens gateways have rejected.
func (c *crowd) rejected() (n float64) {
	for _, g := range c.gateways {
		for _, reason := range token.Reasons {
			if count := g.metrics.RejectedTokens[reason]; count != nil {
				n += testutil.ToFloat64(count)
			}
		}
	}
	return n
}

// Keys are rotated by reloads on two gateways under load, as docs/passes.md describes it: no pass and no ticket is refused, neither by
// a gateway nor by a backend that keeps the published keys.
func TestKeys_RotateUnderLoad(t *testing.T) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := es256Key(t, "first", true), es256Key(t, "second", false), token.Key{ID: "third", Alg: token.EdDSA, Private: private}
	site := &backend{}
	s := newSite(t, "shop", site.ServeHTTP)
	shop := originAt("shop", s.URL)
	shop.ForwardPass = true
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	c := &crowd{tokens: map[string][]string{}}
	for range 2 {
		c.gateways = append(c.gateways, start(t, client, prefix, Options{Origins: []proxy.Config{shop}, Ring: ringOf(t, first), Rooms: []Room{
			{ID: "sale", Paths: []string{"/sale"}, Policy: policy(1_000_000), Renew: true, MaxSession: time.Hour}, {ID: "line", Paths: []string{"/line"}, Policy: policy(0)},
		}}))
	}
	site.fetch(t, c.gateways[0])
	end := make(chan struct{})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() { c.run(end) })
	}
	stop := sync.OnceFunc(func() { close(end); running.Wait() })
	t.Cleanup(stop)
	c.load = func() {
		t.Helper()
		until := c.requests.Load() + 300
		eventually(t, "300 requests", func() bool { return c.requests.Load() >= until })
	}
	signs := func(active string, keys ...token.Key) {
		t.Helper()
		for i := range keys {
			keys[i].Active = keys[i].ID == active
		}
		ring := ringOf(t, keys...)
		for _, g := range c.gateways {
			o := g.o
			o.Ring = ring
			if err := g.Reload(o); err != nil {
				t.Fatal(err)
			}
			c.load() // the other gateway still has the former keys
		}
	}
	c.load()
	signs("first", first, second)
	site.fetch(t, c.gateways[1]) // five minutes later
	signs("second", first, second)
	signs("second", first, second, third)
	site.fetch(t, c.gateways[0])
	signs("third", first, second, third)
	stop()

	kids := map[string]int{}
	for path, tokens := range c.tokens {
		for _, raw := range tokens {
			kids[path+" "+kidOf(raw)]++
		}
	}
	if len(kids) != 6 {
		t.Errorf("tokens by key: %v; want passes and tickets of three keys", kids)
	}
	t.Logf("%d requests, %d passes verified by the backend; tokens by key: %v", c.requests.Load(), site.accepted.Load(), kids)
	if n := c.rejected(); n > 0 || len(c.refused) > 0 || len(site.refused) > 0 {
		t.Fatalf("%v tokens rejected; %d requests refused, as %.500v; %d passes refused by the backend, as %.500v", n, len(c.refused), c.refused, len(site.refused), site.refused)
	}

	// Once the first key is removed, its passes are refused, and those of the others are not.
	c.load = func() {}
	signs("third", second, third)
	want := 0.0
	for i, raw := range c.tokens["/sale"][:min(100, len(c.tokens["/sale"]))] {
		a := c.gateways[i%2].call("GET /sale", asJSON, "X-Waiting-Room-Pass: "+raw).code(t, 200)
		removed := strings.Contains(kidOf(raw), "first")
		if removed {
			want++
		}
		if (a.header.Get("Session") != sidOf(raw)) != removed {
			t.Errorf("a pass of %s: session %s, was %s", kidOf(raw), a.header.Get("Session"), sidOf(raw))
		}
	}
	if got := c.rejected(); got != want || want == 0 {
		t.Errorf("%v tokens rejected, want %v", got, want)
	}
}
