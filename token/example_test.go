package token_test

import (
	"fmt"
	"log"

	"github.com/anteroom/anteroom/token"
)

// A gateway signs passes with its active key and verifies them for one room.
func Example() {
	ring, err := token.NewRing("shop", []token.Key{{ID: "2027-01", Alg: token.HS256, Secret: []byte(token.GenerateSecret()), Active: true}})
	if err != nil {
		log.Fatal(err)
	}
	const now = 1_800_000_000
	raw := ring.AppendPass(nil, &token.Pass{ID: token.ID{1}, Session: token.ID{2}, Room: "sale", IssuedAt: now, Expires: now + 600})

	pass, err := ring.VerifyPass(raw, "sale", now+60)
	fmt.Println(pass.Session == token.ID{2}, err)
	_, err = ring.VerifyPass(raw, "vip", now+60)
	fmt.Println(token.Reason(err))
	_, err = ring.VerifyPass(raw, "sale", now+3600)
	fmt.Println(token.Reason(err))
	// Output:
	// true <nil>
	// audience
	// expired
}
