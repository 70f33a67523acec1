package page

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
)

// Options is the configuration of a room's page.
type Options struct {
	Room           string        // the room's id
	Title          string        // the site's name above the heading; empty: "Waiting room" in the visitor's language
	Languages      []string      // the languages to offer, the default first; empty: all, English first
	TemplateFile   string        // the operator's own html/template in place of page.html; gets a Data
	FrameAncestors string        // sources that may frame the page, as in the policy; empty: 'none'
	Absence        time.Duration // how long a place is kept without a poll
	Guard          Guard         // the work for a place; the zero value: none
}

// Guard describes the work that visitors do for a place.
type Guard struct {
	Script          func(lang string) string // address of the script that does it
	Scripts, Frames string                   // sources of others that it loads, as in the policy; empty: none
}

// Page renders one room's waiting page. It is safe for concurrent use.
type Page struct {
	policy        string
	previewPolicy string
	negotiator    *negotiator
	languages     []edition
	own           *template.Template
}

// edition is the page in one language: the constant data, and the built-in template cut at its slots.
type edition struct {
	words    *words
	constant Data
	splice   splice
}

// New returns the page of a room. It reads and tries the operator's template, if there is one; errors name the setting.
func New(o Options) (*Page, error) {
	all, err := builtin()
	if err != nil {
		return nil, err
	}
	return newPage(o, all)
}

func newPage(o Options, all map[string]*words) (*Page, error) {
	chosen, err := choose(all, o.Languages)
	if err != nil {
		return nil, err
	}
	structure, err := template.New("page.html").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	p := &Page{}
	var tags []language.Tag
	for _, w := range chosen {
		e := edition{words: w, constant: constant(o, w)}
		if e.splice, err = cut(structure, e.constant); err != nil {
			return nil, err
		}
		p.languages = append(p.languages, e)
		tags = append(tags, w.tag)
	}
	p.negotiator = newNegotiator(tags)
	hashes := inline{styles: []string{hash(style)}, scripts: []string{hash(script)}}
	if o.TemplateFile != "" {
		if hashes, err = p.readOwn(o.TemplateFile); err != nil {
			return nil, fmt.Errorf("page.template_file %q: %w", o.TemplateFile, err)
		}
	}
	if p.policy, err = policy(hashes, o.FrameAncestors, p.own != nil, &o.Guard); err != nil {
		return nil, err
	}
	p.previewPolicy, err = policy(inline{styles: hashes.styles}, "'self'", p.own != nil, &Guard{})
	return p, err
}

// constant returns the Data of a language without the fields that differ between visitors.
func constant(o Options, w *words) Data {
	site := cmp.Or(clean(o.Title), w.plain["site"])
	seconds := int64(o.Absence / time.Second)
	kept := w.span(seconds)
	guard := ""
	if o.Guard.Script != nil {
		guard = o.Guard.Script(w.code)
	}
	return Data{
		Guard: guard,
		Lang:  w.code, Dir: w.plain["dir"], Text: w.plain, Texts: w.browser(kept),
		Style: template.CSS(style), Script: template.JS(script), // embedded at build time
		Room: o.Room, Site: site, Absence: strconv.FormatInt(seconds, 10), Keep: w.say("keep", "t", kept),
	}
}

// readOwn reads the operator's template and renders it for every language and state, so that a mistake is found at start.
func (p *Page) readOwn(file string) (inline, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return inline{}, err
	}
	t, err := template.New(file).Parse(string(b))
	if err != nil {
		return inline{}, err
	}
	var found inline
	silent := false
	for i := range p.languages {
		for k, v := range samples {
			var out strings.Builder
			if err := t.Execute(&out, p.languages[i].data(&v)); err != nil {
				return inline{}, err
			}
			if err := found.add(out.String()); err != nil {
				return inline{}, err
			}
			silent = silent || k == 0 && !found.polls
			if guard := p.languages[i].constant.Guard; guard != "" && !strings.Contains(out.String(), guard) {
				return inline{}, errors.New(`has to load the script of the room's guard, or nobody gets a place: <script src="{{.Guard}}" defer></script>`)
			}
		}
	}
	if silent {
		return inline{}, errors.New(`never polls again, so no waiting visitor is admitted: put <script type="application/json" id="text">{{.Texts}}</script><script>{{.Script}}</script> at its end, or <meta http-equiv="refresh" content="{{.Reload}}"> into its head`)
	}
	p.own = t
	return found, nil
}

// samples are views that together show every part of a page.
var samples = []View{
	{State: "waiting", Position: 1, Waiting: 1, RefreshAfter: 2},
	{State: "waiting", Position: 1234, Ahead: 1233, Waiting: 50210, ETAKnown: true, ETASeconds: 123, ETALow: 110, ETAHigh: 150,
		RefreshAfter: 12, JoinedAt: "2026-01-02T03:04:05.000000Z", Message: "We open the second hall at noon.", Paused: true},
	{State: "prequeue", OpensAt: "2026-01-02T03:04:05Z", Now: "2026-01-02T03:00:05Z", RefreshAfter: 30},
	{State: "expired", Reason: "reset", Position: 9, Ahead: 8, Waiting: 9, RefreshAfter: 5},
	{State: "rejected", Reason: "full", RefreshAfter: 30},
	{State: "admitted", RefreshAfter: 1},
	{State: "proof", RefreshAfter: 30},
}

// Append appends the page for v to dst, in the visitor's preferred language.
func (p *Page) Append(dst []byte, v *View) []byte {
	e := &p.languages[p.negotiator.pick(v.AcceptLanguage)]
	d := e.data(v)
	if p.own != nil {
		out := appender(dst)
		if p.own.Execute(&out, d) == nil {
			return out
		}
		// The operator's template failed for this view: the built-in template replaces it.
	}
	return e.splice.append(dst, d)
}

// Language returns the language of the page for an Accept-Language header.
func (p *Page) Language(accept string) string {
	return p.languages[p.negotiator.pick(accept)].words.code
}

// Site returns the title of the site in a language.
func (p *Page) Site(lang string) string {
	for i := range p.languages {
		if p.languages[i].words.code == lang {
			return p.languages[i].constant.Site
		}
	}
	return p.languages[0].constant.Site
}

func (e *edition) data(v *View) *Data {
	d := e.constant
	d.fill(e.words, v)
	return &d
}

// Header returns the value of the Content-Security-Policy header that the page needs.
func (p *Page) Header() (csp string) { return p.policy }

type appender []byte

func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}
