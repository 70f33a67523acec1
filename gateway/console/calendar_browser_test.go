//go:build !race || browser

package console

import (
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
)

// An operator plans, changes and deletes an event, and raises the challenge, without leaving the page.
func TestPage_PlansEventsAndRaisesChallenge(t *testing.T) {
	b := newBench(t)
	s := serve(t, b)
	tab, complaints := openBrowser(t, s.URL)
	run(t, tab, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(s.URL+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`)), chromedp.SendKeys(chromedp.CSS(`#token`), writeToken+"\n"), chromedp.WaitVisible(chromedp.CSS(`#room`)))
	fill := func(name, text string) {
		t.Helper()
		run(t, tab, chromedp.Evaluate[chromedp.Void](`(() => { const e = document.querySelector('#dialog [name=`+name+`]'); e.value = `+strconv.Quote(text)+`; e.dispatchEvent(new Event('input', {bubbles: true})); })()`))
	}
	submit := func() {
		t.Helper()
		run(t, tab, expect(`!document.querySelector('#dialog [type=submit]').disabled`)...)
		run(t, tab, click(`#dialog [type=submit]`))
		run(t, tab, expect(`!document.querySelector('#dialog').open`)...)
	}
	row := func(text string) string {
		return `document.querySelector('.events').innerText.includes(` + strconv.Quote(text) + `)`
	}

	run(t, tab, click(`#tab-events`), chromedp.WaitVisible(chromedp.CSS(`#panel-events .head button`)), click(`#panel-events .head button`), chromedp.WaitVisible(chromedp.CSS(`#dialog [name=starts]`)))
	fill("name", hostile)
	fill("starts", "2028-03-01T10:00:30")
	fill("ends", "2028-03-01T09:00:00")
	fill("rate", "12.5")
	run(t, tab, click(`#dialog [type=submit]`))
	run(t, tab, expect(`document.querySelector('#dialog .error').textContent.startsWith('ends_at is not after starts_at')`)...)
	fill("ends", "2028-03-01T12:00:00")
	submit()
	run(t, tab, expect(row(hostile), row("12.5/s"))...)
	if e := b.sale.LiveEvents(); len(e) != 1 || e[0].Rate != 12500 || e[0].Name != hostile {
		t.Fatalf("the room has %+v", e)
	}
	starts := b.sale.LiveEvents()[0].Starts

	run(t, tab, click(`.events li button`), chromedp.WaitVisible(chromedp.CSS(`#dialog [name=rate]`)))
	fill("rate", "")
	fill("method", "reject")
	submit()
	run(t, tab, expect(row("reject"))...)
	if e := b.sale.LiveEvents(); len(e) != 1 || e[0].Rate != 0 || e[0].Method != "reject" || e[0].Starts != starts {
		t.Errorf("the changed event is %+v", e)
	}
	audit(t, tab)
	run(t, tab, chromedp.EmulateViewport(1440, 900), click(`.events li button + button`), chromedp.WaitVisible(chromedp.CSS(`#dialog [type=submit]`)))
	submit()
	run(t, tab, expect(row("No event is planned"))...)
	if n := len(b.sale.LiveEvents()); n != 0 {
		t.Errorf("%d events are left", n)
	}

	run(t, tab, click(`[data-lever=challenge]`), chromedp.WaitVisible(chromedp.CSS(`#dialog [name=level]`)))
	fill("level", "hardest")
	submit()
	if level := b.sale.Snapshot().Policy.Challenge; level != "hardest" {
		t.Errorf("the challenge is %q", level)
	}
	run(t, tab, click(`#tab-changes`))
	run(t, tab, expect(`document.querySelectorAll('.changes li').length === 4`, `document.querySelectorAll('.changes img').length === 0`)...)
	for _, c := range complaints() {
		if !ordinary(c) {
			t.Error(c)
		}
	}
}
