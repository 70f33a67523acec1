package guard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider answers as those who make CAPTCHAs do: an answer counts once.
func provider(t *testing.T) (*httptest.Server, Captcha) {
	spent := map[string]bool{}
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := r.PostFormValue("response")
		no := func(code string) { fmt.Fprintf(w, `{"success":false,"error-codes":[%q]}`, code) }
		switch {
		case r.PostFormValue("secret") != "s3cret":
			no("invalid-input-secret")
		case r.PostFormValue("remoteip") != "203.0.113.7":
			no("invalid-remoteip")
		case answer == "5xx":
			w.WriteHeader(503)
			no("internal")
		case answer == "slow":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case answer == "garbage", strings.ContainsAny(answer, "<' é"):
			fmt.Fprint(w, "<html>we are sorry</html>")
		case answer == "redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case answer == "bad":
			w.WriteHeader(400)
			no("invalid-input-response")
		case answer == "elsewhere":
			fmt.Fprint(w, `{"success":true,"hostname":"evil.test"}`)
		case strings.HasPrefix(answer, "score_"):
			fmt.Fprintf(w, `{"success":true,"hostname":"shop.test","score":%s}`, strings.TrimPrefix(answer, "score_"))
		case spent[answer]:
			no("timeout-or-duplicate")
		default:
			spent[answer] = true
			fmt.Fprint(w, `{"success":true,"challenge_ts":"2026-01-02T03:04:05Z","hostname":"SHOP.test"}`)
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	return s, Captcha{Provider: ReCaptcha, SiteKey: "site", Secret: "s3cret", VerifyURL: s.URL, Timeout: time.Minute}
}

func TestCaptcha(t *testing.T) {
	_, c := provider(t)
	verify := func(c Captcha, answer string) error {
		v := NewVerifier() // a new one has heard of no outage
		defer v.Close()
		return v.Verify(t.Context(), &c, answer, "203.0.113.7", "shop.test")
	}
	const yes, no, away = "yes", "no", "away"
	other, hasty := c, c
	other.Secret, hasty.Timeout = "wrong", 200*time.Millisecond
	for _, row := range []struct {
		c            Captcha
		answer, want string
	}{
		{c, "a", yes}, {c, "a", no}, {c, "b", yes}, {c, "bad", no}, {c, "elsewhere", no}, {c, "score_0.9", yes}, {c, "score_0.3", no},
		{c, "5xx", away}, {hasty, "slow", away}, {c, "garbage", away}, {c, "<script>", no}, {c, "' or 1", no}, {c, "é", no}, {c, "redirect", away}, {other, "c", away},
	} {
		err := verify(row.c, row.answer)
		got := away
		switch {
		case err == nil:
			got = yes
		case errors.Is(err, ErrFailed):
			got = no
		}
		if got != row.want {
			t.Errorf("%s: %v, want %s", row.answer, err, row.want)
		}
	}
}

// While a provider is away nobody waits for it more than once a second.
func TestAProviderThatIsAwayIsLeftAlone(t *testing.T) {
	s, c := provider(t)
	asked := 0
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(500)
	})
	v := NewVerifier()
	defer v.Close()
	for range 20 {
		if err := v.Verify(t.Context(), &c, "a", "203.0.113.7", "shop.test"); err == nil || errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
	}
	if asked > 10 {
		t.Errorf("it was asked %d times", asked)
	}
}
