//go:build !race || browser

package console

import (
	"context"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/internal/axe"
	"github.com/anteroom/anteroom/internal/short"
)

// openBrowser returns a tab of its own Chromium, and a function that returns its findings so far: console errors, exceptions,
// requests to other hosts.
func openBrowser(t *testing.T, server string) (tab context.Context, complaints func() []string) {
	t.Helper()
	short.Skip(t, "drives a browser")
	var binary string
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			binary = path
			break
		}
	}
	if binary == "" {
		t.Fatal("no Chromium in PATH; the browser tests need one: sudo apt-get install chromium (Debian, Ubuntu)")
	}
	profile := t.TempDir()
	ctx, cancel := chromedp.NewExecAllocator(t.Context(),
		chromedp.ExecPath(binary), chromedp.UserDataDir(profile), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.WSURLReadTimeout(time.Minute), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-dev-shm-usage", true))
	t.Cleanup(cancel)
	tab, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)

	var mu sync.Mutex
	var said []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}
	if err := chromedp.Listen(tab, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			note("exception: " + e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				note("log: " + e.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; !strings.HasPrefix(url, server) && !strings.HasPrefix(url, "data:") {
				note("request to " + url)
			}
		}
	}); err != nil {
		t.Fatalf("start %s: %v", binary, err)
	}
	return tab, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), said...)
	}
}

func serve(t *testing.T, b *bench) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(b.handler)
	t.Cleanup(s.Close)
	return s
}

func run(t *testing.T, tab context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for i, step := range steps {
		ctx, cancel := context.WithTimeout(tab, time.Minute)
		_, err := chromedp.Run(ctx, step)
		cancel()
		if err != nil {
			text, _ := chromedp.Run(tab, chromedp.Evaluate[string](`document.body.innerText`))
			t.Fatalf("step %d: %v; the page:\n%s", i, err, text)
		}
	}
}

// until waits for a condition on the page.
func until(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(30*time.Second))
}

// expect returns what is true of the page at last.
func expect(conditions ...string) (steps []chromedp.Action[chromedp.Void]) {
	for _, c := range conditions {
		steps = append(steps, until(c))
	}
	return steps
}

func value[T any](t *testing.T, tab context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(tab, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// click clicks an element once it is shown and enabled. It does so in the page: chromedp.Click measures a position first, and where a strip of
// incidents or a line of the list comes in between, it clicks on something else.
func click(selector string) chromedp.Action[chromedp.Void] {
	return until(`(() => { const e = document.querySelector(` + strconv.Quote(selector) + `); if (!e || e.disabled || !e.checkVisibility()) return false; e.click(); return true; })()`)
}

func press(key string) chromedp.Action[chromedp.Void] { return chromedp.KeyEvent(key) }

// audit runs every rule of axe on the page, narrow and wide, light and dark. A wide page needs no scrolling, a narrow one none to the side.
func audit(t *testing.T, tab context.Context) {
	t.Helper()
	auditPage(t, tab, true)
}

// auditPage is audit for a page that may be longer than a wide window unless fits is set.
func auditPage(t *testing.T, tab context.Context, fits bool) {
	t.Helper()
	source, err := axe.Source()
	if err != nil {
		t.Fatal(err)
	}
	run(t, tab, chromedp.Evaluate[chromedp.Void](source))
	for _, scheme := range []string{"light", "dark"} {
		if _, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}); err != nil {
			t.Fatal(err)
		}
		for width, height := range map[int64]int64{390: 844, 1440: 900} {
			run(t, tab, chromedp.EmulateViewport(width, height))
			for _, violation := range value[[]string](t, tab, `axe.run().then(r => r.passes.length < 10 ? ["axe ran only " + r.passes.length + " rules"]
				: r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`) {
				t.Errorf("%s, %d px: %s", scheme, width, violation)
			}
			size := value[[]int64](t, tab, `[document.documentElement.scrollWidth, document.documentElement.scrollHeight]`)
			if size[0] > width || fits && width == 1440 && size[1] > height {
				t.Errorf("%s: the page is %v in a window of %d × %d", scheme, size, width, height)
			}
		}
	}
}

