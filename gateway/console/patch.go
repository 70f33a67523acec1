package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/anteroom/anteroom/admission"
)

// Ranges of the live fields; the configuration has the same.
const (
	maxRate       = 1_000_000_000 // thousandths of a visitor a second
	minBurst      = 1_000         // thousandths of a visitor
	maxBurst      = 1_000_000_000
	maxMaxActive  = 1_000_000_000
	minSessionTTL = time.Second
	maxSessionTTL = 24 * time.Hour
	maxMessage    = 1000 // characters
)

// liveField is a setting that operators change while the gateway runs.
type liveField struct {
	name    string   // in admission.Live.Clear, Snapshot.Live and the API
	paths   []string // where a body may have it: as in the file, and short
	allowed string
	// set puts the value into a change, or says what is wrong with it.
	set func(l *admission.Live, n node) string
}

var liveFields = []liveField{
	{"rate", []string{"rate", "admission.rate"}, "a number from 0 to 1000000 with at most three decimal places", func(l *admission.Live, n node) string {
		return setDecimal(&l.Rate, n, 0, maxRate)
	}},
	{"burst", []string{"burst", "admission.burst"}, "a number from 1 to 1000000 with at most three decimal places", func(l *admission.Live, n node) string {
		return setDecimal(&l.Burst, n, minBurst, maxBurst)
	}},
	{"max_active", []string{"max_active", "admission.max_active"}, "a whole number from 0 (no limit) to 1000000000", func(l *admission.Live, n node) string {
		return setWhole(&l.MaxActive, n, 0, maxMaxActive)
	}},
	{"paused", []string{"paused"}, "true or false", func(l *admission.Live, n node) string { return setBool(&l.Paused, n) }},
	{"message", []string{"message", "page.message"}, fmt.Sprintf("text of at most %d characters, with no control characters but line breaks and tabs", maxMessage), setMessage},
	{"method", []string{"method", "queue.method"}, "fifo, lottery, passthrough or reject", setMethod},
	{"session.ttl", []string{"session.ttl"}, "a duration from 1s to 24h, such as \"5m\"", setSessionTTL},
	{"enabled", []string{"enabled"}, "true or false", func(l *admission.Live, n node) string { return setBool(&l.Enabled, n) }},
}

// fieldAt and groups index liveFields by path: "admission" leads to its fields.
var fieldAt, groups = indexFields()

func indexFields() (map[string]*liveField, map[string][]string) {
	at, in := map[string]*liveField{}, map[string][]string{}
	for i := range liveFields {
		for _, path := range liveFields[i].paths {
			at[path] = &liveFields[i]
			if group, _, nested := strings.Cut(path, "."); nested {
				in[group] = append(in[group], path)
			}
		}
	}
	return at, in
}

// decodePatch reads the body of PATCH rooms/{id}. faults are all that is wrong
// with it; the change may be used only where there are none.
func decodePatch(body node) (change admission.Live, faults []fault) {
	d := patchDecoder{given: map[string]string{}}
	d.object("", body)
	return d.change, d.faults
}

type patchDecoder struct {
	change admission.Live
	faults []fault
	given  map[string]string // field name → the path that gave it
}

func (d *patchDecoder) object(prefix string, n node) {
	for _, m := range n.members {
		path := join(prefix, m.name)
		field, isField := fieldAt[path]
		group, isGroup := groups[path]
		if strings.Contains(m.name, ".") { // "session.ttl" is a path, not a name
			isField, isGroup = false, false
		}
		switch {
		case isField:
			d.field(path, field, m.node)
		case isGroup && m.null():
			for _, p := range group {
				d.field(p, fieldAt[p], m.node)
			}
		case isGroup && m.object():
			d.object(path, m.node)
		case isGroup:
			d.fault(path, m.node, "is not an object", "an object with "+strings.Join(group, ", "))
		case path == "draining":
			d.fault(path, m.node, "is not changed here", "POST to the room's /drain and /resume")
		default:
			d.fault(path, m.node, "is not a live field (what else the file has changes with it, on SIGHUP)", "rate, burst, max_active, paused, message, method, session: {ttl}, enabled")
		}
	}
}

func (d *patchDecoder) field(path string, f *liveField, n node) {
	if before, twice := d.given[f.name]; twice {
		d.fault(path, n, "is given already, as "+before, "one of the two")
		return
	}
	d.given[f.name] = path
	if n.null() {
		d.change.Clear = append(d.change.Clear, f.name)
		return
	}
	if wrong := f.set(&d.change, n); wrong != "" {
		d.fault(path, n, wrong, f.allowed)
	}
}

func (d *patchDecoder) fault(path string, n node, what, allowed string) {
	const enough = 256
	value := n.raw
	if len(value) > enough {
		cut := strings.ToValidUTF8(string(value[:enough]), "")
		value, _ = json.Marshal(cut + "…") // text always marshals
	}
	d.faults = append(d.faults, fault{Path: path, Value: value, Problem: what, Allowed: allowed})
}

func setDecimal(to **int64, n node, least, most int64) string {
	return setExact(to, n, 3, least, most)
}

func setWhole(to **int64, n node, least, most int64) string {
	return setExact(to, n, 0, least, most)
}

func setExact(to **int64, n node, places int, least, most int64) string {
	if !n.number() {
		return "is not a number"
	}
	v, err := exact(string(n.raw), places)
	switch {
	case errors.Is(err, errFraction):
		return err.Error()
	case err != nil || v < least || v > most:
		return errRange.Error()
	}
	*to = &v
	return ""
}

func setBool(to **bool, n node) string {
	v, isBool := n.truth()
	if !isBool {
		return "is not true or false"
	}
	*to = &v
	return ""
}

func setMessage(l *admission.Live, n node) string {
	v, isText := n.text()
	switch {
	case !isText:
		return "is not text"
	case utf8.RuneCountInString(v) > maxMessage:
		return "is too long"
	case strings.ContainsFunc(v, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }):
		return "has control characters"
	}
	l.Message = &v
	return ""
}

func setMethod(l *admission.Live, n node) string {
	v, isText := n.text()
	if !isText || !slices.Contains([]string{admission.FIFO, admission.Lottery, admission.Passthrough, admission.Reject}, v) {
		return "is not a method"
	}
	l.Method = &v
	return ""
}

func setSessionTTL(l *admission.Live, n node) string {
	text, isText := n.text()
	if !isText {
		return "is not text with a unit"
	}
	v, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return "is not a duration"
	case v < minSessionTTL || v > maxSessionTTL:
		return errRange.Error()
	}
	l.SessionTTL = &v
	return ""
}
