package page

import (
	"fmt"
	"html/template"
	"strings"
)

// splice is a rendered template cut at the places where visitors differ. html/template has decided the structure
// once, at New; a page is then the pieces with escaped text between them, which costs a small part of running the
// template. A test holds the two equal for every view.
type splice struct {
	pieces []string
	slots  []int // slots[i], an index into Data.dynamic, comes after pieces[i]
}

// cut renders d with marks in place of the dynamic fields, on which t must not branch.
func cut(t *template.Template, d Data) (splice, error) {
	// A mark is letters and digits only, which no context escapes, and nothing that a title may hold.
	prefix := "zSLOT"
	for strings.Contains(d.Site, prefix) {
		prefix += "z"
	}
	mark := func(i int) string { return fmt.Sprintf("%s%02dz", prefix, i) }
	fields := d.dynamic()
	for i, field := range fields {
		*field = mark(i)
	}
	var out strings.Builder
	if err := t.Execute(&out, &d); err != nil {
		return splice{}, err
	}
	var s splice
	for rest := out.String(); ; {
		at, slot := len(rest), -1
		for i := range fields {
			if j := strings.Index(rest, mark(i)); j >= 0 && j < at {
				at, slot = j, i
			}
		}
		s.pieces = append(s.pieces, rest[:at])
		if slot < 0 {
			return s, nil
		}
		s.slots = append(s.slots, slot)
		rest = rest[at+len(mark(slot)):]
	}
}

func (s splice) append(dst []byte, d *Data) []byte {
	fields := d.dynamic()
	for i, slot := range s.slots {
		dst = append(dst, s.pieces[i]...)
		dst = appendEscaped(dst, *fields[slot])
	}
	return append(dst, s.pieces[len(s.pieces)-1]...)
}

// appendEscaped appends s as html/template writes it into text and into quoted attributes.
func appendEscaped(dst []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); i++ {
		var e string
		switch s[i] {
		case 0:
			e = "\uFFFD"
		case '"':
			e = "&#34;"
		case '&':
			e = "&amp;"
		case '\'':
			e = "&#39;"
		case '+':
			e = "&#43;"
		case '<':
			e = "&lt;"
		case '>':
			e = "&gt;"
		default:
			continue
		}
		dst = append(append(dst, s[start:i]...), e...)
		start = i + 1
	}
	return append(dst, s[start:]...)
}
