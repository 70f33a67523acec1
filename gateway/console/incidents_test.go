//go:build !race || browser

package console

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/internal/redistest"
)

// Each incident is shown with the lever that helps, and ends with two clicks: the lever, with a proposed value, and its confirmation.
func TestPage_IncidentsAreSolved(t *testing.T) {
	var wait, p95 atomic.Int64 // seconds, milliseconds
	wait.Store(60)
	store := redistest.Server(t)
	b := newBenchOn(t, store.Client(), func(o *Options) {
		rooms := o.Rooms
		o.Rooms = func() []Room {
			list := rooms()
			list[0].Wait = func() eta.Estimate {
				s := float64(wait.Load())
				return eta.Estimate{Seconds: s, Low: s * .8, High: s * 1.2, Known: true}
			}
			return list
		}
		o.OriginStats = func(string) (float64, float64) { return float64(p95.Load()) / 1000, 0 }
	})
	b.join(134)
	s := serve(t, b)
	tab, complaints := openBrowser(t, s.URL)
	run(t, tab, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(s.URL+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`)), chromedp.SendKeys(chromedp.CSS(`#token`), writeToken+"\n"), chromedp.WaitVisible(chromedp.CSS(`#room`)))
	run(t, tab, expect(`document.querySelector('[data-figure=waiting] .value').textContent === '124'`, `document.querySelector('#incidents').hidden`)...)

	shown := func(id string) string {
		return `[...document.querySelectorAll('#incidents li')].map(e => e.dataset.incident).join() === ` + strconv.Quote(id)
	}
	solve := func(id, field, value string) {
		t.Helper()
		run(t, tab, expect(shown(id))...)
		run(t, tab, click(`[data-incident=`+id+`] button`), chromedp.WaitVisible(chromedp.CSS(`#dialog [name=`+field+`]`)))
		run(t, tab, expect(`document.querySelector('#dialog [name=`+field+`]').value === `+strconv.Quote(value))...)
		run(t, tab, click(`#dialog [type=submit]`))
		run(t, tab, expect(`!document.querySelector('#dialog').open`)...)
	}

	wait.Store(7200)
	solve("rate-low", "rate", "1.2")
	if rate := b.sale.Snapshot().Policy.Rate; rate != 1200 {
		t.Errorf("rate-low: the rate is %d", rate)
	}
	wait.Store(60)
	run(t, tab, expect(shown(""))...)

	p95.Store(4000)
	solve("origin-slow", "rate", "0.6")
	if rate := b.sale.Snapshot().Policy.Rate; rate != 600 {
		t.Errorf("origin-slow: the rate is %d", rate)
	}
	p95.Store(40)
	run(t, tab, expect(shown(""))...)

	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"max_active":10}`), 200)
	solve("max-active", "max_active", "13")
	if most := b.sale.Snapshot().Policy.MaxActive; most != 13 {
		t.Errorf("max-active: the limit is %d", most)
	}
	run(t, tab, expect(shown(""))...)

	// Two gateways more, of which one has another key.
	var odd atomic.Value
	odd.Store("other")
	reports := map[string]*admission.Fleet{}
	for _, host := range []string{"edge-k", "edge-other"} {
		core, err := admission.New(admission.Options{Client: store.Client(), Prefix: b.prefix, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler), Now: func() int64 { return b.clock.now().UnixMicro() }})
		if err != nil {
			t.Fatal(err)
		}
		fleet := admission.NewFleet(core, func() admission.Gateway {
			keys := "k"
			if host == "edge-other" {
				keys = odd.Load().(string)
			}
			return admission.Gateway{Host: host, Version: "v1", Started: b.clock.now().UnixMicro(), Keys: keys, LastError: &admission.LastError{At: b.clock.now().UnixMicro(), Text: "a fault of " + host}, Configuration: admission.Configuration{Generation: 1, Hash: "h", Loaded: b.clock.now().UnixMicro()}}
		})
		reports[host] = fleet
		for range 2 { // the second reads the reports of all
			if err := fleet.Report(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.fleet.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, tab, expect(`document.querySelector('[data-incident=other-keys]')?.innerText.includes('edge-other')`)...)
	run(t, tab, click(`#tab-changes`))
	steps(t, tab, "other-keys", "anteroomforgedtokens", "edge-other out of the load balancer", "tokens.keys")
	run(t, tab, expect(`document.querySelector('#fleet').innerText.includes('other keys')`, `document.querySelector('#fleet').innerText.includes('a fault of edge-other')`)...)
	// The gateway gets the keys of the others: the steps have helped.
	odd.Store("k")
	for _, f := range []*admission.Fleet{reports["edge-other"], b.fleet} {
		if err := f.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run(t, tab, expect(`document.querySelector('[data-incident=other-keys]') === null`)...)

	want(t, b.ask("PUT", "/admin/v1/rooms/sale/facts", `{"items":[`+strings.Replace(item, "low", "sold_out", 1)+`]}`), 200)
	run(t, tab, expect(`document.querySelector('[data-incident=sold-out]') !== null`)...)
	run(t, tab, click(`[data-incident=sold-out] button`), chromedp.WaitVisible(chromedp.CSS(`#dialog [type=submit]`)), click(`#dialog [type=submit]`))
	run(t, tab, expect(`!document.querySelector('#dialog').open`)...)
	if m := b.sale.Snapshot().Policy.Method; m != admission.Reject {
		t.Errorf("sold-out: the method is %s", m)
	}

	store.Kill()
	b.clock.move(10 * time.Second)
	run(t, tab, expect(`document.querySelector('[data-incident=store-away]') !== null`, `document.querySelector('#word').textContent === 'Store away'`)...)
	steps(t, tab, "store-away", "anteroomstoredown", "Do not empty it", "until the store replies")
	store.Restart()
	for b.sale.Tick(t.Context()) != nil && t.Context().Err() == nil { // the first calls may find the connections that have ended
	}
	run(t, tab, expect(`document.querySelector('[data-incident=store-away]') === null`)...)
	for _, c := range complaints() {
		if !ordinary(c) {
			t.Error(c)
		}
	}
}

// steps follows an incident that ends outside of the console in two clicks: the steps to take, with a link to the runbook, and the gateways.
func steps(t *testing.T, tab context.Context, incident, runbook string, texts ...string) {
	t.Helper()
	run(t, tab, click(`[data-incident=`+incident+`] button`), chromedp.WaitVisible(chromedp.CSS(`#dialog .steps`)))
	shown := []string{`document.querySelector('#dialog a').href.endsWith('docs/runbooks.md#` + runbook + `')`}
	for _, text := range texts {
		shown = append(shown, `document.querySelector('#dialog').innerText.includes(`+strconv.Quote(text)+`)`)
	}
	run(t, tab, expect(shown...)...)
	run(t, tab, click(`#dialog [type=submit]`))
	run(t, tab, expect(`!document.querySelector('#dialog').open`, `document.querySelector('#fleet').offsetHeight > 0`)...)
}

// The parts of the page that show what gateways and visitors send treat it as text.
func TestPage_HostileTextStaysText(t *testing.T) {
	s := serve(t, newBench(t))
	tab, complaints := openBrowser(t, s.URL)
	run(t, tab, chromedp.Navigate(s.URL+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`)))
	for name, script := range map[string]string{
		"fleet": `import('/console/fleet.js').then(m => new m.Fleet(root).show([{id: x, host: x, version: x, keys: x, seen_at: x, differs: [x], draw_conflicts: [x], last_error: {at: x, text: x}, configuration: {generation: x, hash: x}}]))`,
		"panels": `import('/console/panels.js').then(m => { const n = new m.Now(root); n.showWaits({waits: {admitted: [{from_seconds: 0, to_seconds: 1, count: 1}], left: []}}, {});
			n.showFunnel({funnel: [{stage: x, count: 1}], losses: [{stage: x, reason: x, count: 1}]}); n.showGuards({refused: {[x]: 1}}, null); })`,
		"lookup":   `import('/console/lookup.js').then(m => root.append(new m.Lookup(root, () => ({})).card('sale', {jti: x, state: x, reason: x})))`,
		"calendar": `import('/console/calendar.js').then(m => root.append(...[...m.overlapping([{room: x, origin: x, name: x, starts_at: '2026-01-01', ends_at: '2026-01-03'}, {room: x, origin: x, starts_at: '2026-01-02', ends_at: '2026-01-04'}]).values()].map(v => v.join())))`,
		"explain":  `import('/console/urltest.js').then(m => root.append(...m.show({text: x, decision: x, why: x, room: x, rule: {kind: x, host: x, path: x}, code: x, origin: x, readings: [x, x], token: {pass: x, ticket: x}})))`,
	} {
		text := value[string](t, tab, `(async () => { const x = `+strconv.Quote(hostile)+`, root = document.createElement('div'); document.body.append(root); await `+script+`;
			const bad = root.querySelectorAll('img, script, [onerror]').length; return bad + ' ' + root.textContent.includes('<img src=x onerror=alert(1)>'); })()`)
		if text != "0 true" {
			t.Errorf("%s: %s", name, text)
		}
	}
	for _, c := range complaints() {
		if !ordinary(c) {
			t.Error(c)
		}
	}
}
