package page_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/page"
)

var inLine = page.View{State: "waiting", Position: 1000, Ahead: 999, Waiting: 5000, RefreshAfter: 2, JoinedAt: "2026-01-02T03:04:05.000000Z"}

// shows returns an expression that is true when the element with the id reads text.
func shows(id, text string) string {
	return fmt.Sprintf("document.getElementById(%q).textContent === %q", id, text)
}

func TestPage_OpensRequestedPage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ asked, arrives string }{
		{"/tickets?day=2#row-7", "/tickets?day=2#row-7"},
		{"/", "/"},
		{"/.waiting-room/sale/", "/"},
	} {
		s := newSite(t, inLine, waiting(10), waiting(5), admitted)
		ctx := tab(t, nil)
		said := watch(t, ctx)
		do(t, ctx, chromedp.Navigate(s.URL+row.asked))
		eventually(t, ctx, `document.title === "The shop"`)
		if at := value[string](t, ctx, "location.pathname + location.search + location.hash"); at != row.arrives {
			t.Errorf("asked for %s, arrived at %s, want %s", row.asked, at, row.arrives)
		}
		path, _, _ := strings.Cut(row.arrives, "#")
		if want := "GET " + path; len(s.methods) != 1 || s.methods[0] != want {
			t.Errorf("the shop was asked %q, want %q", s.methods, want)
		}
		if got := said(); len(got) > 0 {
			t.Errorf("the console says %q", got)
		}
	}
}

func TestPage_PlaysSound(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(10))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"), chromedp.Click(chromedp.ID("sound")))
	eventually(t, ctx, `document.getElementById("sound").getAttribute("aria-pressed") === "true"`)
	do(t, ctx, chromedp.Click(chromedp.ID("sound")))
	eventually(t, ctx, `document.getElementById("sound").getAttribute("aria-pressed") === "false"`)
	do(t, ctx, chromedp.Click(chromedp.ID("sound")))
	s.then(nil, admitted)
	eventually(t, ctx, `document.title === "Your turn! · Harbour Hall"`)
	eventually(t, ctx, `document.title === "The shop"`)
}

func TestPage_ShowsStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(1000))
	ctx := tab(t, nil)
	said := watch(t, ctx)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	for _, row := range []struct {
		name   string
		answer answer
		want   map[string]string
	}{
		{"far", waiting(900, `"eta":{"seconds":720,"low":610,"high":880}`),
			map[string]string{"place": "900", "ahead": "899 people ahead of you", "wait": "about 10 to 15 minutes", "waiting": "5,000", "heading": "You are in the queue"}},
		{"near", waiting(2, `"eta":{"seconds":20,"low":10,"high":30}`), map[string]string{"place": "2", "ahead": "1 person ahead of you", "wait": "less than a minute"}},
		{"next", waiting(1), map[string]string{"place": "1", "ahead": "You are next", "wait": "Not known yet"}},
		{"paused", waiting(1, `"paused":true`), map[string]string{"paused": "Entry is paused for a moment. Your place is safe."}},
		{"message", waiting(1, `"message":"Hall <b>2</b> & \"more\"\nat noon"`), map[string]string{"message": "Hall <b>2</b> & \"more\"\nat noon", "paused": ""}},
		{"attack", waiting(1, `"message":"</p><script>alert(1)</script><img src=x onerror=alert(1)>"`),
			map[string]string{"message": "</p><script>alert(1)</script><img src=x onerror=alert(1)>"}},
		{"early", answer{status: 200, body: `{"state":"prequeue","refresh_after":0.2,"message":"","paused":false}`}, map[string]string{"heading": "Not open yet"}},
		{"open", waiting(7), map[string]string{"heading": "You are in the queue"}},
	} {
		s.then(nil, row.answer)
		for id, want := range row.want {
			eventually(t, ctx, shows(id, want))
		}
		if t.Failed() {
			t.Fatal(row.name)
		}
	}
	if n := value[int](t, ctx, `document.querySelectorAll("main img, main script, main b").length`); n != 0 {
		t.Error("a message became markup")
	}
	if title := value[string](t, ctx, "document.title"); title != "1 in the queue · Harbour Hall" && title != "7 in the queue · Harbour Hall" {
		t.Errorf("the title is %q", title)
	}
	if got := said(); len(got) > 0 {
		t.Errorf("the console says %q", got)
	}
}

