package page_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/internal/axe"
)

// working is a site whose room requires a proof of work.
type working struct {
	*httptest.Server
	page    *page.Page
	scripts *guard.Scripts
	proofs  *guard.Proofs
	captcha guard.Captcha
	policy  string                     // of the workers
	change  func(script []byte) []byte // what workers get in place of the script; nil: just that

	mu       sync.Mutex
	asked    int      // challenges
	joins    []string // proofs
	answers  []string // to CAPTCHAs
	verified int
	strange  []string
}

func newWorking(t testing.TB, captcha guard.Captcha) *working {
	t.Helper()
	texts, err := page.GuardTexts()
	if err != nil {
		t.Fatal(err)
	}
	s := &working{scripts: guard.NewScripts(texts), proofs: guard.NewProofs([]byte("a key that is only used in tests")), captcha: captcha, policy: guard.WorkerPolicy}
	o := page.Options{Room: "sale", Title: "Harbour Hall", Absence: 10 * time.Minute}
	o.Guard.Script = func(lang string) string { return "/.waiting-room/" + s.scripts.Name(lang) }
	o.Guard.Scripts, o.Guard.Frames = captcha.Sources()
	if s.page, err = page.New(o); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		for _, request := range s.strange {
			t.Errorf("the page asked for %s", request)
		}
	})
	return s
}

