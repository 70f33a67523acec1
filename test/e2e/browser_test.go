package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// chromium is started once for the whole test binary; each visitor has a browser context, and so cookies, of its own.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func stopChromium() {
	if chromium.stop != nil {
		chromium.stop()
	}
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
		return nil, nil, fmt.Errorf("the browser tests need Chromium: apt-get install chromium (macOS: brew install --cask chromium)")
	}
	profile, err := os.MkdirTemp("", "anteroom-chromium-")
	if err != nil {
		return nil, nil, err
	}
	allocated, free := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-dev-shm-usage", true))
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

// tab opens a tab: beside another one, with its cookies, or as a new visitor where that is nil.
func tab(t *testing.T, beside context.Context) context.Context {
	t.Helper()
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

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) { //nolint:revive // as testing.T first
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// shows waits until an expression is true in a tab, over navigations too.
func shows(t *testing.T, ctx context.Context, expression string) { //nolint:revive // as testing.T first
	t.Helper()
	if eventually(90*time.Second, func() bool {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok
	}) {
		return
	}
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.title + "\n" + document.body.innerText`))
	t.Fatalf("never true: %s\nthe tab (%v):\n%s", expression, err, text)
}

// A crowd of browsers and clients is admitted in order. A refresh and a second tab keep the place. Each page opens the requested page
// by itself.
func TestAdmission_BrowsersAndClientsInOrder(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(3, 3))}})
	// No visitor is admitted before all have joined.
	o := adminOf(t, g)
	o.post("rooms/sale/pause", "").want(http.StatusOK)
	first := sendCrowd(t, g, 12, nil)
	o.rooms("sale", func(r roomInfo) bool { return r.Waiting == 12 })

	const browsers = 5
	tabs := make([]context.Context, browsers)
	for i := range tabs {
		tabs[i] = tab(t, nil)
		do(t, tabs[i], chromedp.Navigate(fmt.Sprintf("http://%s/tickets/%d?row=7", g.addr, i)))
	}
	o.rooms("sale", func(r roomInfo) bool { return r.Waiting == 17 })
	rest := sendCrowd(t, g, 28, nil)

	// A waiting visitor reloads and opens a second tab, and keeps the place.
	do(t, tabs[browsers-1], chromedp.Reload())
	second := tab(t, tabs[browsers-1])
	do(t, second, chromedp.Navigate(fmt.Sprintf("http://%s/tickets/second", g.addr)))

	o.rooms("sale", func(r roomInfo) bool { return r.Waiting == 45 })
	o.post("rooms/sale/resume", "").want(http.StatusOK)

	for i, ctx := range tabs {
		shows(t, ctx, fmt.Sprintf(`location.pathname + location.search === "/tickets/%d?row=7" && document.title === "The site"`, i))
	}
	shows(t, second, `location.pathname === "/tickets/second" && document.title === "The site"`)
	first.group.Wait()
	rest.group.Wait()
	var all []place
	for _, c := range []*crowd{first, rest} {
		for _, f := range c.faults {
			t.Error(f)
		}
		all = append(all, c.places...)
	}
	if len(all) != 40 {
		t.Errorf("%d of 40 clients are in", len(all))
	}
	for _, ctx := range tabs {
		all = append(all, placeOf(t, ctx))
	}
	checkRate(t, all, 3, 3)
	checkOrder(t, all)

	// Five browsers have five sessions; the second tab adds none.
	sessions := map[string][]string{}
	for _, r := range site.Requests() {
		if r.Method == http.MethodGet && len(r.URI) > 8 && r.URI[:9] == "/tickets/" {
			id := r.Header.Get("X-Waiting-Room-Session")
			sessions[id] = append(sessions[id], r.URI)
		}
	}
	if len(sessions) != browsers {
		t.Errorf("%d sessions for %d browsers: %v", len(sessions), browsers, sessions)
	}
	together := 0
	for _, uris := range sessions {
		if slices.Contains(uris, "/tickets/second") && slices.Contains(uris, "/tickets/4?row=7") {
			together++
		}
	}
	if together != 1 {
		t.Errorf("the second tab is not of the first one's session: %v", sessions)
	}
}

// placeOf requests from within a tab the times at which its visitor joined and was admitted.
func placeOf(t *testing.T, ctx context.Context) place { //nolint:revive // as testing.T first
	t.Helper()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`fetch("/.waiting-room/sale/status").then(r => r.text())`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	var s status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	joined, err := time.Parse(time.RFC3339Nano, s.JoinedAt)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	at, err := time.Parse(time.RFC3339Nano, s.AdmittedAt)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return place{ord: joined.UnixMicro(), at: at, admittedAt: s.AdmittedAt}
}