func TestPage_PositionGrowsOnlyWhenPeopleCameBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(500))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, shows("place", "500"))

	value[bool](t, ctx, `(() => {
		window.seen = [];
		const at = document.getElementById("place");
		new MutationObserver(() => seen.push(at.textContent)).observe(at, {childList: true, characterData: true, subtree: true});
		return true;
	})()`)
	s.then(nil, waiting(505), waiting(509), waiting(600), waiting(500)) // within the estimate's error; once only
	s.polled(t, 6)
	if seen := value[[]string](t, ctx, "seen"); len(seen) != 0 {
		t.Errorf("the number became %v, want it to stay", seen)
	}

	s.then(nil, waiting(600))
	eventually(t, ctx, shows("place", "600"))
	eventually(t, ctx, shows("note", "Some people ahead of you came back to their places."))
	s.then(nil, waiting(599))
	eventually(t, ctx, shows("place", "599"))
	eventually(t, ctx, shows("note", ""))
}

func TestPage_KeepsPositionOverReload(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(1000), waiting(400))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, `document.getElementById("bar").value === .6`)

	view := inLine
	view.Position = 404 // another gateway's estimate
	s.then(&view, waiting(404))
	do(t, ctx, chromedp.Reload())
	eventually(t, ctx, shows("place", "400")+` && document.getElementById("bar").value === .6`)
	s.polled(t, 2)
	eventually(t, ctx, shows("place", "400"))

	view.Position, view.JoinedAt = 900, "2026-01-02T04:00:00.000000Z" // a new place starts anew
	s.then(&view, waiting(900, `"joined_at":"2026-01-02T04:00:00.000000Z"`))
	do(t, ctx, chromedp.Reload())
	eventually(t, ctx, shows("place", "900")+` && document.getElementById("bar").value < .1`)
}

func TestPage_TabsShareOnePoller(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(50))
	tabs := []context.Context{tab(t, nil)}
	tabs = append(tabs, tab(t, tabs[0]))
	for _, c := range tabs {
		call(t, c, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{
			Source: `window.asked = []; const real = window.fetch; window.fetch = (...a) => { window.asked.push(Date.now()); return real(...a); }`})
		do(t, c, chromedp.Navigate(s.URL+"/tickets"))
	}
	asked := func(c context.Context) int { return value[int](t, c, "asked.length") }

	// A tab does not poll within a second of a poll of the other, which informs it. Which of them polls may change: a hidden tab is slow, and
	// a busy machine makes it slower. Without sharing nearly every poll follows one of the other tab within 0.2 s.
	s.then(nil, waiting(50))
	s.polled(t, 30)
	type poll struct {
		at  float64
		tab int
	}
	var polls []poll
	for i, c := range tabs {
		for _, at := range value[[]float64](t, c, "asked") {
			polls = append(polls, poll{at, i})
		}
	}
	slices.SortFunc(polls, func(a, b poll) int { return cmp.Compare(a.at, b.at) })
	beside := 0
	for i := range polls[1:] {
		if was, is := polls[i], polls[i+1]; was.tab != is.tab && is.at-was.at < 1000 {
			beside++
		}
	}
	if beside > 3 { // the first of each tab, and one that had begun when the message came
		t.Errorf("%d of %d polls came beside one of the other tab: %v", beside, len(polls), polls)
	}
	s.then(nil, waiting(40))
	for _, c := range tabs {
		eventually(t, c, shows("place", "40"))
	}

	// The other takes over when the poller goes.
	poller, other := tabs[polls[len(polls)-1].tab], tabs[1-polls[len(polls)-1].tab]
	do(t, poller, chromedp.Navigate("about:blank"))
	before := asked(other)
	s.then(nil, waiting(30))
	eventually(t, other, shows("place", "30"))
	if after := asked(other); after == before {
		t.Error("the number changed without a poll")
	}

	// And all of them go on.
	do(t, poller, chromedp.Navigate(s.URL+"/tickets"))
	s.then(nil, admitted)
	for _, c := range tabs {
		eventually(t, c, `document.title === "The shop"`)
	}
}

func TestPage_ShowsLostPlace(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"late", "reset", "removed"} {
		s := newSite(t, inLine, waiting(10),
			answer{status: 200, body: `{"state":"expired","reason":"` + reason + `","token":"x","refresh_after":0.2,"message":"","paused":false}`},
			waiting(4000, `"joined_at":"2026-01-02T05:00:00.000000Z"`))
		ctx := tab(t, nil)
		do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
		eventually(t, ctx, shows("place", "4,000"))
		want := map[string]string{
			"late":    "We had not heard from you for too long, so your place was lost. You have been given a new place.",
			"reset":   "The queue was restarted, so all earlier places have ended. You have been given a new place.",
			"removed": "Your earlier place was removed from the queue. You have been given a new place.",
		}[reason]
		eventually(t, ctx, shows("note", want))
		if _, pages := s.counts(); pages != 1 {
			t.Errorf("%s: the page was loaded %d times, want it to stay", reason, pages)
		}
	}
}

