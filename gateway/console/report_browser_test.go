//go:build !race || browser

package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/board"
	"github.com/anteroom/anteroom/gateway/facts"
	visitors "github.com/anteroom/anteroom/gateway/page"
)

// axe finds nothing on the report and on the board, narrow and wide, light and dark, and no part is cut off at the side.
func TestPage_ReportAndBoardAreAccessible(t *testing.T) {
	b := newBench(t)
	b.join(40)
	for _, step := range [][3]string{
		{"PATCH", "/admin/v1/rooms/sale", `{"rate":3,"message":"A long message without a place to break it: ` + fmt.Sprintf("%0120d", 0) + `"}`},
		{"PUT", "/admin/v1/rooms/sale/facts", `{"items":[` + item + `,{"id":"seat","label":{"en":"Seat in the second balcony, restricted view"},"state":"sold_out","price":{"from":189,"to":250,"currency":"EUR"}}]}`},
		{"PUT", "/admin/v1/rooms/sale/notices/late", `{"level":"urgent","text":{"en":"Doors open later, at 18:30."},"link":"/news"}`},
	} {
		want(t, b.ask(step[0], step[1], step[2]), 200)
	}
	b.record(70)
	texts, err := visitors.BoardTexts()
	if err != nil {
		t.Fatal(err)
	}
	view := facts.NewLatest("/.waiting-room/sale", "").Of(&b.sale.Snapshot().Facts, b.sale.RedisNow())
	if view == nil {
		t.Fatal("the room has no facts")
	}
	shown := board.Board{Room: "sale"}
	mux := http.NewServeMux()
	mux.HandleFunc("/report", func(w http.ResponseWriter, _ *http.Request) {
		from := b.ask("GET", "/admin/v1/rooms/sale/report", "")
		w.Header().Set("Content-Type", from.Header().Get("Content-Type"))
		w.Header().Set("Content-Security-Policy", from.Header().Get("Content-Security-Policy"))
		_, _ = w.Write(from.Body.Bytes())
	})
	mux.HandleFunc("/board", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", board.Policy)
		s := b.sale.Snapshot()
		_, _ = w.Write(shown.Page("The shop", "en", texts["en"], r.URL.RawQuery == "wall=1", false, s, b.clock.now(), func() board.Situation {
			return board.Situation{State: "paused", Reason: "paused", Facts: view, Lottery: &board.Lottery{OpensAt: "2027-01-15T10:00:00Z", Commitment: fmt.Sprintf("%064x", 7)}}
		}))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	tab, _ := openBrowser(t, s.URL)
	for _, path := range []string{"/report", "/board", "/board?wall=1"} {
		t.Run(path, func(t *testing.T) {
			run(t, tab, chromedp.Navigate(s.URL+path), chromedp.WaitVisible(chromedp.CSS(`h1`)))
			auditPage(t, tab, false)
		})
	}
}
