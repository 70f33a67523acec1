package page

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// preview is one state of the page, with numbers as an example.
type preview struct {
	name string
	view View
}

var exampleQueue = View{State: "waiting", Position: 1234, Ahead: 1233, Waiting: 50210, ETAKnown: true, ETASeconds: 720, ETALow: 600, ETAHigh: 900}

var previews = []preview{
	{"waiting", exampleQueue},
	{"first in the queue", View{State: "waiting", Position: 1, Waiting: 50210, ETAKnown: true, ETASeconds: 3, ETALow: 1, ETAHigh: 9}},
	{"paused", paused(exampleQueue)},
	{"wait not known", View{State: "waiting", Position: 1234, Ahead: 1233, Waiting: 50210}},
	{"before the opening", View{State: "prequeue", OpensAt: "2030-01-02T10:00:00Z", Now: "2030-01-02T09:48:00Z"}},
	{"place lost", View{State: "expired", Reason: "late", Position: 50210, Ahead: 50209, Waiting: 50210, ETAKnown: true, ETASeconds: 9000, ETALow: 8000, ETAHigh: 10000}},
	{"closed", View{State: "rejected", Reason: "closed"}},
	{"draining", View{State: "rejected", Reason: "draining"}},
	{"full", View{State: "rejected", Reason: "full"}},
	{"too many joins", View{State: "rejected", Reason: "joins"}},
	{"challenge", View{State: "proof"}},
	{"admitted", View{State: "admitted"}},
}

func paused(v View) View {
	v.Paused = true
	return v
}

// Previews returns the states and the languages that Preview shows.
func (p *Page) Previews() (states, languages []string) {
	for _, s := range previews {
		states = append(states, s.name)
	}
	for i := range p.languages {
		languages = append(languages, p.languages[i].words.code)
	}
	return states, languages
}

// Preview returns the page for a state and language of Previews, with an operator's message and example numbers, and its
// Content-Security-Policy, by which a page of the same origin may frame it. The page has no scripts: nothing polls or takes a ticket.
// ok is false for an unknown state or language.
func (p *Page) Preview(state, language, message string) (body []byte, policy string, ok bool) {
	at := slices.IndexFunc(previews, func(s preview) bool { return s.name == state })
	in := slices.IndexFunc(p.languages, func(e edition) bool { return e.words.code == language })
	if at < 0 || in < 0 {
		return nil, "", false
	}
	view := previews[at].view
	view.AcceptLanguage, view.RefreshAfter, view.Message = language, minReload, message
	return withoutScripts(p.Append(nil, &view)), p.previewPolicy, true
}

// withoutScripts returns a page without its scripts, and without what it shows to browsers that have none.
func withoutScripts(page []byte) []byte {
	var out []byte
	z := html.NewTokenizer(strings.NewReader(string(page)))
	skip := "" // the element that is left out
	for {
		switch kind := z.Next(); {
		case kind == html.ErrorToken:
			return out
		case skip != "":
			if name, _ := z.TagName(); kind == html.EndTagToken && string(name) == skip {
				skip = ""
			}
		default:
			raw := string(z.Raw()) // TagName may change it
			if name, _ := z.TagName(); kind == html.StartTagToken && (string(name) == "script" || string(name) == "noscript") {
				skip = string(name)
				continue
			}
			out = append(out, raw...)
		}
	}
}
