package cloudflare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

// maxFile is the largest file in bytes.
const maxFile = 16 << 20

// Options has facts that Cloudflare's rooms do not contain.
type Options struct {
	Origin         string // address of the site; empty: a placeholder, with a note
	DrawSecretFile string // secret of lotteries; empty: events that need a lottery are left out
}

// Import is the result of Read.
type Import struct {
	Notes  []Note // fields that were not converted, in the order of the file
	config configuration
}

// Note describes a field that was not converted, or not exactly.
type Note struct {
	Field  string // room and field, as sale.queueing_method
	Value  string
	Advice string
}

func (n Note) String() string { return fmt.Sprintf("%s = %s: %s", n.Field, n.Value, n.Advice) }

// placeholder is the origin where Options has none.
const placeholder = "http://127.0.0.1:9000"

// Read converts waiting rooms: one room or a list, with or without the envelope of Cloudflare's API. A room may have the members events
// and rules.
func Read(data []byte, o Options) (*Import, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("the file has %d bytes; use at most %d", len(data), maxFile)
	}
	if err := checkSyntax(data); err != nil {
		return nil, err
	}
	i := &importer{options: o, ids: map[string]bool{}, owners: map[string]string{}}
	i.config.Origins = []origin{{ID: "site", Servers: []string{o.Origin}}}
	if o.Origin == "" {
		i.config.Origins[0].Servers[0] = placeholder
		i.note("origin", placeholder, "the rooms do not contain the origin; set origins[0].servers to the address of the site, or import with --origin")
	}
	rooms := i.elements("", data, "result")
	for _, e := range rooms {
		i.room(e.object(i))
	}
	switch {
	case i.err != nil:
		return nil, i.err
	case len(i.config.Rooms) == 0 && len(rooms) == 0:
		return nil, errors.New("the file has no waiting room; use the response to GET /zones/{zone_id}/waiting_rooms")
	case len(i.config.Rooms) == 0:
		return nil, fmt.Errorf("no waiting room has a route that can be imported: %s", i.Notes[len(i.Notes)-1])
	}
	return &i.Import, nil
}

// importer collects the result. The first error ends the import.
type importer struct {
	Import
	options  Options
	ids      map[string]bool   // of rooms
	owners   map[string]string // the room of each host and path
	sameSite string            // where the value of cookies.same_site is from
	err      error
}

func (i *importer) note(field, value, advice string) {
	i.Notes = append(i.Notes, Note{strings.Map(printable, field), settings.Clip(strings.Map(printable, value)), advice})
}

func (i *importer) fail(at, format string, args ...any) {
	if i.err == nil {
		at = cmp.Or(at, "the file")
		i.err = fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
	}
}

// checkSyntax returns an error that has the line and the column of the first mistake.
func checkSyntax(data []byte) error {
	var syntax *json.SyntaxError
	err := json.Unmarshal(data, new(json.RawMessage))
	if !errors.As(err, &syntax) {
		return err
	}
	before := data[:min(len(data), max(0, int(syntax.Offset)-1))]
	line := 1 + bytes.Count(before, []byte{'\n'})
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: not JSON: %w", line, column, syntax)
}

// element is a JSON value and its place in the file.
type element struct {
	at  string
	raw json.RawMessage
}

// elements returns the objects in raw: one object, the objects of a list, or those in an envelope. name is the word for them in errors.
func (i *importer) elements(at string, raw json.RawMessage, name string) []element {
	switch kindOf(raw) {
	case "list":
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			i.fail(at, "%v", err)
			return nil
		}
		out := make([]element, len(list))
		for n, raw := range list {
			out[n] = element{settings.Element(at, n), raw}
		}
		return out
	case "object":
		o := element{at, raw}.object(i)
		if o == nil || !o.has("result") && !o.has("success") {
			return []element{{at, raw}}
		}
		return i.envelope(o)
	}
	i.fail(at, "is a %s; use the %s of Cloudflare's API: an object or a list", kindOf(raw), name)
	return nil
}

// envelope returns the objects in a response of Cloudflare's API.
func (i *importer) envelope(o *object) []element {
	if failed := o.has("success") && !o.flag("success"); failed {
		i.fail(o.field("success"), "is false; Cloudflare refused the request: %s", settings.Clip(string(o.take("errors"))))
		return nil
	}
	o.skip("errors", "messages")
	if raw := o.take("result_info"); raw != nil {
		info := element{o.field("result_info"), raw}.object(i)
		if info != nil {
			if total, count := info.number("total_count", 0, 1<<31), info.number("count", 0, 1<<31); total > count {
				i.note(info.field("total_count"), fmt.Sprint(total), fmt.Sprintf("the file has %d of them; request the other pages too (?page=2)", count))
			}
			info.skip("page", "per_page", "total_pages")
			info.rest()
		}
	}
	_, there := o.members["result"]
	raw := o.take("result")
	o.rest()
	switch {
	case !there:
		i.fail(o.at, "has no result")
		return nil
	case raw == nil:
		return nil
	case kindOf(raw) == "object":
		return []element{{o.field("result"), raw}}
	}
	return i.elements(o.field("result"), raw, "result")
}

// kindOf returns what a valid JSON value is.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return "null"
	case raw[0] == '{':
		return "object"
	case raw[0] == '[':
		return "list"
	case raw[0] == '"':
		return "text"
	case strings.IndexByte("tf", raw[0]) >= 0:
		return "boolean"
	}
	return "number"
}
