package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/internal/axe"
)

const bulkToken = "e2e-bulk-operators-token-0123456789"

// hooks is the downstream of the jobs: the payload of each job determines its response.
type hooks struct {
	*httptest.Server
	mended  atomic.Bool  // jobs that failed before succeed now
	busy    atomic.Int64 // number of further jobs to refuse
	release chan struct{}
}

func newHooks(t *testing.T) *hooks {
	h := &hooks{release: make(chan struct{})}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var job struct{ Do string }
	if err := json.NewDecoder(r.Body).Decode(&job); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch {
	case job.Do == "refuse" && !h.mended.Load():
		http.Error(w, "no such person", http.StatusUnprocessableEntity)
	case job.Do == "break" && !h.mended.Load():
		http.Error(w, "<b>out of order</b>", http.StatusInternalServerError)
	case job.Do == "away" && !h.mended.Load():
		http.Error(w, "its backend is away", http.StatusBadGateway)
	case job.Do == "hour" && !h.mended.Load():
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "in an hour", http.StatusInternalServerError)
	case job.Do == "busy" && h.busy.Add(-1) >= 0:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "later", http.StatusTooManyRequests)
	case job.Do == "wait":
		select {
		case <-h.release:
		case <-r.Context().Done():
		}
	}
}

// bulkAPI sends requests to a bulk worker as its operators do.
type bulkAPI struct {
	t    *testing.T
	base string
}

func (b bulkAPI) do(method, path, body string, status int) map[string]any {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, b.base+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bulkToken)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		b.t.Fatalf("%s %s: status %d (%v), want %d: %s", method, path, answer.StatusCode, err, status, text)
	}
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		b.t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
	return v
}

func (b bulkAPI) submit(query string, jobs ...string) {
	b.t.Helper()
	b.do("POST", "/v1/bulk?type=webhook&"+query, strings.Join(jobs, "\n"), http.StatusCreated)
}

func (b bulkAPI) group(id string) map[string]any {
	b.t.Helper()
	return b.do("GET", "/v1/groups/"+id, "", http.StatusOK)
}

// watched is a tab with its faults: errors, exceptions, violations of the policy, requests to other hosts.
func watched(t *testing.T, server string) (ctx context.Context, complaints func() []string) {
	t.Helper()
	ctx = tab(t, nil)
	var mu sync.Mutex
	var said []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}
	if err := chromedp.Listen(ctx, func(event any) {
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
			if strings.Contains(e.Request.URL, bulkToken) {
				note("the token is in the URL " + e.Request.URL)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), said...)
	}
}

// accessible runs every rule of axe on a tab, narrow and wide, light and dark, and checks that the page needs no horizontal scrolling.
func accessible(t *testing.T, ctx context.Context, state string) { //nolint:revive // as testing.T first
	t.Helper()
	source, err := axe.Source()
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1200} {
			if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}); err != nil {
				t.Fatal(err)
			}
			do(t, ctx, chromedp.EmulateViewport(width, 800), chromedp.Evaluate[chromedp.Void](source))
			found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`axe.run().then(r => {
				if (r.passes.length < 10) return ["axe ran only " + r.passes.length + " rules"];
				return r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; "))
					.concat(document.documentElement.scrollWidth > innerWidth ? ["wider than its window"] : []);
			})`, chromedp.EvalAwaitPromise))
			if err != nil {
				t.Fatal(err)
			}
			for _, violation := range found {
				t.Errorf("%s, %s, %d px: %s", state, scheme, width, violation)
			}
		}
	}
}

// row is a group's row of the dashboard, as a JavaScript expression.
func row(id, rest string) string {
	return fmt.Sprintf(`document.querySelector('tr[data-key="%s"] %s')`, id, rest)
}

func in(id, selector string) chromedp.CSS {
	return chromedp.CSS(fmt.Sprintf(`tr[data-key="%s"] %s`, id, selector))
}

