package console

import (
	"context"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

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

func TestPage_InTheBrowser(t *testing.T) {
	b := newBench(t)
	b.join(134)
	s := serve(t, b)
	tab, complaints := openBrowser(t, s.URL)

	run(t, tab,
		chromedp.Navigate(s.URL+"/"),
		chromedp.WaitVisible(chromedp.CSS(`#token`)),
		chromedp.SendKeys(chromedp.CSS(`#token`), "wrong\n"),
		until(`document.querySelector('#enter .error').textContent.startsWith('no such token')`),
		chromedp.SendKeys(chromedp.CSS(`#token`), writeToken+"\n"),
		chromedp.WaitVisible(chromedp.CSS(`[data-room=sale]`)),
		until(`document.querySelector('[data-room=sale] [data-f=waiting]').textContent === '124'`),
		until(`document.title.startsWith('124 waiting')`),
		until(`document.querySelectorAll('[data-room=sale] svg .waiting').length === 1`),
	)

	run(t, tab,
		chromedp.Click(chromedp.CSS(`[data-room=sale] [data-a=pause]`)),
		until(`document.querySelector('[data-room=sale] .tags').textContent === 'paused'`),
		chromedp.WaitVisible(chromedp.CSS(`[data-room=sale] [data-a=resume]`)),
	)
	if !b.sale.Snapshot().Policy.Paused {
		t.Error("the page says paused, the room is not")
	}

	run(t, tab,
		chromedp.Click(chromedp.CSS(`[data-room=sale] summary`)),
		chromedp.WaitVisible(chromedp.CSS(`[data-room=sale] [name=rate]`)),
		chromedp.SetValue(chromedp.CSS(`[data-room=sale] [name=rate]`), "0.0001"),
		chromedp.Click(chromedp.CSS(`[data-room=sale] [data-form=settings] [type=submit]`)),
		until(`document.querySelector('[data-room=sale] [data-form=settings] .error').textContent.startsWith('rate has more decimal places')`),
		chromedp.SetValue(chromedp.CSS(`[data-room=sale] [name=rate]`), "2.5"),
		chromedp.SetValue(chromedp.CSS(`[data-room=sale] [name=message]`), `Doors at 8 <b>& "late"</b>`),
		chromedp.Click(chromedp.CSS(`[data-room=sale] [data-form=settings] [type=submit]`)),
		until(`document.querySelector('[data-room=sale] [data-live]').textContent === 'Changed live, over the configuration: rate, message.'`),
		until(`document.querySelector('[data-room=sale] [data-f=limit]').textContent === 'of 2.5/s, burst 10'`),
		until(`!document.body.innerText.includes('NaN') && !document.body.innerText.includes('undefined')`),
	)
	if p := b.sale.Snapshot().Policy; p.Rate != 2500 || p.Message != `Doors at 8 <b>& "late"</b>` {
		t.Errorf("the room has rate %d and message %q", p.Rate, p.Message)
	}
	if b.vip.Snapshot().Version != 0 {
		t.Error("the other room changed too")
	}

	run(t, tab,
		until(`document.querySelectorAll('#log tbody tr').length === 2`),
		until(`document.querySelector('#log tbody .what').textContent.includes('rate configuration → 2.5')`),
		chromedp.Click(chromedp.CSS(`[data-room=sale] [data-a=reset]`)),
		chromedp.WaitVisible(chromedp.CSS(`#confirm [name=id]`)),
		chromedp.SendKeys(chromedp.CSS(`#confirm [name=id]`), "vip"),
		until(`document.querySelector('#confirm [type=submit]').disabled`),
		chromedp.SendKeys(chromedp.CSS(`#confirm [name=id]`), "\b\b\bsale\n"),
		until(`document.querySelector('[data-room=sale] [data-f=waiting]').textContent === '0'`),
	)

	stored, err := chromedp.Run(tab, chromedp.Evaluate[map[string]string](`({session: JSON.stringify(Object.entries(sessionStorage)),
		local: String(localStorage.length), cookies: document.cookie})`))
	if err != nil {
		t.Fatal(err)
	}
	if stored["session"] != `[["token","`+writeToken+`"]]` || stored["local"] != "0" || stored["cookies"] != "" {
		t.Errorf("the browser keeps %v", stored)
	}
	run(t, tab,
		chromedp.Reload(), // the token survives that
		chromedp.WaitVisible(chromedp.CSS(`[data-room=sale]`)),
		chromedp.Click(chromedp.CSS(`#leave`)),
		chromedp.WaitVisible(chromedp.CSS(`#token`)),
		until(`sessionStorage.length === 0 && document.querySelector('[data-room]') === null`),
	)
	for _, c := range complaints() {
		// Chromium logs each 401 and 422, which were asked for.
		if !strings.Contains(c, "401 (Unauthorized)") && !strings.Contains(c, "422 (Unprocessable Entity)") {
			t.Error(c)
		}
	}
}
