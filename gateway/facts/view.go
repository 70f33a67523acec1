package facts

import (
	"sync/atomic"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/published"
)

// View is a version of a room's facts as requests need it. It is immutable.
type View struct {
	Version  string
	Document Document
	Body     *published.Document // the text of Document
	Member   []byte              // of the status object, without its name: {"version":…,"url":…}

	hash string
}

// Latest keeps the view of a room's newest facts.
type Latest struct {
	base string
	view atomic.Pointer[View]
}

// NewLatest returns a Latest of facts that are served at base + "/facts".
func NewLatest(base string) *Latest { return &Latest{base: base} }

// Of returns the view of facts, nil without facts. It makes each view once.
func (l *Latest) Of(f *admission.Facts) *View {
	if f.Hash == "" || f.Text == "" {
		return nil
	}
	v := l.view.Load()
	if v == nil || v.hash != f.Hash {
		v = l.newView(f)
		l.view.Store(v)
	}
	if v.Body == nil {
		return nil
	}
	return v
}

// newView returns the view of facts. It has no body if the text is not a document: another program wrote the store.
func (l *Latest) newView(f *admission.Facts) *View {
	v := &View{Version: Version(f.Hash), hash: f.Hash}
	d, err := Parse(f.Text)
	if err != nil {
		return v
	}
	v.Document = d
	v.Body = &published.Document{Body: []byte(f.Text), ETag: `"` + v.Version + `"`}
	v.Member = []byte(`{"version":"` + v.Version + `","url":"` + l.base + "/facts?v=" + v.Version + `"}`)
	return v
}
