package token

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"math/big"
	"strings"
	"testing"
)

func TestES256_RefusesForgedTokens(t *testing.T) {
	es, ed, other := esKey("k1", true), edKey("k2", false), esKey("other", true)
	r := mustRing(t, es, ed)
	const (
		head = `{"alg":"ES256","kid":"k1","typ":"pass+jwt"}`
		good = `{"iss":"anteroom","aud":"sale","jti":"AgkQFx4lLDM6QUhPVl1kaw","sid":"AwoRGB8mLTQ7QklQV15lbA","iat":1767323045,"exp":1767323345}`
	)
	raw := forge(es, head, good)
	text, sig := raw[:strings.LastIndexByte(raw, '.')], raw[strings.LastIndexByte(raw, '.')+1:]
	signature, err := strict64.DecodeString(sig)
	if err != nil {
		t.Fatal(err)
	}
	half := func(b []byte) *big.Int { return new(big.Int).SetBytes(b) }
	with := func(rs ...*big.Int) string {
		var b [2 * 32]byte
		rs[0].FillBytes(b[:32])
		rs[1].FillBytes(b[32:])
		return text + "." + b64(string(b[:]))
	}
	sigR, sigS, order := half(signature[:32]), half(signature[32:]), elliptic.P256().Params().N
	zero, above := new(big.Int), new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))
	der, err := asn1.Marshal([]*big.Int{sigR, sigS})
	if err != nil {
		t.Fatal(err)
	}
	private := es.Private.(*ecdsa.PrivateKey)
	spki, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	byPublic := func(secret []byte) string {
		return forge(Key{ID: "k1", Alg: HS256, Secret: secret}, `{"alg":"HS256","kid":"k1","typ":"pass+jwt"}`, good)
	}
	longer := append(append([]byte{0}, signature[:32]...), append([]byte{0}, signature[32:]...)...)
	for _, row := range []struct{ name, raw, want string }{
		{"the pattern of the rows below", raw, ""},
		{"a waiting token", forge(es, strings.Replace(head, "pass", "wait", 1), good), "type"},
		{"the twin of a signature", with(sigR, new(big.Int).Sub(order, sigS)), ""},
		{"another key's signature", forge(other, head, good), "signature"},
		{"edited claims", strings.Split(raw, ".")[0] + "." + b64(strings.Replace(good, "sale", "vip", 1)) + "." + sig, "signature"},
		{"r and s exchanged", with(sigS, sigR), "signature"},
		{"zeros", with(zero, zero), "signature"},
		{"r is 0", with(zero, sigS), "signature"},
		{"s is 0", with(sigR, zero), "signature"},
		{"r is the order of the curve", with(order, sigS), "signature"},
		{"s is the order of the curve", with(sigR, order), "signature"},
		{"all bits set", with(above, above), "signature"},
		{"in DER", text + "." + b64(string(der)), "signature"},
		{"with leading zeros", text + "." + b64(string(longer)), "signature"},
		{"cut short", raw[:len(raw)-1], "signature"},
		{"with more behind it", raw + "AA", "signature"},
		{"padded", raw + "==", "signature"},
		{"a line break in it", text + "." + sig[:40] + "\n" + sig[41:], "signature"},
		{"not base64", text + "." + strings.Repeat("!", 86), "signature"},
		{"no signature", text + ".", "signature"},
		{"HS256 with the public key in DER as the secret", byPublic(spki), "alg"},
		{"HS256 with the point as the secret", byPublic(point), "alg"},
		{"alg none", b64(`{"alg":"none","kid":"k1","typ":"pass+jwt"}`) + "." + b64(good) + ".", "alg"},
		{"alg ES384", forge(es, strings.Replace(head, "256", "384", 1), good), "alg"},
		{"alg ES256K", forge(es, strings.Replace(head, "256", "256K", 1), good), "alg"},
		{"alg EdDSA under this key", forge(es, strings.Replace(head, "ES256", "EdDSA", 1), good), "alg"},
		{"alg ES256 under the key of EdDSA", forge(es, strings.Replace(head, "k1", "k2", 1), good), "alg"},
		{"the key in the header", forge(es, strings.Replace(head, "{", `{"jwk":"x",`, 1), good), "header"},
	} {
		_, err := r.VerifyPass([]byte(row.raw), testRoom, testNow)
		if got := Reason(err); got != row.want {
			t.Errorf("%s: %q (%v), want %q", row.name, got, err, row.want)
		}
	}
}

// A coordinate of a signature that begins with zero bytes still has 32 bytes (RFC 7518 §3.4).
func TestES256_SignatureHasFixedLength(t *testing.T) {
	key := esKey("k1", true)
	r := mustRing(t, key)
	short := 0
	for i := 0; i < 20_000 && short < 2; i++ {
		p := testPass()
		p.Order = int64(i)
		raw := string(r.AppendPass(nil, &p))
		signature, err := strict64.DecodeString(raw[strings.LastIndexByte(raw, '.')+1:])
		if err != nil || len(signature) != 64 {
			t.Fatalf("a signature of %d bytes: %v", len(signature), err)
		}
		if signature[0] != 0 && signature[32] != 0 {
			continue
		}
		short++
		if _, err := r.VerifyPass([]byte(raw), testRoom, testNow); err != nil {
			t.Errorf("a signature with a leading zero: %v", err)
		}
		digest := sha256.Sum256([]byte(raw[:strings.LastIndexByte(raw, '.')]))
		half := func(b []byte) *big.Int { return new(big.Int).SetBytes(b) }
		if !ecdsa.Verify(&key.Private.(*ecdsa.PrivateKey).PublicKey, digest[:], half(signature[:32]), half(signature[32:])) {
			t.Error("crypto/ecdsa refuses it")
		}
	}
	if short == 0 {
		t.Error("no signature of 20,000 had a leading zero: this test proves nothing")
	}
}

// Tokens of each algorithm are accepted across a change to another, in both directions.
func TestRing_ChangesAlgorithm(t *testing.T) {
	w, p := testWaiting(), testPass()
	for _, from := range oneOfEach() {
		for _, to := range oneOfEach() {
			to.ID = "k2"
			before := mustRing(t, from)
			from.Active = false
			after := mustRing(t, from, to)
			if err := after.Continues(before); err != nil {
				t.Errorf("from %s to %s: %v", from.Alg, to.Alg, err)
			}
			c := NewCache(64)
			c.Swap(after)
			for _, ring := range []*Ring{before, after} {
				rawWaiting, rawPass := ring.AppendWaiting(nil, &w), ring.AppendPass(nil, &p)
				for range 2 { // the second is from the cache
					if got, err := c.VerifyWaiting(rawWaiting, testRoom, testNow); err != nil || got != w {
						t.Errorf("from %s to %s: %+v, %v", from.Alg, to.Alg, got, err)
					}
					if got, err := c.VerifyPass(rawPass, testRoom, testNow); err != nil || got != p {
						t.Errorf("from %s to %s: %+v, %v", from.Alg, to.Alg, got, err)
					}
				}
			}
			from.Active = true
		}
	}
}
