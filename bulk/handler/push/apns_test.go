package push

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// apple is a server with the HTTP/2 interface of APNs: it accepts notifications only with a provider token that the key signed.
type apple struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey

	mu     sync.Mutex
	tokens map[string]bool // provider tokens that it saw
	seen   []string
	answer func(w http.ResponseWriter, token string) bool // true: it has answered
}

func newApple(t *testing.T) *apple {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &apple{t: t, key: key, tokens: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /3/device/{token}", a.take)
	a.Server = httptest.NewUnstartedServer(mux)
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func (a *apple) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	parsed, wrong := jwt.Parse(token, func(*jwt.Token) (any, error) { return &a.key.PublicKey, nil }, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer("TEAM123456"))
	if err != nil || wrong != nil || scheme != "bearer" || parsed.Header["kid"] != "KEY1234567" || r.ProtoMajor != 2 {
		a.t.Errorf("%v, %v, %s, header %v, %s", err, wrong, scheme, parsed, r.Proto)
	}
	a.tokens[token] = true
	if a.answer != nil && a.answer(w, token) {
		return
	}
	h := r.Header
	a.seen = append(a.seen, fmt.Sprint(r.PathValue("token"), " ", h.Get("Apns-Topic"), " ", h.Get("Apns-Push-Type"), " ", h.Get("Apns-Priority"), " ",
		h.Get("Apns-Expiration"), " ", h.Get("Apns-Collapse-Id"), " ", string(body)))
}

func (a *apple) refuse(status int, reason string, after string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = func(w http.ResponseWriter, _ string) bool {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"reason":%q}`, reason)
		return true
	}
}

func p8(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "AuthKey.p8", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func (a *apple) options(t *testing.T) Options {
	t.Helper()
	return Options{TLS: trust(a.Server), APNs: APNs{KeyFile: p8(t, a.key), KeyID: "KEY1234567", TeamID: "TEAM123456", Topic: "com.example.shop", Endpoint: a.URL}}
}

const toDevice = `{"apns":{"token":"00ff","payload":{"aps":{"alert":"Hello"}}}}`

func TestAPNs_Delivers(t *testing.T) {
	t.Parallel()
	a := newApple(t)
	h := handler(t, a.options(t))
	for payload, want := range map[string]string{
		toDevice: `00ff com.example.shop alert    {"aps":{"alert":"Hello"}}`,
		`{"apns":{"token":"aB01","payload":{"aps":{"content-available":1}},"push_type":"background","priority":5,"expiration":0,"topic":"com.example.other","collapse_id":"news"}}`: `aB01 com.example.other background 5 0 news {"aps":{"content-available":1}}`,
	} {
		if result, err := h.Handle(t.Context(), job(payload)); err != nil || string(result) != `{"status":200}` {
			t.Errorf("%s: %s, %v", payload, result, err)
		}
		if got := a.seen[len(a.seen)-1]; got != want {
			t.Errorf("Apple got %s, want %s", got, want)
		}
	}
	if len(a.tokens) != 1 {
		t.Errorf("%d provider tokens for two notifications", len(a.tokens))
	}
}

func TestAPNs_RenewsItsToken(t *testing.T) {
	t.Parallel()
	a := newApple(t)
	h := handler(t, a.options(t))
	now := time.Now()
	h.apns.now = func() time.Time { return now }
	for i, row := range []struct {
		age  time.Duration // of the token
		want int           // tokens so far
	}{{0, 1}, {39*time.Minute + 59*time.Second, 1}, {40 * time.Minute, 2}, {39 * time.Minute, 2}, {-time.Minute, 3}} {
		if i > 0 {
			now = h.apns.made.Add(row.age)
		}
		if _, err := h.Handle(t.Context(), job(toDevice)); err != nil {
			t.Fatal(err)
		}
		if len(a.tokens) != row.want {
			t.Errorf("at an age of %v: %d tokens, want %d", row.age, len(a.tokens), row.want)
		}
	}
	// When Apple refuses a provider token as expired, a new one is signed and the notification sent again, unless the token is new.
	old := h.apns.token
	a.answer = func(w http.ResponseWriter, token string) bool {
		if token != old {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"reason":"ExpiredProviderToken"}`)
		return true
	}
	if _, err := h.Handle(t.Context(), job(toDevice)); outcome(err) != "fail apns_403" {
		t.Errorf("a token made just now: %v", err)
	}
	now = h.apns.made.Add(21 * time.Minute)
	if _, err := h.Handle(t.Context(), job(toDevice)); err != nil {
		t.Errorf("a token of 21 minutes: %v", err)
	}
}

