package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// reference reads tokens with golang-jwt at its strictest, as a second implementation.
type reference struct {
	parser *jwt.Parser
	keys   map[string]any
	typ    string
}

func newReference(typ string, now int64, keys ...Key) reference {
	ref := reference{typ: typ, keys: map[string]any{}, parser: jwt.NewParser(jwt.WithValidMethods([]string{HS256, ES256, EdDSA}), jwt.WithStrictDecoding(),
		jwt.WithExpirationRequired(), jwt.WithIssuer(testIssuer), jwt.WithAudience(testRoom), jwt.WithLeeway(Leeway*time.Second),
		jwt.WithTimeFunc(func() time.Time { return time.Unix(now, 0) }))}
	for _, k := range keys {
		ref.keys[k.ID] = k.Secret
		if k.Private != nil {
			ref.keys[k.ID] = k.Private.Public()
		}
	}
	return ref
}

type referenceClaims struct {
	jwt.RegisteredClaims
	Order int64  `json:"ord"`
	Seen  int64  `json:"seen"`
	Hold  int64  `json:"hold"`
	Heard int64  `json:"hd"`
	Epoch string `json:"ep"`
	Fence int64  `json:"fn"`
	Addr  string `json:"ah"`
	Bind  string `json:"bnd"`
	SID   string `json:"sid"`
	Off   bool   `json:"off"`
	Live  bool   `json:"live"`
	Acc   bool   `json:"acc"`
	Used  int64  `json:"used"`
}

func (ref reference) verify(raw string) (referenceClaims, error) {
	var c referenceClaims
	tok, err := ref.parser.ParseWithClaims(raw, &c, func(tok *jwt.Token) (any, error) {
		kid, _ := tok.Header["kid"].(string)
		key, known := ref.keys[kid]
		if typ, _ := tok.Header["typ"].(string); !known || typ != ref.typ || len(tok.Header) != 3 {
			return nil, jwt.ErrTokenUnverifiable
		}
		return key, nil
	})
	if err == nil && !tok.Valid {
		err = jwt.ErrTokenUnverifiable
	}
	return c, err
}

// same compares the results of both, field by field, as JSON for a readable difference.
func same(t *testing.T, ours, theirs any) {
	t.Helper()
	a, errA := json.Marshal(ours)
	b, errB := json.Marshal(theirs)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Fatalf("ours %s %v\ntheirs %s %v", a, errA, b, errB)
	}
}

func parseID(text string) (id ID, err error) {
	raw, err := strict64.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("id %q: %w", text, err)
	}
	return ID(raw), nil
}

func (c referenceClaims) waiting(t *testing.T) Waiting {
	id, err := parseID(c.ID)
	if err != nil {
		t.Fatalf("jti of a token that we accept: %v", err)
	}
	return Waiting{ID: id, Room: c.Audience[0], Order: c.Order, Seen: c.Seen, Hold: c.Hold, Heard: c.Heard, Epoch: c.Epoch, Fence: c.Fence, IssuedAt: c.IssuedAt.Unix(),
		Expires: c.ExpiresAt.Unix(), AddrHash: c.Addr, Bind: c.Bind, Account: c.Acc, Used: c.Used}
}

func (c referenceClaims) pass(t *testing.T) Pass {
	id, err := parseID(c.ID)
	if err != nil {
		t.Fatalf("jti of a token that we accept: %v", err)
	}
	sid, err := parseID(c.SID)
	if err != nil {
		t.Fatalf("sid of a token that we accept: %v", err)
	}
	return Pass{ID: id, Session: sid, Room: c.Audience[0], Order: c.Order, Fence: c.Fence, IssuedAt: c.IssuedAt.Unix(), Expires: c.ExpiresAt.Unix(), Bind: c.Bind, Off: c.Off, Live: c.Live}
}

