package cloudflare

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/settings"
)

// object holds the members of a JSON object. Each is taken once; rest notes those that were not taken.
type object struct {
	i       *importer
	at      string
	names   []string // in the order of the file
	members map[string]json.RawMessage
}

// object returns the members of an object, or nil after an error.
func (e element) object(i *importer) *object {
	if i.err != nil {
		return nil
	}
	if kind := kindOf(e.raw); kind != "object" {
		i.fail(e.at, "is a %s; it has to be an object", kind)
		return nil
	}
	o := &object{i: i, at: e.at, members: map[string]json.RawMessage{}}
	d := json.NewDecoder(bytes.NewReader(e.raw))
	if _, err := d.Token(); err != nil {
		i.fail(e.at, "%v", err)
		return nil
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			i.fail(e.at, "%v", err)
			return nil
		}
		name, _ := token.(string)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			i.fail(o.field(name), "%v", err)
			return nil
		}
		if _, twice := o.members[name]; twice {
			i.fail(o.field(name), "is there twice; keep one of them")
			return nil
		}
		o.names = append(o.names, name)
		o.members[name] = raw
	}
	return o
}

// field returns the path of a member.
func (o *object) field(name string) string {
	if name = settings.Clip(name); o.at == "" {
		return name
	}
	return o.at + "." + name
}

// has reports whether a member has a value that was not taken.
func (o *object) has(name string) bool {
	raw, ok := o.members[name]
	return ok && kindOf(raw) != "null"
}

// take returns a member, nil if it is missing or null.
func (o *object) take(name string) json.RawMessage {
	raw, ok := o.members[name]
	delete(o.members, name)
	if !ok || kindOf(raw) == "null" {
		return nil
	}
	return raw
}

// skip drops members that need no conversion.
func (o *object) skip(names ...string) {
	for _, name := range names {
		delete(o.members, name)
	}
}

// decode takes a member, which has to be of a kind, and reports whether it is present.
func (o *object) decode(name, kind string, into any) bool {
	raw := o.take(name)
	if raw == nil {
		return false
	}
	if got := kindOf(raw); got != kind {
		o.i.fail(o.field(name), "is a %s (%s); Cloudflare has a %s there", got, settings.Clip(string(raw)), kind)
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		o.i.fail(o.field(name), "%s cannot be read: use a whole number", settings.Clip(string(raw)))
		return false
	}
	return true
}

func (o *object) text(name string) (text string) {
	o.decode(name, "text", &text)
	return text
}

func (o *object) flag(name string) (flag bool) {
	o.decode(name, "boolean", &flag)
	return flag
}

// number returns a whole number, 0 if it is missing.
func (o *object) number(name string, least, most int64) int64 {
	var n int64
	if o.decode(name, "number", &n) && (n < least || n > most) {
		o.i.fail(o.field(name), "%d is not within %d and %d", n, least, most)
	}
	return n
}

// moment returns a time, zero if it is missing.
func (o *object) moment(name string) time.Time {
	text := o.text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		o.i.fail(o.field(name), "%q is not a time; Cloudflare has times such as 2027-01-31T10:00:00Z", settings.Clip(text))
	case t.Year() < 2000 || t.Year() > 2200:
		o.i.fail(o.field(name), "%s: use a year from 2000 to 2200", text)
	}
	return t.UTC()
}

// list returns the elements of a list, which may be in an envelope of its own; none if it is missing.
func (o *object) list(name string) []element {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	return o.i.elements(o.field(name), raw, name)
}

// note adds a note about a member.
func (o *object) note(name, value, advice string) { o.i.note(o.field(name), value, advice) }

// rest adds notes about the members that were not taken.
func (o *object) rest() {
	for _, name := range o.names {
		if raw, left := o.members[name]; left && kindOf(raw) != "null" {
			var text bytes.Buffer
			if json.Compact(&text, raw) != nil {
				continue
			}
			o.note(name, strings.ToValidUTF8(text.String(), "\uFFFD"), "this field is not known to the import; look it up in Cloudflare's documentation, and in docs/config.md for a setting of its kind")
		}
	}
}

// texts returns a list of texts, none if it is missing.
func (o *object) texts(name string) (list []string) {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		o.i.fail(o.field(name), "%s is not a list of texts", settings.Clip(string(raw)))
	}
	return list
}
