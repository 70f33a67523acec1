package token

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func TestNewRing_RefusesKeys(t *testing.T) {
	secret := func(s string) []Key { return []Key{{ID: "k1", Alg: HS256, Secret: []byte(s), Active: true}} }
	mismatched := append(ed25519.PrivateKey(nil), edKey("a", true).Private...)
	mismatched[40] ^= 1
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
		{"alg none", "anteroom", []Key{{ID: "k1", Alg: "none", Active: true}}, []string{`alg "none" is not one of HS256, EdDSA`}},
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
		{"a secret for EdDSA", "anteroom", []Key{{ID: "k1", Alg: EdDSA, Secret: hsKey("x", true).Secret, Active: true}}, []string{"takes a private key, not a secret", "has 0 bytes"}},
		{"a private key for HS256", "anteroom", []Key{{ID: "k1", Alg: HS256, Secret: hsKey("x", true).Secret, Private: edKey("x", true).Private, Active: true}}, []string{"takes a secret, not a private key"}},
		{"a private key that is not one", "anteroom", []Key{{ID: "k1", Alg: EdDSA, Private: mismatched, Active: true}}, []string{"public half"}},
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
	r := mustRing(t, edKey("k2", true), hsKey("k1", false), edKey("k3", false))
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(r.JWKS(), &set); err != nil || len(set.Keys) != 2 {
		t.Fatalf("%v: %s", err, r.JWKS())
	}
	for i, id := range []string{"k2", "k3"} {
		k := set.Keys[i]
		if len(k) != 6 || k["kid"] != id || k["kty"] != "OKP" || k["crv"] != "Ed25519" || k["alg"] != "EdDSA" || k["use"] != "sig" {
			t.Errorf("key %d: %v", i, k)
		}
	}
	// What an origin does with it.
	p := testPass()
	_, err := jwt.NewParser(jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithoutClaimsValidation()).Parse(string(r.AppendPass(nil, &p)), func(tok *jwt.Token) (any, error) {
		public, err := strict64.DecodeString(set.Keys[0]["x"])
		return ed25519.PublicKey(public), err
	})
	if err != nil {
		t.Errorf("a pass does not verify with the published key: %v", err)
	}
}

func TestGenerateKeyPEM_IsReadable(t *testing.T) {
	file, err := GenerateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(file)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	mustRing(t, Key{ID: "k1", Alg: EdDSA, Private: private.(ed25519.PrivateKey), Active: true})
	if again, _ := GenerateKeyPEM(); string(again) == string(file) {
		t.Error("two generated keys are the same")
	}
	if GenerateSecret() == GenerateSecret() {
		t.Error("two generated secrets are the same")
	}
}
