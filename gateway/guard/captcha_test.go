package guard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var visitor = netip.MustParseAddr("203.0.113.7")

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
		case answer == "flood":
			w.WriteHeader(429)
			fmt.Fprint(w, "<html>slow down</html>")
		case answer == "forbidden":
			w.WriteHeader(403)
			fmt.Fprint(w, `{"detail":"blocked"}`)
		case answer == "garbage", strings.ContainsAny(answer, "<' é"):
			fmt.Fprint(w, "<html>we are sorry</html>")
		case answer == "redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case answer == "bad":
			w.WriteHeader(400)
			no("invalid-input-response")
		case answer == "nowhere":
			fmt.Fprint(w, `{"success":true}`)
		case strings.HasPrefix(answer, "on="):
			fmt.Fprintf(w, `{"success":true,"hostname":%q}`, strings.TrimPrefix(answer, "on="))
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
	return s, Captcha{Provider: ReCaptcha, SiteKey: "site", Secret: "s3cret", VerifyURL: s.URL, Timeout: time.Minute, Hosts: []string{"shop.test", "*.Shop.example"}}
}

const (
	yes, no = "yes", "no"
	refused = "refused" // not checked, although the provider is not away
	away    = "away"
)

func outcome(err error) string {
	switch {
	case err == nil:
		return yes
	case errors.Is(err, ErrFailed):
		return no
	case errors.Is(err, ErrRefused):
		return refused
	}
	return away
}

func TestCaptcha(t *testing.T) {
	_, c := provider(t)
	other, hasty, anywhere := c, c, c
	other.Secret, hasty.Timeout, anywhere.Hosts = "wrong", 200*time.Millisecond, nil
	for _, row := range []struct {
		c            Captcha
		answer, want string
	}{
		{c, "a", yes}, {c, "a", no}, {c, "b", yes}, {c, "bad", no}, {c, "score_0.9", yes}, {c, "score_0.3", no},
		{c, "on=phish.evil", no}, {c, "nowhere", no}, {c, "on=shop.test.", yes}, {c, "on=www.shop.example", yes}, {c, "on=shop.example", no},
		{c, "on=evilshop.example", no}, {anywhere, "on=shop.test", no}, {anywhere, "nowhere", no},
		{c, "flood", refused}, {c, "forbidden", refused},
		{c, "5xx", away}, {hasty, "slow", away}, {c, "garbage", away}, {c, "<script>", no}, {c, "' or 1", no}, {c, "é", no}, {c, "redirect", away}, {other, "c", away},
	} {
		v := NewVerifier()
		defer v.Close()
		if row.want == away {
			v.health[row.c.VerifyURL] = &health{failures: failuresAway - 1}
		}
		if err := v.Verify(t.Context(), &row.c, row.answer, visitor); outcome(err) != row.want {
			t.Errorf("%s: %v, want %s", row.answer, err, row.want)
		}
	}
}

// on_fail: open opens a room while the provider is away. Neither a question that fails nor a provider that is asked too much shows
// that, so whoever sends rubbish gets in by neither.
func TestVerifier_Away(t *testing.T) {
	s, c := provider(t)
	answers := make(chan int, 1)
	asked := 0
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(<-answers)
	})
	v := NewVerifier()
	defer v.Close()
	for i, row := range []struct {
		status int // 0: it must not be asked
		want   string
	}{
		{500, refused}, {500, refused}, {429, refused}, // it answers
		{500, refused}, {502, refused}, {503, away}, {0, away}, {0, away},
	} {
		before := asked
		if row.status > 0 {
			answers <- row.status
		}
		if err := v.Verify(t.Context(), &c, "a", visitor); outcome(err) != row.want {
			t.Errorf("question %d (%d): %v, want %s", i, row.status, err, row.want)
		}
		if was := asked > before; was != (row.status > 0) {
			t.Errorf("question %d: asked %v", i, was)
		}
	}
	h := v.health[c.VerifyURL]
	h.next = time.Time{} // as after a rest
	if !v.due(c.VerifyURL, time.Now()) || v.due(c.VerifyURL, time.Now()) {
		t.Error("after a rest a provider that is away is asked by one join")
	}
	h.next = time.Time{}
	answers <- 429
	if err := v.Verify(t.Context(), &c, "a", visitor); outcome(err) != refused || v.health[c.VerifyURL] != nil {
		t.Errorf("a provider that is back, and refuses: %v", err)
	}
}

// One client address has a share of the questions that are asked at once, so that nobody stops the CAPTCHA for others.
func TestVerifier_MergesEqualRequests(t *testing.T) {
	v := NewVerifier()
	defer v.Close()
	var leave []func()
	for i := range asksShare {
		done, ok := v.enter(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 15: byte(i)})) // one /64
		if !ok {
			t.Fatalf("question %d is refused", i)
		}
		leave = append(leave, done)
	}
	if _, ok := v.enter(netip.MustParseAddr("2001::ffff")); ok {
		t.Error("a question beyond the share is asked")
	}
	for _, other := range []string{"2001:0:0:1::1", "203.0.113.7", "::ffff:203.0.113.8"} {
		done, ok := v.enter(netip.MustParseAddr(other))
		if !ok {
			t.Fatalf("%s is refused", other)
		}
		done()
	}
	for _, done := range leave {
		done()
	}
	if len(v.shares) != 0 {
		t.Errorf("left over: %v", v.shares)
	}
}
