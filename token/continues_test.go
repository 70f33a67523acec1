package token

import (
	"testing"
)

func TestRing_ContinuesAfterRotation(t *testing.T) {
	key := func(id, secret string, active bool) Key {
		return Key{ID: id, Alg: "HS256", Secret: []byte(secret + " signs tokens of a test, 32 bytes"), Active: active}
	}
	ring := func(issuer string, keys ...Key) *Ring {
		r, err := NewRing(issuer, keys)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := ring("shop", key("k1", "a", true))
	for _, row := range []struct {
		name string
		next *Ring
		ok   bool
	}{
		{"nothing changed", ring("shop", key("k1", "a", true)), true},
		{"another key signs", ring("shop", key("k1", "a", false), key("k2", "b", true)), true},
		{"the key is gone", ring("shop", key("k2", "b", true)), false},
		{"the key has another secret", ring("shop", key("k1", "c", true)), false},
		{"another issuer", ring("store", key("k1", "a", true)), false},
	} {
		if err := row.next.Continues(old); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
