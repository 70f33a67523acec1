package token

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRing_VerifiesSignedTokens(t *testing.T) {
	for _, key := range oneOfEach() {
		r := mustRing(t, key)
		for name, w := range map[string]Waiting{
			"full":             testWaiting(),
			"never enrolled":   {ID: testID(9), Room: testRoom, Order: 7, IssuedAt: testNow, Expires: testNow + 1},
			"lottery ticket":   {ID: testID(9), Room: testRoom, IssuedAt: testNow, Expires: testNow + 1},
			"largest integers": {Room: testRoom, Order: maxInteger, Seen: maxInteger, Hold: maxInteger, Heard: maxInteger, Fence: maxInteger, Used: maxInteger, IssuedAt: maxInteger, Expires: testNow + MaxLife},
			"awkward text":     {Room: testRoom, Epoch: "a\"b\\c\n\x00é€😀<>&", AddrHash: "\u2028", Bind: "\x7f", IssuedAt: 1, Expires: testNow + 9},
		} {
			raw := r.AppendWaiting([]byte("kept:"), &w)
			if !strings.HasPrefix(string(raw), "kept:") {
				t.Fatalf("%s/%s: dst was overwritten: %q", key.Alg, name, raw)
			}
			got, err := r.VerifyWaiting(raw[5:], testRoom, testNow)
			if err != nil || got != w {
				t.Errorf("%s/%s:\n got %+v, %v\nwant %+v", key.Alg, name, got, err, w)
			}
		}
		for name, p := range map[string]Pass{
			"full":             testPass(),
			"plain":            {ID: testID(4), Session: testID(5), Room: testRoom, IssuedAt: testNow, Expires: testNow + 300},
			"largest integers": {Room: testRoom, Order: maxInteger, Fence: maxInteger, IssuedAt: maxInteger, Expires: testNow + MaxLife},
		} {
			got, err := r.VerifyPass(r.AppendPass(nil, &p), testRoom, testNow)
			if err != nil || got != p {
				t.Errorf("%s/%s:\n got %+v, %v\nwant %+v", key.Alg, name, got, err, p)
			}
		}
	}
}

func TestRing_SpellsTokens(t *testing.T) {
	r := mustRing(t, hsKey("k1", true))
	w, p := testWaiting(), testPass()
	old := p
	old.Order, old.Fence = 0, 0
	live := p
	live.Off, live.Live = false, true
	lottery := Waiting{ID: testID(1), Room: testRoom, IssuedAt: testNow, Expires: testNow + 60}
	for _, row := range []struct{ name, raw, want string }{
		{"waiting", string(r.AppendWaiting(nil, &w)), `{"alg":"HS256","kid":"k1","typ":"wait+jwt"} {"iss":"anteroom","aud":"sale","jti":"AQgPFh0kKzI5QEdOVVxjag","iat":1767323045,"exp":1767409445,"ord":1767323045123456,"seen":1767323099000001,"hold":280,"ep":"0f3a9c","fn":3,"ah":"q7Zk","bnd":"x_-9","acc":true}`},
		{"undrawn", string(r.AppendWaiting(nil, &lottery)), `{"alg":"HS256","kid":"k1","typ":"wait+jwt"} {"iss":"anteroom","aud":"sale","jti":"AQgPFh0kKzI5QEdOVVxjag","iat":1767323045,"exp":1767323105}`},
		{"pass", string(r.AppendPass(nil, &p)), `{"alg":"HS256","kid":"k1","typ":"pass+jwt"} {"iss":"anteroom","aud":"sale","jti":"AgkQFx4lLDM6QUhPVl1kaw","iat":1767323045,"exp":1767323345,"sid":"AwoRGB8mLTQ7QklQV15lbA","ord":1767323001234567,"fn":3,"bnd":"x_-9","off":true}`},
		{"pass without an order", string(r.AppendPass(nil, &old)), `{"alg":"HS256","kid":"k1","typ":"pass+jwt"} {"iss":"anteroom","aud":"sale","jti":"AgkQFx4lLDM6QUhPVl1kaw","iat":1767323045,"exp":1767323345,"sid":"AwoRGB8mLTQ7QklQV15lbA","bnd":"x_-9","off":true}`},
		{"pass of a session that the gateways keep alive", string(r.AppendPass(nil, &live)), `{"alg":"HS256","kid":"k1","typ":"pass+jwt"} {"iss":"anteroom","aud":"sale","jti":"AgkQFx4lLDM6QUhPVl1kaw","iat":1767323045,"exp":1767323345,"sid":"AwoRGB8mLTQ7QklQV15lbA","ord":1767323001234567,"fn":3,"bnd":"x_-9","live":true}`},
	} {
		var got []string
		for _, part := range strings.Split(row.raw, ".")[:2] {
			text, err := base64.RawURLEncoding.Strict().DecodeString(part)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(text))
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.name, strings.Join(got, " "), row.want)
		}
	}
}