func TestAPNs_Answers(t *testing.T) {
	t.Parallel()
	a := newApple(t)
	h := handler(t, a.options(t))
	for _, row := range []struct {
		status        int
		reason, after string
		want          string
	}{
		{400, "BadDeviceToken", "", "permanent bad_device_token"}, {400, "DeviceTokenNotForTopic", "", "permanent bad_device_token"},
		{400, "BadPriority", "", "permanent apns_400"}, {400, "TopicDisallowed", "", "fail apns_400"},
		{403, "InvalidProviderToken", "", "fail apns_403"}, {404, "BadPath", "", "fail apns_404"}, {405, "MethodNotAllowed", "", "fail apns_405"},
		{410, "Unregistered", "", "permanent unregistered"}, {410, "ExpiredToken", "", "permanent unregistered"},
		{413, "PayloadTooLarge", "", "permanent too_large"},
		{429, "TooManyRequests", "", "busy busy"}, {429, "TooManyProviderTokenUpdates", "30", "busy group busy 30s"},
		{500, "InternalServerError", "", "fail apns_500"}, {503, "Shutdown", "", "busy busy"}, {503, "ServiceUnavailable", "7", "busy busy 7s"},
	} {
		a.refuse(row.status, row.reason, row.after)
		if _, err := h.Handle(t.Context(), job(toDevice)); outcome(err) != row.want {
			t.Errorf("%d %s: %s, want %s", row.status, row.reason, outcome(err), row.want)
		}
	}
	a.Close()
	if _, err := h.Handle(t.Context(), job(toDevice)); outcome(err) != "fail connection" {
		t.Errorf("nobody there: %v", err)
	}
}

func TestAPNs_RefusesBadPayloads(t *testing.T) {
	t.Parallel()
	a := newApple(t)
	h := handler(t, a.options(t))
	for payload, want := range map[string]string{
		`{"apns":{"payload":{}}}`:                                                     "apns.token",
		`{"apns":{"token":"xyz","payload":{}}}`:                                       "apns.token",
		`{"apns":{"token":"../../x","payload":{}}}`:                                   "apns.token",
		`{"apns":{"token":"00"}}`:                                                     "apns.payload",
		`{"apns":{"token":"00","payload":[1]}}`:                                       "apns.payload",
		`{"apns":{"token":"00","payload":{},"push_type":"loud"}}`:                     "apns.push_type",
		`{"apns":{"token":"00","payload":{},"priority":3}}`:                           "apns.priority",
		`{"apns":{"token":"00","payload":{},"expiration":-1}}`:                        "apns.expiration",
		`{"apns":{"token":"00","payload":{},"collapse_id":"a\nb"}}`:                   "apns.collapse_id",
		`{"apns":{"token":"00","payload":{},"topic":"a b"}}`:                          "apns.topic",
		`{"apns":{"token":"00","payload":{}},"ttl":3}`:                                "ttl",
		`{"apns":{"token":"00","payload":{}},"message":{"token":"abc"}}`:              "apns",
		`{"message":{"token":"abc"}}`:                                                 "fcm.credentials_file",
		`{"apns":{"token":"00","payload":{"x":"` + strings.Repeat("x", 4096) + `"}}}`: "4096",
	} {
		_, err := h.Handle(t.Context(), job(payload))
		if err == nil || !strings.HasPrefix(outcome(err), "permanent ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s named", payload, err, want)
		}
	}
	if len(a.tokens) != 0 {
		t.Error("one of them reached Apple")
	}
}

func TestAPNs_RefusesBadSettings(t *testing.T) {
	t.Parallel()
	a := newApple(t)
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*APNs){
		"key_file":      func(c *APNs) { c.KeyFile = "/nowhere" },
		"not PEM":       func(c *APNs) { c.KeyFile = file(t, "text", []byte("text")) },
		"not a P-256":   func(c *APNs) { c.KeyFile = p8(t, other) },
		"key_id":        func(c *APNs) { c.KeyID = "" },
		"team_id":       func(c *APNs) { c.TeamID = "a b" },
		"topic":         func(c *APNs) { c.Topic = "" },
		"endpoint":      func(c *APNs) { c.Endpoint = "http://127.0.0.1:1" },
		"apns.key_file": func(c *APNs) { c.KeyFile = "" },
	} {
		o := a.options(t)
		change(&o.APNs)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "processors.push.") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