// ordinary reports whether Chromium only logs the status of a response that a test asks for.
func ordinary(complaint string) bool {
	return slices.ContainsFunc([]string{"401 (Unauthorized)", "404 (Not Found)", "409 (Conflict)", "422 (Unprocessable Entity)", "503 (Service Unavailable)"}, func(status string) bool {
		return strings.Contains(complaint, status)
	})
}

// hostile is text that becomes an element wherever it is taken for HTML.
const hostile = `<img src=x onerror=alert(1)>"'&`

// recordLabels keeps in drawn, for each canvas, the text of its last drawing with the place of each label.
const recordLabels = `(() => {
	window.drawn = new Map();
	const draw = CanvasRenderingContext2D.prototype, {fillText, clearRect} = draw;
	draw.clearRect = function (...args) { drawn.set(this.canvas, []); clearRect.apply(this, args); };
	draw.fillText = function (text, x, y, ...more) {
		if (text) drawn.get(this.canvas)?.push({text, x: Math.round(x), y: Math.round(y)});
		fillText.call(this, text, x, y, ...more);
	};
	return true;
})()`

func TestPage_InTheBrowser(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Tokens = append(o.Tokens, Token{Name: hostile, Token: "h-5d1c9b7e3f2a4680", Role: Write})
	})
	b.join(134)
	s := serve(t, b)
	tab, complaints := openBrowser(t, s.URL)

	run(t, tab, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(s.URL+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`)), chromedp.SendKeys(chromedp.CSS(`#token`), "wrong\n"))
	run(t, tab, expect(`document.querySelector('#enter .error').textContent.startsWith('no such token')`)...)
	run(t, tab, chromedp.SendKeys(chromedp.CSS(`#token`), writeToken+"\n"), chromedp.WaitVisible(chromedp.CSS(`#room`)))
	run(t, tab, expect(
		`document.querySelector('#room-id').textContent === 'sale'`,
		`document.querySelector('[data-figure=waiting] .value').textContent === '124'`,
		`document.title.startsWith('124 waiting')`,
		`document.querySelectorAll('#plots canvas').length === 3`,
		`document.querySelector('[data-plot=waiting] .key').textContent.startsWith('waiting 124')`,
	)...)
	b.join(7) // shown without a reload; one is admitted in the second
	b.tick(time.Second)
	run(t, tab, expect(`document.querySelector('[data-figure=waiting] .value').textContent === '130'`, `document.querySelectorAll('[data-figure=waiting] .curve').length === 1`)...)

	// Keys open levers; a lever acts only when it is confirmed.
	run(t, tab, press("p"), chromedp.WaitVisible(chromedp.CSS(`#dialog`)))
	if b.sale.Snapshot().Policy.Paused {
		t.Error("the key p pauses without a confirmation")
	}
	run(t, tab, press("\r"))
	run(t, tab, expect(`document.querySelector('#word').textContent === 'Paused'`, `!document.querySelector('#dialog').open`)...)
	if !b.sale.Snapshot().Policy.Paused {
		t.Error("the page says paused, the room is not")
	}
	run(t, tab, press("r"), chromedp.WaitVisible(chromedp.CSS(`#dialog [name=rate]`)), chromedp.SetValue(chromedp.CSS(`#dialog [name=rate]`), "2000000"), press("\r"))
	run(t, tab, expect(`document.querySelector('#dialog .error').textContent.startsWith('rate is out of range')`)...)
	run(t, tab, chromedp.SetValue(chromedp.CSS(`#dialog [name=rate]`), "2.5"), press("\r"))
	run(t, tab, expect(`document.querySelector('[data-figure=admitted] .more').textContent.startsWith('limit 2.5/s')`)...)
	if p := b.sale.Snapshot().Policy; p.Rate != 2500 || b.vip.Snapshot().Version != 0 {
		t.Errorf("the room has rate %d; version of the other room %d", p.Rate, b.vip.Snapshot().Version)
	}
	run(t, tab, press("/"))
	run(t, tab, expect(`document.activeElement.name === 'query'`)...)
	run(t, tab, chromedp.KeyEvent("nonsense\r"))
	run(t, tab, expect(`document.querySelector('#panel-find .error').textContent.includes('does not keep one place for each account')`)...)

	// A change of another operator, whose name and message are hostile, appears as text and can be undone.
	w := b.ask("PATCH", "/admin/v1/rooms/sale", `{"message":"`+strings.ReplaceAll(hostile, `"`, `\"`)+`"}`, "Authorization: Bearer h-5d1c9b7e3f2a4680")
	want(t, w, 200)
	run(t, tab, click(`#tab-changes`))
	run(t, tab, expect(`document.querySelector('.changes b').textContent === `+strconv.Quote(hostile), `document.querySelector('.changes small').textContent.includes('<img src=x')`)...)
	run(t, tab, click(`.changes li:first-child button`), chromedp.WaitVisible(chromedp.CSS(`#dialog [type=submit]`)), click(`#dialog [type=submit]`))
	run(t, tab, expect(`document.querySelectorAll('.changes li').length === 4`)...)
	if m := b.sale.Snapshot().Policy.Message; m != "" {
		t.Errorf("after the undo the message is %q", m)
	}
	audit(t, tab)

	run(t, tab, chromedp.EmulateViewport(1440, 900), click(`[data-lever=reset]`), chromedp.WaitVisible(chromedp.CSS(`#dialog [name=id]`)), chromedp.SendKeys(chromedp.CSS(`#dialog [name=id]`), "vip"))
	run(t, tab, expect(`document.querySelector('#dialog [type=submit]').disabled`)...)
	run(t, tab, chromedp.SendKeys(chromedp.CSS(`#dialog [name=id]`), "\b\b\bsale\n"))
	run(t, tab, expect(`document.querySelector('[data-figure=waiting] .value').textContent === '0'`, `!document.body.innerText.includes('NaN') && !document.body.innerText.includes('undefined')`)...)

	// An axis of whole numbers writes no number twice, and the longest line below a figure is not cut off on a common screen.
	if value[bool](t, tab, recordLabels) {
		run(t, tab, chromedp.EmulateViewport(1300, 1400), click(`#rooms a[href="#vip"]`)) // where nobody waits
	}
	run(t, tab, expect(
		`document.querySelector('#room-id').textContent === 'vip'`,
		`(() => {
			const labels = drawn.get(document.querySelector('[data-plot=waiting] canvas'))?.map(l => l.text).filter(text => !text.includes(':'));
			return labels?.length > 1 && new Set(labels).size === labels.length;
		})()`,
		`[...document.querySelectorAll('.figure .more')].every(e => {
			const was = e.textContent;
			e.textContent = 'of 1,000,000, 123,456 admitted, not entered yet';
			const whole = e.scrollWidth <= e.clientWidth;
			e.textContent = was;
			return whole;
		})`,
	)...)

	stored := value[map[string]string](t, tab, `({session: JSON.stringify(Object.entries(sessionStorage)), local: String(localStorage.length), cookies: document.cookie})`)
	if stored["session"] != `[["token","`+writeToken+`"]]` || stored["local"] != "0" || stored["cookies"] != "" {
		t.Errorf("the browser keeps %v", stored)
	}
	run(t, tab, chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS(`#room`)), click(`#leave`), chromedp.WaitVisible(chromedp.CSS(`#token`)))
	run(t, tab, expect(`sessionStorage.length === 0 && document.querySelector('#room').hidden`)...)
	for _, c := range complaints() {
		if !ordinary(c) {
			t.Error(c)
		}
	}
	if n := value[int](t, tab, `document.querySelectorAll('img').length`); n != 0 {
		t.Errorf("hostile text became %d elements", n)
	}
}
