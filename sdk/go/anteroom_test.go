package anteroom

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// revokedList responds to every request with a list of sessions.
func revokedList(sessions []string, evacuated map[string]int64) http.RoundTripper {
	type session struct {
		SID string `json:"sid"`
	}
	list := struct {
		Revoked   []session        `json:"revoked"`
		Evacuated map[string]int64 `json:"evacuated,omitempty"`
	}{[]session{}, evacuated}
	for _, sid := range sessions {
		list.Revoked = append(list.Revoked, session{sid})
	}
	body, err := json.Marshal(list)
	return roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(string(body)))}, err
	})
}

func TestVectors(t *testing.T) {
	text, err := os.ReadFile("../vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Room string
		Now        int64
		Headers    [][2]string
		Config     struct {
			Issuer      string
			Algorithms  []string
			JWKS        json.RawMessage
			Secrets     map[string]string
			Revoked     []string
			Evacuated   map[string]int64
			PlainHTTP   bool `json:"plain_http"`
			AcceptBound bool `json:"accept_bound"`
		}
		Want Result
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) < 40 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		config := Config{Issuer: c.Config.Issuer, Algorithms: c.Config.Algorithms, JWKS: c.Config.JWKS, Secrets: c.Config.Secrets, PlainHTTP: c.Config.PlainHTTP,
			AcceptBound: c.Config.AcceptBound, Now: func() time.Time { return time.Unix(c.Now, 0) }}
		if c.Config.Revoked != nil {
			config.RevokedURL, config.Transport = "http://gateway.test/.waiting-room/{room}/revoked", revokedList(c.Config.Revoked, c.Config.Evacuated)
		}
		v, err := New(config)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		r := &http.Request{Header: http.Header{}}
		for _, field := range c.Headers {
			r.Header.Add(field[0], field[1])
		}
		if got := v.Verify(r, c.Room); got != c.Want {
			t.Errorf("%s: %+v, want %+v", c.Name, got, c.Want)
		}
	}
}