func (s *working) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := strings.TrimPrefix(r.URL.Path, "/.waiting-room/"); strings.HasPrefix(name, "pow-") {
		script, forever, ok := s.scripts.Find(name)
		if !ok || !forever {
			s.strange = append(s.strange, name)
		}
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		w.Header().Set("Content-Security-Policy", s.policy)
		if s.change != nil && r.Header.Get("Sec-Fetch-Dest") == "worker" {
			script = s.change(script)
		}
		_, _ = w.Write(script)
		return
	}
	switch r.URL.Path {
	case "/.waiting-room/sale/challenge":
		if s.captcha.Provider != "" {
			_, _ = fmt.Fprintf(w, `{"captcha":{"provider":%q,"site_key":"0x4"}}`, s.captcha.Provider)
			return
		}
		s.asked++
		_ = json.NewEncoder(w).Encode(s.proofs.Challenge(200_000, time.Now().Unix()+60))
	case "/.waiting-room/sale/tickets":
		var join struct{ Altcha, Captcha string }
		_ = json.NewDecoder(r.Body).Decode(&join)
		s.answers = append(s.answers, join.Captcha)
		if s.joins = append(s.joins, join.Altcha); len(s.joins) == 1 { // once nothing comes of it
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, `{"code":"proof_expired"}`)
			return
		}
		if _, err := s.proofs.Verify(join.Altcha, time.Now().Unix()); err == nil {
			s.verified++
		}
		http.SetCookie(w, &http.Cookie{Name: "ticket", Value: "1", Path: "/", HttpOnly: true})
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"state":"waiting"}`)
	case "/.waiting-room/sale/status":
		_, _ = fmt.Fprint(w, `{"room":"sale","state":"waiting","position":3,"ahead":2,"waiting":9,"refresh_after":30,"message":"","paused":false}`)
	case "/tickets":
		view := page.View{State: "proof", RefreshAfter: 30, AcceptLanguage: r.Header.Get("Accept-Language")}
		if _, err := r.Cookie("ticket"); err == nil {
			view = page.View{State: "waiting", Position: 3, Ahead: 2, Waiting: 9, RefreshAfter: 30}
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", s.page.Header())
		_, _ = w.Write(s.page.Append(nil, &view))
	default:
		s.strange = append(s.strange, r.Method+" "+r.URL.String())
		w.WriteHeader(http.StatusNotFound)
	}
}

// instead replaces a part of the script.
func instead(t testing.TB, part, other string) func([]byte) []byte {
	return func(script []byte) []byte {
		if !bytes.Contains(script, []byte(part)) {
			t.Errorf("the script has no %q", part)
		}
		return bytes.ReplaceAll(script, []byte(part), []byte(other))
	}
}

// withoutWebAssembly returns how search.js finds a browser that has none, and withoutPlain is how it is left to WebAssembly.
func withoutWebAssembly(t testing.TB) func([]byte) []byte {
	return instead(t, "WebAssembly.", "undefined.")
}
func withoutPlain(t testing.TB) func([]byte) []byte { return instead(t, "plain(M, W)", "undefined") }

// A page computes its proof in workers, joins, tries again after a failure, and shows its place: with WebAssembly under the
// policy of the script, and without it in browsers that lack WebAssembly or its policy keyword.
func TestProof_PageJoins(t *testing.T) {
	for name, prepare := range map[string]func(*working){
		"by WebAssembly alone":  func(s *working) { s.change = withoutPlain(t) },
		"where it is forbidden": func(s *working) { s.policy = "default-src 'none'" },
		"where there is none":   func(s *working) { s.change = withoutWebAssembly(t) },
		"of another challenge where one has no solution": func(s *working) {
			s.change = func(script []byte) []byte {
				if s.asked == 1 {
					return []byte("onmessage = () => postMessage({number: -1})")
				}
				return script
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWorking(t, guard.Captcha{})
			prepare(s)
			ctx := tab(t, nil)
			complaints := watch(t, ctx)
			do(t, ctx, chromedp.Navigate(s.URL+"/tickets?row=7#seat"))
			eventually(t, ctx, `document.querySelector("main").dataset.state === "waiting" && document.getElementById("place").textContent === "3"`)
			if got := value[string](t, ctx, `location.pathname + location.search`); got != "/tickets?row=7" {
				t.Errorf("the page is at %s", got)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.joins) != 2 || s.verified != 1 || s.joins[0] == s.joins[1] {
				t.Errorf("%d joins, %d verified, of which the second had a new proof: %v", len(s.joins), s.verified, s.joins[0] != s.joins[len(s.joins)-1])
			}
			for _, complaint := range complaints() {
				t.Errorf("the browser complains: %s", complaint)
			}
		})
	}
}

func TestProof_PageIsAccessible(t *testing.T) {
	source, err := axe.Source()
	if err != nil {
		t.Fatal(err)
	}
	s := newWorking(t, guard.Captcha{})
	// Workers that are more than half done, and stay so.
	s.change = func([]byte) []byte {
		return []byte(`onmessage = ({data}) => postMessage({tried: .6 * data.maxnumber / data.parts})`)
	}
	ctx := tab(t, nil)
	for _, scheme := range []string{"light", "dark"} {
		for width, language := range map[int64]string{320: "ko", 1280: "en"} {
			call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
			speak(t, ctx, language)
			do(t, ctx, chromedp.EmulateViewport(width, 800), chromedp.Navigate(s.URL+"/tickets"))
			eventually(t, ctx, `!!document.querySelector("main > progress[aria-label]") && document.querySelector("main > progress").value > .5`)
			// A screen reader hears of it in steps, and of nothing that is not there yet.
			if said := value[string](t, ctx, `document.getElementById("live").textContent`); said == "" {
				t.Error("nothing is said")
			}
			if value[bool](t, ctx, `document.getElementById("keep").checkVisibility()`) {
				t.Error("a place is said to be kept that there is not")
			}
			audit(t, ctx, source)
		}
	}
}

// widget stands in for a provider's script.
const widget = `{
	const at = new URL(document.currentScript.src).searchParams;
	if (at.get("render") !== "explicit") throw "it is not to render by itself";
	window.%s = {render(place, {sitekey, callback}) {
		const button = document.createElement("button");
		button.textContent = "I am a person";
		button.id = "person";
		button.onclick = () => callback("answer of " + sitekey);
		place.append(button);
	}};
	setTimeout(window[at.get("onload")]);
}`

// A page shows each provider's widget, loads nothing from other hosts, sends the solution, and repeats the CAPTCHA if it was refused.
func TestProof_PageShowsCaptcha(t *testing.T) {
	for provider, global := range map[string]string{guard.Turnstile: "turnstile", guard.HCaptcha: "hcaptcha", guard.ReCaptcha: "grecaptcha"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			s := newWorking(t, guard.Captcha{Provider: provider})
			ctx := tab(t, nil)
			complaints := watch(t, ctx)
			if err := chromedp.Listen(ctx, func(event any) {
				if e, ok := event.(*fetch.EventRequestPaused); ok {
					go func() {
						_, err := chromedp.Call(ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{
							RequestID: e.RequestID, ResponseCode: 200, Body: fmt.Appendf(nil, widget, global),
							ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "text/javascript"}},
						})
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}()
				}
			}); err != nil {
				t.Fatal(err)
			}
			call(t, ctx, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "https://*"}}})
			do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
			for n := 1; n <= 2; n++ {
				eventually(t, ctx, `!!document.getElementById("person") && !document.getElementById("person").dataset.used`)
				do(t, ctx, chromedp.Evaluate[chromedp.Void](`document.getElementById("person").dataset.used = 1; document.getElementById("person").click()`))
				until(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.answers) >= n }, func() string { return "no answer was sent" })
			}
			eventually(t, ctx, `document.querySelector("main").dataset.state === "waiting"`)
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := fmt.Sprint(s.answers); got != "[answer of 0x4 answer of 0x4]" {
				t.Errorf("the answers: %s", got)
			}
			for _, complaint := range complaints() {
				t.Errorf("the browser complains: %s", complaint)
			}
		})
	}
}
