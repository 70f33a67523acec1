package main

import (
	"testing"

	"github.com/anteroom/anteroom/bench/visitor"
)

func TestGuest_IsNotCopiedWithoutANonce(t *testing.T) {
	for _, row := range []struct {
		nonce string
		want  bool
	}{{"n", true}, {"", false}} {
		g := guest{crowd: &crowd{o: options{rate: 10}}, cred: visitor.Credentials{Cookies: true, Nonce: row.nonce}, habits: habits{copied: true}}
		g.confirmed = 1
		if got := g.worthCopying(3); got != row.want {
			t.Errorf("nonce %q: copied %t, want %t", row.nonce, got, row.want)
		}
	}
}