func TestPage_RejoinsAfterLapse(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, answer{status: 200, body: `{"state":"lapsed","message":"","paused":false}`}, waiting(70))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, shows("note", "Your turn came while you were away and has passed. You have been given a new place."))
	eventually(t, ctx, shows("place", "70"))
	if _, pages := s.counts(); pages != 2 {
		t.Errorf("the page was loaded %d times, want 2", pages)
	}
}

func TestPage_RejoinsOnceWithoutToken(t *testing.T) {
	t.Parallel()
	unknown := answer{status: 401, body: `{"code":"no_token"}`}
	s := newSite(t, inLine, unknown)
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, `document.getElementById("note").innerText.includes("does not keep this site’s cookie")`)
	s.polled(t, 3)
	if _, pages := s.counts(); pages != 2 {
		t.Errorf("the page was loaded %d times, want 2: one reload", pages)
	}
	s.then(nil, waiting(70))
	eventually(t, ctx, shows("note", "")+"&&"+shows("place", "70"))
}

func TestPage_LeavesRejectedState(t *testing.T) {
	t.Parallel()
	closed := page.View{State: "rejected", Reason: "closed", RefreshAfter: 1}
	s := newSite(t, closed, answer{status: 500})
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, shows("heading", "Closed for now"))
	s.then(&inLine, waiting(20))
	eventually(t, ctx, shows("place", "20"))

	s.then(&closed, answer{status: 503, body: `{"code":"room_full"}`})
	eventually(t, ctx, shows("heading", "The queue is full"))
}

func TestPage_Reconnects(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]answer{
		"cut":       {},
		"not ours":  {status: 502, body: "<h1>Bad gateway</h1>"},
		"not json":  {status: 200, body: "<h1>Log in to the network</h1>"},
		"throttled": {status: 429, body: `{"code":"rate_limited"}`},
	} {
		s := newSite(t, inLine, waiting(20))
		ctx := tab(t, nil)
		do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
		eventually(t, ctx, shows("place", "20"))
		s.then(nil, broken)
		eventually(t, ctx, shows("link", "Reconnecting… your place is kept meanwhile.")+`&& document.getElementById("link").className === "off"`)
		s.then(nil, waiting(19))
		eventually(t, ctx, shows("place", "19")+`&& document.getElementById("link").innerText.startsWith("Updated ")`)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestPage_ShowsOffline(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(20))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, shows("place", "20"))
	s.then(nil, answer{})
	call(t, ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: true, DownloadThroughput: -1, UploadThroughput: -1})
	eventually(t, ctx, shows("link", "You are offline. Your place is kept for 10 minutes."))
	s.polled(t, 6) // by now the pauses between attempts are long
	s.then(nil, waiting(18))
	call(t, ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{DownloadThroughput: -1, UploadThroughput: -1})
	eventually(t, ctx, shows("place", "18")+`&& document.getElementById("link").innerText.startsWith("Updated ")`)
}

func TestPage_PollsWhenVisibleAgain(t *testing.T) {
	t.Parallel()
	for _, event := range []string{
		`document.dispatchEvent(new Event("visibilitychange"))`,
		`dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true}))`,
		`dispatchEvent(new Event("online"))`,
	} {
		// Advised to come back in an hour, the page polls again because of the event alone.
		s := newSite(t, inLine, waiting(20, `"refresh_after":3600`))
		ctx := tab(t, nil)
		do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
		eventually(t, ctx, shows("place", "20"))
		s.then(nil, waiting(10, `"refresh_after":3600`))
		// Within a second of the last poll the event changes nothing: a ticket is not checked more often anyway.
		eventually(t, ctx, event+","+shows("place", "10"))
	}
}

// delays records the delays that the page passes to setTimeout, and starts no timer.
const delays = `window.delays = []; window.setTimeout = (f, ms) => { window.delays.push(ms); window.poll = f; return 1; }`

func TestPage_PollsAsAdvised(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		low, high    float64 // seconds
	}{
		{"the interval, give or take 15 %", "", 17, 23},
		{"slower while hidden", `Object.defineProperty(document, "hidden", {value: true})`, 30.6, 41.4},
	} {
		s := newSite(t, inLine, waiting(20, `"refresh_after":20`))
		ctx := tab(t, nil)
		call(t, ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: delays + ";" + row.script})
		do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
		got := value[[]float64](t, ctx, `(async () => { for (let i = 0; i < 20; i++) await poll(); return delays; })()`)
		if first := got[0] / 1e3; first < 1 || first > 3 {
			t.Errorf("%s: the first poll is after %v s, want 1 to 3", row.name, first)
		}
		for _, ms := range got[1:] {
			if s := ms / 1e3; s < row.low || s > row.high {
				t.Errorf("%s: %v s, want %v to %v", row.name, s, row.low, row.high)
			}
		}
		if len(got) != 21 {
			t.Errorf("%s: %d delays for 20 polls, want 21", row.name, len(got))
		}
	}

	// Whatever is advised, and however often it fails, the place is kept: four signs of life in the time it is kept.
	for _, a := range []answer{waiting(20, `"refresh_after":3600`), {status: 500}} {
		s := newSite(t, inLine, a)
		ctx := tab(t, nil)
		call(t, ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: delays})
		do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
		got := value[[]float64](t, ctx, `(async () => { for (let i = 0; i < 20; i++) await poll(); return delays; })()`)
		if most := got[len(got)-1]; most > 150e3 || most < 50e3 {
			t.Errorf("polls %v ms apart, want at most a quarter of 10 minutes", most)
		}
	}
}

