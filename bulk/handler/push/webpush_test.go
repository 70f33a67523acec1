package push

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// browser is a subscriber with its push service, which verifies the sender (VAPID, RFC 8292) and decrypts the message (RFC 8291).
type browser struct {
	*httptest.Server
	t     *testing.T
	key   *ecdh.PrivateKey
	auth  []byte
	vapid *ecdh.PrivateKey

	mu     sync.Mutex
	got    []string
	header http.Header
	answer func(w http.ResponseWriter) bool
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	vapid, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, key: key, vapid: vapid, auth: make([]byte, 16)}
	_, _ = rand.Read(b.auth)
	b.Server = httptest.NewTLSServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *browser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.header = r.Header
	if b.answer != nil && b.answer(w) {
		return
	}
	if err := b.authorized(r.Header.Get("Authorization")); err != nil {
		b.t.Error(err)
	}
	text, err := b.decrypt(body)
	if err != nil || r.Method != "POST" || r.URL.Path != "/push/1" || r.Header.Get("Content-Encoding") != "aes128gcm" {
		b.t.Errorf("%s %s %v: %v", r.Method, r.URL, r.Header, err)
	}
	b.got = append(b.got, string(text))
	w.Header().Set("Location", "https://push.example/m/1")
	w.WriteHeader(http.StatusCreated)
}

// authorized checks vapid t=<JWT>, k=<public key>.
func (b *browser) authorized(value string) error {
	rest, ok := strings.CutPrefix(value, "vapid t=")
	token, k, both := strings.Cut(rest, ", k=")
	if !ok || !both || k != base64.RawURLEncoding.EncodeToString(b.vapid.PublicKey().Bytes()) {
		return fmt.Errorf("Authorization %q", value)
	}
	raw := b.vapid.PublicKey().Bytes()
	public := &ecdsa.PublicKey{Curve: elliptic.P256(), X: new(big.Int).SetBytes(raw[1:33]), Y: new(big.Int).SetBytes(raw[33:])}
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return public, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(b.URL), jwt.WithSubject("mailto:ops@example.com"), jwt.WithExpirationRequired())
	if err != nil {
		return err
	}
	if exp, err := claims.GetExpirationTime(); err != nil || time.Until(exp.Time) > 24*time.Hour {
		return fmt.Errorf("exp %v: services refuse more than 24 hours", exp)
	}
	return nil
}

// decrypt is the browser's side of aes128gcm.
func (b *browser) decrypt(body []byte) ([]byte, error) {
	if len(body) < 86 || len(body) > 4096 || body[20] != 65 {
		return nil, fmt.Errorf("a body of %d bytes", len(body))
	}
	salt, size, sender, record := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:86], body[86:]
	if len(record) > int(size) {
		return nil, errors.New("more than one record")
	}
	peer, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	shared, err := b.key.ECDH(peer)
	if err != nil {
		return nil, err
	}
	expand := func(secret, salt []byte, info string, n int) []byte {
		out, err := hkdf.Key(sha256.New, secret, salt, info, n)
		if err != nil {
			b.t.Error(err)
		}
		return out
	}
	ikm := expand(shared, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(sender), 32)
	block, err := aes.NewCipher(expand(ikm, salt, "Content-Encoding: aes128gcm\x00", 16))
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	text, err := gcm.Open(nil, expand(ikm, salt, "Content-Encoding: nonce\x00", 12), record, nil)
	if err != nil {
		return nil, err
	}
	text = []byte(strings.TrimRight(string(text), "\x00"))
	if len(text) == 0 || text[len(text)-1] != 2 {
		return nil, errors.New("no end of the last record")
	}
	return text[:len(text)-1], nil
}

func (b *browser) vapidFile(t *testing.T) string {
	return file(t, "vapid.json", map[string]string{
		"publicKey":  base64.RawURLEncoding.EncodeToString(b.vapid.PublicKey().Bytes()),
		"privateKey": base64.RawURLEncoding.EncodeToString(b.vapid.Bytes()), "subject": "mailto:ops@example.com",
	})
}