func TestRing_AgreesWithReference(t *testing.T) {
	for _, key := range oneOfEach() {
		r := mustRing(t, key)
		w, p := testWaiting(), testPass()
		p.Live = true
		theirs, err := newReference("wait+jwt", testNow, key).verify(string(r.AppendWaiting(nil, &w)))
		if err != nil {
			t.Fatalf("%s: %v", key.Alg, err)
		}
		same(t, w, theirs.waiting(t))
		theirs, err = newReference("pass+jwt", testNow, key).verify(string(r.AppendPass(nil, &p)))
		if err != nil {
			t.Fatalf("%s: %v", key.Alg, err)
		}
		same(t, p, theirs.pass(t))

		tok := jwt.NewWithClaims(jwt.GetSigningMethod(key.Alg), jwt.MapClaims{"iss": testIssuer, "aud": testRoom, "jti": p.ID.String(),
			"sid": p.Session.String(), "iat": p.IssuedAt, "exp": p.Expires, "ord": p.Order, "fn": p.Fence, "bnd": p.Bind, "off": true, "live": true})
		tok.Header["kid"], tok.Header["typ"] = "k1", "pass+jwt"
		var signWith any = key.Secret
		if key.Private != nil {
			signWith = key.Private
		}
		raw, err := tok.SignedString(signWith)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := r.VerifyPass([]byte(raw), testRoom, testNow)
		if err != nil {
			t.Fatalf("%s: the reference's pass: %v", key.Alg, err)
		}
		same(t, ours, p)
	}
}

// FuzzClaims signs any claims under any header: the reference accepts every token that a Ring accepts, with the same meaning.
func FuzzClaims(f *testing.F) {
	const pattern = `{"iss":"anteroom","aud":"sale","jti":"AgkQFx4lLDM6QUhPVl1kaw","sid":"AwoRGB8mLTQ7QklQV15lbA","iat":1767323045,"exp":1767323345,"ord":1,"seen":2,"hold":4,"hd":5,"ep":"e","fn":3,"ah":"a","bnd":"b","off":true,"live":true,"acc":true,"used":6}`
	passHead, waitHead := `{"alg":"HS256","kid":"k1","typ":"pass+jwt"}`, `{"alg":"HS256","kid":"k1","typ":"wait+jwt"}`
	for _, claims := range []string{
		pattern, `{}`, ``, `null`, `[]`, pattern + " ", pattern + "x",
		strings.Replace(pattern, `"iat"`, `"IAT":7,"iat"`, 1),
		strings.Replace(pattern, `1767323345`, `1767323345.5`, 1),
		strings.Replace(pattern, `1767323345`, `1e10`, 1),
		strings.Replace(pattern, `1767323345`, `-0`, 1),
		strings.Replace(pattern, `"sale"`, `["sale","vip"]`, 1),
		strings.Replace(pattern, `"e"`, `"\ud83d\ude00\n\/"`, 1),
		strings.Replace(pattern, `"e"`, `"\udc00"`, 1),
		strings.Replace(pattern, `"ord"`, `"x":[[[{}]]],"ord"`, 1),
		strings.Replace(pattern, `"ord"`, `"x":-12.5E+3,"y":null,"z":false,"ord"`, 1),
		strings.Replace(pattern, `"ord":1`, `"ord":9007199254740991`, 1),
		strings.Replace(pattern, `"ord":1`, `"ord":-1`, 1),
		strings.Replace(pattern, `"ord":1,`, ``, 1),
		strings.Replace(pattern, `"fn":3`, `"fn":9007199254740992`, 1),
		strings.Replace(pattern, `"fn":3`, `"fn":3,"fn":4`, 1),
		strings.Replace(pattern, `"fn":3,`, ``, 1),
	} {
		f.Add(passHead, claims)
		f.Add(waitHead, claims)
	}
	f.Add(`{"typ":"pass+jwt","alg":"HS256","kid":"k1"}`, pattern)
	f.Add(`{"alg":"HS256","kid":"k1","typ":"pass\u002bjwt"}`, pattern)
	f.Add(`{"alg":"HS256","kid":"k1","typ":"pass+jwt","crit":["x"]}`, pattern)
	f.Add(`{"alg":"HS256","alg":"none","kid":"k1","typ":"pass+jwt"}`, pattern)
	keys := []Key{hsKey("k1", true), edKey("k2", false), esKey("k3", false)}
	for _, head := range []string{`{"alg":"EdDSA","kid":"k2","typ":"pass+jwt"}`, `{"alg":"ES256","kid":"k3","typ":"pass+jwt"}`, `{"alg":"ES256","kid":"k3","typ":"wait+jwt"}`, `{"alg":"ES256","kid":"k2","typ":"pass+jwt"}`, `{"alg":"HS256","kid":"k3","typ":"pass+jwt"}`, `{"alg":"ES384","kid":"k3","typ":"pass+jwt"}`} {
		f.Add(head, pattern)
	}
	r := mustRing(f, keys...)
	asPass, asWaiting := newReference("pass+jwt", testNow, keys...), newReference("wait+jwt", testNow, keys...)
	f.Fuzz(func(t *testing.T, head, claims string) {
		var named struct{ Kid string }
		_ = json.Unmarshal([]byte(head), &named)
		key := keys[max(0, slices.IndexFunc(keys, func(k Key) bool { return k.ID == named.Kid }))] // so that the signature is good
		raw := forge(key, head, claims)
		pass, passErr := r.VerifyPass([]byte(raw), testRoom, testNow)
		w, waitErr := r.VerifyWaiting([]byte(raw), testRoom, testNow)
		if passErr == nil && waitErr == nil {
			t.Fatalf("%s is both a pass and a waiting token", raw)
		}
		if passErr == nil {
			theirs, err := asPass.verify(raw)
			if err != nil {
				t.Fatalf("we accept, the reference does not: %v\n%s\n%s", err, head, claims)
			}
			same(t, pass, theirs.pass(t))
		}
		if waitErr == nil {
			theirs, err := asWaiting.verify(raw)
			if err != nil {
				t.Fatalf("we accept, the reference does not: %v\n%s\n%s", err, head, claims)
			}
			same(t, w, theirs.waiting(t))
		}
		for _, err := range []error{passErr, waitErr} {
			if got := Reason(err); got == "other" || got == "signature" {
				t.Fatalf("reason %q for %v", got, err)
			}
		}
	})
}

