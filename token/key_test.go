package token

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"

	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func TestNewRing_RefusesKeys(t *testing.T) {
	secret := func(s string) []Key { return []Key{{ID: "k1", Alg: HS256, Secret: []byte(s), Active: true}} }
	mismatched := slices.Clone(edKey("a", true).Private.(ed25519.PrivateKey))
	mismatched[40] ^= 1
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	halves := *esKey("a", true).Private.(*ecdsa.PrivateKey)
	halves.PublicKey = esKey("b", true).Private.(*ecdsa.PrivateKey).PublicKey
	private := func(alg string, k crypto.Signer) []Key {
		return []Key{{ID: "k1", Alg: alg, Private: k, Active: true}}
	}
	for _, row := range []struct {
		name, issuer string
		keys         []Key
		want         []string // every part must be in the error; none: accepted
	}{
		{"two keys, one active", "anteroom", []Key{hsKey("k1", true), edKey("k2", false)}, nil},
		{"a generated secret", "anteroom", secret(GenerateSecret()), nil},
		{"a secret in hex", "anteroom", secret(hex.EncodeToString(hsKey("x", true).Secret)), nil},
		{"a placeholder with a random part", "anteroom", secret("my-secret-" + hex.EncodeToString(hsKey("x", true).Secret)), nil},

		{"no keys", "anteroom", nil, []string{"no keys", "gateway keys generate"}},
		{"no active key", "anteroom", []Key{hsKey("k1", false)}, []string{"no key is active", "active: true"}},
		{"two active keys", "anteroom", []Key{hsKey("k1", true), edKey("k2", true)}, []string{"2 keys are active", `"k1" "k2"`}},
		{"one id twice", "anteroom", []Key{hsKey("k1", true), edKey("k1", false)}, []string{`key "k1"`, "used twice"}},
		{"no issuer", "", []Key{hsKey("k1", true)}, []string{`issuer ""`}},
		{"a control character in the issuer", "a\nb", []Key{hsKey("k1", true)}, []string{`issuer "a\nb"`}},
		{"no id", "anteroom", []Key{hsKey("", true)}, []string{`key ""`, "1 to 64 characters"}},
		{"a quote in the id", "anteroom", []Key{hsKey(`k"1`, true)}, []string{"1 to 64 characters"}},
		{"a long id", "anteroom", []Key{hsKey(strings.Repeat("k", 65), true)}, []string{"1 to 64 characters"}},
		{"alg none", "anteroom", []Key{{ID: "k1", Alg: "none", Active: true}}, []string{`alg "none" is not one of HS256, ES256, EdDSA`}},
		{"alg missing", "anteroom", []Key{{ID: "k1", Active: true}}, []string{`alg "" is not one of`}},
		{"no secret", "anteroom", secret(""), []string{`key "k1"`, "0 bytes, at least 32"}},
		{"31 bytes", "anteroom", secret(GenerateSecret()[:31]), []string{"31 bytes, at least 32"}},
		{"one byte over and over", "anteroom", secret(strings.Repeat("a", 64)), []string{"fewer than 8 different"}},
		{"zeros", "anteroom", secret(string(make([]byte, 32))), []string{"fewer than 8 different"}},
		{"changeme over and over", "anteroom", secret(strings.Repeat("changeme", 5)), []string{"could be guessed"}},
		{"changeme with decoration", "anteroom", secret("CHANGE-ME-please-change-me-please-123!"), []string{"well-known placeholder"}},
		{"your-256-bit-secret", "anteroom", secret("your-256-bit-secret-your-256-bit-secret"), []string{"could be guessed"}},
		{"counting digits", "anteroom", secret("0123456789abcdef0123456789abcdef"), []string{"counts up or down"}},
		{"a repeated word", "anteroom", secret("orangejuiceorangejuiceorangejuice"), []string{"repeats the same 11 bytes"}},
		{"a secret for EdDSA", "anteroom", []Key{{ID: "k1", Alg: EdDSA, Secret: hsKey("x", true).Secret, Active: true}}, []string{"takes a private key, not a secret", "the private key is missing", "keys generate --alg EdDSA"}},
		{"a private key for HS256", "anteroom", []Key{{ID: "k1", Alg: HS256, Secret: hsKey("x", true).Secret, Private: edKey("x", true).Private, Active: true}}, []string{"takes a secret, not a private key"}},
		{"a private key that is not one", "anteroom", []Key{{ID: "k1", Alg: EdDSA, Private: mismatched, Active: true}}, []string{"public half"}},
		{"an ES256 key", "anteroom", []Key{esKey("k1", true), hsKey("k2", false)}, nil},
		{"a secret for ES256", "anteroom", []Key{{ID: "k1", Alg: ES256, Secret: hsKey("x", true).Secret, Active: true}}, []string{"alg ES256 takes a private key, not a secret", "the private key is missing", "keys generate --alg ES256"}},
		{"an Ed25519 key for ES256", "anteroom", private(ES256, edKey("x", true).Private), []string{"is an Ed25519 key, ES256 needs one of the curve P-256"}},
		{"an ECDSA key for EdDSA", "anteroom", private(EdDSA, esKey("x", true).Private), []string{"is an ECDSA key, EdDSA needs an Ed25519 key"}},
		{"another curve", "anteroom", private(ES256, p384), []string{"not of the curve P-256", "keys generate --alg ES256"}},
		{"no ECDSA key", "anteroom", private(ES256, (*ecdsa.PrivateKey)(nil)), []string{"not of the curve P-256"}},
		{"an empty Ed25519 key", "anteroom", private(EdDSA, ed25519.PrivateKey{}), []string{"has 0 bytes, an Ed25519 key has 64"}},
		{"halves of two ECDSA keys", "anteroom", private(ES256, &halves), []string{"public half"}},
		{"an RSA key", "anteroom", private(ES256, rsaKey), []string{"*rsa.PrivateKey, which no algorithm"}},
		{"everything at once", "", []Key{hsKey("k 1", false), {ID: "k2", Alg: HS256, Secret: []byte("x")}}, []string{"issuer", `key "k 1"`, `key "k2"`, "1 bytes", "no key is active"}},
	} {
		r, err := NewRing(row.issuer, row.keys)
		if (err == nil) != (len(row.want) == 0) || (r == nil) != (err != nil) {
			t.Errorf("%s: ring %v, error %v", row.name, r != nil, err)
			continue
		}
		for _, part := range row.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", row.name, err, part)
			}
		}
		for _, k := range row.keys {
			if err != nil && len(k.Secret) > 3 && strings.Contains(err.Error(), string(k.Secret)) {
				t.Errorf("%s: the error shows the secret", row.name)
			}
		}
	}
}