func (b *browser) handler(t *testing.T) *Handler {
	return handler(t, Options{VAPIDKeyFile: b.vapidFile(t), Guard: guard(t, "127.0.0.1"), TLS: trust(b.Server)})
}

// payload has the browser's subscription and more fields.
func (b *browser) payload(more string) string {
	return fmt.Sprintf(`{"subscription":{"endpoint":%q,"expirationTime":null,"keys":{"p256dh":%q,"auth":%q}}%s}`, b.URL+"/push/1",
		base64.RawURLEncoding.EncodeToString(b.key.PublicKey().Bytes()), base64.RawURLEncoding.EncodeToString(b.auth), more)
}

func TestWebPush_SendsMessage(t *testing.T) {
	b := newBrowser(t)
	h := b.handler(t)
	long := strings.Repeat("x", maxData)
	for more, want := range map[string]string{
		`,"data":{"title":"Grüße","n":[1, 2]}`: `{"title":"Grüße","n":[1, 2]}`,
		`,"data":"plain text"`:                 "plain text",
		`,"data":null`:                         "",
		``:                                     "",
		`,"data":"` + long + `"`:               long,
	} {
		b.got = nil
		result, err := h.Handle(t.Context(), job(b.payload(more)))
		if err != nil || string(result) != `{"status":201,"location":"https://push.example/m/1"}` || len(b.got) != 1 || b.got[0] != want {
			t.Errorf("%.80s: %s, %v; the browser got %.80q", more, result, err, b.got)
		}
	}
	if _, err := h.Handle(t.Context(), job(b.payload(`,"data":"`+long+`x"`))); outcome(err) != "permanent too_large" {
		t.Errorf("one byte more: %v", err)
	}
	for more, want := range map[string][3]string{
		``: {"86400", "normal", ""},
		`,"ttl":0,"urgency":"very-low","topic":"a-_9"`: {"0", "very-low", "a-_9"},
		`,"ttl":2419200,"urgency":"high"`:              {"2419200", "high", ""},
	} {
		if _, err := h.Handle(t.Context(), job(b.payload(more))); err != nil {
			t.Fatal(err)
		}
		if got := [3]string{b.header.Get("TTL"), b.header.Get("Urgency"), b.header.Get("Topic")}; got != want {
			t.Errorf("%s: %q, want %q", more, got, want)
		}
	}
	// Keys as some libraries write them: padded, in the other alphabet.
	std := strings.NewReplacer(base64.RawURLEncoding.EncodeToString(b.key.PublicKey().Bytes()), base64.StdEncoding.EncodeToString(b.key.PublicKey().Bytes()),
		base64.RawURLEncoding.EncodeToString(b.auth), base64.StdEncoding.EncodeToString(b.auth)).Replace(b.payload(`,"data":"x"`))
	if _, err := h.Handle(t.Context(), job(std)); err != nil {
		t.Error(err)
	}
}

func TestWebPush_MapsResponses(t *testing.T) {
	b := newBrowser(t)
	h := b.handler(t)
	for _, c := range []struct {
		status     int
		retryAfter string
		want       string
	}{
		{200, "", "done"}, {201, "", "done"}, {202, "", "done"},
		{404, "", "permanent gone"}, {410, "", "permanent gone"}, {413, "", "permanent too_large"},
		{400, "", "permanent webpush_400"}, {401, "", "fail webpush_401"}, {403, "", "fail webpush_403"},
		{429, "", "busy busy"}, {429, "11", "busy busy 11s"}, {503, "11", "busy busy 11s"},
		{500, "", "fail webpush_500"}, {502, "", "fail webpush_502"}, {301, "", "fail webpush_301"},
	} {
		b.answer = func(w http.ResponseWriter) bool {
			if c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
			}
			w.WriteHeader(c.status)
			fmt.Fprint(w, `{"reason":"because"}`)
			return true
		}
		_, err := h.Handle(t.Context(), job(b.payload("")))
		if got := outcome(err); got != c.want || err != nil && !strings.Contains(err.Error(), "because") {
			t.Errorf("%d: %s, want %s: %v", c.status, got, c.want, err)
		}
	}
}

