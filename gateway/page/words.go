package page

import (
	"encoding/json"
	"html/template"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"
)

// words forms the sentences of the page in one language. words.js does the same in the browser; a test compares the two.
type words struct {
	tag     language.Tag
	code    string
	texts   map[string]text
	plain   map[string]string // the "other" form, for templates
	printer *message.Printer
}

func newWords(tag language.Tag, texts map[string]text) *words {
	w := &words{tag: tag, code: tag.String(), texts: texts, plain: make(map[string]string, len(texts)), printer: message.NewPrinter(tag)}
	for key, t := range texts {
		w.plain[key] = t["other"]
	}
	return w
}

// serverOnly are the texts that the script does not need.
var serverOnly = []string{"dir", "site", "place", "all", "sound", "noscript", "progress", "keep", "go", "opening", "closing", "h_joins", "l_joins", "h_sold_out", "l_sold_out", "h_proof", "l_proof"}

// browser returns the language's texts for the script, as JSON that is safe inside a script element. A place is kept for the
// same time for every visitor, so that sentence is formed here.
func (w *words) browser(kept string) template.JS {
	texts := make(map[string]any, len(w.texts))
	for key, t := range w.texts {
		switch {
		case slices.Contains(serverOnly, key), strings.HasPrefix(key, "p_"), strings.HasPrefix(key, "f_"), strings.HasPrefix(key, "b_"):
		case key == "offline":
			texts[key] = w.say(key, "t", kept)
		case len(t) == 1:
			texts[key] = t["other"]
		default:
			texts[key] = t
		}
	}
	b, err := json.Marshal(texts) // escapes <, > and &
	if err != nil {
		panic(err) // strings always marshal
	}
	return template.JS(b) // our own files, and json.Marshal has escaped them
}

// GuardTexts returns the texts of a guard's script by language: those that begin with p_, without that prefix.
func GuardTexts() (map[string]map[string]string, error) { return textsWith("p_") }

// FactsTexts returns the texts about facts by language: those that begin with f_, without that prefix.
func FactsTexts() (map[string]map[string]string, error) { return textsWith("f_") }

// BoardTexts returns the texts of a board by language: those that begin with b_ or f_, without that prefix, and dir.
func BoardTexts() (map[string]map[string]string, error) {
	out, err := textsWith("b_")
	if err != nil {
		return nil, err
	}
	more, err := FactsTexts()
	if err != nil {
		return nil, err
	}
	all, err := builtin()
	for lang, texts := range out {
		maps.Copy(texts, more[lang])
		texts["dir"] = all[lang].plain["dir"]
	}
	return out, err
}

func textsWith(prefix string) (map[string]map[string]string, error) {
	all, err := builtin()
	if err != nil {
		return nil, err
	}
	out := make(map[string]map[string]string, len(all))
	for _, w := range all {
		out[w.code] = map[string]string{}
		for key, text := range w.plain {
			if name, ok := strings.CutPrefix(key, prefix); ok {
				out[w.code][name] = text
			}
		}
	}
	return out, nil
}

// say returns a text with its {names} filled in; pairs are names and values in turn.
func (w *words) say(key string, pairs ...string) string { return fill(w.texts[key]["other"], pairs) }

// count is say for a text that counts halves: plural form and {n} follow n2/2.
func (w *words) count(key string, n2 int64) string {
	t := w.texts[key]
	form, ok := t[categories[w.category(n2)]]
	if !ok {
		form = t["other"]
	}
	return fill(form, []string{"n", w.number(n2)})
}

func fill(s string, pairs []string) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		s = strings.Replace(s, "{"+pairs[i]+"}", pairs[i+1], 1)
	}
	return s
}

var categories = map[plural.Form]string{
	plural.Zero: "zero", plural.One: "one", plural.Two: "two", plural.Few: "few", plural.Many: "many", plural.Other: "other",
}

// category returns the CLDR plural category of n2/2.
func (w *words) category(n2 int64) plural.Form {
	i := int(n2 / 2 % 1_000_000_000)
	if n2%2 == 0 {
		return plural.Cardinal.MatchPlural(w.tag, i, 0, 0, 0, 0)
	}
	return plural.Cardinal.MatchPlural(w.tag, i, 1, 1, 5, 5)
}

// number returns n2/2 as the language writes it: 1,234.5.
func (w *words) number(n2 int64) string {
	if n2%2 == 0 {
		return w.printer.Sprint(number.Decimal(n2 / 2))
	}
	return w.printer.Sprint(number.Decimal(float64(n2) / 2))
}

// whole returns n as the language writes it.
func (w *words) whole(n int64) string { return w.number(2 * n) }

// wait returns a range of seconds in common steps: minutes, from ten on fives, from ninety on half hours.
func (w *words) wait(low, high int64) string {
	if high <= 60 {
		return w.say("soon")
	}
	unit, a, b := "minutes", low/60, (high+59)/60
	if a >= 10 {
		a -= a % 5
	}
	if b > 10 {
		b = (b + 4) / 5 * 5
	}
	a, b = 2*a, 2*b
	if b > 180 {
		unit, a, b = "hours", low/1800, (high+1799)/1800
		if a >= 48 {
			return w.say("long")
		}
	}
	t := w.count(unit, b)
	switch {
	case a < 2:
		return w.say("upto", "t", t)
	case a < b:
		return w.say("range", "a", w.number(a), "t", t)
	}
	return w.say("about", "t", t)
}

// span returns the time for which a place is kept.
func (w *words) span(seconds int64) string {
	if seconds%3600 != 0 || seconds < 7200 {
		return w.count("minutes", seconds/60*2)
	}
	return w.count("hours", seconds/3600*2)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