func TestNewRing_CopiesKeys(t *testing.T) {
	keys := []Key{hsKey("k1", true)}
	r := mustRing(t, keys...)
	clear(keys[0].Secret)
	p := testPass()
	if _, err := mustRing(t, hsKey("k1", true)).VerifyPass(r.AppendPass(nil, &p), testRoom, testNow); err != nil {
		t.Errorf("signed after the caller wiped its secret: %v", err)
	}
}

func TestRing_JWKS(t *testing.T) {
	if got := string(mustRing(t, hsKey("k1", true)).JWKS()); got != `{"keys":[]}` {
		t.Errorf("HS256 only: %s", got)
	}
	// The coordinate x of this key begins with a zero byte, which must be kept (RFC 7518 §6.2.1.2).
	padded := esKey("padded-56", false)
	r := mustRing(t, edKey("k2", true), hsKey("k1", false), padded, edKey("k3", false))
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(r.JWKS(), &set); err != nil || len(set.Keys) != 3 {
		t.Fatalf("%v: %s", err, r.JWKS())
	}
	for i, id := range map[int]string{0: "k2", 2: "k3"} {
		k := set.Keys[i]
		if len(k) != 6 || k["kid"] != id || k["kty"] != "OKP" || k["crv"] != "Ed25519" || k["alg"] != "EdDSA" || k["use"] != "sig" {
			t.Errorf("key %d: %v", i, k)
		}
	}
	k := set.Keys[1]
	if len(k) != 7 || k["kid"] != padded.ID || k["kty"] != "EC" || k["crv"] != "P-256" || k["alg"] != "ES256" || k["use"] != "sig" {
		t.Errorf("the ES256 key: %v", k)
	}
	point := []byte{4} // uncompressed (SEC 1 §2.3.3)
	for _, name := range []string{"x", "y"} {
		b, err := strict64.DecodeString(k[name])
		if err != nil || len(b) != 32 {
			t.Fatalf("%s is %q, want 32 bytes: %v", name, k[name], err)
		}
		point = append(point, b...)
	}
	public, err := padded.Private.(*ecdsa.PrivateKey).PublicKey.Bytes()
	if err != nil || !bytes.Equal(point, public) {
		t.Errorf("the ES256 key is %x, want %x (%v)", point, public, err)
	}
	if point[1] != 0 {
		t.Error("x has no leading zero: this test proves nothing")
	}
	// What an origin does with it.
	p := testPass()
	_, err = jwt.NewParser(jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithoutClaimsValidation()).Parse(string(r.AppendPass(nil, &p)), func(tok *jwt.Token) (any, error) {
		public, err := strict64.DecodeString(set.Keys[0]["x"])
		return ed25519.PublicKey(public), err
	})
	if err != nil {
		t.Errorf("a pass does not verify with the published key: %v", err)
	}
}

func TestGenerateKeyPEM_IsReadable(t *testing.T) {
	for _, alg := range []string{ES256, EdDSA} {
		file, err := GenerateKeyPEM(alg)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(file)
		private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		mustRing(t, Key{ID: "k1", Alg: alg, Private: private.(crypto.Signer), Active: true})
		if again, _ := GenerateKeyPEM(alg); string(again) == string(file) {
			t.Errorf("%s: two generated keys are the same", alg)
		}
	}
	if _, err := GenerateKeyPEM(HS256); err == nil {
		t.Error("HS256 has no private key")
	}
	if GenerateSecret() == GenerateSecret() {
		t.Error("two generated secrets are the same")
	}
}

func TestKey_MaterialDiffers(t *testing.T) {
	seen := map[string]string{}
	for _, k := range append(oneOfEach(), hsKey("k2", true), esKey("k2", true), edKey("k2", true)) {
		m := k.Material()
		if len(m) != 32 || seen[string(m)] != "" {
			t.Errorf("%s %s: %d bytes, the same as of %q", k.Alg, k.ID, len(m), seen[string(m)])
		}
		seen[string(m)] = k.Alg + k.ID
	}
}
