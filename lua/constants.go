package lua

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// constants are the names that a script and its libraries declare and that the loader replaces in the source by their
// values: Lua has no constants, and allows 200 local variables in a function.
type constants struct {
	records map[string][]string // fields by the letter of the record
	replies map[string]string   // values by name, a string without its quotes
}

var (
	recordLine = regexp.MustCompile(`^-- RECORD ([A-Z]):(.*)$`)
	replyLine  = regexp.MustCompile(`^-- REPLY ([A-Z][A-Z_]*):\s+('[^']*'|\d+)(?:\s|$)`)
	moreFields = regexp.MustCompile(`^--   (.*)$`)
)

// readConstants reads the RECORD and REPLY declarations of a text.
func readConstants(text string) (constants, error) {
	c := constants{records: map[string][]string{}, replies: map[string]string{}}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "-- RECORD "):
			if err := c.addRecord(line, lines[i+1:]); err != nil {
				return c, err
			}
		case strings.HasPrefix(line, "-- REPLY "):
			if err := c.addReply(line); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// addRecord adds the record that a line declares; the lines after it may continue the list of its fields.
func (c constants) addRecord(line string, after []string) error {
	m := recordLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("%q must be \"-- RECORD <letter>: <field>, ...\"", line)
	}
	list := m[2]
	for _, more := range after {
		f := moreFields.FindStringSubmatch(more)
		if f == nil {
			break
		}
		list += " " + f[1]
	}
	fields, err := parseNames("RECORD "+m[1], strings.TrimSuffix(strings.TrimSpace(list), ","))
	if err != nil {
		return err
	}
	if slices.Contains(fields, "length") || slices.Contains(fields, "fields") {
		return fmt.Errorf("RECORD %s: length and fields mean the record itself", m[1])
	}
	return add(c.records, "RECORD", m[1], fields)
}

// addReply adds the reply code that a line declares.
func (c constants) addReply(line string) error {
	m := replyLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("%q must be \"-- REPLY <NAME>: <'text' or number> <meaning>\"", line)
	}
	value := strings.Trim(m[2], "'")
	for name, other := range c.replies {
		if other == value {
			return fmt.Errorf("REPLY %s and REPLY %s are both %s", name, m[1], m[2])
		}
	}
	return add(c.replies, "REPLY", m[1], value)
}

// include adds the constants of a library.
func (c constants) include(lib constants) error {
	for letter, fields := range lib.records {
		if err := add(c.records, "RECORD", letter, fields); err != nil {
			return err
		}
	}
	for name, value := range lib.replies {
		if slices.Contains(slices.Collect(maps.Values(c.replies)), value) {
			return fmt.Errorf("REPLY %s: another reply is %q, too", name, value)
		}
		if err := add(c.replies, "REPLY", name, value); err != nil {
			return err
		}
	}
	return nil
}

func add[V any](to map[string]V, kind, name string, value V) error {
	if _, twice := to[name]; twice {
		return fmt.Errorf("%s %s is declared twice", kind, name)
	}
	to[name] = value
	return nil
}

// fold replaces REPLY_<NAME> by its value, <letter>_<FIELD> by the field's number, <letter>_LENGTH by the number of fields and
// <letter>_FIELDS by the list of their names.
func (c constants) fold(source string) (string, error) {
	var folded strings.Builder
	folded.Grow(len(source))
	var bad []error
	copied := 0
	for at, end := 0, 0; at < len(source); at = end + 1 {
		for end = at; end < len(source) && inName(source[end]); end++ {
		}
		if end == at || source[at] < 'A' || source[at] > 'Z' {
			continue
		}
		value, err := c.value(source[at:end])
		if err != nil {
			bad = append(bad, err)
		}
		if value != "" {
			folded.WriteString(source[copied:at])
			folded.WriteString(value)
			copied = end
		}
	}
	folded.WriteString(source[copied:])
	return folded.String(), errors.Join(bad...)
}

// value returns the Lua text that replaces a word, or "" for a word that is no constant.
func (c constants) value(word string) (string, error) {
	prefix, name, ok := strings.Cut(word, "_")
	if !ok || name == "" || word[0] < 'A' || word[0] > 'Z' || strings.ToUpper(word) != word {
		return "", nil
	}
	if prefix == "REPLY" {
		value, declared := c.replies[name]
		if !declared {
			return "", fmt.Errorf("%s: no REPLY %s is declared", word, name)
		}
		if _, err := strconv.Atoi(value); err == nil {
			return value, nil
		}
		return "'" + value + "'", nil
	}
	fields, declared := c.records[prefix]
	if !declared {
		return "", nil
	}
	switch name {
	case "LENGTH":
		return strconv.Itoa(len(fields)), nil
	case "FIELDS":
		return "{ '" + strings.Join(fields, "', '") + "' }", nil
	}
	i := slices.Index(fields, strings.ToLower(name))
	if i < 0 {
		return "", fmt.Errorf("%s: RECORD %s has no field %s", word, prefix, strings.ToLower(name))
	}
	return strconv.Itoa(i + 1), nil
}

// checkUse reports the reply codes that the script's own header declares and its code does not use.
func (c constants) checkUse(code string) error {
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(c.replies)) {
		if !hasWord(code, "REPLY_"+name) {
			bad = append(bad, fmt.Errorf("REPLY %s is declared and not used", name))
		}
	}
	return errors.Join(bad...)
}

// hasWord reports whether code has a word that is not a part of a longer one.
func hasWord(code, word string) bool {
	for at := 0; ; {
		i := strings.Index(code[at:], word)
		if i < 0 {
			return false
		}
		start, end := at+i, at+i+len(word)
		if (start == 0 || !inName(code[start-1])) && (end == len(code) || !inName(code[end])) {
			return true
		}
		at = end
	}
}

func inName(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_'
}
