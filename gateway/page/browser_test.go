package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/internal/short"
)

// chromium is started once for the whole test binary, without its window where Debian's chromium-headless-shell is installed: the windows
// of a full Chromium take two thirds of the processor time. Each test has its own browser context, and so its own cookies.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // these tests wait for a browser more than they compute
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

func startChromium() (context.Context, func(), error) {
	var path string
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, nil, errors.New("the browser tests need Chromium: apt-get install chromium (macOS: brew install --cask chromium)")
	}
	profile, err := os.MkdirTemp("", "anteroom-chromium-")
	if err != nil {
		return nil, nil, err
	}
	allocated, free := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.WSURLReadTimeout(time.Minute), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("autoplay-policy", "user-gesture-required"))
	ctx, closeBrowser := chromedp.NewContext(allocated)
	stop := func() {
		closeBrowser()
		free()
		_ = os.RemoveAll(profile)
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return ctx, stop, nil
}

// deadline bounds each wait for the browser.
const deadline = time.Minute

// tab opens a new tab: beside another one, in its browser context, or in a fresh one where that is nil.
func tab(t testing.TB, beside context.Context) context.Context {
	t.Helper()
	short.Skip(t, "drives a browser")
	chromium.once.Do(func() { chromium.ctx, chromium.stop, chromium.err = startChromium() })
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	var options []chromedp.ContextOption
	if beside == nil {
		beside, options = chromium.ctx, append(options, chromedp.WithNewBrowserContext())
	}
	ctx, cancel := chromedp.NewContext(beside, options...)
	t.Cleanup(cancel)
	do(t, ctx)
	return ctx
}

func do(t testing.TB, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func call[P, R any](t testing.TB, ctx context.Context, command cdp.Command[P, R], params P) R {
	t.Helper()
	r, err := chromedp.Call(ctx, command, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// value evaluates an expression in the page.
func value[T any](t testing.TB, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// eventually waits until the expression is true in the page, over navigations too. Its failure has the content of the page.
func eventually(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	until(t, func() bool {
		// Between two documents there is nothing to ask.
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok
	}, func() string {
		text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.title + "\n" + document.body.innerText`))
		return fmt.Sprintf("never true: %s\nthe page (%v):\n%s", expression, err, text)
	})
}

func until(t *testing.T, done func() bool, failure func() string) {
	t.Helper()
	limit := time.After(deadline)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-limit:
			t.Fatal(failure())
		case <-tick.C:
		}
	}
}

// site is what a browser talks to: the page until it has a pass, the shop from then on, and a status endpoint that
// responds from a script. All other requests of the browser are recorded as strange.
type site struct {
	*httptest.Server
	page *page.Page

	mu      sync.Mutex
	view    page.View
	answers []answer // the last one is repeated
	polls   int
	pages   int
	methods []string // of requests for /tickets
	joins   []answer // of POST tickets, the last one is repeated; none: the site gives tickets with its page
	joined  int
	strange []string
}

// answer is one response of the status endpoint; status 0 cuts the connection.
type answer struct {
	status int
	body   string
	pass   bool // sets the cookie that opens the shop
}

func waiting(position int, more ...string) answer {
	fields := append([]string{fmt.Sprintf(`"room":"sale","state":"waiting","position":%d,"ahead":%d,"waiting":5000,"refresh_after":0.2,"joined_at":"2026-01-02T03:04:05.000000Z","message":"","paused":false`, position, position-1)}, more...)
	return answer{status: 200, body: "{" + strings.Join(fields, ",") + "}"}
}

var admitted = answer{status: 200, body: `{"room":"sale","state":"admitted","pass":"x","message":"","paused":false}`, pass: true}

func newSite(t *testing.T, view page.View, answers ...answer) *site {
	t.Helper()
	return newSiteWith(t, page.Options{Room: "sale", Title: "Harbour Hall", Absence: 10 * time.Minute}, view, answers...)
}

func newSiteWith(t *testing.T, o page.Options, view page.View, answers ...answer) *site {
	t.Helper()
	p, err := page.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{page: p, view: view, answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		for _, request := range s.strange {
			t.Errorf("the page asked for %s", request)
		}
	})
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	switch r.URL.Path {
	case "/.waiting-room/sale/status":
		s.status(w, r)
	case "/.waiting-room/sale/tickets":
		if len(s.joins) == 0 || r.Method != http.MethodPost {
			s.strange = append(s.strange, r.Method+" "+r.URL.String())
		}
		s.joined++
		s.respond(w, s.joins[min(s.joined-1, len(s.joins)-1)])
	case "/tickets", "/", "/.waiting-room/sale/":
		if c, err := r.Cookie("pass"); err == nil && c.Value == "1" && !strings.HasPrefix(r.URL.Path, "/.") {
			s.methods = append(s.methods, r.Method+" "+r.URL.RequestURI())
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprint(w, `<link rel="icon" href="data:,"><title>The shop</title><h1>Tickets</h1>`)
			return
		}
		if r.Method == http.MethodHead { // an API call
			w.WriteHeader(map[bool]int{true: 503, false: 202}[s.view.State == "rejected"])
			return
		}
		s.pages++
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", s.page.Header())
		view := s.view
		view.AcceptLanguage = r.Header.Get("Accept-Language")
		_, _ = w.Write(s.page.Append(nil, &view))
	case "/error":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", page.ErrorHeader())
		_, _ = w.Write(page.ErrorPage(nil, &page.Error{Status: 502, Title: "The site does not answer", Detail: "Please try again in a minute."}))
	default:
		s.strange = append(s.strange, r.Method+" "+r.URL.String())
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *site) status(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Header.Get("Accept") != "application/json" {
		s.strange = append(s.strange, r.Method+" "+r.URL.String()+" "+r.Header.Get("Accept"))
	}
	s.polls++
	s.respond(w, s.answers[min(s.polls-1, len(s.answers)-1)])
}

func (s *site) respond(w http.ResponseWriter, a answer) {
	if a.status == 0 {
		panic(http.ErrAbortHandler)
	}
	if a.pass {
		http.SetCookie(w, &http.Cookie{Name: "pass", Value: "1", Path: "/", HttpOnly: true})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = fmt.Fprint(w, a.body)
}

// then replaces the responses of the status endpoint, and the view of the page if one is given.
func (s *site) then(view *page.View, answers ...answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if view != nil {
		s.view = *view
	}
	s.answers = append(s.answers[:0:0], answers...)
	s.polls = 0
}

// polled waits until the status endpoint has responded n times since the last change of its responses. A tab has one poll at a
// time, so it has then shown the responses before the nth.
func (s *site) polled(t *testing.T, n int) {
	t.Helper()
	until(t, func() bool { polls, _ := s.counts(); return polls >= n },
		func() string { polls, _ := s.counts(); return fmt.Sprintf("%d polls, want %d", polls, n) })
}

func (s *site) counts() (polls, pages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls, s.pages
}

// speak sets the browser's Accept-Language.
func speak(t *testing.T, ctx context.Context, language string) {
	t.Helper()
	agent := value[string](t, ctx, "navigator.userAgent")
	call(t, ctx, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: agent, AcceptLanguage: language})
}

// watch collects exceptions, console errors and policy violations.
func watch(t *testing.T, ctx context.Context) func() []string {
	t.Helper()
	var mu sync.Mutex
	var said []string
	err := chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			said = append(said, fmt.Sprintf("%+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			b, _ := json.Marshal(e.Args)
			said = append(said, string(b))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(t, ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{
		Source: `addEventListener("securitypolicyviolation", e => console.error(e.violatedDirective, e.blockedURI, e.sample))`})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), said...)
	}
}
