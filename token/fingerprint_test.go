package token_test

import (
	"bytes"
	"testing"

	"github.com/anteroom/anteroom/token"
)

func TestFingerprint_DistinguishesKeys(t *testing.T) {
	secret := func(b byte) []byte {
		return bytes.Repeat([]byte{b, 2, 3, 5, 7, 11, 13, 17 + b, 19, 23, 29, 31 + b, 37, 41, 43, 47}, 2)
	}
	of := func(issuer string, keys ...token.Key) string {
		t.Helper()
		r, err := token.NewRing(issuer, keys)
		if err != nil {
			t.Fatal(err)
		}
		return r.Fingerprint()
	}
	a := token.Key{ID: "a", Alg: token.HS256, Secret: secret(1), Active: true}
	b := token.Key{ID: "b", Alg: token.HS256, Secret: secret(2)}
	a2, b2, c := a, b, a
	a2.Active, b2.Active, c.Secret = false, true, secret(3)
	same := of("x", a, b)
	if got := of("x", b, a); got != same {
		t.Errorf("the order of the keys counts: %s and %s", got, same)
	}
	for name, other := range map[string]string{"issuer": of("y", a, b), "fewer": of("x", a), "active": of("x", a2, b2), "secret": of("x", c, b)} {
		if other == same {
			t.Errorf("%s: the same fingerprint", name)
		}
	}
}
