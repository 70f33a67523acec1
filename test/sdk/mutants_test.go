package sdk

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	anteroom "github.com/anteroom/anteroom/sdk/go"
	"github.com/anteroom/anteroom/token"
)

// mutant is a token that may be broken, with the header and claims that it was made of.
type mutant struct{ raw, source string }

var replacements = []string{`null`, `true`, `false`, `0`, `1`, `-1`, `1.5`, `1e3`, `-0`, `007`, `9007199254740992`, `1767323045.0`, `"1"`, `""`, `"x"`, `"sale"`, `"anteroom"`, `"none"`, `"HS256"`,
	`"EdDSA"`, `"ES256"`, `"h1"`, `"d1"`, `"pass+jwt"`, `"wait+jwt"`, `{}`, `[]`, `["sale"]`, `{"a":1}`, `"\u0073ale"`, `"AgkQFx4lLDM6QUhPVl1kaw"`, `"AgkQFx4lLDM6QUhPVl1kax"`, fmt.Sprint(start), fmt.Sprint(start + 60), fmt.Sprint(start - 6), fmt.Sprint(start - 4)}

var names = []string{"alg", "kid", "typ", "crit", "iss", "aud", "jti", "sid", "iat", "exp", "nbf", "ord", "fn", "off", "acc", "bnd", "seen", "new", "EXP", `\u0065xp`, "x y", "", "b64", "jwk"}

const (
	jsonBytes   = " ,:{}[]\"\\0aA-.\x00\x7f"
	base64Bytes = "ABab01-_=+/."
)

func oneOf(r *rand.Rand, characters string) string {
	i := r.IntN(len(characters))
	return characters[i : i+1]
}

// mutate changes a flat JSON object by one member or one character.
func mutate(r *rand.Rand, object string) string {
	members := strings.Split(strings.Trim(object, "{}"), ",")
	i := r.IntN(len(members))
	name, _, _ := strings.Cut(members[i], ":")
	switch r.IntN(9) {
	case 0:
		members = slices.Delete(members, i, i+1)
	case 1:
		members = append(members, members[i])
	case 2:
		members = slices.Insert(members, i, `"`+names[r.IntN(len(names))]+`":`+replacements[r.IntN(len(replacements))])
	case 3:
		r.Shuffle(len(members), func(a, b int) { members[a], members[b] = members[b], members[a] })
	case 4:
		members[i] = strings.ReplaceAll(members[i], ":", " \t:\n\r ") + " "
	case 5:
		at := r.IntN(len(object))
		return object[:at] + oneOf(r, jsonBytes) + object[at+1:]
	case 6:
		at := r.IntN(len(object) + 1)
		return object[:at] + oneOf(r, jsonBytes) + object[at:]
	default:
		members[i] = name + ":" + replacements[r.IntN(len(replacements))]
	}
	return "{" + strings.Join(members, ",") + "}"
}

// mutants returns n tokens, the same in every run. Most are changed before they are signed, so that the signature is valid.
func mutants(n int, kids ...string) []mutant {
	r := rand.New(rand.NewPCG(1, 2))
	var list []mutant
	for range n {
		kid := kids[r.IntN(len(kids))]
		header, claims := headerOf(kid), claimsOf(session)
		switch r.IntN(4) {
		case 0:
			header = mutate(r, header)
		case 1:
			claims = mutate(r, mutate(r, claims))
		default:
			claims = mutate(r, claims)
		}
		raw := signed(kid, header, claims)
		if r.IntN(4) == 0 {
			raw = signed(kid, headerOf(kid), claimsOf(session))
			at := r.IntN(len(raw))
			switch r.IntN(3) {
			case 0:
				raw = raw[:at] + raw[at+1:]
			case 1:
				raw = raw[:at] + oneOf(r, base64Bytes) + raw[at+1:]
			default:
				raw = raw[:at] + oneOf(r, base64Bytes) + raw[at:]
			}
		}
		list = append(list, mutant{raw, header + " " + claims})
	}
	return list
}

func mutantConfig() config {
	return config{Issuer: issuer, JWKS: jwks("e1", "d1"), Secrets: map[string]string{"h1": secretOf("h1")}, AcceptBound: true}
}

// The SDK for Go accepts the tokens that the gateway accepts, except those with an iat in the future.
func TestGo_AgreesWithGateway(t *testing.T) {
	ring, err := token.NewRing(issuer, ringKeys())
	if err != nil {
		t.Fatal(err)
	}
	d := &inProcess{verifiers: map[string]*anteroom.Verifier{}}
	accepted := 0
	list := mutants(6000, "h1", "d1", "e1")
	for i, r := range d.verify(t, call{ID: "mutants", Config: mutantConfig(), Now: start, Requests: requestsOf(list)}) {
		_, err := ring.VerifyPass([]byte(list[i].raw), room, start)
		if err == nil {
			accepted++
		}
		if (err == nil) != (r.State == "pass") && r.Reason != "future" {
			t.Errorf("the gateway: %v, the SDK: %s %s\n%s\n%s", err, r.State, r.Reason, list[i].raw, list[i].source)
		}
	}
	if accepted < 600 || accepted > 5400 {
		t.Errorf("the gateway accepts %d of 6,000 tokens; the test compares too little", accepted)
	}
}

// Every SDK returns the same state for a token.
func TestSDKs_AgreeWithEachOther(t *testing.T) {
	list := mutants(2000, "h1", "d1", "e1")
	c := call{ID: "mutants", Config: mutantConfig(), Now: start, Requests: requestsOf(list)}
	want := (&inProcess{verifiers: map[string]*anteroom.Verifier{}}).verify(t, c)
	each(t, func(t *testing.T, l *language) {
		for i, r := range l.start(t).verify(t, c) {
			if r.State != want[i].State || r.Session != want[i].Session {
				t.Errorf("%s %s, the SDK for Go: %s %s\n%s\n%s", r.State, r.Reason, want[i].State, want[i].Reason, list[i].raw, list[i].source)
			}
		}
	})
}

func requestsOf(list []mutant) (requests []request) {
	for _, m := range list {
		requests = append(requests, requestWith(m.raw))
	}
	return requests
}

func ringKeys() []token.Key {
	return []token.Key{{ID: "h1", Alg: token.HS256, Secret: []byte(secretOf("h1")), Active: true}, {ID: "d1", Alg: token.EdDSA, Private: ed25519Of("d1")}, {ID: "e1", Alg: token.ES256, Private: ecdsaOf("e1")}}
}
