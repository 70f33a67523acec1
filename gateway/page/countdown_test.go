package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/page"
)

// The page counts down by the server's clock, however wrong the visitor's is, before and after joins begin, and continues into
// the draw without a reload.
func TestPage_CountsDownByServerClock(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{0, 7 * time.Minute, -7 * time.Minute} {
		t.Run(wrong.String(), func(t *testing.T) {
			t.Parallel()
			at := func(d time.Duration) string { return time.Now().UTC().Add(d).Format(time.RFC3339Nano) }
			closed := page.View{State: "rejected", Reason: "closed", RefreshAfter: 30, OpensAt: at(30 * time.Minute), Now: at(0)}
			s := newSite(t, closed, answer{status: 500})
			ctx := tab(t, nil)
			// Only Date is wrong: timers and fetch live by a clock that nobody sets.
			call(t, ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(
				`const RealDate = Date, wrong = %d; Date = class extends RealDate { constructor(...a) { a.length ? super(...a) : super(RealDate.now() + wrong); } static now() { return RealDate.now() + wrong; } };`,
				wrong.Milliseconds())})
			said := watch(t, ctx)
			do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
			opens := `document.getElementById("opens").textContent`
			// A minute more or less is the time in which this machine shows it.
			eventually(t, ctx, `/ · in (28|29|30) minutes$/.test(`+opens+`)`)

			prequeue := page.View{State: "prequeue", RefreshAfter: 1, OpensAt: at(58 * time.Second), Now: at(0)}
			gathers := answer{status: 200, body: fmt.Sprintf(`{"room":"sale","state":"prequeue","opens_at":%q,"refresh_after":0.5,"message":"","paused":false}`, prequeue.OpensAt)}
			s.then(&prequeue, gathers)
			do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
			eventually(t, ctx, `/ · in \d+ seconds?$/.test(`+opens+`)`)
			left := fmt.Sprintf(`+%s.match(/in (\d+) second/)[1]`, opens)
			first := value[int](t, ctx, left)
			if first > 59 {
				t.Errorf("%d seconds of 58 are left", first)
			}
			value[bool](t, ctx, `window.mine = true`)
			for n := range 3 {
				eventually(t, ctx, fmt.Sprintf(`%s <= %d`, left, first-n-1))
			}
			// The server says the same, so a poll changes nothing.
			s.polled(t, 2)
			if now := value[int](t, ctx, left); now >= first {
				t.Errorf("after polls %d seconds are left, before %d", now, first)
			}
			s.then(nil, waiting(77))
			eventually(t, ctx, shows("place", "77")+"&&"+shows("opens", "")+"&& window.mine")
			if got := said(); len(got) > 0 {
				t.Errorf("the console says %q", got)
			}
		})
	}
}

// With PAGE_SCREENSHOTS set to a directory, a screenshot of the countdown is written there.
func TestPage_ShowsCountdown(t *testing.T) {
	dir := os.Getenv("PAGE_SCREENSHOTS")
	if dir == "" {
		t.Skip("PAGE_SCREENSHOTS names no directory")
	}
	now := time.Now().UTC()
	for name, view := range map[string]page.View{
		"closed":   {State: "rejected", Reason: "closed", RefreshAfter: 30, OpensAt: now.Add(30 * time.Minute).Format(time.RFC3339), Now: now.Format(time.RFC3339Nano)},
		"prequeue": {State: "prequeue", RefreshAfter: 30, OpensAt: now.Add(30 * time.Minute).Format(time.RFC3339), Now: now.Format(time.RFC3339Nano)},
	} {
		s := newSite(t, view, answer{status: 500})
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{320, 1280} {
				ctx := tab(t, nil)
				call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				do(t, ctx, chromedp.EmulateViewport(width, 700), chromedp.Navigate(s.URL+"/tickets"))
				eventually(t, ctx, `/in \d+ min/.test(document.getElementById("opens").textContent)`)
				png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", name, scheme, width)), png, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// The page of a lottery that opened in nine weeks showed "in 1,510 hours": beyond two days the date stands alone.
func TestPage_CountsDownFromTwoDays(t *testing.T) {
	t.Parallel()
	ctx := tab(t, nil)
	for _, row := range []struct {
		left  time.Duration
		shows string // a regular expression
	}{{47*time.Hour + 30*time.Minute, ` · in 48 hours$`}, {9 * 7 * 24 * time.Hour, `^Opens [^·]*M$`}} {
		now := time.Now().UTC()
		closed := page.View{State: "rejected", Reason: "closed", RefreshAfter: 30, OpensAt: now.Add(row.left).Format(time.RFC3339Nano), Now: now.Format(time.RFC3339Nano)}
		s := newSite(t, closed, answer{status: 500})
		do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
		eventually(t, ctx, fmt.Sprintf(`/%s/.test(document.getElementById("opens").textContent)`, row.shows))
	}
}
