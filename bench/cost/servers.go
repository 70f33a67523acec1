package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/token"
)

// servers are the gateways that are measured, and the keys of their accounts. The second gateway reads Forwarded, signs
// with EdDSA and also verifies ES256.
type servers struct {
	probers [2]*prober
	keys    []siteKey
}

func startServers(r *rig.Run, bin string) *servers {
	s := &servers{keys: newSiteKeys()}
	site := r.Serve(respond)
	keys := r.Serve(respondJSON(keySet(s.keys)))
	provider := r.Serve(respondJSON([]byte(`{"success":false,"error-codes":["invalid-input-response"]}`))) // of a CAPTCHA, which accepts no solution
	secret := r.File("captcha.secret", "the secret of a CAPTCHA")
	signing := r.File("signing.pem", string(rig.Must(token.GenerateKeyPEM("EdDSA"))))
	retired := r.File("retired.pem", string(rig.Must(token.GenerateKeyPEM("ES256"))))
	for i, header := range []string{"X-Forwarded-For", "Forwarded"} {
		key := "alg: HS256, secret: " + token.GenerateSecret()
		if i == 1 {
			key = fmt.Sprintf("alg: EdDSA, private_key_file: %q}, {id: k2, alg: ES256, private_key_file: %q", signing, retired)
		}
		g := r.Gateway(bin, fmt.Sprintf(`trusted_header: %s
tokens: {keys: [{id: k1, active: true, %s}]}
log: {level: error, access: true}
store: {dir: %q, timeout: 5s}
origins: [{id: site, servers: ["http://%s"]}]
default_origin: site
rooms:
  - {id: sale, paths: [/sale], admission: {rate: 0}}
  - {id: free, paths: [/free], admission: {rate: 1000000}, session: {ttl: 1h}}
  - {id: guarded, paths: [/guarded], admission: {rate: 0}, guard: {proof_of_work: always}}
  - {id: asked, paths: [/asked], admission: {rate: 0}, guard: {captcha: {provider: turnstile, site_key: k, secret_file: %q, hosts: [shop.test], verify_url: "http://%s"}}}
  - {id: account, paths: [/account], admission: {rate: 0}, identity: {jwt_claim: sub, jwks_url: "http://%s", jwt_cookie: site, one_place: true, anonymous: allow}}
  - id: list
    hosts: [list.test]
    paths: ["~^/list(/.*)?$", "~/Sale$", "~/item/\\d+"]
    admission: {rate: 0}
    bypass: [{paths: ["~^/list/.*\\.(png|css)$"]}, {user_agents: [goodbot, otherbot, monitor]}]
`, header, key, filepath.Join(r.Dir, header), site, secret, provider, keys))
		s.probers[i] = newProber(g.Addr, g.PID())
		r.Cleanup(s.probers[i].close)
	}
	return s
}

// originLines is how many header lines the origin sends below …/lines: close to the most that the gateway accepts.
const originLines = 490

// respond is the origin. The responses to /lines and /long have the same length.
func respond(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	switch {
	case strings.HasSuffix(r.URL.Path, "/lines"):
		for range originLines {
			w.Header().Add("X-Repeated", "a")
		}
	case strings.HasSuffix(r.URL.Path, "/long"):
		w.Header().Set("X-Plain", strings.Repeat("p", originLines*len("X-Repeated: a\r\n")-len("X-Plain: \r\n")))
	}
	_, _ = w.Write([]byte("ok"))
}

func respondJSON(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the gateway requests it again
	}
}

// newSiteKeys returns a key of each algorithm that identity.jwks_url may name.
func newSiteKeys() []siteKey {
	_, d, err := ed25519.GenerateKey(rand.Reader)
	rig.Check(err)
	return []siteKey{
		{"RS256", "r", rig.Must(rsa.GenerateKey(rand.Reader, 2048))},
		{"ES256", "e", rig.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))},
		{"EdDSA", "d", crypto.Signer(d)},
	}
}

// keySet returns the public keys as a JWK set (RFC 7517).
func keySet(keys []siteKey) []byte {
	var set []map[string]string
	number := base64.RawURLEncoding.EncodeToString
	for _, k := range keys {
		one := map[string]string{"kid": k.kid, "alg": k.alg, "use": "sig"}
		switch public := k.private.Public().(type) {
		case *rsa.PublicKey:
			one["kty"], one["n"], one["e"] = "RSA", number(public.N.Bytes()), number(big.NewInt(int64(public.E)).Bytes())
		case *ecdsa.PublicKey:
			raw := rig.Must(public.Bytes()) // 4, x, y
			half := (len(raw) - 1) / 2
			one["kty"], one["crv"], one["x"], one["y"] = "EC", "P-256", number(raw[1:1+half]), number(raw[1+half:])
		case ed25519.PublicKey:
			one["kty"], one["crv"], one["x"] = "OKP", "Ed25519", number(public)
		}
		set = append(set, one)
	}
	return rig.Must(json.Marshal(map[string]any{"keys": set}))
}

// withPass returns the endpoint of a visitor who has a pass.
func (a *prober) withPass() endpoint {
	r := rig.Must(a.connections[0].ask("GET " + admitted.path + " HTTP/1.1\r\nHost: shop.test\r\nAccept: application/json\r\n\r\n"))
	pass := r.Header.Get("X-Waiting-Room-Pass")
	rig.Require(r.StatusCode == http.StatusOK && pass != "", "the gateway sent no pass")
	return endpoint{name: "with a pass", path: admitted.path, method: "GET", fields: "X-Waiting-Room-Pass: " + pass + "\r\n"}
}

// fronts is more visitors than a room enrols when they join. Joins behind them do not use the store.
const fronts = 8000

// fill fills the front of each room, so that the requests that are measured join behind it.
func (a *prober) fill(endpoints ...endpoint) {
	for _, p := range endpoints {
		request, _ := (&trial{endpoint: p}).compose(false)
		rig.Must(a.batch(request, fronts))
	}
}