// Tenants choose endpoints: an address that is not public is refused unless it is listed, and nothing is sent to it.
func TestWebPush_GuardsEndpoint(t *testing.T) {
	b := newBrowser(t)
	reached := 0
	b.answer = func(http.ResponseWriter) bool { reached++; return true }
	h := handler(t, Options{VAPIDKeyFile: b.vapidFile(t), Guard: guard(t), TLS: trust(b.Server)})
	localhost := strings.Replace(b.payload(""), "127.0.0.1", "localhost", 1) // a name: judged when it is dialled
	for payload, want := range map[string]string{
		b.payload(""): "permanent address_refused",
		localhost:     "permanent address_refused",
		strings.Replace(b.payload(""), b.URL, "https://[::ffff:10.0.0.1]", 1): "permanent address_refused",
		strings.Replace(b.payload(""), "https:", "http:", 1):                  "permanent address_refused",
		strings.Replace(b.payload(""), b.URL, "http://push.example", 1):       "permanent bad_payload",
		strings.Replace(b.payload(""), "https:", "file:", 1):                  "permanent bad_payload",
	} {
		_, err := h.Handle(t.Context(), job(payload))
		if outcome(err) != want || want == "permanent address_refused" && !strings.Contains(err.Error(), "callbacks.allow") {
			t.Errorf("%.90s: %v", payload, err)
		}
	}
	if reached != 0 {
		t.Errorf("%d requests reached a host that is not listed", reached)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }))
	defer plain.Close()
	h = handler(t, Options{VAPIDKeyFile: b.vapidFile(t), Guard: guard(t, strings.TrimPrefix(plain.URL, "http://"))})
	if _, err := h.Handle(t.Context(), job(strings.Replace(b.payload(""), b.URL, plain.URL, 1))); err != nil {
		t.Errorf("http to a listed host: %v", err)
	}
}

func TestWebPush_CancelsRequest(t *testing.T) {
	started, left := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(started)
		<-r.Context().Done()
		close(left)
	}))
	defer s.Close()
	b := newBrowser(t)
	h := handler(t, Options{VAPIDKeyFile: b.vapidFile(t), Guard: guard(t, "127.0.0.1")})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := h.Handle(ctx, job(strings.Replace(b.payload(""), b.URL, s.URL, 1))); done <- err }()
	<-started
	cancel()
	<-left
	if err := <-done; outcome(err) != "fail cancelled" {
		t.Errorf("%v", err)
	}
}

