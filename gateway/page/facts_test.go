package page_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/facts"
	"github.com/anteroom/anteroom/gateway/page"
)

// factsSite is a site with the scripts of facts.
type factsSite struct {
	*site
	scripts map[string][]byte // by address
}

func (s *factsSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if script, ok := s.scripts[r.URL.String()]; ok {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(script)
		return
	}
	s.site.ServeHTTP(w, r)
}

// add adds the script of a document and returns the document's address.
func (s *factsSite) add(t *testing.T, texts string, d facts.Document) string {
	t.Helper()
	text := d.Text()
	v := facts.NewLatest("/.waiting-room/sale", texts).Of(&admission.Facts{Text: text, Hash: facts.Hash(text)}, 0)
	s.scripts[v.URL+"&js"] = v.Module.Body
	return v.URL
}

// The page shows the facts that it begins with and those of later polls, as text, with prices as its language writes them. Its policy
// allows the script, and the live region keeps the rows that stay the same.
func TestPage_ShowsFacts(t *testing.T) {
	t.Parallel()
	byLanguage, err := page.FactsTexts()
	if err != nil {
		t.Fatal(err)
	}
	texts, err := json.Marshal(byLanguage)
	if err != nil {
		t.Fatal(err)
	}
	const attack = `</p></script><script>alert(1)</script><img src=x onerror=alert(1)>`
	document := facts.Document{
		Items: []facts.Item{
			{ID: "a", Label: map[string]string{"en": "Standing"}, State: facts.Low, Price: &facts.Price{From: 49_500, To: 69_000, Currency: "EUR"}},
			{ID: "b", Label: map[string]string{"en": attack}, State: facts.Available, Price: &facts.Price{From: 10_000, Currency: "JPY"}},
		},
		Notices: []facts.Notice{{ID: "n", Level: facts.Urgent, Text: map[string]string{"de": attack}, Link: "/news"}},
	}
	s := &factsSite{site: newSite(t, inLine, waiting(9)), scripts: map[string][]byte{}}
	s.Config.Handler = s
	first := s.add(t, string(texts), document)
	document.Items[0].State, document.Notices = facts.SoldOut, nil
	second := s.add(t, string(texts), document)
	none := s.add(t, string(texts), facts.Document{})

	view := inLine
	view.Facts = first
	s.then(&view, waiting(9, `"facts":{"version":"1","url":"`+first+`"}`))
	ctx := tab(t, nil)
	said := watch(t, ctx)
	speak(t, ctx, "en")
	do(t, ctx, chromedp.Navigate(s.URL+"/tickets"))
	const rows = `[...document.querySelectorAll("#facts p")].map(p => [...p.children].map(c => c.textContent).join("|")).join("\n")`
	is := func(lines ...string) {
		t.Helper()
		want, _ := json.Marshal(strings.Join(lines, "\n"))
		eventually(t, ctx, rows+" === "+string(want))
	}
	is("Urgent: |"+attack, "Standing|€49.50 – €69.00|few left", attack+"|¥10|available")
	if got := value[string](t, ctx, `document.getElementById("facts").getAttribute("aria-live")+" "+document.querySelector("#facts a").getAttribute("href")+" "+document.querySelector("#facts a").lang`); got != "polite /news de" {
		t.Errorf("got %q", got)
	}
	s.then(nil, waiting(9, `"facts":{"version":"2","url":"`+second+`"}`))
	is("Standing|€49.50 – €69.00|sold out", attack+"|¥10|available")
	s.polled(t, 3) // the same version again
	if value[int](t, ctx, `document.querySelectorAll("#facts img, #facts script").length`) != 0 {
		t.Error("a fact became markup")
	}
	s.then(nil, waiting(9, `"facts":{"version":"3","url":"`+none+`"}`))
	is("")
	if got := said(); len(got) > 0 {
		t.Errorf("the console says %q", got)
	}
}
