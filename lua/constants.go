package lua

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	recordLine = regexp.MustCompile(`^-- RECORD ([A-Z]):(.*)$`)
	moreFields = regexp.MustCompile(`^--   (.*)$`)
)

// readRecords reads a library's RECORD declarations: a letter and the record's fields in their order.
func readRecords(lib, text string) (map[string][]string, error) {
	records := map[string][]string{}
	letter, list := "", ""
	finish := func() error {
		if letter == "" {
			return nil
		}
		if _, twice := records[letter]; twice {
			return recordTwice(lib, letter)
		}
		names, err := parseNames("RECORD "+letter, strings.TrimSuffix(strings.TrimSpace(list), ","), itemName)
		if err != nil {
			return fmt.Errorf("lib/%s.lua: %w", lib, err)
		}
		if slices.Contains(names, "length") || slices.Contains(names, "fields") {
			return fmt.Errorf("lib/%s.lua: RECORD %s: length and fields mean the record itself", lib, letter)
		}
		records[letter], letter, list = names, "", ""
		return nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if m := recordLine.FindStringSubmatch(line); m != nil {
			if err := finish(); err != nil {
				return nil, err
			}
			letter, list = m[1], m[2]
		} else if m := moreFields.FindStringSubmatch(line); m != nil && letter != "" {
			list += " " + m[1]
		} else if err := finish(); err != nil {
			return nil, err
		}
	}
	if err := finish(); err != nil {
		return nil, err
	}
	return records, nil
}

// joinRecords gives the records of all libraries that a script includes.
func joinRecords(includes []string, libs map[string]*library) (map[string][]string, error) {
	records := map[string][]string{}
	for _, name := range includes {
		for letter, fields := range libs[name].records {
			if _, twice := records[letter]; twice {
				return nil, recordTwice(name, letter)
			}
			records[letter] = fields
		}
	}
	return records, nil
}

func recordTwice(lib, letter string) error {
	return fmt.Errorf("lib/%s.lua: RECORD %s stands there twice", lib, letter)
}

// foldFields replaces <letter>_<FIELD> by the field's number, <letter>_LENGTH by how many fields there are, and
// <letter>_FIELDS by the list of their names. Lua has no constants, and 200 local variables at most.
func foldFields(source string, records map[string][]string) (string, error) {
	var bad []error
	number := func(letter, name string) (string, bool) {
		fields, declared := records[letter]
		if !declared {
			return "", false
		}
		switch name {
		case "LENGTH":
			return strconv.Itoa(len(fields)), true
		case "FIELDS":
			return "{ '" + strings.Join(fields, "', '") + "' }", true
		}
		i := slices.Index(fields, strings.ToLower(name))
		if i < 0 {
			bad = append(bad, fmt.Errorf("%s_%s: RECORD %s has no field %s", letter, name, letter, strings.ToLower(name)))
		}
		return strconv.Itoa(i + 1), i >= 0
	}
	var folded strings.Builder
	done := 0 // what is folded of source
	for at := 0; ; at++ {
		next := strings.IndexByte(source[at:], '_')
		if next < 0 {
			break
		}
		at += next
		end := at + 1
		for end < len(source) && inName(source[end]) {
			end++
		}
		name := source[at+1 : end]
		if at == 0 || !isUpper(source[at-1]) || at > 1 && inName(source[at-2]) || name == "" || !isUpper(name[0]) || strings.ToUpper(name) != name {
			continue
		}
		if n, ok := number(source[at-1:at], name); ok {
			folded.WriteString(source[done:at-1] + n)
			done = end
		}
		at = end - 1
	}
	folded.WriteString(source[done:])
	return folded.String(), errors.Join(bad...)
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

func inName(c byte) bool {
	return isUpper(c) || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_'
}