func TestPush_RefusesBadPayload(t *testing.T) {
	b := newBrowser(t)
	b.answer = func(http.ResponseWriter) bool { t.Error("something was sent"); return true }
	h := b.handler(t)
	key := base64.RawURLEncoding.EncodeToString(b.key.PublicKey().Bytes())
	auth := base64.RawURLEncoding.EncodeToString(b.auth)
	for want, payload := range map[string]string{
		`the payload: EOF`:                                           ``,
		`the payload: more than one JSON value`:                      toAnn + `1`,
		`the payload: json: unknown field "token"`:                   `{"token":"x"}`,
		`the payload: ttl: must not be a string`:                     b.payload(`,"ttl":"1"`),
		`message, subscription, apns: give one of them, message for`: `{}`,
		`message, subscription, apns: give one of them, message`:     b.payload(`,"message":{"token":"x"}`),
		`data, ttl, urgency, topic: only valid with subscription`:    `{"message":{"token":"x"},"data":1}`,
		`validate_only: only valid with message`:                     b.payload(`,"validate_only":true`),
		`message: give one of token, topic and condition`:            `{"message":{}}`,
		`message: give one of token, topic and`:                      `{"message":{"token":"x","topic":"y"}}`,
		`message: give one of token, topic`:                          `{"message":null}`,
		`message: not an object with a string as token`:              `{"message":"x"}`,
		`message: not an object with a string as`:                    `{"message":{"token":1}}`,
		`subscription.endpoint: empty`:                               `{"subscription":{}}`,
		`subscription.keys.p256dh: not a P-256 public key`:           `{"subscription":{"endpoint":"https://push.example","keys":{"auth":"` + auth + `"}}}`,
		`subscription.keys.p256dh: not a P-256 public`:               `{"subscription":{"endpoint":"https://push.example","keys":{"p256dh":"` + key[:80] + `","auth":"` + auth + `"}}}`,
		`subscription.keys.p256dh: not a P-256`:                      `{"subscription":{"endpoint":"https://push.example","keys":{"p256dh":"BA` + strings.Repeat("A", 85) + `","auth":"` + auth + `"}}}`,
		`subscription.keys.auth: not 16 bytes as base64url`:          `{"subscription":{"endpoint":"https://push.example","keys":{"p256dh":"` + key + `","auth":"AAAA"}}}`,
		`ttl: -1 is not 0 to 2419200 seconds`:                        b.payload(`,"ttl":-1`),
		`ttl: 2419201 is not 0 to`:                                   b.payload(`,"ttl":2419201`),
		`urgency: "now" is not very-low, low, normal or high`:        b.payload(`,"urgency":"now"`),
		`topic: not 1 to 32 characters of A-Z a-z 0-9 _ -`:           b.payload(`,"topic":"a b"`),
		`data: \udc00 at byte 1 is half a surrogate pair`:            b.payload(`,"data":"\udc00"`),
		`topic: not 1 to 32`:                                         b.payload(`,"topic":"` + strings.Repeat("x", 33) + `"`),
		`subscription.endpoint: the scheme is "", not http or`:       strings.Replace(b.payload(""), "https:", "", 1),
		`subscription.endpoint: the host is preceded by credentials`: strings.Replace(b.payload(""), "https://", "https://a:b@", 1),
		`the payload: subscription.endpoint: must not be a number`:   `{"subscription":{"endpoint":1}}`,
	} {
		_, err := h.Handle(t.Context(), job(payload))
		if outcome(err) != "permanent bad_payload" || !strings.HasPrefix(err.Error(), "bad_payload: "+want) {
			t.Errorf("%.100s\n got %v\nwant %s", payload, err, want)
		}
	}
	if _, err := h.Handle(t.Context(), job(toAnn)); outcome(err) != "permanent not_configured" || !strings.Contains(err.Error(), "processors.push.fcm.credentials_file") {
		t.Errorf("%v", err)
	}
	h = handler(t, Options{Name: "p", CredentialsFile: credentials(t, "http://127.0.0.1:1/token")})
	if _, err := h.Handle(t.Context(), job(b.payload(""))); outcome(err) != "permanent not_configured" || !strings.Contains(err.Error(), "processors.p.webpush.vapid_key_file") {
		t.Errorf("%v", err)
	}
}

// Every payload is either refused with a reason or becomes a complete request.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{toAnn, `{"subscription":{"endpoint":"https://push.example/1","keys":{"p256dh":"BA","auth":"AA=="}},"data":null,"ttl":1e9}`, `{`, `null`, `{"message":{"topic":"t"},"validate_only":true}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parse(raw)
		if err != nil {
			return
		}
		if (p.Message == nil) == (p.Subscription == nil) {
			t.Fatalf("%q: both or neither", raw)
		}
		if s := p.Subscription; s != nil {
			key, err1 := base64.RawURLEncoding.DecodeString(s.Keys.P256dh)
			auth, err2 := base64.RawURLEncoding.DecodeString(s.Keys.Auth)
			if _, err := ecdh.P256().NewPublicKey(key); err != nil || err1 != nil || err2 != nil || len(auth) != 16 {
				t.Fatalf("%q: keys %+v", raw, s.Keys)
			}
		} else if !json.Valid(p.Message) {
			t.Fatalf("%q: message %q", raw, p.Message)
		}
	})
}

