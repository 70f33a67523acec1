package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

func outcomeOf(o store.Outcome) outcomeView {
	v := outcomeView{ID: o.ID, Status: o.Status, Attempts: o.Attempts, Code: o.Code, Error: o.Error, At: at(o.At), CreatedAt: at(o.CreatedAt), StartedAt: at(o.StartedAt)}
	if !o.StartedAt.IsZero() && !o.At.IsZero() {
		v.Duration = new(o.At.Sub(o.StartedAt).Milliseconds())
	}
	v.Result, v.Binary = anyResult(o.Result)
	return v
}

// anyResult returns a result as JSON if it is JSON or text, and otherwise as bytes.
func anyResult(b []byte) (result json.RawMessage, binary []byte) {
	switch {
	case len(b) == 0:
		return nil, nil
	case !utf8.Valid(b):
		return nil, b
	case json.Valid(b):
		return b, nil // Marshal removes line breaks
	}
	return ophttp.Marshal(string(b)), nil
}

// letterOf returns a dead letter, from which the job can be submitted again.
func letterOf(o store.Outcome, groupType string) outcomeView {
	v := outcomeOf(o)
	v.Status, v.Result, v.Binary = "", nil, nil
	v.Type, v.Payload, v.Cost = cmp.Or(o.Type, groupType), o.Payload, o.Cost
	if !json.Valid(o.Payload) { // a job's payload is JSON; a missing one is null
		v.Payload = json.RawMessage("null")
	}
	return v
}

type pageFilter struct{ limit int64 }

var pageFields = []field[pageFilter]{
	{"limit", "a whole number from 1", func(f *pageFilter, raw []byte) string { return setWhole(&f.limit, raw, 1, 1e12) }, false},
}

type resultFilter struct {
	pageFilter
	statuses, codes []string
	cursor          string
	cursors         bool // lines show their cursor
}

var resultFields = []field[resultFilter]{
	{"limit", "a whole number from 1", func(f *resultFilter, raw []byte) string { return setWhole(&f.limit, raw, 1, 1e12) }, false},
	{"status", "succeeded, failed, dead or cancelled, or several with commas between", func(f *resultFilter, raw []byte) string {
		f.statuses = strings.Split(ophttp.Text(raw), ",")
		for _, status := range f.statuses {
			if !slices.Contains([]string{"succeeded", "failed", "dead", "cancelled"}, status) {
				return "is not a status that a job ends with"
			}
		}
		return ""
	}, true},
	{"code", "an error code as results show it, or several with commas between", func(f *resultFilter, raw []byte) string {
		f.codes = strings.Split(ophttp.Text(raw), ",")
		if slices.Contains(f.codes, "") {
			return "has an empty code"
		}
		return ""
	}, true},
	{"cursor", "the cursor of a line; empty: from the beginning", func(f *resultFilter, raw []byte) string {
		f.cursor, f.cursors = ophttp.Text(raw), true
		return ""
	}, true},
}

// show returns the line of an outcome, nil if the filter excludes it.
func (f *resultFilter) show(o store.Outcome) any {
	if f.statuses != nil && !slices.Contains(f.statuses, o.Status) || f.codes != nil && !slices.Contains(f.codes, o.Code) {
		return nil
	}
	v := outcomeOf(o)
	if f.cursors {
		v.Cursor = o.Cursor
	}
	return v
}

// results streams the outcomes of a group's jobs in the order in which the jobs ended.
func (s jobRoutes) results(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	var f resultFilter
	if err := readQuery(r, resultFields, &f); err != nil {
		return err
	}
	w.Header().Set("X-Bulk-Results", string(keeps(g)))
	return s.lines(w, r, g.ID, f.cursor, f.limit, s.store.Results, f.show)
}

// dead streams the dead letters of a group.
func (s jobRoutes) dead(w http.ResponseWriter, r *http.Request, who identity) error {
	var f struct {
		pageFilter
		group string
	}
	q := r.URL.Query()
	f.group = q.Get("group")
	groups := q["group"]
	delete(q, "group")
	faults := decodeQuery(pageFields, q, &f.pageFilter)
	if len(groups) != 1 || f.group == "" {
		faults = append(faults, ophttp.Fault{Path: "group", Problem: "is missing", Allowed: "the id of one group: GET /v1/dead?group=ID"})
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	r.SetPathValue("id", f.group)
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	return s.lines(w, r, g.ID, "", f.limit, s.store.Dead, func(o store.Outcome) any { return letterOf(o, g.Type) })
}

const (
	pageLeast, pageMost = 16, 1000
	pageBytes           = 2 << 20 // intended size of a page
)

// lines streams outcomes page by page, so that memory does not grow with their number. An error after the first page
// breaks the connection: a truncated response must not look complete.
func (s jobRoutes) lines(w http.ResponseWriter, r *http.Request, group, cursor string, most int64,
	read func(ctx context.Context, group, cursor string, limit int) (store.Page, error), show func(store.Outcome) any,
) error {
	// The first page must be small enough for the largest results; later ones adapt to the size of the results
	// before.
	size := max(pageLeast, min(pageMost, pageBytes/max(1, s.o.Limits.Result)))
	page, err := read(r.Context(), group, cursor, size)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", ndjson)
	out := ophttp.Flowing(w, s.o.Limits.Idle)
	if r.Method == http.MethodHead {
		return nil
	}
	var b bytes.Buffer
	for sent := int64(0); ; {
		held := 0
		b.Reset()
		for _, o := range page.Outcomes {
			if most > 0 && sent == most {
				break
			}
			held += len(o.Result) + len(o.Payload) + len(o.Error)
			line := show(o)
			if line == nil {
				continue
			}
			sent++
			b.Write(ophttp.Marshal(line))
			b.WriteByte('\n')
		}
		if _, err := out.Write(b.Bytes()); err != nil {
			return nil // the client has disconnected
		}
		if page.Next == "" || page.Next == cursor || most > 0 && sent == most {
			return nil
		}
		cursor = page.Next
		out.Send()
		if n := len(page.Outcomes); n > 0 {
			size = max(pageLeast, min(2*size, pageMost, pageBytes/max(1, held/n)))
		}
		page = store.Page{} // free it before the next one is read
		if page, err = read(r.Context(), group, cursor, size); err != nil {
			if r.Context().Err() == nil {
				s.log.WarnContext(r.Context(), "cannot read more outcomes; the response was cut off", "path", r.URL.Path, "error", err)
			}
			panic(http.ErrAbortHandler)
		}
	}
}

// result responds with the aggregate of an ended group.
func (s jobRoutes) result(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	if !g.Status.Ended() {
		return ophttp.NewProblem(http.StatusConflict, string(store.CodeState), "group %q is %s and has no result until it has ended: watch GET /v1/groups/%s/events", g.ID, g.Status, g.ID)
	}
	if len(g.Result) == 0 {
		return ophttp.NewProblem(http.StatusConflict, string(store.CodeState), "group %q is %s, and its outcomes are still being recorded: repeat the request in a second", g.ID, g.Status)
	}
	ophttp.Write(w, http.StatusOK, "application/json", append(slices.Clip(g.Result), '\n'))
	return nil
}
