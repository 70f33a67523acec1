package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/internal/redistest"
)

// bulkPage is the page of a bulk worker in a tab, with a token.
type bulkPage struct {
	t          *testing.T
	ctx        context.Context
	complaints func() []string
}

// openBulkPage opens what hash names, as "#group/g1", as an operator.
func openBulkPage(t *testing.T, site, hash string) bulkPage {
	t.Helper()
	ctx, complaints := watched(t, site)
	do(t, ctx, chromedp.Navigate(site+"/"+hash), chromedp.WaitVisible(chromedp.CSS(`#token`)), chromedp.SendKeys(chromedp.CSS(`#token`), bulkToken+"\n"))
	return bulkPage{t, ctx, complaints}
}

func (p bulkPage) press(selector string) {
	p.t.Helper()
	do(p.t, p.ctx, chromedp.Click(chromedp.CSS(selector)))
}

// enter replaces what a field has.
func (p bulkPage) enter(selector, text string) {
	p.t.Helper()
	do(p.t, p.ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).value = ""`, selector)), chromedp.SendKeys(chromedp.CSS(selector), text))
}

func (p bulkPage) shows(expression string) {
	p.t.Helper()
	shows(p.t, p.ctx, expression)
}

// text waits until an element is visible and has a text in it.
func (p bulkPage) text(selector, part string) {
	p.t.Helper()
	p.shows(fmt.Sprintf(`(e => !!e && e.checkVisibility() && e.textContent.includes(%q))(document.querySelector(%q))`, part, selector))
}

// hidden waits until an element is not to be seen.
func (p bulkPage) hidden(selector string) {
	p.t.Helper()
	p.shows(fmt.Sprintf(`!document.querySelector(%q)?.checkVisibility()`, selector))
}

// quiet checks that the tab complained of nothing but answers with the given statuses.
func (p bulkPage) quiet(statuses ...int) {
	p.t.Helper()
	p.shows(`!/NaN|undefined|Infinity|Invalid Date/.test(document.body.innerText)`)
next:
	for _, c := range p.complaints() {
		for _, status := range statuses {
			if strings.Contains(c, fmt.Sprintf(" %d (", status)) {
				continue next
			}
		}
		p.t.Error(c)
	}
}

// An operator finds a job by its id, retries it and cancels it, in every state.
func TestBulkPage_OneJob(t *testing.T) {
	t.Parallel()
	team := newHooks(t)
	defer close(team.release)
	site, _ := startBulkworker(t, fmt.Sprintf(`
listen: "127.0.0.1:0"
admin: {token: %q}
store: {dir: %q}
worker: {count: 8, lease: 3s}
processors: {webhook: {kind: webhook, url: %q, timeout: 60s}}
`, bulkToken, tempDir(t), team.URL))
	api := bulkAPI{t, site}
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	const evil, running = `<img/src=x/onerror=alert(1)>`, "a/b?ü%"
	api.submit("tenant=acme&id=jobs", `{"id":"`+evil+`","payload":{"do":"refuse"}}`, `{"id":"good","payload":{}}`, `{"id":"`+running+`","payload":{"do":"wait"}}`,
		`{"id":"later","run_at":"`+later+`","payload":{}}`, `{"id":"never","run_at":"`+later+`","payload":{}}`)

	p := openBulkPage(t, site, "#group/jobs/good") // as from a link
	p.text("#job .tags", "succeeded")
	p.text("#job dl", "webhook")
	p.shows(`document.querySelector('#job [name=job]').value === 'good'`)
	p.hidden("#job [data-j=cancel]")
	p.hidden("#job [data-j=retry]")

	p.enter("#job [name=job]", "nobody\n")
	p.text("#job .error", `has no job "nobody"`)
	p.hidden("#job dl")

	// One that has failed runs again in a group of its own.
	p.enter("#job [name=job]", evil+"\n")
	p.text("#job .tags", "failed")
	p.text("#job dl", "http_422")
	p.shows(`document.querySelector('#job dd').textContent === '` + evil + `' && !document.querySelector('main img')`)
	p.hidden("#job [data-j=cancel]")
	accessible(t, p.ctx, "a failed job")
	team.mended.Store(true)
	p.press("#job [data-j=retry]")
	p.text("#job .again a", "jobs-r1")
	p.hidden("#job [data-j=retry]")
	accessible(t, p.ctx, "a job that runs again")
	p.press("#job .again a")
	p.text("#grouphead", "jobs-r1")
	p.text("#job .tags", "succeeded")
	p.hidden("#job .again")
	do(t, p.ctx, chromedp.Evaluate[chromedp.Void](`history.back()`))
	p.text("#job .tags", "failed")
	p.press("#job [data-j=retry]") // twice is refused
	p.text("#job .error", "redrive")

	// One that waits starts at once, and another one never.
	p.enter("#job [name=job]", "later\n")
	p.text("#job .tags", "waiting")
	p.text("#job dl", "Next try")
	p.press("#job [data-j=retry]")
	p.text("#job .tags", "succeeded")
	p.enter("#job [name=job]", "never\n")
	p.text("#job .tags", "waiting")
	p.press("#job [data-j=cancel]")
	p.text("#confirm", "Cancel job never?")
	do(t, p.ctx, chromedp.KeyEvent("\x1b"))
	p.hidden("#confirm")
	if j := api.do("GET", "/v1/groups/jobs/jobs/never", "", http.StatusOK); j["status"] != "waiting" {
		t.Errorf("kept by its operator, the job is %v", j)
	}
	// The page ignores a press until the dialog's close event has come.
	p.shows(`document.querySelector('#confirm').open || (document.querySelector('#job [data-j=cancel]').click(), false)`)
	p.press("#confirm [value=yes]")
	p.text("#job .tags", "cancelled")
	p.hidden("#job [data-j=retry]")

	// One that runs is told to end, and does.
	p.enter("#job [name=job]", running+"\n")
	p.text("#job .tags", "running")
	p.text("#job dl", "Process")
	accessible(t, p.ctx, "a running job")
	p.shows(`document.querySelector('#confirm').open || (document.querySelector('#job [data-j=cancel]').click(), false)`)
	p.text("#confirm", "may succeed or fail first")
	accessible(t, p.ctx, "confirmation for a job")
	// The end of the group, which follows, is announced in the same place.
	do(t, p.ctx, chromedp.Evaluate[chromedp.Void](`window.heard = '';
		new MutationObserver(() => heard += document.querySelector('#said').textContent + '\n').observe(document.querySelector('#said'), {childList: true, characterData: true, subtree: true})`))
	p.press("#confirm [value=yes]")
	p.shows(`heard.includes('is asked to stop') || heard.includes('is cancelled.')`) // it may have stopped before the answer
	p.text("#job .tags", "cancelled")
	p.shows(`document.querySelector('#group .tags').textContent === 'COMPLETED' || document.querySelector('#group .tags').textContent === 'FAILED'`)
	do(t, p.ctx, chromedp.Reload()) // the address names the job
	p.text("#job .tags", "cancelled")
	p.quiet(http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict)
}

// An operator sees which worker runs which job. A process of an older version does not report its jobs.
func TestBulkPage_RunningNow(t *testing.T) {
	t.Parallel()
	team := newHooks(t)
	var free sync.Once
	letGo := func() { free.Do(func() { close(team.release) }) }
	defer letGo()
	redis := redistest.Server(t)
	worker := func(count int, types string) string {
		site, _ := startBulkworker(t, fmt.Sprintf(`
listen: "127.0.0.1:0"
admin: {token: %q}
store: {url: %q}
worker: {count: %d}
processors: {%s}
`, bulkToken, redis.URL(), count, strings.ReplaceAll(types, "HOOK", fmt.Sprintf("{kind: webhook, url: %q, timeout: 60s}", team.URL))))
		return site
	}
	site := worker(30, "webhook: HOOK")
	worker(2, "mail: HOOK, push: HOOK")
	var old atomic.Bool
	to, err := url.Parse(site)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/workers" && old.Load() {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	old.Store(true)
	p := openBulkPage(t, front.URL, "")
	p.text("#limits", "Limits")
	p.hidden("#workers")
	old.Store(false)
	p.text("#workers summary", "Running now")
	p.press("#workers summary")
	p.text("#workers .note", "No job runs.")
	p.shows(`[...document.querySelectorAll('[aria-label=Processes] tbody tr')].map(e => e.querySelector('[data-f=busy]').textContent).sort().join() === '0 of 2,0 of 30'`)
	p.shows(`[...document.querySelectorAll('[aria-label=Processes] .tags')].map(e => e.textContent).sort().join() === 'running,runningkeeper'`)
	p.shows(`[...document.querySelectorAll('[aria-label=Processes] [data-f=types]')].map(e => e.textContent).sort().join('; ') === 'mail, push; webhook'`)

	api := bulkAPI{t, site}
	api.submit("tenant=acme&id=first", `{"id":"a/b?","payload":{"do":"wait"}}`)
	p.text("#workers .note", "1 job runs.")
	more := make([]string, 24)
	for i := range more {
		more[i] = `{"payload":{"do":"wait"}}`
	}
	api.submit("tenant=globex&id=more", more...)
	p.text("#workers .note", "25 jobs run; these 20 run longest.")
	p.shows(`document.querySelectorAll('[aria-label="Jobs that run longest"] tbody tr').length === 20`)
	p.shows(`[...document.querySelector('[aria-label="Jobs that run longest"] tbody tr').cells].map(e => e.textContent).filter((_, i) => i !== 1).join().startsWith('a/b?,first,acme,webhook,1,')`)
	accessible(t, p.ctx, "running now")
	// The rows move with each report of a process, so the press goes to the link itself, not to its place.
	p.shows(`(e => e?.textContent === 'a/b?' && (e.click(), true))(document.querySelector('[aria-label="Jobs that run longest"] tbody a'))`)
	p.text("#job .tags", "running")
	p.shows(`document.querySelector('#grouphead').textContent === 'first' && document.querySelector('#job dd').textContent === 'a/b?'`)
	letGo()
	p.text("#job .tags", "succeeded")
	do(t, p.ctx, chromedp.Evaluate[chromedp.Void](`history.back()`))
	p.text("#workers .note", "No job runs.")
	old.Store(true)
	p.hidden("#workers")
	p.quiet(http.StatusUnauthorized, http.StatusNotFound)
}

// An operator closes the breakers of a processor and of one of its tenants, and starts jobs that wait for their next try.
func TestBulkPage_BreakersAndRelease(t *testing.T) {
	t.Parallel()
	team := newHooks(t)
	defer close(team.release)
	site, _ := startBulkworker(t, fmt.Sprintf(`
listen: "127.0.0.1:0"
admin: {token: %q}
store: {dir: %q}
worker: {count: 16}
processors: {webhook: {kind: webhook, url: %q, timeout: 60s, retry: {max: 1000, base: 10ms}, breaker: {window: 1h}}}
`, bulkToken, tempDir(t), team.URL))
	api := bulkAPI{t, site}
	opened := func(tenant string) (at string) { // "" where none is open
		for _, b := range api.do("GET", "/v1/breakers", "", http.StatusOK)["breakers"].([]any) {
			if b := b.(map[string]any); b["processor"] == "webhook" && (b["tenant"] == tenant || tenant == "" && b["tenant"] == nil) {
				at = b["opened_at"].(string)
			}
		}
		return at
	}
	jobs := make([]string, 20)
	for i := range jobs {
		jobs[i] = `{"payload":{"do":"away"}}`
	}
	p := openBulkPage(t, site, "")
	api.submit("tenant=acme&id=all", jobs...)
	p.text("#breakers", "Jobs held back by breakers")
	p.text("#breakers [data-f=tenant]", "all")
	p.text("#breakers [data-f=code]", "http_502")
	accessible(t, p.ctx, "a breaker")
	before := opened("")
	p.press("#breakers button")
	p.text("#said", "Jobs of webhook start again.")
	p.shows(`document.activeElement !== document.body`)
	until(t, "it opens anew, as jobs started and failed", func() bool { at := opened(""); return at != "" && at != before })
	team.mended.Store(true) // its probes close it
	p.shows(row("all", ".tags") + `?.textContent === 'COMPLETED'`)
	p.hidden("#breakers")

	// Only acme's jobs fail, while those of globex succeed.
	team.mended.Store(false)
	steady := make([]string, 2000)
	for i := range steady {
		steady[i] = `{"payload":{}}`
	}
	api.submit("tenant=globex&id=steady&rate=20", steady...)
	api.submit("tenant=acme&id=one", jobs...)
	p.text(`#breakers [data-key="webhook@acme"]`, "acme")
	before = opened("acme")
	p.press(`#breakers [data-key="webhook@acme"] button`)
	p.text("#said", "Jobs of webhook of acme start again.")
	until(t, "it opens anew", func() bool { at := opened("acme"); return at != "" && at != before })
	team.mended.Store(true)
	p.shows(row("one", ".tags") + `?.textContent === 'COMPLETED'`)

	// The downstream asks for an hour. From the list, and from the view of the group.
	team.mended.Store(false)
	api.submit("tenant=initech&id=listed", `{"payload":{"do":"hour"}}`)
	api.submit("tenant=initech&id=viewed", `{"payload":{"do":"hour"}}`)
	release := func(g string) string { return fmt.Sprintf(`tr[data-key=%q] [data-a=release]`, g) }
	p.text(release("listed"), "Release delays")
	p.text(release("viewed"), "Release delays")
	team.mended.Store(true)
	p.press(release("listed"))
	p.shows(row("listed", ".tags") + `?.textContent === 'COMPLETED'`)
	p.hidden(release("listed"))
	p.press(`tr[data-key=viewed] a`)
	p.text("#group [data-f=nonready]", "1 back off")
	p.press("#group [data-a=release]")
	p.text("#group .tags", "COMPLETED")
	p.hidden("#group [data-a=release]")
	p.quiet(http.StatusUnauthorized)
}

