package page_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/internal/axe"
)

func TestPage_IsAccessible(t *testing.T) {
	source, err := axe.Source()
	if err != nil {
		t.Fatal(err)
	}
	for name, view := range map[string]page.View{
		"waiting": {State: "waiting", Position: 1234, Ahead: 1233, Waiting: 50210, ETAKnown: true, ETASeconds: 720, ETALow: 600, ETAHigh: 900,
			RefreshAfter: 12, JoinedAt: "2026-01-02T03:04:05.000000Z", Paused: true, Message: "We open the second hall at noon."},
		"prequeue": {State: "prequeue", OpensAt: "2026-03-02T10:00:00Z", RefreshAfter: 30},
		"expired":  {State: "expired", Reason: "late", Position: 42, Ahead: 41, Waiting: 99, RefreshAfter: 5},
		"rejected": {State: "rejected", Reason: "full", RefreshAfter: 30},
		"sold out": {State: "rejected", Reason: "sold_out", RefreshAfter: 30},
		"admitted": {State: "admitted", RefreshAfter: 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, view, answer{})
			ctx := tab(t, nil)
			for _, scheme := range []string{"light", "dark"} {
				for _, width := range []int64{320, 1280} {
					for _, language := range []string{"en", "ko"} {
						t.Run(fmt.Sprintf("%s/%d/%s", scheme, width, language), func(t *testing.T) {
							call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
								{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
							speak(t, ctx, language)
							do(t, ctx, chromedp.EmulateViewport(width, 800), chromedp.Navigate(s.URL+"/tickets"))
							if got := value[string](t, ctx, "document.documentElement.lang"); got != language {
								t.Errorf("the page is in %q", got)
							}
							audit(t, ctx, source)
						})
					}
				}
			}
		})
	}
	t.Run("error", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, page.View{}, answer{})
		ctx := tab(t, nil)
		do(t, ctx, chromedp.Navigate(s.URL+"/error"))
		audit(t, ctx, source)
	})
}

// audit runs every rule of axe, checks that the page is not cut off at the side, and fails on any finding.
func audit(t *testing.T, ctx context.Context, source string) {
	t.Helper()
	do(t, ctx, chromedp.Evaluate[chromedp.Void](source))
	found := value[[]string](t, ctx, `axe.run().then(r => {
		if (r.passes.length < 10) return ["axe ran only " + r.passes.length + " rules"];
		return r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; "));
	})`)
	for _, violation := range found {
		t.Error(violation)
	}
	if over := value[int](t, ctx, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("the page is %d px wider than its window", over)
	}
}