func TestNew_ErrorNamesSetting(t *testing.T) {
	b := newBrowser(t)
	public, private := base64.RawURLEncoding.EncodeToString(b.vapid.PublicKey().Bytes()), base64.RawURLEncoding.EncodeToString(b.vapid.Bytes())
	vapid := func(public, private, subject string) string {
		return file(t, "v.json", map[string]string{"publicKey": public, "privateKey": private, "subject": subject})
	}
	account := credentials(t, "https://oauth2.example/token")
	for want, o := range map[string]Options{
		"processors.push.fcm.credentials_file: empty, and so are webpush.vapid_key_file and apns.key_file": {},
		"processors.p.fcm.endpoint: it has no effect without fcm.credentials_file":                         {Name: "p", Endpoint: "https://x.example", VAPIDKeyFile: vapid(public, private, "mailto:a@b.example"), Guard: guard(t)},
		"processors.push.fcm.credentials_file: open /nowhere":                                              {CredentialsFile: "/nowhere"},
		"processors.push.fcm.credentials_file: $":                                                          {CredentialsFile: file(t, "a.json", map[string]string{"type": "authorized_user"})},
		"processors.push.fcm.endpoint: the scheme is":                                                      {CredentialsFile: account, Endpoint: "fcm.example"},
		"processors.push.webpush.vapid_key_file: open":                                                     {VAPIDKeyFile: "/nowhere"},
		"processors.push.webpush.vapid_key_file: Opti":                                                     {VAPIDKeyFile: vapid(public, private, "mailto:a@b.example")},
		"$: not {\"publicKey\"":                                                                            {VAPIDKeyFile: file(t, "v.json", []byte("-----BEGIN"))},
		"$: privateKey: empty":                                                                             {VAPIDKeyFile: vapid(public, "", "mailto:a@b.example")},
		"$: privateKey: not base64url":                                                                     {VAPIDKeyFile: vapid(public, "!", "mailto:a@b.example")},
		"$: privateKey: not the 32 bytes":                                                                  {VAPIDKeyFile: vapid(public, "AAAA", "mailto:a@b.example")},
		"$: publicKey: not that of privateKey":                                                             {VAPIDKeyFile: vapid(private, private, "mailto:a@b.example")},
		"$: subject: \"\" is not a contact":                                                                {VAPIDKeyFile: vapid(public, private, "")},
		"$: subject: \"ops@example.com\" is not a con":                                                     {VAPIDKeyFile: vapid(public, private, "ops@example.com")},
		"$: subject: \"http://x.example\" is not":                                                          {VAPIDKeyFile: vapid(public, private, "http://x.example")},
		"$: private_key: not a PEM private key": {CredentialsFile: file(t, "a.json", map[string]string{"type": "service_account", "project_id": "p",
			"client_email": "e", "token_uri": "https://t.example", "private_key": "x"})},
		"$: project_id or client_email is missing": {CredentialsFile: file(t, "a.json", map[string]string{"type": "service_account", "token_uri": "https://t.example"})},
	} {
		_, err := New(o)
		before, after, both := strings.Cut(want, "$")
		ok := err != nil && strings.HasPrefix(err.Error(), before) && strings.Contains(err.Error(), after)
		if both && ok {
			ok = strings.HasPrefix(err.Error(), "processors.push.fcm.credentials_file: /") || strings.HasPrefix(err.Error(), "processors.push.webpush.vapid_key_file: /")
		}
		if !ok || strings.Contains(err.Error(), private) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	for _, o := range []Options{
		{CredentialsFile: account},
		{VAPIDKeyFile: vapid(public, private, "https://example.com/contact"), Guard: guard(t)},
		{VAPIDKeyFile: vapid("", private, "mailto:a@b.example"), Guard: guard(t), CredentialsFile: account},
	} {
		if _, err := New(o); err != nil {
			t.Error(err)
		}
	}
}
