package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"testing"
)

const (
	testIssuer = "anteroom"
	testRoom   = "sale"
	testNow    = int64(1_767_323_045) // 2026-01-02T03:04:05Z
)

func hsKey(id string, active bool) Key {
	sum := sha256.Sum256([]byte("hs " + id))
	return Key{ID: id, Alg: HS256, Secret: sum[:], Active: active}
}

func edKey(id string, active bool) Key {
	seed := sha256.Sum256([]byte("ed " + id))
	return Key{ID: id, Alg: EdDSA, Private: ed25519.NewKeyFromSeed(seed[:]), Active: active}
}

func esKey(id string, active bool) Key {
	scalar := sha256.Sum256([]byte("es " + id))
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar[:])
	if err != nil {
		panic(err)
	}
	return Key{ID: id, Alg: ES256, Private: private, Active: active}
}

// oneOfEach returns an active key k1 of each algorithm.
func oneOfEach() []Key { return []Key{hsKey("k1", true), esKey("k1", true), edKey("k1", true)} }

func mustRing(t testing.TB, keys ...Key) *Ring {
	t.Helper()
	r, err := NewRing(testIssuer, keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testID(b byte) ID {
	var id ID
	for i := range id {
		id[i] = b + byte(i)*7
	}
	return id
}

func testWaiting() Waiting {
	return Waiting{ID: testID(1), Room: testRoom, Order: 1_767_323_045_123_456, Seen: 1_767_323_099_000_001, Hold: 280, Epoch: "0f3a9c", Fence: 3,
		IssuedAt: testNow, Expires: testNow + 86400, AddrHash: "q7Zk", Bind: "x_-9", Account: true}
}

func testPass() Pass {
	return Pass{ID: testID(2), Session: testID(3), Room: testRoom, Order: 1_767_323_001_234_567, Fence: 3, IssuedAt: testNow, Expires: testNow + 300, Bind: "x_-9", Off: true}
}

// forge signs any header and claims with a key, like an attacker who has the key.
func forge(k Key, header, claims string) string {
	text := b64(header) + "." + b64(claims)
	rk := newRingKey(&k)
	if k.Alg != HS256 {
		signature := rk.signature([]byte(text))
		return text + "." + b64(string(signature[:]))
	}
	return text + "." + string(rk.sign([]byte(text)).text[:])
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
