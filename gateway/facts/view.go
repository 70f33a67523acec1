package facts

import (
	_ "embed"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/published"
)

// View is a version of a room's facts as requests need it. It is immutable.
type View struct {
	Version  string
	URL      string
	Document Document            // without notices whose time is over
	Body     *published.Document // Document as JSON
	Module   *published.Document // the script that shows it
	Member   []byte              // of the status object, without its name: {"version":…,"url":…}

	hash  string // of the facts in the store
	until int64  // µs of Redis's clock: when a notice ends; 0: none does
}

// Latest keeps the view of a room's newest facts.
type Latest struct {
	base  string
	texts string
	view  atomic.Pointer[View]
}

// NewLatest returns a Latest of facts that are served at base + "/facts". texts are the words for states and levels by language, as JSON.
func NewLatest(base, texts string) *Latest { return &Latest{base: base, texts: texts} }

// Of returns the view of facts at a time, µs of Redis's clock; nil without facts. It makes each view once.
func (l *Latest) Of(f *admission.Facts, now int64) *View {
	if f.Hash == "" || f.Text == "" {
		return nil
	}
	v := l.view.Load()
	if v == nil || v.hash != f.Hash || v.until > 0 && now >= v.until {
		next := l.newView(f, now)
		if !l.view.CompareAndSwap(v, next) { // another request has made it
			next = l.view.Load()
		}
		v = next
	}
	if v.Body == nil {
		return nil
	}
	return v
}

// newView returns the view of facts. It has no body if the text is not a document: another program wrote the store.
func (l *Latest) newView(f *admission.Facts, now int64) *View {
	v := &View{hash: f.Hash}
	d, err := Parse(f.Text)
	if err != nil {
		return v
	}
	v.Document = d.Current(time.UnixMicro(now))
	for _, n := range v.Document.Notices {
		if n.Until != nil && (v.until == 0 || n.Until.UnixMicro() < v.until) {
			v.until = n.Until.UnixMicro()
		}
	}
	text := v.Document.Text()
	v.Version = Version(Hash(text))
	v.URL = l.base + "/facts?v=" + v.Version
	v.Body = &published.Document{Body: []byte(text), ETag: `"` + v.Version + `"`}
	v.Module = published.New([]byte(module(text, l.texts)))
	v.Module.ETag = v.Body.ETag
	v.Member = []byte(`{"version":"` + v.Version + `","url":"` + v.URL + `"}`)
	return v
}

//go:embed facts.js
var script string

// module returns the script for a document. Both parts are JSON in which <, > and line separators are escaped.
func module(document, texts string) string {
	return strings.NewReplacer("{/*document*/}", document, "{/*texts*/}", texts).Replace(script)
}