func TestPage_AnnouncesChangesOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(1000))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	value[bool](t, ctx, `(() => {
		window.said = [];
		const at = document.getElementById("live");
		new MutationObserver(() => said.push(at.textContent)).observe(at, {childList: true, characterData: true, subtree: true});
		return true;
	})()`)
	s.then(nil, waiting(990), waiting(980), waiting(970), waiting(960), waiting(950), waiting(940))
	s.polled(t, 8)
	if said := value[[]string](t, ctx, "said"); len(said) > 0 {
		t.Errorf("announced %q while little changed", said)
	}
	s.then(nil, waiting(400, `"eta":{"seconds":300,"low":240,"high":360}`))
	s.polled(t, 3)
	want := []string{"You are in the queue 399 people ahead of you Estimated wait: about 4 to 6 minutes"}
	if said := value[[]string](t, ctx, "said"); strings.Join(said, "|") != strings.Join(want, "|") {
		t.Errorf("announced %q, want %q", said, want)
	}
	s.then(nil, waiting(399, `"paused":true`))
	s.polled(t, 3)
	if said := value[[]string](t, ctx, "said"); len(said) != 2 || !strings.Contains(said[1], "Entry is paused") {
		t.Errorf("announced %q, want the pause", said)
	}
}

func TestPage_ReadsWithoutScript(t *testing.T) {
	t.Parallel()
	view := inLine
	view.ETAKnown, view.ETALow, view.ETAHigh, view.Message = true, 610, 880, "Bring <your> ticket"
	s := newSite(t, view, answer{})
	ctx := tab(t, nil)
	call(t, ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	got := strings.Join(strings.Fields(value[string](t, ctx, "document.body.innerText")), " ")
	want := "Harbour Hall You are in the queue You will be let in automatically when it is your turn. No need to reload. Bring <your> ticket " +
		"Your place in the queue 1,000 999 people ahead of you Estimated wait About 10 to 15 minutes People in the queue 5,000 " +
		"You can close this tab. Your place is kept for 10 minutes. This page reloads by itself."
	if got != want {
		t.Errorf("reads\n%s\nwant\n%s", got, want)
	}
	until(t, func() bool { _, pages := s.counts(); return pages > 1 }, func() string { return "the page never reloaded" })
	if polls, _ := s.counts(); polls != 0 {
		t.Errorf("%d polls without a script", polls)
	}
}

func TestWords_BrowserAndServerAgree(t *testing.T) {
	t.Parallel()
	ctx := tab(t, nil)
	type row [3]int64 // low, high, ahead
	var rows []row
	for _, high := range []int64{0, 1, 59, 60, 61, 90, 120, 121, 300, 540, 599, 600, 601, 640, 899, 900, 901, 3000, 3600, 5399, 5400, 5401, 7200, 9000, 9001, 36000, 86399, 86400, 86401, 200000} {
		for _, share := range []int64{0, 1, 3, 7, 9, 10} {
			rows = append(rows, row{high * share / 10, high, high*7 + share})
		}
	}
	given, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range page.Languages() {
		said := value[[][2]string](t, ctx, fmt.Sprintf(`(() => { %s
			const w = words(%s, %q);
			return %s.map(([low, high, n]) => [w.wait(low, high), w.count("ahead", n)]);
		})()`, page.WordsSource, page.BrowserTexts(code), code, given))
		for i, r := range rows {
			if want := page.Say(code, r[0], r[1], r[2]); said[i] != want {
				t.Errorf("%s %v: the browser says %q, the server %q", code, r, said[i], want)
			}
		}
	}
}

func TestPage_Korean(t *testing.T) {
	t.Parallel()
	s := newSite(t, inLine, waiting(900, `"eta":{"seconds":720,"low":610,"high":880}`))
	ctx := tab(t, nil)
	speak(t, ctx, "ko-KR,ko")
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, shows("ahead", "내 앞에 899명")+"&&"+shows("wait", "약 10~15분")+`&& document.title === "대기 900번 · Harbour Hall" && document.documentElement.lang === "ko"`)
}
