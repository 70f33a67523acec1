package console

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// Ranges of the live fields, as in the configuration.
const (
	maxRate       = 1_000_000_000 // thousandths of a visitor a second
	minBurst      = 1_000         // thousandths of a visitor
	maxBurst      = 1_000_000_000
	maxMaxActive  = 1_000_000_000
	minSessionTTL = time.Second
	maxSessionTTL = 24 * time.Hour
	maxMessage    = 1000 // characters
)

// liveField is a setting that operators can change live.
type liveField struct {
	name    string   // in admission.Live.Clear, Snapshot.Live and the API
	paths   []string // in a body: as in the file, and short
	allowed string
	// set sets the value in a change, or returns what is wrong with it.
	set func(l *admission.Live, raw []byte) string
}

var liveFields = []liveField{
	{"rate", []string{"rate", "admission.rate"}, "a number from 0 to 1000000 with at most three decimal places", func(l *admission.Live, raw []byte) string {
		return setExact(&l.Rate, raw, 3, 0, maxRate)
	}},
	{"burst", []string{"burst", "admission.burst"}, "a number from 1 to 1000000 with at most three decimal places", func(l *admission.Live, raw []byte) string {
		return setExact(&l.Burst, raw, 3, minBurst, maxBurst)
	}},
	{"max_active", []string{"max_active", "admission.max_active"}, "a whole number from 0 (no limit) to 1000000000", func(l *admission.Live, raw []byte) string {
		return setExact(&l.MaxActive, raw, 0, 0, maxMaxActive)
	}},
	{"paused", []string{"paused"}, "true or false", func(l *admission.Live, raw []byte) string { return setBool(&l.Paused, raw) }},
	{"message", []string{"message", "page.message"}, fmt.Sprintf("text of at most %d characters, with no control characters but line breaks and tabs", maxMessage), setMessage},
	{"method", []string{"method", "queue.method"}, "fifo, lottery, passthrough or reject", func(l *admission.Live, raw []byte) string {
		return setWord(&l.Method, raw, "is not a method", admission.FIFO, admission.Lottery, admission.Passthrough, admission.Reject)
	}},
	{"on_sold_out", []string{"on_sold_out", "queue.on_sold_out"}, "keep or close", func(l *admission.Live, raw []byte) string {
		return setWord(&l.OnSoldOut, raw, "is neither", "keep", "close")
	}},
	{"challenge", []string{"challenge"}, "none, auto, always or hardest", func(l *admission.Live, raw []byte) string {
		return setWord(&l.Challenge, raw, "is not a level", "none", "auto", "always", "hardest")
	}},
	{"session.ttl", []string{"session.ttl"}, "a duration from 1s to 24h, such as \"5m\"", setSessionTTL},
	{"enabled", []string{"enabled"}, "true or false", func(l *admission.Live, raw []byte) string { return setBool(&l.Enabled, raw) }},
}

// fieldAt and groups index liveFields by path: "admission" is the group of its fields.
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

// decodePatch decodes the body of PATCH rooms/{id} and returns all its faults. The change may be used only without
// faults.
func decodePatch(body []byte) (change admission.Live, faults []ophttp.Fault) {
	d := patchDecoder{given: map[string]string{}}
	d.walk("", body)
	return d.change, d.faults
}

type patchDecoder struct {
	change admission.Live
	faults []ophttp.Fault
	given  map[string]string // field name → the path that gave it
}

func (d *patchDecoder) walk(prefix string, raw []byte) {
	ophttp.Members(raw, func(name, value []byte) bool {
		path := join(prefix, string(name))
		field, isField := fieldAt[path]
		group, isGroup := groups[path]
		if bytes.IndexByte(name, '.') >= 0 { // "session.ttl" is a path, not a name
			isField, isGroup = false, false
		}
		switch {
		case isField:
			d.field(path, field, value)
		case isGroup && ophttp.IsNull(value):
			for _, p := range group {
				d.field(p, fieldAt[p], value)
			}
		case isGroup && isObject(value):
			d.walk(path, value)
		case isGroup:
			d.fault(path, value, "is not an object", "an object with "+strings.Join(group, ", "))
		case path == "draining":
			d.fault(path, value, "is not changed here", "POST to the room's /drain and /resume")
		default:
			d.fault(path, value, "is not a live field (what else the file has changes with it, on SIGHUP)", "rate, burst, max_active, paused, message, method, on_sold_out, challenge, session: {ttl}, enabled")
		}
		return true
	})
}

func (d *patchDecoder) field(path string, f *liveField, raw []byte) {
	if before, twice := d.given[f.name]; twice {
		d.fault(path, raw, "is given already, as "+before, "one of the two")
		return
	}
	d.given[f.name] = path
	if ophttp.IsNull(raw) {
		d.change.Clear = append(d.change.Clear, f.name)
		return
	}
	if wrong := f.set(&d.change, raw); wrong != "" {
		d.fault(path, raw, wrong, f.allowed)
	}
}

func (d *patchDecoder) fault(path string, raw []byte, problem, allowed string) {
	d.faults = append(d.faults, ophttp.Fault{Path: path, Value: ophttp.Excerpt(raw), Problem: problem, Allowed: allowed})
}

// setExact sets a number with so many decimal places.
func setExact(to **int64, raw []byte, places int, least, most int64) string {
	if !ophttp.IsNumber(raw) {
		return "is not a number"
	}
	v, err := exact(string(raw), places)
	switch {
	case errors.Is(err, errFraction):
		return err.Error()
	case err != nil || v < least || v > most:
		return errRange.Error()
	}
	*to = &v
	return ""
}

func setBool(to **bool, raw []byte) string {
	v := string(raw) == "true"
	if !v && string(raw) != "false" {
		return "is not true or false"
	}
	*to = &v
	return ""
}

func setMessage(l *admission.Live, raw []byte) string {
	v, isText := text(raw)
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

// setWord sets one of the words, or returns wrong.
func setWord(to **string, raw []byte, wrong string, words ...string) string {
	v, isText := text(raw)
	if !isText || !slices.Contains(words, v) {
		return wrong
	}
	*to = &v
	return ""
}

func setSessionTTL(l *admission.Live, raw []byte) string {
	ttl, isText := text(raw)
	if !isText {
		return "is not text with a unit"
	}
	v, err := time.ParseDuration(ttl)
	switch {
	case err != nil:
		return "is not a duration"
	case v < minSessionTTL || v > maxSessionTTL:
		return errRange.Error()
	}
	l.SessionTTL = &v
	return ""
}

func text(raw []byte) (value string, isText bool) {
	if !ophttp.IsText(raw) {
		return "", false
	}
	return ophttp.Text(raw), true
}