func TestVerify_RefusesForgedTokens(t *testing.T) {
	hs, ed, foreign := hsKey("k1", true), edKey("k2", false), hsKey("k1", true)
	foreign.Secret = hsKey("other", true).Secret
	r := mustRing(t, hs, ed)
	const (
		head   = `{"alg":"HS256","kid":"k1","typ":"pass+jwt"}`
		edHead = `{"alg":"EdDSA","kid":"k2","typ":"pass+jwt"}`
		jti    = `"jti":"AgkQFx4lLDM6QUhPVl1kaw"`
		sid    = `"sid":"AwoRGB8mLTQ7QklQV15lbA"`
		times  = `"iat":1767323045,"exp":1767323345`
		ours   = `"iss":"anteroom","aud":"sale",`
		good   = `{` + ours + jti + `,` + sid + `,` + times + `}`
	)
	claims := func(c string) string { return forge(hs, head, c) }
	header := func(h string) string { return forge(hs, h, good) }
	parts := strings.Split(claims(good), ".")
	edParts := strings.Split(forge(ed, edHead, good), ".")
	publicAsSecret := Key{ID: "k2", Alg: HS256, Secret: ed.Private.Public().(ed25519.PublicKey)}
	for _, row := range []struct{ name, raw, want string }{
		{"the pattern of the rows below", claims(good), ""},
		{"… with EdDSA", forge(ed, edHead, good), ""},
		{"blanks and another order in the header", header(` { "typ" : "pass+jwt" , "kid" : "k1" , "alg" : "HS256" } `), ""},
		{"escapes in header and claims", forge(hs, `{"alg":"HS\u0032\u00356","kid":"k1","typ":"pass\u002bjwt"}`, strings.Replace(good, "anteroom", `\u0061nteroom`, 1)), ""},
		{"a scalar claim of a newer version", claims(strings.Replace(good, `{`, `{"new":-1.5e3,"more":null,"text":"x\ud83d\ude00",`, 1)), ""},
		{"4 s after exp", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":1767323041}`), ""},

		{"empty", "", "malformed"},
		{"one part", "x", "malformed"},
		{"two parts", parts[0] + "." + parts[1], "malformed"},
		{"four parts", claims(good) + ".", "malformed"},
		{"4097 bytes", strings.Repeat("a", 4097), "too_long"},
		{"a megabyte of dots", strings.Repeat(".", 1<<20), "too_long"},
		{"4096 dots", strings.Repeat(".", 4096), "malformed"},
		{"header not base64", "!." + parts[1] + "." + parts[2], "malformed"},
		{"padded header", parts[0] + "=." + parts[1] + "." + parts[2], "malformed"},
		{"header not JSON", header(`alg`), "malformed"},
		{"header an array", header(`["HS256"]`), "malformed"},
		{"text after the header", header(head + `{}`), "malformed"},
		{"a line break in the header's base64", "\n" + claims(good), "malformed"},

		{"alg none, no signature", b64(`{"alg":"none","kid":"k1","typ":"pass+jwt"}`) + "." + parts[1] + ".", "alg"},
		{"alg None", header(`{"alg":"None","kid":"k1","typ":"pass+jwt"}`), "alg"},
		{"alg hs256 in lower case", header(`{"alg":"hs256","kid":"k1","typ":"pass+jwt"}`), "alg"},
		{"alg none under an unknown key", header(`{"alg":"none","kid":"k3","typ":"pass+jwt"}`), "alg"},
		{"alg HS512", header(`{"alg":"HS512","kid":"k1","typ":"pass+jwt"}`), "alg"},
		{"alg missing", header(`{"kid":"k1","typ":"pass+jwt"}`), "alg"},
		{"alg a number", header(`{"alg":256,"kid":"k1","typ":"pass+jwt"}`), "alg"},
		{"alg twice", header(`{"alg":"HS256","alg":"none","kid":"k1","typ":"pass+jwt"}`), "header"},
		{"HS256 with the EdDSA public key as the secret", forge(publicAsSecret, `{"alg":"HS256","kid":"k2","typ":"pass+jwt"}`, good), "alg"},
		{"EdDSA named for the HS256 key", header(`{"alg":"EdDSA","kid":"k1","typ":"pass+jwt"}`), "alg"},

		{"kid missing", header(`{"alg":"HS256","typ":"pass+jwt"}`), "kid"},
		{"kid unknown", header(`{"alg":"HS256","kid":"k3","typ":"pass+jwt"}`), "kid"},
		{"kid a path", header(`{"alg":"HS256","kid":"../../dev/null","typ":"pass+jwt"}`), "kid"},
		{"kid an injection", header(`{"alg":"HS256","kid":"k1' OR '1'='1","typ":"pass+jwt"}`), "kid"},
		{"kid with a NUL", header(`{"alg":"HS256","kid":"k1\u0000","typ":"pass+jwt"}`), "kid"},
		{"kid a list", header(`{"alg":"HS256","kid":["k1"],"typ":"pass+jwt"}`), "kid"},
		{"crit", header(`{"alg":"HS256","kid":"k1","typ":"pass+jwt","crit":["exp"]}`), "crit"},
		{"crit first", header(`{"crit":[],"alg":"HS256","kid":"k1","typ":"pass+jwt"}`), "crit"},
		{"jwk in the header", header(`{"alg":"HS256","kid":"k1","typ":"pass+jwt","jwk":"x"}`), "header"},
		{"jku in the header", header(`{"alg":"HS256","kid":"k1","typ":"pass+jwt","jku":"https://evil.example"}`), "header"},
		{"x5u in the header", header(`{"x5u":"https://evil.example","alg":"HS256","kid":"k1","typ":"pass+jwt"}`), "header"},
		{"Alg in capitals beside alg", header(`{"alg":"HS256","Alg":"none","kid":"k1","typ":"pass+jwt"}`), "header"},

		{"typ missing", header(`{"alg":"HS256","kid":"k1"}`), "type"},
		{"typ JWT", header(`{"alg":"HS256","kid":"k1","typ":"JWT"}`), "type"},
		{"typ of a waiting token", header(`{"alg":"HS256","kid":"k1","typ":"wait+jwt"}`), "type"},
		{"typ in capitals", header(`{"alg":"HS256","kid":"k1","typ":"PASS+JWT"}`), "type"},
		{"typ null", header(`{"alg":"HS256","kid":"k1","typ":null}`), "type"},

		{"no signature", parts[0] + "." + parts[1] + ".", "signature"},
		{"another key's signature under our kid", forge(foreign, head, good), "signature"},
		{"edited claims", parts[0] + "." + b64(strings.Replace(good, "sale", "vip", 1)) + "." + parts[2], "signature"},
		{"a signature cut short", claims(good)[:len(claims(good))-1], "signature"},
		{"a padded signature", claims(good) + "=", "signature"},
		{"a line break in the signature", claims(good) + "\n", "signature"},
		{"an EdDSA signature cut short", strings.TrimSuffix(forge(ed, edHead, good), edParts[2][80:]), "signature"},
		{"an EdDSA signature with more behind it", forge(ed, edHead, good) + "AAAA", "signature"},
		{"an EdDSA signature of something else", edParts[0] + "." + b64(strings.Replace(good, "sale", "vip", 1)) + "." + edParts[2], "signature"},
		{"an EdDSA signature that is not base64", edParts[0] + "." + edParts[1] + "." + strings.Repeat("!", 86), "signature"},

		{"claims not JSON", claims(`x`), "malformed"},
		{"claims empty", claims(``), "malformed"},
		{"claims cut", claims(good[:len(good)-1]), "malformed"},
		{"text after the claims", claims(good + `{}`), "malformed"},
		{"a comma too many", claims(strings.Replace(good, `}`, `,}`, 1)), "malformed"},
		{"not UTF-8", claims(strings.Replace(good, `{`, "{\"x\":\"\xff\",", 1)), "malformed"},
		{"a lone surrogate", claims(strings.Replace(good, `{`, `{"x":"\ud800",`, 1)), "malformed"},
		{"a control character in a string", claims(strings.Replace(good, `{`, "{\"x\":\"\n\",", 1)), "malformed"},
		{"an unknown escape", claims(strings.Replace(good, `{`, `{"x":"\x41",`, 1)), "malformed"},

		{"iss missing", claims(`{"aud":"sale",` + jti + `,` + sid + `,` + times + `}`), "issuer"},
		{"iss of another", claims(strings.Replace(good, "anteroom", "anteroom2", 1)), "issuer"},
		{"iss a list", claims(strings.Replace(good, `"anteroom"`, `["anteroom"]`, 1)), "issuer"},
		{"aud missing", claims(`{"iss":"anteroom",` + jti + `,` + sid + `,` + times + `}`), "audience"},
		{"aud of another room", claims(strings.Replace(good, "sale", "vip", 1)), "audience"},
		{"aud a list", claims(strings.Replace(good, `"sale"`, `["sale"]`, 1)), "audience"},
		{"aud empty", claims(strings.Replace(good, `"sale"`, `""`, 1)), "audience"},

		{"expired", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":1767323040}`), "expired"},
		{"exp missing", claims(`{` + ours + jti + `,` + sid + `,"iat":1}`), "claims"},
		{"exp 0", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":0}`), "claims"},
		{"exp negative", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":-1}`), "claims"},
		{"exp a string", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":"1767323345"}`), "claims"},
		{"exp with a fraction", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":1767323345.0}`), "claims"},
		{"exp with an exponent", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":1767323345e0}`), "claims"},
		{"exp with a leading zero", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":01767323345}`), "claims"},
		{"exp null", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":null}`), "claims"},
		{"exp far ahead", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":9007199254740991}`), "claims"},
		{"exp beyond 2^53", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":9007199254740992}`), "claims"},
		{"exp beyond int64", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":99999999999999999999999999}`), "claims"},
		{"exp twice", claims(`{` + ours + jti + `,` + sid + `,"iat":1,"exp":1,"exp":1767323345}`), "claims"},
		{"exp twice, once in capitals", claims(`{` + ours + jti + `,` + sid + `,"EXP":1,"iat":1,"exp":1767323345}`), "claims"},
		{"iat missing", claims(`{` + ours + jti + `,` + sid + `,"exp":1767323345}`), "claims"},
		{"nbf", claims(strings.Replace(good, `{`, `{"nbf":1,`, 1)), "claims"},
		{"jti missing", claims(`{` + ours + sid + `,` + times + `}`), "claims"},
		{"jti short", claims(strings.Replace(good, "AgkQFx4lLDM6QUhPVl1kaw", "AgkQ", 1)), "claims"},
		{"jti with trailing bits", claims(strings.Replace(good, "AgkQFx4lLDM6QUhPVl1kaw", "AgkQFx4lLDM6QUhPVl1kax", 1)), "claims"},
		{"jti with line breaks", claims(strings.Replace(good, "AgkQFx4lLDM6QUhPVl1kaw", `AgkQFx4lLDM6QUhPVl1k\n\r`, 1)), "claims"},
		{"sid missing", claims(`{` + ours + jti + `,` + times + `}`), "claims"},
		{"sid twice", claims(`{` + ours + jti + `,` + sid + `,` + sid + `,` + times + `}`), "claims"},
		{"ord a string", claims(strings.Replace(good, `{`, `{"ord":"1",`, 1)), "claims"},
		{"ord negative", claims(strings.Replace(good, `{`, `{"ord":-1,`, 1)), "claims"},
		{"ord with a fraction", claims(strings.Replace(good, `{`, `{"ord":1.5,`, 1)), "claims"},
		{"ord beyond 2^53", claims(strings.Replace(good, `{`, `{"ord":9007199254740992,`, 1)), "claims"},
		{"ord twice", claims(strings.Replace(good, `{`, `{"ord":1,"ord":2,`, 1)), "claims"},
		{"fn a string", claims(strings.Replace(good, `{`, `{"fn":"1",`, 1)), "claims"},
		{"fn with an exponent", claims(strings.Replace(good, `{`, `{"fn":1e3,`, 1)), "claims"},
		{"fn twice", claims(strings.Replace(good, `{`, `{"fn":1,"fn":1,`, 1)), "claims"},
		{"ord and fn of an order that is not known", claims(strings.Replace(good, `{`, `{"ord":0,"fn":0,`, 1)), ""},
		{"off a number", claims(strings.Replace(good, `{`, `{"off":1,`, 1)), "claims"},
		{"live a number", claims(strings.Replace(good, `{`, `{"live":1,`, 1)), "claims"},
		{"bnd a number", claims(strings.Replace(good, `{`, `{"bnd":1,`, 1)), "claims"},
		{"an unknown claim twice", claims(strings.Replace(good, `{`, `{"x":1,"x":1,`, 1)), "claims"},
		{"a nested claim", claims(strings.Replace(good, `{`, `{"x":{"y":1},`, 1)), "claims"},
		{"a name outside a-z", claims(strings.Replace(good, `{`, `{"\u017fid":"x",`, 1)), "claims"},
	} {
		_, err := r.VerifyPass([]byte(row.raw), testRoom, testNow)
		if got := Reason(err); got != row.want {
			t.Errorf("%s: %q (%v), want %q", row.name, got, err, row.want)
		}
		if err != nil && !slices.Contains(Reasons, Reason(err)) {
			t.Errorf("%s: reason %q is not in Reasons", row.name, Reason(err))
		}
	}
}

func TestVerify_WaitingIntegers(t *testing.T) {
	key := hsKey("k1", true)
	r := mustRing(t, key)
	for _, claim := range []string{"ord", "seen", "hold", "hd", "fn", "used", "iat"} {
		for _, row := range []struct{ value, want string }{
			{"0", ""}, {"9007199254740991", ""}, {"9007199254740992", "claims"}, {"18446744073709551617", "claims"}, {"-1", "claims"}, {"-0", "claims"},
			{"1.0", "claims"}, {"1e0", "claims"}, {"00", "claims"}, {`"1"`, "claims"}, {"null", "claims"}, {"true", "claims"}, {"[1]", "claims"}, {"", "claims"}, {"1 2", "malformed"},
		} {
			claims := `{"iss":"anteroom","aud":"sale","jti":"AgkQFx4lLDM6QUhPVl1kaw","` + claim + `":` + row.value + `,"exp":1767323345`
			if claim != "iat" {
				claims += `,"iat":1`
			}
			_, err := r.VerifyWaiting([]byte(forge(key, `{"alg":"HS256","kid":"k1","typ":"wait+jwt"}`, claims+`}`)), testRoom, testNow)
			if got := Reason(err); got != row.want {
				t.Errorf("%s %s: %q, want %q", claim, row.value, got, row.want)
			}
		}
	}
}

func TestVerify_RefusesEmptyRoom(t *testing.T) {
	r := mustRing(t, hsKey("k1", true))
	p := testPass()
	p.Room = ""
	if _, err := r.VerifyPass(r.AppendPass(nil, &p), "", testNow); !errors.Is(err, ErrAudience) {
		t.Errorf("a pass for no room in no room: %v", err)
	}
}

func TestVerify_RefusesOtherSpellings(t *testing.T) {
	for _, key := range oneOfEach() {
		r := mustRing(t, key)
		p := testPass()
		raw := r.AppendPass(nil, &p)
		accepted := 0
		for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=\n\r +/") {
			variant := append(slices.Clone(raw[:len(raw)-1]), c)
			if _, err := r.VerifyPass(variant, testRoom, testNow); err == nil {
				accepted++
			}
		}
		if accepted != 1 {
			t.Errorf("%s: %d spellings of the last character were accepted, want 1", key.Alg, accepted)
		}
	}
}

func TestVerify_RefusesAnotherUse(t *testing.T) {
	rings := map[string]*Ring{}
	for _, issuer := range []string{"anteroom", "other"} {
		for _, k := range []Key{hsKey("k1", true), hsKey("k2", true), edKey("k1", true), edKey("k3", true), esKey("k1", true), esKey("k4", true)} {
			r, err := NewRing(issuer, []Key{k})
			if err != nil {
				t.Fatal(err)
			}
			rings[issuer+"/"+k.Alg+"/"+k.ID] = r
		}
	}
	type use struct{ ring, kind, room string }
	var uses []use
	for name := range rings {
		for _, kind := range []string{"wait", "pass"} {
			for _, room := range []string{"sale", "vip", "sal"} {
				uses = append(uses, use{name, kind, room})
			}
		}
	}
	verify := func(u use, raw []byte) error {
		if u.kind == "wait" {
			_, err := rings[u.ring].VerifyWaiting(raw, u.room, testNow)
			return err
		}
		_, err := rings[u.ring].VerifyPass(raw, u.room, testNow)
		return err
	}
	for _, minted := range uses {
		var raw []byte
		if minted.kind == "wait" {
			w := testWaiting()
			w.Room = minted.room
			raw = rings[minted.ring].AppendWaiting(nil, &w)
		} else {
			p := testPass()
			p.Room = minted.room
			raw = rings[minted.ring].AppendPass(nil, &p)
		}
		for _, shown := range uses {
			if err := verify(shown, raw); (err == nil) != (minted == shown) {
				t.Errorf("minted as %v, shown as %v: %v", minted, shown, err)
			}
		}
	}
}

func TestRing_RotatesKeys(t *testing.T) {
	w, p := testWaiting(), testPass()
	before := mustRing(t, hsKey("k1", true))
	oldWaiting, oldPass := before.AppendWaiting(nil, &w), before.AppendPass(nil, &p)
	added := mustRing(t, hsKey("k1", true), edKey("k2", false)) // first every gateway knows the new key
	switched := mustRing(t, hsKey("k1", false), edKey("k2", true))
	newWaiting := switched.AppendWaiting(nil, &w)
	retired := mustRing(t, edKey("k2", true))
	for _, row := range []struct {
		name string
		ring *Ring
		raw  []byte
		want string
	}{
		{"old token, key added", added, oldWaiting, ""},
		{"new token at a gateway that still signs with the old key", added, newWaiting, ""},
		{"old token after the switch", switched, oldWaiting, ""},
		{"new token after the switch", switched, newWaiting, ""},
		{"rolled back", added, newWaiting, ""},
		{"old token after the old key was retired", retired, oldWaiting, "kid"},
		{"new token after the old key was retired", retired, newWaiting, ""},
		{"new token at a gateway that never heard of the key", before, newWaiting, "kid"},
	} {
		if _, err := row.ring.VerifyWaiting(row.raw, testRoom, testNow); Reason(err) != row.want {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
	if _, err := switched.VerifyPass(oldPass, testRoom, testNow); err != nil {
		t.Errorf("old pass after the switch: %v", err)
	}
}

func TestRing_RoundTrip(t *testing.T) {
	r := mustRing(t, hsKey("k1", true))
	integer := rapid.Int64Range(0, maxInteger)
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(1, 1<<40).Draw(t, "now")
		w := Waiting{
			Room: rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,62}`).Draw(t, "room"), Order: integer.Draw(t, "ord"), Seen: integer.Draw(t, "seen"), Hold: integer.Draw(t, "hold"), Heard: integer.Draw(t, "hd"),
			Epoch: rapid.StringN(0, 40, 64).Draw(t, "ep"), Fence: integer.Draw(t, "fn"), IssuedAt: integer.Draw(t, "iat"),
			Expires: now + rapid.Int64Range(-Leeway+1, MaxLife).Draw(t, "life"), AddrHash: rapid.StringN(0, 40, 64).Draw(t, "ah"), Bind: rapid.StringN(0, 40, 64).Draw(t, "bnd"), Used: integer.Draw(t, "used"),
		}
		copy(w.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		if w.Expires < 1 {
			w.Expires = 1
		}
		got, err := r.VerifyWaiting(r.AppendWaiting(nil, &w), w.Room, now)
		if err != nil || got != w {
			t.Fatalf("got %+v, %v, want %+v", got, err, w)
		}
		if _, err := r.VerifyWaiting(r.AppendWaiting(nil, &w), w.Room, w.Expires+Leeway); !errors.Is(err, ErrExpired) {
			t.Fatalf("at exp + leeway: %v", err)
		}
		p := Pass{ID: w.ID, Session: w.ID, Room: w.Room, Order: w.Order, Fence: w.Fence, IssuedAt: w.IssuedAt, Expires: w.Expires, Bind: w.Bind, Off: rapid.Bool().Draw(t, "off"), Live: rapid.Bool().Draw(t, "live")}
		if got, err := r.VerifyPass(r.AppendPass(nil, &p), p.Room, now); err != nil || got != p {
			t.Fatalf("got %+v, %v, want %+v", got, err, p)
		}
	})
}

func TestID_String(t *testing.T) {
	id := testID(200)
	if back, err := strict64.DecodeString(id.String()); err != nil || string(back) != string(id[:]) || len(id.String()) != 22 {
		t.Fatalf("%v %v %v", id, back, err)
	}
	if text, err := id.AppendText([]byte("x")); err != nil || string(text) != "x"+id.String() {
		t.Errorf("AppendText: %q, %v", text, err)
	}
	if (ID{}).IsZero() != true || id.IsZero() {
		t.Error("IsZero")
	}
}

func TestReason_OfErrors(t *testing.T) {
	if got := Reason(nil); got != "" {
		t.Errorf("nil: %q", got)
	}
	if got := Reason(fmt.Errorf("room sale: %w", ErrExpired)); got != "expired" {
		t.Errorf("wrapped: %q", got)
	}
	if got := Reason(io.EOF); got != "other" || !slices.Contains(Reasons, got) {
		t.Errorf("foreign: %q", got)
	}
}
