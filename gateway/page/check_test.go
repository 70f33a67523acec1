package page_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/page"
)

// beside is the page of a check: its visitor has no ticket, or one that the check did not look up.
var beside = page.View{State: "waiting", Waiting: 5000, TakesTicket: true}

// checkedSite is a site behind another proxy, which shows the page of a check. Tickets come from the visitors' socket.
func checkedSite(t *testing.T, joins []answer, answers ...answer) *site {
	t.Helper()
	s := newSite(t, beside, answers...)
	s.joins = joins
	return s
}

func joined(position int) answer {
	a := waiting(position)
	a.status = 201
	return a
}

func TestCheckedPage_TakesTicketAndOpensRequestedPage(t *testing.T) {
	t.Parallel()
	s := checkedSite(t, []answer{{}, joined(10)}, waiting(5), admitted) // the first join is cut off
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets?day=2"))
	eventually(t, ctx, shows("place", "10")+"||"+shows("place", "5")+`||document.title === "The shop"`)
	eventually(t, ctx, `document.title === "The shop" && location.search === "?day=2"`)
	if s.joined != 2 {
		t.Errorf("%d joins, want 2: the first was cut off", s.joined)
	}
}

func TestCheckedPage_OpensRequestedPageAtOnce(t *testing.T) {
	t.Parallel()
	s := checkedSite(t, []answer{{status: 201, body: admitted.body, pass: true}}, waiting(5))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, `document.title === "The shop"`)
	if polls, _ := s.counts(); polls != 0 {
		t.Errorf("%d polls, want none", polls)
	}
}

func TestCheckedPage_ReplacesLapsedTicket(t *testing.T) {
	t.Parallel()
	s := checkedSite(t, []answer{joined(10), joined(70)}, answer{status: 200, body: `{"state":"lapsed","message":"","paused":false}`}, waiting(70))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, shows("note", "Your turn came while you were away and has passed. You have been given a new place."))
	eventually(t, ctx, shows("place", "70"))
	if _, pages := s.counts(); pages != 2 || s.joined != 2 {
		t.Errorf("%d pages and %d joins, want 2 and 2", pages, s.joined)
	}
}

// A browser that keeps no cookie is admitted and shown the page again: the script must not take one session after another.
func TestCheckedPage_TakesOneSessionWithoutCookies(t *testing.T) {
	t.Parallel()
	in := answer{status: 201, body: admitted.body} // the cookie gets lost
	s := checkedSite(t, []answer{in}, waiting(5))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, `document.getElementById("note").innerText.includes("does not keep this site’s cookie")`)
	if _, pages := s.counts(); pages != 2 || s.joined > 2 {
		t.Errorf("%d pages and %d joins, want 2 of each at most", pages, s.joined)
	}
}

// The room's own page says why it gives no ticket.
func TestCheckedPage_OpensRoomsPageWhereTicketIsRefused(t *testing.T) {
	t.Parallel()
	s := checkedSite(t, []answer{{status: 401, body: `{"code":"account_required"}`}}, waiting(5))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, `location.pathname === "/.waiting-room/sale/"`)
}

func TestCheckedPage_WaitsForClosedRoom(t *testing.T) {
	t.Parallel()
	s := checkedSite(t, []answer{{status: 503, body: `{"code":"room_closed"}`}, joined(20)}, waiting(20))
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	eventually(t, ctx, shows("heading", "Closed for now"))
}

func TestCheckedPage_ReloadsToRoomsPageWithoutScript(t *testing.T) {
	p, err := page.New(page.Options{Room: "sale"})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(p.Append(nil, &beside)); !strings.Contains(text, `http-equiv="refresh" content="0;url=/.waiting-room/sale/"`) {
		t.Error("a page without JavaScript does not lead to the room's page")
	}
}