// An operator controls the groups of two tenants with the page alone: real program, store and browser.
func TestBulkDashboard(t *testing.T) {
	t.Parallel()
	team := newHooks(t)
	var free sync.Once
	letGo := func() { free.Do(func() { close(team.release) }) }
	defer letGo()
	site, stop := startBulkworker(t, fmt.Sprintf(`
listen: "127.0.0.1:0"
admin: {token: %q}
store: {dir: %q}
rate: {global: 500}
worker: {count: 8, max_retries: 1}
processors: {webhook: {kind: webhook, url: %q, timeout: 60s}}
`, bulkToken, tempDir(t), team.URL))
	api := bulkAPI{t, site}
	ctx, complaints := watched(t, site)

	// First use: the token, then the command that the page shows.
	do(t, ctx, chromedp.Navigate(site+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`)))
	accessible(t, ctx, "token")
	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#token`), "wrong\n"))
	shows(t, ctx, `document.querySelector('#tokenerror').textContent.startsWith('no such token')`)
	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#token`), bulkToken+"\n"), chromedp.WaitVisible(chromedp.CSS(`#first pre`)))
	accessible(t, ctx, "no groups")
	command, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector('#first pre').textContent`))
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", command)
	shell.Env = append(os.Environ(), "TOKEN="+bulkToken)
	if out, err := shell.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(`"accepted":2`)) {
		t.Fatalf("%s\n%v: %s", command, err, out)
	}
	shows(t, ctx, row("first", ".tags")+`?.textContent === 'COMPLETED'`)
	shows(t, ctx, row("first", "[data-f=succeeded]")+`.textContent === '2' && `+row("first", "progress")+`.value === 1`)

	// Some jobs fail, and their error texts are shown as text.
	const evil = `<img src=/x onerror=alert(1)>`
	api.submit("tenant=acme&id=mixed", `{"id":"good","payload":{}}`, `{"id":"gone","payload":{"do":"refuse"}}`,
		`{"id":"<b>bad</b>","payload":{"do":"break","text":"`+evil+`"}}`, `{"id":"worse","payload":{"do":"break","customer":12345678901234567890}}`)
	shows(t, ctx, row("mixed", ".tags")+`?.textContent === 'FAILED' && `+row("mixed", "[data-f=dead]")+`.textContent === '2 dead'`)
	do(t, ctx, chromedp.Click(in("mixed", "a")), chromedp.WaitVisible(chromedp.CSS(`#dead tbody tr`)))
	shows(t, ctx, `document.activeElement.id === 'grouphead' && document.title.startsWith('mixed')`)
	shows(t, ctx, `document.querySelectorAll('#dead tbody tr').length === 2`)
	shows(t, ctx, `[...document.querySelectorAll('#dead tbody th')].some(e => e.textContent === '<b>bad</b>')`)
	shows(t, ctx, `[...document.querySelectorAll('#dead pre')].some(e => JSON.parse(e.textContent).text === '`+evil+`') && !document.querySelector('img, main b')`)
	shows(t, ctx, `[...document.querySelectorAll('#dead pre')].some(e => e.textContent.includes('"customer": 12345678901234567890'))`)
	shows(t, ctx, `document.querySelector('#errors dl').textContent.includes('http_4221')`) // code and number
	shows(t, ctx, `document.querySelector('#result pre').textContent.includes('"succeeded": 1')`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`#dead summary`)))
	accessible(t, ctx, "dead letters")
	team.mended.Store(true)
	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#dead [name=rate]`), "x\n"))
	shows(t, ctx, `document.querySelector('#dead .error').textContent.includes('“x” is not a number')`)
	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#dead [name=rate]`), "\b50\n"))
	shows(t, ctx, `location.hash !== '#group/mixed' && document.querySelector('#group [data-f=about]').textContent.includes('redrive of mixed')`)
	shows(t, ctx, `document.querySelector('#group .tags').textContent === 'COMPLETED' && document.querySelector('#group [data-f=succeeded]').textContent === '2'`)
	shows(t, ctx, `document.querySelector('#group [data-f=cap]').textContent === 'of at most 50'`)

	// A slow group is paused, resumed and cancelled.
	jobs := make([]string, 60)
	for i := range jobs {
		jobs[i] = `{"payload":{"do":"wait"}}`
	}
	api.submit("tenant=globex&id=long&concurrency=2", jobs...)
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`location.hash = ''`), chromedp.WaitVisible(in("long", "[data-a=pause]")))
	shows(t, ctx, `document.querySelector('#totals [data-f=inflight]').textContent === '2' && document.querySelector('#totals [data-f=pending]').textContent === '58'`)
	do(t, ctx, chromedp.Click(in("long", "[data-a=pause]")))
	shows(t, ctx, row("long", ".tags")+`.textContent === 'RUNNINGpaused' && document.querySelector('#said').textContent.startsWith('long is paused')`)
	if g := api.group("long"); g["paused"] != true {
		t.Errorf("the page says paused, the group is %v", g)
	}
	shows(t, ctx, `document.activeElement === `+row("long", "[data-a=resume]")) // the keyboard focus stays
	do(t, ctx, chromedp.KeyEvent("\r"))
	shows(t, ctx, row("long", ".tags")+`.textContent === 'RUNNING'`)
	accessible(t, ctx, "groups")

	// Groups that start later, or after another, and schedules.
	api.submit("tenant=acme&id=tomorrow&start_at=2090-01-02T03:04:05Z", `{"payload":{}}`)
	api.submit("tenant=acme&id=behind&after="+url.QueryEscape(`["tomorrow"]`), `{"payload":{}}`)
	shows(t, ctx, row("tomorrow", ".tags")+`?.textContent === 'DISPATCHEDscheduled' && `+row("behind", ".tags")+`?.textContent === 'DISPATCHEDwaits for tomorrow'`)
	api.do("POST", "/v1/schedules", `{"id":"nightly","tenant":"acme","cron":"@daily","job":{"type":"webhook","payload":{}}}`, 201)
	do(t, ctx, chromedp.Click(chromedp.CSS(`#schedules summary`)))
	shows(t, ctx, `document.querySelector('#schedules tbody th')?.textContent === 'nightly'`)
	accessible(t, ctx, "schedules")
	api.do("PATCH", "/v1/groups/tomorrow", `{"start_at":null}`, 200)
	shows(t, ctx, row("behind", ".tags")+`?.textContent === 'COMPLETED'`)
	api.do("PATCH", "/v1/schedules/nightly", `{"paused":true}`, 200)
	shows(t, ctx, `document.querySelector('#schedules [data-f=next]').textContent === 'paused'`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`#schedules summary`)))

	// The downstream refuses jobs: the page shows the tenant's congestion.
	team.busy.Store(12)
	api.submit("tenant=acme&id=busy", `{"payload":{"do":"busy"}}`, `{"payload":{"do":"busy"}}`, `{"payload":{"do":"wait"}}`)
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`location.hash = '#group/busy'`))
	shows(t, ctx, `document.querySelectorAll('#history svg .curve').length === 2 && document.querySelector('#history h3').textContent === 'Congestion of acme'`)
	shows(t, ctx, `document.querySelector('#group [data-f=throttles]').textContent !== '0 throttles a job'`)
	accessible(t, ctx, "a running group")
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`history.back()`))
	shows(t, ctx, `document.activeElement === `+row("busy", "a"))

	do(t, ctx, chromedp.Click(in("long", "[data-a=cancel]")), chromedp.WaitVisible(chromedp.CSS(`#confirm[open]`)))
	accessible(t, ctx, "confirmation")
	do(t, ctx, chromedp.KeyEvent("\x1b"))
	shows(t, ctx, `!document.querySelector('#confirm').open && document.activeElement === `+row("long", "[data-a=cancel]"))
	if g := api.group("long"); g["status"] != "RUNNING" {
		t.Errorf("kept by its operator, the group is %v", g)
	}
	do(t, ctx, chromedp.Click(in("long", "[data-a=cancel]")), chromedp.Click(chromedp.CSS(`#confirm [value=yes]`)))
	shows(t, ctx, `document.querySelector('#said').textContent.startsWith('long is cancelled') || document.querySelector('#said').textContent === 'long is CANCELLED.'`)
	letGo()
	shows(t, ctx, row("long", ".tags")+`.textContent === 'CANCELLED'`)

	// Limits are changed live and reset.
	do(t, ctx, chromedp.Click(chromedp.CSS(`#limits summary`)), chromedp.WaitVisible(chromedp.CSS(`#limits [name=global]`)),
		chromedp.SetValue(chromedp.CSS(`#limits [name=global]`), "0"), chromedp.Click(chromedp.CSS(`#limits form button`)))
	shows(t, ctx, `document.querySelector('#limits .error').textContent.startsWith('global')`)
	do(t, ctx, chromedp.SetValue(chromedp.CSS(`#limits [name=global]`), "250.5"), chromedp.Click(chromedp.CSS(`#limits form button`)))
	shows(t, ctx, `document.querySelector('#totals [data-f=limit]').textContent === 'of at most 250.5'`)
	if l := api.do("GET", "/v1/limits", "", 200); l["global"] != 250.5 || l["live"] != true {
		t.Errorf("limits %v", l)
	}
	do(t, ctx, chromedp.Click(chromedp.CSS(`#limits [data-a=tofile]`)))
	shows(t, ctx, `document.querySelector('#limits [name=global]').value === '500' && document.querySelector('#limits .note').textContent === 'As configured.'`)

	// Filters and pages.
	for i := range 27 {
		api.do("POST", "/v1/groups", fmt.Sprintf(`{"id":"many-%d","tenant":"many","type":"webhook"}`, i), http.StatusCreated)
	}
	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#filter [name=tenant]`), "many\n"))
	shows(t, ctx, `location.hash === '#?tenant=many' && document.querySelectorAll('#list tbody tr').length === 25`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`[data-a=older]`)))
	shows(t, ctx, `document.querySelectorAll('#list tbody tr').length === 2 && !!`+row("many-0", "")+` && document.querySelector('[data-a=older]').disabled`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`[data-a=newer]`)))
	shows(t, ctx, `!!`+row("many-26", "")+` && document.querySelector('[data-a=newer]').disabled`)
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`location.hash = '#?tenant=nobody'`), chromedp.WaitVisible(chromedp.CSS(`#nomatch`)))
	api.do("POST", "/v1/groups", `{"id":"labelled","tenant":"many","type":"webhook","labels":{"campaign":"spring, summer","team":"red"}}`, http.StatusCreated)
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`location.hash = '#?label=' + encodeURIComponent('campaign=spring, summer,team=red')`))
	shows(t, ctx, `document.querySelectorAll('#list tbody tr').length === 1 && !!`+row("labelled", ""))
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`location.hash = '#?status=CANCELLED'`))
	shows(t, ctx, `document.querySelectorAll('#list tbody tr').length === 1 && !!`+row("long", ""))
	do(t, ctx, chromedp.Click(chromedp.CSS(`#tenants summary`)))
	shows(t, ctx, `document.querySelectorAll('#tenants tbody tr').length > 0`)
	accessible(t, ctx, "limits and tenants")

	// A hidden tab sends no requests. A visible tab continues.
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`Object.defineProperty(document, 'hidden', {value: true, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))`))
	shows(t, ctx, `document.querySelector('#link').textContent === 'Paused while this tab is hidden'`)
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))`))
	shows(t, ctx, `document.querySelector('#link').textContent === 'Connected'`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`#hold`)))
	shows(t, ctx, `document.querySelector('#link').textContent.startsWith('Held') && document.querySelector('#hold').ariaPressed === 'true'`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`#hold`)))
	shows(t, ctx, `document.querySelector('#link').textContent === 'Connected'`)

	// The token is kept by the tab and nowhere else, until it is forgotten.
	kept := `JSON.stringify([Object.entries(sessionStorage), localStorage.length, document.cookie, location.href.includes('token')])`
	shows(t, ctx, kept+` === '[[["token","`+bulkToken+`"]],0,"",false]'`)
	do(t, ctx, chromedp.Reload(), chromedp.WaitVisible(in("long", "a")))
	shows(t, ctx, `!/NaN|undefined|null|Infinity/.test(document.body.innerText)`)

	// After the worker has ended, the page marks its data as old, and the operator can still log out.
	stop()
	shows(t, ctx, `document.querySelector('#alarm').checkVisibility() && document.querySelector('#alarm').textContent.includes('does not respond') && !!`+row("long", ""))
	do(t, ctx, chromedp.Click(chromedp.CSS(`#leave`)), chromedp.WaitVisible(chromedp.CSS(`#token`)))
	shows(t, ctx, `sessionStorage.length === 0 && document.querySelector('#list').hidden`)
	for _, c := range complaints() {
		// Chromium logs each answer of 401 and 422, and each request to a worker that is gone.
		if !strings.Contains(c, "401 (Unauthorized)") && !strings.Contains(c, "422 (Unprocessable Entity)") && !strings.Contains(c, "ERR_CONNECTION_REFUSED") {
			t.Error(c)
		}
	}
}

