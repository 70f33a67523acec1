package page_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/page"
)

// axe is the source of axe-core in the version that test/axe/package-lock.json pins: from test/axe/node_modules, which
// make installs, or else from npm by way of the user's cache directory. It is not kept in this repository.
var axe = sync.OnceValues(func() (string, error) {
	home := filepath.Join("..", "..", "test", "axe")
	script := filepath.Join("node_modules", "axe-core", "axe.min.js")
	if source, err := os.ReadFile(filepath.Join(home, script)); err == nil {
		return string(source), nil
	}
	lock, err := os.ReadFile(filepath.Join(home, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(lock)
	cache = filepath.Join(cache, "anteroom", "axe-"+hex.EncodeToString(sum[:8]))
	file := filepath.Join(cache, script)
	source, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return string(source), err
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("the accessibility tests fetch axe-core with npm: apt-get install npm (macOS: brew install node)")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join(home, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(cache, name), b, 0o644); err != nil {
			return "", err
		}
	}
	install := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = cache
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w\n%s", cache, err, out)
	}
	source, err = os.ReadFile(file)
	return string(source), err
})

func TestPage_IsAccessible(t *testing.T) {
	source, err := axe()
	if err != nil {
		t.Fatal(err)
	}
	for name, view := range map[string]page.View{
		"waiting": {State: "waiting", Position: 1234, Ahead: 1233, Waiting: 50210, ETAKnown: true, ETASeconds: 720, ETALow: 600, ETAHigh: 900,
			RefreshAfter: 12, JoinedAt: "2026-01-02T03:04:05.000000Z", Paused: true, Message: "We open the second hall at noon."},
		"prequeue": {State: "prequeue", OpensAt: "2026-03-02T10:00:00Z", RefreshAfter: 30},
		"expired":  {State: "expired", Reason: "late", Position: 42, Ahead: 41, Waiting: 99, RefreshAfter: 5},
		"rejected": {State: "rejected", Reason: "full", RefreshAfter: 30},
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
