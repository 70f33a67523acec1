package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/anteroom/anteroom/bench/child"
)

// newSiteKeys returns a key of each algorithm that identity.jwks_url may name.
func newSiteKeys() ([]siteKey, error) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	return []siteKey{{"RS256", "r", r}, {"ES256", "e", e}, {"EdDSA", "d", d}}, err
}

// serveKeys serves their public halves (RFC 7517).
func serveKeys(keys []siteKey) (*httptest.Server, error) {
	var set []map[string]string
	number := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	for _, k := range keys {
		one := map[string]string{"kid": k.kid, "alg": k.alg, "use": "sig"}
		switch public := k.private.Public().(type) {
		case *rsa.PublicKey:
			one["kty"], one["n"], one["e"] = "RSA", number(public.N.Bytes()), number(big.NewInt(int64(public.E)).Bytes())
		case *ecdsa.PublicKey:
			raw, err := public.Bytes() // 4, x, y
			if err != nil {
				return nil, err
			}
			half := (len(raw) - 1) / 2
			one["kty"], one["crv"], one["x"], one["y"] = "EC", "P-256", number(raw[1:1+half]), number(raw[1+half:])
		case ed25519.PublicKey:
			one["kty"], one["crv"], one["x"] = "OKP", "Ed25519", number(public)
		}
		set = append(set, one)
	}
	text, err := json.Marshal(map[string]any{"keys": set})
	if err != nil {
		return nil, err
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jwk-set+json")
		_, _ = w.Write(text) // the gateway asks again
	})), nil
}

// serveRefusals is the provider of a CAPTCHA to whom no answer counts.
func serveRefusals() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"success":false,"error-codes":["invalid-input-response"]}`)) // the gateway asks again
	}))
}

// startGateway starts a gateway whose trusted proxies name the visitor in the header, and returns who asks it. Its access log is on.
func startGateway(ctx context.Context, bin, dir, header, site, keys, provider string) (*asker, func(), error) {
	addr, err := child.FreePort()
	if err != nil {
		return nil, nil, err
	}
	admin, err := child.FreePort()
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, header+".yaml")
	secret := filepath.Join(dir, header+".secret")
	if err := os.WriteFile(secret, []byte("the secret of a CAPTCHA"), 0o600); err != nil {
		return nil, nil, err
	}
	key, err := signingKey(dir, header == "Forwarded")
	if err != nil {
		return nil, nil, err
	}
	conf := fmt.Sprintf(`listen: %q
admin: {listen: %q}
trusted_header: %s
tokens: {keys: [{id: k1, active: true, %s}]}
log: {level: error, access: true}
store: {dir: %q, timeout: 5s}
origins: [{id: site, servers: ["http://%s"]}]
default_origin: site
rooms:
  - {id: sale, paths: [/sale], admission: {rate: 0}}
  - {id: free, paths: [/free], admission: {rate: 1000000}, session: {ttl: 1h}}
  - {id: guarded, paths: [/guarded], admission: {rate: 0}, guard: {proof_of_work: always}}
  - {id: asked, paths: [/asked], admission: {rate: 0}, guard: {captcha: {provider: turnstile, site_key: k, secret_file: %q, hosts: [shop.test], verify_url: %q}}}
  - {id: account, paths: [/account], admission: {rate: 0}, identity: {jwt_claim: sub, jwks_url: %q, jwt_cookie: site, one_place: true, anonymous: allow}}
  - id: list
    hosts: [list.test]
    paths: ["~^/list(/.*)?$", "~/Sale$", "~/item/\\d+"]
    admission: {rate: 0}
    bypass: [{paths: ["~^/list/.*\\.(png|css)$"]}, {user_agents: [goodbot, otherbot, monitor]}]
`, addr, admin, header, key, filepath.Join(dir, header), site, secret, provider, keys)
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, nil, err
	}
	c, err := child.Start("gateway", bin, "serve", "--config", path)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Ready(ctx, addr); err != nil {
		c.Stop()
		return nil, nil, err
	}
	return newAsker(addr, c.PID()), c.Stop, nil
}

// signingKey returns the settings of a signing key.
func signingKey(dir string, dear bool) (string, error) {
	if !dear {
		return "alg: HS256, secret: " + rand.Text() + rand.Text(), nil
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "signing.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return fmt.Sprintf("alg: EdDSA, private_key_file: %q", path), os.WriteFile(path, text, 0o600)
}

// withPass returns the place of a visitor who has a pass.
func (a *asker) withPass() (place, error) {
	status, _, header, err := a.lanes[0].ask("GET " + letIn.path + " HTTP/1.1\r\nHost: shop.test\r\nAccept: application/json\r\n\r\n")
	if err != nil {
		return place{}, err
	}
	pass := header.Get("X-Waiting-Room-Pass")
	if status != http.StatusOK || pass == "" {
		return place{}, errors.New("the gateway gave no pass")
	}
	return place{name: "with a pass", path: letIn.path, method: "GET", fields: "X-Waiting-Room-Pass: " + pass + "\r\n"}, nil
}

// fronts is how many visitors a room enrols as they join, and more. Whoever joins behind them is signed alone.
const fronts = 8000

// fill has so many visitors join each room that those who are measured join behind the front.
func (a *asker) fill(places ...place) error {
	for _, p := range places {
		w := walk{place: p}
		request, _ := w.compose(false)
		if _, err := a.batch(request, fronts); err != nil {
			return err
		}
	}
	return nil
}
