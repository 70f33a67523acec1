package push

import (
	"context"
	"encoding/json"
	"errors"
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

// firebase is a server with FCM's HTTP v1 and the token endpoint: it issues tokens only for assertions that the account
// signed, and accepts messages only with a token that it issued and that has not expired.
type firebase struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	given    int
	lifetime int // of a token, seconds
	revoked  map[string]bool
	messages []string
	protocol string
	answer   func(w http.ResponseWriter) bool // to a message that is authorized; true: it has answered
	token    func(w http.ResponseWriter) bool // to a request for a token; true: it has answered
}

func newFirebase(t *testing.T) *firebase {
	t.Helper()
	g := &firebase{t: t, lifetime: 3600, revoked: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", g.giveToken)
	mux.HandleFunc("POST /v1/projects/shop-1/messages:send", g.send)
	g.Server = httptest.NewUnstartedServer(mux)
	g.EnableHTTP2 = true
	g.StartTLS()
	t.Cleanup(g.Close)
	return g
}

func (g *firebase) giveToken(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token != nil && g.token(w) {
		return
	}
	if grant := r.PostFormValue("grant_type"); grant != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		g.t.Errorf("grant_type %q", grant)
	}
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(r.PostFormValue("assertion"), claims, func(*jwt.Token) (any, error) { return &accountKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer("push@shop-1.example"), jwt.WithAudience(g.URL+"/token"),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(time.Minute))
	if err != nil || token.Header["kid"] != "kid-1" || claims["scope"] != scope {
		g.t.Errorf("assertion: %v, header %v, claims %v", err, token.Header, claims)
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	g.given++
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":%d,"token_type":"Bearer"}`, g.given, g.lifetime)
}

func (g *firebase) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		g.t.Error(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.protocol = r.Proto
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if g.revoked[token] || token != fmt.Sprintf("token-%d", g.given) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":{"code":401,"message":"Request had invalid authentication credentials.","status":"UNAUTHENTICATED"}}`)
		return
	}
	if g.answer != nil && g.answer(w) {
		return
	}
	var m struct {
		Message struct{ Token string }
	}
	if err := json.Unmarshal(body, &m); err != nil || r.Header.Get("Content-Type") != "application/json" {
		g.t.Errorf("%v in %s", err, body)
	}
	g.messages = append(g.messages, string(body))
	fmt.Fprintf(w, `{"name":"projects/shop-1/messages/%d"}`, len(g.messages))
}

func (g *firebase) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func (g *firebase) options(t *testing.T) Options {
	return Options{CredentialsFile: credentials(t, g.URL+"/token"), Endpoint: g.URL, TLS: trust(g.Server)}
}

const toAnn = `{"message":{"token":"ann","notification":{"title":"Hi <Ann>"},"data":{"n":"1"}}}`

func TestFCM_SendsMessage(t *testing.T) {
	g := newFirebase(t)
	h := handler(t, g.options(t))
	for range 3 {
		result, err := h.Handle(t.Context(), job(toAnn))
		if err != nil || !strings.HasPrefix(string(result), `{"name":"projects/shop-1/messages/`) {
			t.Fatalf("%s, %v", result, err)
		}
	}
	if g.given != 1 {
		t.Errorf("%d tokens for three messages", g.given)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal([]byte(g.messages[0]), &got), json.Unmarshal([]byte(toAnn), &want)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("FCM got %s", g.messages[0])
	}
	if g.protocol != "HTTP/2.0" {
		t.Error(g.protocol)
	}
	if _, err := h.Handle(t.Context(), job(`{"validate_only":true,"message":{"topic":"news"}}`)); err != nil || g.messages[3] != `{"validate_only":true,"message":{"topic":"news"}}` {
		t.Errorf("%v, %s", err, g.messages)
	}
}

// A notification that was sent does not fail because its result is too long.
func TestPush_DropsLongResult(t *testing.T) {
	g := newFirebase(t)
	o := g.options(t)
	for most, want := range map[int]string{31: "", 63: `{"dropped":"result_too_large","limit":63}`} {
		o.MaxResult = most
		g.set(func() {
			g.given = 0
			g.answer = func(w http.ResponseWriter) bool {
				_, _ = fmt.Fprintf(w, `{"name":%q}`, strings.Repeat("x", most))
				return true
			}
		})
		if result, err := handler(t, o).Handle(t.Context(), job(toAnn)); err != nil || string(result) != want {
			t.Errorf("limit %d: %s, %v, want %s", most, result, err, want)
		}
	}
}

// A token is renewed once for all callers, before it expires or when FCM refuses it.
func TestFCM_RenewsToken(t *testing.T) {
	g := newFirebase(t)
	h := handler(t, g.options(t))
	if _, err := h.Handle(t.Context(), job(toAnn)); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(h.fcm.tokens.until); left > 54*time.Minute || left < 53*time.Minute {
		t.Errorf("a token of one hour is used for %s", left)
	}
	h.fcm.tokens.until = time.Now() // as it is 54 minutes on
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := h.Handle(t.Context(), job(toAnn)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if g.given != 2 {
		t.Errorf("%d tokens; ten callers want one", g.given)
	}
	g.set(func() { g.revoked["token-2"] = true })
	if _, err := h.Handle(t.Context(), job(toAnn)); err != nil || g.given != 3 {
		t.Errorf("a revoked token: %v, %d tokens", err, g.given)
	}
	g.set(func() { g.revoked["token-3"], g.revoked["token-4"] = true, true })
	if _, err := h.Handle(t.Context(), job(toAnn)); outcome(err) != "fail fcm_401" || g.given != 4 {
		t.Errorf("an account that is shut out: %v, %d tokens", err, g.given)
	}
}

func TestFCM_MapsResponses(t *testing.T) {
	g := newFirebase(t)
	h := handler(t, g.options(t))
	refusal := func(status int, name, code string) string {
		details := ""
		if code != "" {
			details = `{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"` + code + `"}`
		}
		return fmt.Sprintf(`{"error":{"code":%d,"message":"because","status":%q,"details":[%s]}}`, status, name, details)
	}
	for _, c := range []struct {
		status     int
		retryAfter string
		body       string
		want       string
	}{
		{404, "", refusal(404, "NOT_FOUND", "UNREGISTERED"), "permanent unregistered"},
		{410, "", refusal(410, "GONE", "UNREGISTERED"), "permanent unregistered"},
		{404, "", refusal(404, "NOT_FOUND", ""), "permanent fcm_404"}, // a wrong project, say: no reason to forget the token
		{400, "", refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"), "permanent fcm_400"},
		{403, "", refusal(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"), "permanent sender_id_mismatch"},
		{403, "", refusal(403, "PERMISSION_DENIED", ""), "fail fcm_403"},
		{401, "", refusal(401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR"), "fail fcm_401"},
		{429, "", refusal(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"), "busy busy"},
		{429, "60", refusal(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"), "busy group busy 1m0s"},
		{503, "5", refusal(503, "UNAVAILABLE", "UNAVAILABLE"), "busy busy 5s"},
		{500, "", refusal(500, "INTERNAL", "INTERNAL"), "fail fcm_500"},
		{502, "", "<html>bad gateway</html>", "fail fcm_502"},
		{302, "", "", "fail fcm_302"},
	} {
		t.Run(fmt.Sprint(c.status, c.want), func(t *testing.T) {
			before := g.given
			g.set(func() {
				g.answer = func(w http.ResponseWriter) bool {
					if c.retryAfter != "" {
						w.Header().Set("Retry-After", c.retryAfter)
					}
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.body)
					return true
				}
			})
			_, err := h.Handle(t.Context(), job(toAnn))
			if got := outcome(err); got != c.want || strings.Contains(c.body, "because") && !strings.Contains(err.Error(), "because") {
				t.Errorf("%s, want %s: %v", got, c.want, err)
			}
			if before > 0 && g.given != before {
				t.Error("the token was thrown away for it")
			}
		})
	}
}

func TestFCM_ReportsTokenEndpoint(t *testing.T) {
	g := newFirebase(t)
	h := handler(t, g.options(t))
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{400, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`, "fail fcm_credentials"},
		{401, `{}`, "fail fcm_credentials"},
		{429, ``, "busy busy 9s"},
		{503, ``, "busy busy 9s"},
		{500, ``, "fail fcm_token_500"},
		{200, `{}`, "fail fcm_credentials"},
		{200, `nonsense`, "fail connection"},
	} {
		g.set(func() {
			g.token = func(w http.ResponseWriter) bool {
				w.Header().Set("Retry-After", "9")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
				return true
			}
		})
		if _, err := h.Handle(t.Context(), job(toAnn)); outcome(err) != c.want {
			t.Errorf("%d %s: %v, want %s", c.status, c.body, err, c.want)
		}
	}
	g.set(func() { g.token = nil })
	if _, err := h.Handle(t.Context(), job(toAnn)); err != nil {
		t.Errorf("after it has recovered: %v", err)
	}
}

// Cancelling the context ends the request for a token, the request for a message, and the wait for a token that another job requests.
func TestFCM_CancelsRequest(t *testing.T) {
	started, left := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		started <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	defer s.Close()
	h := handler(t, Options{CredentialsFile: credentials(t, s.URL+"/token"), Endpoint: s.URL})
	for _, what := range []string{"token", "message"} {
		if what == "message" {
			h.fcm.tokens.current, h.fcm.tokens.until = "token-1", time.Now().Add(time.Hour)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := h.Handle(ctx, job(toAnn)); done <- err }()
		<-started
		if what == "token" {
			waiting, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
			if _, err := h.Handle(waiting, job(toAnn)); outcome(err) != "fail timeout" {
				t.Errorf("who waits for the token: %v", err)
			}
			stop()
		}
		cancel()
		<-left
		if err := <-done; outcome(err) != "fail cancelled" {
			t.Errorf("%s: %v", what, err)
		}
	}
	h = handler(t, Options{CredentialsFile: credentials(t, s.URL+"/token"), Endpoint: s.URL, Timeout: 2 * time.Second})
	done := make(chan error, 1)
	go func() { _, err := h.Handle(t.Context(), job(toAnn)); done <- err }()
	<-started
	<-left
	if err := <-done; outcome(err) != "fail timeout" {
		t.Errorf("time-out: %v", err)
	}
}
