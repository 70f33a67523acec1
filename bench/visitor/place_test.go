package visitor

import (
	"encoding/base64"
	"errors"
	"testing"
	"time"
)

func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestDecode_RefusesMalformedTokens(t *testing.T) {
	tests := []struct {
		name, token string
		id          string
		order       int64
		ordered     bool
		confirmed   bool
		bad         bool
	}{
		{name: "confirmed", token: jwt(`{"jti":"a","aud":"sale","ord":1767323045000000,"ep":"7"}`), id: "a", order: 1767323045000000, ordered: true, confirmed: true},
		{name: "numeric epoch", token: jwt(`{"jti":"a","ord":5,"ep":3}`), id: "a", order: 5, ordered: true, confirmed: true},
		{name: "not enrolled yet", token: jwt(`{"jti":"a","ord":5}`), id: "a", order: 5, ordered: true},
		{name: "before the draw", token: jwt(`{"jti":"a","ep":"7"}`), id: "a", confirmed: true},
		{name: "empty", bad: true},
		{name: "two parts", token: "e30.e30", bad: true},
		{name: "four parts", token: jwt(`{"jti":"a"}`) + ".x", bad: true},
		{name: "padded base64", token: "e30.e30=.x", bad: true},
		{name: "not JSON", token: jwt("x"), bad: true},
		{name: "no id", token: jwt(`{"ord":5}`), bad: true},
		{name: "fractional order", token: jwt(`{"jti":"a","ord":5.5}`), bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Decode(tt.token)
			if tt.bad {
				if !errors.Is(err, ErrToken) {
					t.Fatalf("err %v, want ErrToken", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.ID != tt.id || (c.Order != nil) != tt.ordered || tt.ordered && *c.Order != tt.order || c.Confirmed() != tt.confirmed {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "..", jwt(`{"jti":"a","ord":5}`), jwt(`{"jti":"","ord":"x"}`), "e30.=.x", jwt(`{"jti":"a","ord":1e99}`)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := Decode(s); (err == nil) == (c.ID == "") {
			t.Errorf("%q: %+v, %v", s, c, err)
		}
	})
}

func TestPlace_UpdateReportsLosses(t *testing.T) {
	for _, tt := range []struct {
		name, first, second string
		lost                string
		improved            bool
	}{
		{name: "the same", first: `{"jti":"a","ord":5}`, second: `{"jti":"a","ord":5,"ep":"1"}`},
		{name: "an order after the draw", first: `{"jti":"a"}`, second: `{"jti":"a","ord":5}`},
		{name: "an earlier order", first: `{"jti":"a","ord":5}`, second: `{"jti":"a","ord":4}`, improved: true},
		{name: "a later order", first: `{"jti":"a","ord":5}`, second: `{"jti":"a","ord":6}`, lost: "moved back"},
		{name: "another ticket", first: `{"jti":"a","ord":5}`, second: `{"jti":"b","ord":5}`, lost: "another ticket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p Place
			if lost, err := p.Update(jwt(tt.first)); lost != "" || err != nil {
				t.Fatalf("%q, %v", lost, err)
			}
			if lost, err := p.Update(jwt(tt.second)); lost != tt.lost || err != nil || p.Improved != tt.improved {
				t.Errorf("%q, %v, improved %v", lost, err, p.Improved)
			}
		})
	}
}

func TestPresence_FindsAbsence(t *testing.T) {
	now := time.Unix(1000, 0)
	p := Presence{Interval: 30 * time.Second}
	for i, tt := range []struct {
		after  time.Duration
		absent bool
	}{{0, false}, {70 * time.Second, false}, {71 * time.Second, true}, {time.Second, false}} {
		now = now.Add(tt.after)
		if got := p.Received(now); got != tt.absent {
			t.Errorf("response %d: absent %v", i, got)
		}
	}
}