// startBulkworker starts the program, ready to serve, and returns its address. It ends with stop or with the test, which fails
// if it did not end well.
func startBulkworker(t *testing.T, yaml string) (url string, stop func()) {
	t.Helper()
	config := filepath.Join(tempDir(t), "bulkworker.yaml")
	write(t, config, yaml)
	p := &process{cmd: exec.Command(bulkworkerBinary, "--config", config), ended: make(chan struct{})}
	p.cmd.Dir = tempDir(t)
	p.cmd.Stdout, p.cmd.Stderr = logOf{p}, logOf{p}
	p.cmd.WaitDelay = 2 * time.Second // a store of its own may hold the pipe open for a while longer
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	stop = func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // no effect if the process has ended
		p.wait()
	}
	t.Cleanup(func() {
		stop()
		if code := p.wait(); code != 0 {
			t.Errorf("after SIGTERM the bulk worker ended with %d, want 0\n%s", code, tail(p.text()))
		}
		if fault := ours.FindString(p.text()); fault != "" || strings.Contains(p.text(), bulkToken) {
			t.Errorf("%q, or the token, is in the log:\n%s", fault, p.text())
		}
	})
	addr := ""
	until(t, "the bulk worker is listening", func() bool {
		select {
		case <-p.ended:
			t.Fatalf("the bulk worker ended: %v\n%s", p.err, p.text())
		default:
		}
		addr, _ = p.line("listening", "addr")
		return addr != ""
	})
	return "http://" + addr, stop
}

// logOf writes into a process's log.
type logOf struct{ p *process }

func (l logOf) Write(b []byte) (int, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.log.Write(b)
}
