package token

import (
	"errors"
	"strings"
	"testing"
)

func testPermit() Permit {
	return Permit{ID: testID(6), Session: testID(3), Room: testRoom, Path: "/seatmap/812", Method: "POST", Epoch: "1.0f3a9c", IssuedAt: testNow, Expires: testNow + PermitLife}
}

func TestPermit_RoundTrips(t *testing.T) {
	for _, key := range []Key{hsKey("k1", true), edKey("k1", true)} {
		r := mustRing(t, key)
		for name, p := range map[string]Permit{
			"full":          testPermit(),
			"without epoch": {ID: testID(6), Session: testID(3), Room: testRoom, Path: "/", Method: "GET", IssuedAt: testNow - 60, Expires: testNow},
			"awkward path":  {Room: testRoom, Path: "/é\"\\€😀<>&", Method: "GET", IssuedAt: testNow, Expires: testNow + 1},
			"longest path":  {Room: testRoom, Path: "/" + strings.Repeat(`"`, 1023), Method: strings.Repeat("A", 32), Epoch: strings.Repeat("9", 40), IssuedAt: testNow, Expires: testNow + 1},
		} {
			raw := r.AppendPermit([]byte("kept:"), &p)
			got, err := r.VerifyPermit(raw[5:], testRoom, testNow)
			if string(raw[:5]) != "kept:" || err != nil || got != p {
				t.Errorf("%s/%s:\n got %+v, %v\nwant %+v", key.Alg, name, got, err, p)
			}
			if room := r.RoomOf(raw[5:]); room != testRoom {
				t.Errorf("%s/%s: the room is %q", key.Alg, name, room)
			}
		}
	}
	p := testPermit()
	var got []string
	for _, part := range strings.Split(string(mustRing(t, hsKey("k1", true)).AppendPermit(nil, &p)), ".")[:2] {
		plain, _ := strict64.DecodeString(part)
		got = append(got, string(plain))
	}
	want := `{"alg":"HS256","kid":"k1","typ":"permit+jwt"} {"iss":"anteroom","aud":"sale","jti":"` + testID(6).String() + `","iat":1767323045,"exp":1767323105,"sid":"AwoRGB8mLTQ7QklQV15lbA","path":"/seatmap/812","method":"POST","ep":"1.0f3a9c"}`
	if s := strings.Join(got, " "); s != want {
		t.Errorf("the permit is\n%s, want\n%s", s, want)
	}
}

// A token of one type is never accepted as another.
func TestPermit_IsNoOtherToken(t *testing.T) {
	r := mustRing(t, hsKey("k1", true))
	c := NewCache(8)
	c.Swap(r)
	permit, pass, waiting := testPermit(), testPass(), testWaiting()
	raw := map[string][]byte{"permit": r.AppendPermit(nil, &permit), "pass": r.AppendPass(nil, &pass), "waiting": r.AppendWaiting(nil, &waiting)}
	for range 2 { // the second time from the cache
		for as, verify := range map[string]func([]byte) error{
			"permit":  func(b []byte) error { _, err := r.VerifyPermit(b, testRoom, testNow); return err },
			"pass":    func(b []byte) error { _, err := c.VerifyPass(b, testRoom, testNow); return err },
			"waiting": func(b []byte) error { _, err := c.VerifyWaiting(b, testRoom, testNow); return err },
		} {
			for kind, b := range raw {
				if err := verify(b); (err == nil) != (kind == as) || kind != as && !errors.Is(err, ErrType) {
					t.Errorf("a %s token as %s: %v", kind, as, err)
				}
			}
		}
	}
	if !Ours(raw["permit"]) {
		t.Error("a permit is not recognized as a token of Anteroom")
	}
}

func TestPermit_Refusals(t *testing.T) {
	k := hsKey("k1", true)
	r := mustRing(t, k)
	const header = `{"alg":"HS256","kid":"k1","typ":"permit+jwt"}`
	const ids = `"iss":"anteroom","aud":"sale","jti":"AQgPFh0kKzI5QEdOVVxjag","sid":"AwoRGB8mLTQ7QklQV15lbA"`
	const times = `"iat":1767323045,"exp":1767323105`
	const step = `"path":"/a","method":"GET"`
	for _, row := range []struct {
		name, claims string
		now          int64
		want         error
	}{
		{"valid", ids + "," + times + "," + step, testNow, nil},
		{"within the leeway", ids + "," + times + "," + step, testNow + PermitLife + Leeway - 1, nil},
		{"expired", ids + "," + times + "," + step, testNow + PermitLife + Leeway, ErrExpired},
		{"issued in the future", ids + "," + times + "," + step, testNow - Leeway - 1, ErrClaims},
		{"of a longer life", ids + `,"iat":1767323044,"exp":1767323105,` + step, testNow, ErrClaims},
		{"no path", ids + "," + times + `,"method":"GET"`, testNow, ErrClaims},
		{"no method", ids + "," + times + `,"path":"/a"`, testNow, ErrClaims},
		{"two paths", ids + "," + times + "," + step + `,"path":"/b"`, testNow, ErrClaims},
		{"a path that is not a string", ids + "," + times + `,"path":1,"method":"GET"`, testNow, ErrClaims},
		{"no session", `"iss":"anteroom","aud":"sale","jti":"AQgPFh0kKzI5QEdOVVxjag",` + times + "," + step, testNow, ErrClaims},
		{"another room", strings.Replace(ids, "sale", "vip", 1) + "," + times + "," + step, testNow, ErrAudience},
		{"another issuer", strings.Replace(ids, "anteroom", "other", 1) + "," + times + "," + step, testNow, ErrIssuer},
	} {
		_, err := r.VerifyPermit([]byte(forge(k, header, "{"+row.claims+"}")), testRoom, row.now)
		if !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
	for _, raw := range []string{"", ".", "..", "a.b.c", "x.e30.y", strings.Repeat("x", MaxLength+1)} {
		if room := r.RoomOf([]byte(raw)); room != "" {
			t.Errorf("%.20q names the room %q", raw, room)
		}
	}
}