// An operator changes the limits of processors: of one that has some in the configuration, and of one that has none.
func TestBulkPage_LimitsOfProcessors(t *testing.T) {
	t.Parallel()
	team := newHooks(t)
	defer close(team.release)
	site, _ := startBulkworker(t, fmt.Sprintf(`
listen: "127.0.0.1:0"
admin: {token: %q}
store: {dir: %q}
processors:
  webhook: {kind: webhook, url: %q, rate: 20, concurrency: 3}
  mail: {kind: webhook, url: %q}
`, bulkToken, tempDir(t), team.URL, team.URL))
	api := bulkAPI{t, site}
	limits := func(of string) string {
		t.Helper()
		all, _ := api.do("GET", "/v1/limits", "", http.StatusOK)["processors"].(map[string]any)
		p, _ := all[of].(map[string]any)
		return fmt.Sprint(p["rate"], " ", p["concurrency"], " ", p["live"])
	}
	const webhook, mail, another = `#processors [data-key=webhook] `, `#processors [data-key=mail] `, `#another `
	p := openBulkPage(t, site, "")
	value := func(selector, want string) {
		t.Helper()
		p.shows(fmt.Sprintf(`document.querySelector(%q)?.value === %q`, selector, want))
	}
	p.press("#limits summary")
	value(webhook+"[name=rate]", "20")
	value(webhook+"[name=concurrency]", "3")
	p.shows(`document.querySelectorAll('#processors tbody tr').length === 1 && document.querySelector('` + webhook + `.quiet').disabled`)

	// What is being edited elsewhere stays.
	p.enter("#limits [name=global]", "777")
	p.enter(webhook+"[name=concurrency]", "2.5\n")
	p.text("#own .error", "webhook concurrency: “2.5” is not a whole number")
	p.enter(webhook+"[name=concurrency]", "1000001\n")
	p.text("#own .error", "webhook.concurrency")
	accessible(t, p.ctx, "limits of processors")
	p.enter(webhook+"[name=concurrency]", "7")
	p.enter(webhook+"[name=rate]", "0.5")
	p.press(webhook + "form button")
	p.text("#said", "The limits of webhook are changed.")
	p.hidden("#own .error")
	if got := limits("webhook"); got != "0.5 7 true" {
		t.Errorf("limits of webhook: %s", got)
	}
	value("#limits [name=global]", "777")
	api.do("PATCH", "/v1/limits", `{"processors":{"webhook":{"rate":2.25}}}`, http.StatusOK) // by somebody else
	value(webhook+"[name=rate]", "2.25")

	p.press(webhook + ".quiet")
	p.text("#said", "The limits of webhook are as configured.")
	value(webhook+"[name=rate]", "20")
	value(webhook+"[name=concurrency]", "3")
	p.shows(`document.activeElement === document.querySelector('` + webhook + `[name=rate]')`)
	if got := limits("webhook"); got != "20 3 false" {
		t.Errorf("limits of webhook: %s", got)
	}

	p.press(another + "button")
	p.text("#own .error", "Name the processor.")
	p.enter(another+"[name=name]", "mail")
	p.enter(another+"[name=concurrency]", "4\n")
	value(mail+"[name=concurrency]", "4")
	value(mail+"[name=rate]", "0")
	value(another+"[name=name]", "")
	p.hidden("#own .error")
	accessible(t, p.ctx, "limits of two processors")
	if got := limits("mail"); got != "0 4 true" {
		t.Errorf("limits of mail: %s", got)
	}
	p.press(mail + ".quiet")
	p.shows(`document.querySelectorAll('#processors tbody tr').length === 1 && document.activeElement === document.querySelector('` + another + `[name=name]')`)
	value("#limits [name=global]", "777")
	p.quiet(http.StatusUnauthorized, http.StatusUnprocessableEntity)
}