// FuzzToken verifies any bytes: no panic, no unsigned token is accepted, and the ring and the cache agree.
func FuzzToken(f *testing.F) {
	r := mustRing(f, hsKey("k1", true), edKey("k2", false), esKey("k3", false))
	c := NewCache(64)
	c.Swap(r)
	w, p := testWaiting(), testPass()
	genuine := map[string]bool{string(r.AppendWaiting(nil, &w)): true, string(r.AppendPass(nil, &p)): true}
	for raw := range genuine {
		f.Add([]byte(raw))
		f.Add([]byte(raw[:len(raw)-1]))
		f.Add([]byte(raw + "="))
		f.Add([]byte("\n" + raw))
	}
	for _, raw := range []string{"", ".", "..", "...", "a.b.c", b64(`{"alg":"none"}`) + "..", b64(`{"alg":"EdDSA","kid":"k2","typ":"pass+jwt"}`) + ".e30." + strings.Repeat("A", 86),
		b64(`{"alg":"ES256","kid":"k3","typ":"pass+jwt"}`) + ".e30." + strings.Repeat("A", 86), b64(`{"alg":"ES256","kid":"k3","typ":"pass+jwt"}`) + ".e30." + strings.Repeat("_", 85) + "w", strings.Repeat("A.", 2048)} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		kept := bytes.Clone(raw)
		for range 2 {
			_, err1 := r.VerifyPass(raw, testRoom, testNow)
			_, err2 := c.VerifyPass(raw, testRoom, testNow)
			_, err3 := r.VerifyWaiting(raw, testRoom, testNow)
			_, err4 := c.VerifyWaiting(raw, testRoom, testNow)
			if Reason(err1) != Reason(err2) || Reason(err3) != Reason(err4) {
				t.Fatalf("ring and cache differ: %v / %v, %v / %v", err1, err2, err3, err4)
			}
			if (err1 == nil || err3 == nil) && !genuine[string(raw)] {
				t.Fatalf("accepted, though never signed: %q", raw)
			}
		}
		if !bytes.Equal(raw, kept) {
			t.Fatal("the caller's bytes were changed")
		}
	})
}
