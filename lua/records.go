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
	fieldName  = regexp.MustCompile(`\b([A-Z])_([A-Z][A-Z0-9_]*)\b`)
)

// readRecords reads the RECORD declarations of libraries: a letter and the record's fields in their order.
func readRecords(includes []string, libs map[string]string) (map[string][]string, error) {
	records := map[string][]string{}
	for _, lib := range includes {
		letter, list := "", ""
		finish := func() error {
			if letter == "" {
				return nil
			}
			if _, twice := records[letter]; twice {
				return fmt.Errorf("lib/%s.lua: RECORD %s stands there twice", lib, letter)
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
		for line := range strings.SplitSeq(libs[lib], "\n") {
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
	}
	return records, nil
}

// foldFields replaces <letter>_<FIELD> by the field's number, <letter>_LENGTH by how many fields there are, and
// <letter>_FIELDS by the list of their names. Lua has no constants, and 200 local variables at most.
func foldFields(source string, records map[string][]string) (string, error) {
	var bad []error
	folded := fieldName.ReplaceAllStringFunc(source, func(word string) string {
		letter, name, _ := strings.Cut(word, "_")
		fields, declared := records[letter]
		if !declared {
			return word
		}
		switch name {
		case "LENGTH":
			return strconv.Itoa(len(fields))
		case "FIELDS":
			return "{ '" + strings.Join(fields, "', '") + "' }"
		}
		i := slices.Index(fields, strings.ToLower(name))
		if i < 0 {
			bad = append(bad, fmt.Errorf("%s: RECORD %s has no field %s", word, letter, strings.ToLower(name)))
			return word
		}
		return strconv.Itoa(i + 1)
	})
	return folded, errors.Join(bad...)
}
