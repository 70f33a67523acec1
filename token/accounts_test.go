package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// siteKeys are a site's keys, one of each kind.
var siteKeys = sync.OnceValue(func() map[string]crypto.Signer {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	_, d, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	return map[string]crypto.Signer{"RS256": r, "ES256": e, "EdDSA": d}
})

func jwkOf(kid, alg string, public any) string {
	b64 := strict64.EncodeToString
	switch k := public.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf(`{"kty":"RSA","use":"sig","alg":%q,"kid":%q,"n":%q,"e":%q}`, alg, kid, b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes()))
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		return fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":%q,"x":%q,"y":%q}`, kid, b64(point[1:33]), b64(point[33:]))
	case ed25519.PublicKey:
		return fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}`, kid, b64(k))
	}
	panic(fmt.Sprintf("%T", public))
}

func siteJWKS() string {
	k := siteKeys()
	return `{"keys":[` + jwkOf("r", "RS256", k["RS256"].Public()) + "," + jwkOf("e", "ES256", k["ES256"].Public()) + "," + jwkOf("d", "EdDSA", k["EdDSA"].Public()) +
		`,{"kty":"oct","kid":"o","k":"c2VjcmV0"},{"kty":"EC","crv":"P-521","kid":"x"},{"kty":"RSA","use":"enc","kid":"r2","n":"AQAB","e":"AQAB"},{"kty":"new"}]}`
}

func accountKeysOf(t testing.TB, jwks string) *AccountKeys {
	t.Helper()
	k, err := ParseAccountKeys([]byte(jwks))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func siteToken(alg, kid string, header, claims map[string]any) string {
	return signWith(jwt.GetSigningMethod(alg), siteKeys()[alg], kid, header, claims)
}

func signWith(m jwt.SigningMethod, key any, kid string, header, claims map[string]any) string {
	all := jwt.MapClaims{"sub": "ann", "iss": "https://shop.example", "aud": []string{"web", "waiting"}, "exp": testNow + 300}
	maps.Copy(all, claims)
	for name, v := range all {
		if v == nil {
			delete(all, name)
		}
	}
	tok := jwt.NewWithClaims(m, all)
	if kid != "" {
		tok.Header["kid"] = kid
	}
	maps.Copy(tok.Header, header)
	raw, err := tok.SignedString(key)
	if err != nil {
		panic(err)
	}
	return raw
}

// m is a JSON object.
type m = map[string]any

func TestAccountKeys_Account(t *testing.T) {
	keys := accountKeysOf(t, siteJWKS())
	rules := AccountRules{Claim: "sub", Issuer: "https://shop.example", Audience: "waiting"}
	public := string(siteKeys()["RS256"].Public().(*rsa.PublicKey).N.Bytes())
	confused := func() string { // signed with the public key as if it were a secret
		head := strict64.EncodeToString([]byte(`{"alg":"HS256","kid":"r","typ":"JWT"}`))
		body := strict64.EncodeToString(fmt.Appendf(nil, `{"sub":"ann","iss":"https://shop.example","aud":"waiting","exp":%d}`, testNow+300))
		mac := hmac.New(sha256.New, []byte(public))
		mac.Write([]byte(head + "." + body))
		return head + "." + body + "." + strict64.EncodeToString(mac.Sum(nil))
	}()
	good := siteToken("ES256", "e", nil, nil)
	behindHeader := good[strings.IndexByte(good, '.'):]
	room := accountHeaderMost/4*3 - len(`{"alg":"ES256","kid":"e","typ":"JWT","x":""}`)
	for _, row := range []struct {
		name, raw, account, reason string
	}{
		{"RS256", siteToken("RS256", "r", nil, nil), "ann", ""},
		{"ES256", good, "ann", ""},
		{"EdDSA", siteToken("EdDSA", "d", nil, nil), "ann", ""},
		{"without a kid, one key of the algorithm", siteToken("ES256", "", nil, nil), "ann", ""},
		{"a number", siteToken("ES256", "e", nil, m{"sub": 9007199254740993}), "9007199254740993", ""},
		{"an access token", siteToken("ES256", "e", m{"typ": "at+jwt"}, nil), "ann", ""},
		{"aud as text", siteToken("ES256", "e", nil, m{"aud": "waiting"}), "ann", ""},
		{"just ended", siteToken("ES256", "e", nil, m{"exp": testNow - AccountLeeway + 1}), "ann", ""},
		{"nearly begun", siteToken("ES256", "e", nil, m{"nbf": testNow + AccountLeeway - 1}), "ann", ""},

		{"ended", siteToken("ES256", "e", nil, m{"exp": testNow - AccountLeeway - 1}), "", "expired"},
		{"not begun", siteToken("ES256", "e", nil, m{"nbf": testNow + AccountLeeway + 1}), "", "expired"},
		{"no exp", siteToken("ES256", "e", nil, m{"exp": nil}), "", "claims"},
		{"exp 0", siteToken("ES256", "e", nil, m{"exp": 0}), "", "expired"},
		{"exp as text", siteToken("ES256", "e", nil, m{"exp": "tomorrow"}), "", "claims"},
		{"another issuer", siteToken("ES256", "e", nil, m{"iss": "https://shop.example.evil"}), "", "issuer"},
		{"no issuer", siteToken("ES256", "e", nil, m{"iss": nil}), "", "claims"},
		{"another audience", siteToken("ES256", "e", nil, m{"aud": "web"}), "", "audience"},
		{"no account", siteToken("ES256", "e", nil, m{"sub": nil}), "", "claims"},
		{"an empty account", siteToken("ES256", "e", nil, m{"sub": ""}), "", "claims"},
		{"a long account", siteToken("ES256", "e", nil, m{"sub": strings.Repeat("x", 257)}), "", "claims"},
		{"a fraction", siteToken("ES256", "e", nil, m{"sub": 1.5}), "", "claims"},
		{"an object", siteToken("ES256", "e", nil, m{"sub": m{"id": 1}}), "", "claims"},
		{"an unknown key", siteToken("ES256", "z", nil, nil), "", "kid"},
		{"a kid of another type", siteToken("ES256", "", m{"kid": 7}, nil), "", "header"},
		{"another key's id", siteToken("ES256", "r", nil, nil), "", "kid"},
		{"critical extensions", siteToken("ES256", "e", m{"crit": []string{"exp"}}, nil), "", "crit"},
		{"a pass of ours", siteToken("ES256", "e", m{"typ": "pass+jwt"}, nil), "", "type"},
		{"HS256 with the public key", confused, "", "alg"},
		{"none", signWith(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "e", nil, nil), "", "alg"},
		{"an algorithm that is not taken", signWith(jwt.SigningMethodPS256, siteKeys()["RS256"], "r", nil, nil), "", "alg"},
		{"another signature", good[:len(good)-8] + "AAAAAAAA", "", "signature"},
		{"no signature", good[:strings.LastIndexByte(good, '.')+1], "", "signature"},
		{"two parts", good[:strings.LastIndexByte(good, '.')], "", "malformed"},
		{"padded", good + "=", "", "malformed"},
		{"the longest header", siteToken("ES256", "e", m{"x": strings.Repeat("x", room)}, nil), "ann", ""},
		{"a longer header", siteToken("ES256", "e", m{"x": strings.Repeat("x", room+1)}, nil), "", "too_long"},
		{"a wrong signature over what is no JSON", good[:strings.IndexByte(good, '.')] + "." + strict64.EncodeToString([]byte("[[")) + good[strings.LastIndexByte(good, '.'):], "", "signature"},
		{"two algorithms", strict64.EncodeToString([]byte(`{"alg":"ES256","kid":"e","ALG":"EdDSA"}`)) + behindHeader, "", "kid"},
		{"too long", good + strings.Repeat("A", AccountMaxLength), "", "too_long"},
		{"empty", "", "", "malformed"},
	} {
		account, until, err := keys.Account(row.raw, &rules, testNow)
		if account != row.account || Reason(err) != row.reason {
			t.Errorf("%s: %q, %q (%v); want %q, %q", row.name, account, Reason(err), err, row.account, row.reason)
		}
		if err == nil && (until < testNow || until > testNow+300+AccountLeeway) {
			t.Errorf("%s: until %d", row.name, until)
		}
	}
	two := accountKeysOf(t, `{"keys":[`+jwkOf("e", "ES256", siteKeys()["ES256"].Public())+","+jwkOf("e2", "ES256", siteKeys()["ES256"].Public())+"]}")
	if _, _, err := two.Account(siteToken("ES256", "", nil, nil), &rules, testNow); Reason(err) != "kid" {
		t.Errorf("without a kid, two keys: %v", err)
	}
}

func TestParseAccountKeys(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // it is to be refused
	if err != nil {
		t.Skip(err)
	}
	b64 := strict64.EncodeToString
	for text, want := range map[string]string{
		`[]`:                                  "is not JSON",
		`{"keys":[]}`:                         "none of the set's 0 keys",
		`{"keys":"x"}`:                        "is not JSON",
		`{"keys":[{"kty":"oct","k":"AAAA"}]}`: "none of the set's 1 keys",
		`{"keys":[` + jwkOf("w", "RS256", weak.Public()) + `]}`:                                                         "RSA key of 1024 bits",
		`{"keys":[{"kty":"RSA","n":"!!","e":"AQAB"}]}`:                                                                  "n is not base64url",
		`{"keys":[{"kty":"RSA","n":"` + b64(make([]byte, 256)) + `","e":""}]}`:                                          "e is not base64url",
		`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`:                                                       "32 bytes each",
		`{"keys":[{"kty":"EC","crv":"P-256","x":"` + b64(make([]byte, 32)) + `","y":"` + b64(make([]byte, 32)) + `"}]}`: "not a point of P-256",
		`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`:                                                             "32 bytes",
		`{"keys":[` + strings.Repeat(`{"kty":"x"},`, 100) + `{}]}`:                                                      "101 keys",
	} {
		if _, err := ParseAccountKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
}

// One unusable key does not affect the others.
func TestParseAccountKeys_SkipsBrokenKeys(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // it is to be skipped
	if err != nil {
		t.Skip(err)
	}
	good := jwkOf("e", "ES256", siteKeys()["ES256"].Public())
	for name, bad := range map[string]string{
		"RSA key of 1024 bits": jwkOf("w", "RS256", weak.Public()), "n is not base64url": `{"kty":"RSA","kid":"w","n":"!!","e":"AQAB"}`,
		"not as in RFC 7517": `{"kty":"EC","kid":7}`, "x and y are not base64url": `{"kty":"EC","crv":"P-256","kid":"w","x":"AA","y":"AA"}`,
	} {
		for _, list := range []string{bad + "," + good, good + "," + bad} {
			keys, err := ParseAccountKeys([]byte(`{"keys":[` + list + `]}`))
			if err != nil {
				t.Errorf("%s: the whole set is refused: %v", name, err)
				continue
			}
			if len(keys.Skipped) != 1 || !strings.Contains(keys.Skipped[0].Error(), name) {
				t.Errorf("%s: skipped %v", name, keys.Skipped)
			}
			if account, _, err := keys.Account(siteToken("ES256", "e", nil, nil), &AccountRules{Claim: "sub"}, testNow); err != nil || account != "ann" {
				t.Errorf("%s: the good key names %q, %v", name, account, err)
			}
		}
	}
}

func TestOurs(t *testing.T) {
	r := mustRing(t, hsKey("k1", true))
	w, p := testWaiting(), testPass()
	for raw, want := range map[string]bool{
		string(r.AppendWaiting(nil, &w)):  true,
		string(r.AppendPass(nil, &p)):     true,
		siteToken("ES256", "e", nil, nil): false,
		"":                                false,
		"x.y.z":                           false,
		strict64.EncodeToString([]byte(`{"typ":7}`)) + ".a.b": false,
	} {
		if got := Ours([]byte(raw)); got != want {
			t.Errorf("%.60q: %t", raw, got)
		}
	}
}

// Of any input only a token signed by one of the keys has an account.
func FuzzAccount(f *testing.F) {
	keys := accountKeysOf(f, siteJWKS())
	good := map[string]bool{}
	for alg, kid := range map[string]string{"RS256": "r", "ES256": "e", "EdDSA": "d"} {
		raw := siteToken(alg, kid, nil, nil)
		good[raw] = true
		f.Add(raw)
	}
	f.Add(siteToken("ES256", "e", m{"crit": []string{"b64"}, "b64": false}, nil))
	f.Add("a.b.c")
	rules := AccountRules{Claim: "sub"}
	f.Fuzz(func(t *testing.T, raw string) {
		account, _, err := keys.Account(raw, &rules, testNow)
		if err == nil && (!good[raw] || account != "ann") {
			t.Errorf("%q names %q", raw, account)
		}
		if err != nil && Reason(err) == "other" {
			t.Errorf("no Rejection: %v", err)
		}
		Ours([]byte(raw))
	})
}

func FuzzAccountKeys(f *testing.F) {
	f.Add([]byte(siteJWKS()))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"","y":""}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParseAccountKeys(text)
		if (err == nil) != (keys != nil && len(keys.list) > 0) {
			t.Fatalf("%v, %v", keys, err)
		}
		if err == nil && !json.Valid(text) {
			t.Error("keys of what is not JSON")
		}
	})
}

func BenchmarkAccount(b *testing.B) {
	keys := accountKeysOf(b, siteJWKS())
	rules := AccountRules{Claim: "sub"}
	for alg, kid := range map[string]string{"RS256": "r", "ES256": "e", "EdDSA": "d"} {
		raw := siteToken(alg, kid, nil, nil)
		b.Run(alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := keys.Account(raw, &rules, testNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
