package lua

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// knownFlags are the flags that a script may carry. no-cluster and allow-cross-slot-keys are missing on purpose: every script
// has to run on a cluster, with all its keys under one hash tag.
var knownFlags = []string{"no-writes", "allow-oom", "allow-stale"}

var (
	knownFields    = []string{"KEYS", "ARGV", "RETURNS", "INVARIANT", "INCLUDE"}
	requiredFields = []string{"purpose", "KEYS", "ARGV", "RETURNS", "INVARIANT"}
)

var (
	fileName  = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	itemName  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	fieldLine = regexp.MustCompile(`^([A-Z]+):(.*)$`)
	remark    = regexp.MustCompile(`\([^)]*\)`)
)

// header is the first comment block of a script.
type header struct {
	flags    []string
	keys     []string // names of KEYS, in order
	args     []string // names of ARGV, in order; the first is "now"
	variadic bool     // ARGV ends in "..."
	includes []string
	length   int // lines, the #! line included
}

// parseHeader reads the header of the script called name. Its error joins every fault of the header.
func parseHeader(name, text string) (header, error) {
	var h header
	if !fileName.MatchString(name) {
		return h, errors.New("a script is named <aggregate>_<verb>.lua, in lower-case letters")
	}
	if strings.Contains(text, "\r") {
		return h, errors.New("has carriage returns; lines end in \\n alone")
	}
	lines := strings.Split(text, "\n")
	var err error
	if h.flags, err = parseShebang(lines[0]); err != nil {
		return h, err
	}
	h.length = 1
	for h.length < len(lines) && strings.HasPrefix(lines[h.length], "--") {
		h.length++
	}
	fields, err := readFields(name, lines[1:h.length])
	if fields == nil {
		return h, err
	}
	return h, errors.Join(err, h.parseFields(fields))
}

// readFields returns the fields of a header by name, that of line 2 as "purpose"; nil where line 2 is missing.
func readFields(name string, lines []string) (map[string]string, error) {
	purpose := ""
	ok := false
	if len(lines) > 0 {
		purpose, ok = strings.CutPrefix(lines[0], "-- "+name+":")
	}
	if !ok {
		return nil, fmt.Errorf("line 2 must be \"-- %s: <purpose>\"", name)
	}
	fields := map[string]string{"purpose": strings.TrimSpace(purpose)}
	current := "purpose"
	var bad []error
	for i, line := range lines[1:] {
		comment := strings.TrimSpace(line[2:])
		if strings.HasPrefix(comment, "REPLY ") { // readConstants reads it
			current = "REPLY"
			continue
		}
		m := fieldLine.FindStringSubmatch(comment)
		if m == nil {
			fields[current] = strings.TrimSpace(fields[current] + " " + comment)
			continue
		}
		current = m[1]
		if !slices.Contains(knownFields, current) {
			bad = append(bad, fmt.Errorf("line %d: unknown field %s; known are REPLY, %s", i+3, current, strings.Join(knownFields, ", ")))
		} else if _, twice := fields[current]; twice {
			bad = append(bad, fmt.Errorf("line %d: there are two fields %s", i+3, current))
		}
		fields[current] = strings.TrimSpace(m[2])
	}
	return fields, errors.Join(bad...)
}

func (h *header) parseFields(fields map[string]string) error {
	var bad []error
	for _, name := range requiredFields {
		if fields[name] == "" {
			bad = append(bad, fmt.Errorf("%s is missing in the header", name))
		}
	}
	var err error
	if h.keys, err = parseNames("KEYS", fields["KEYS"]); err != nil {
		bad = append(bad, err)
	} else if len(h.keys) == 0 && fields["KEYS"] != "" {
		bad = append(bad, errors.New("KEYS names no key; a script without one could run on any node of a cluster"))
	}
	argv := strings.TrimSpace(remark.ReplaceAllString(fields["ARGV"], ""))
	if rest, ok := strings.CutSuffix(argv, "..."); ok {
		h.variadic = true
		argv = strings.TrimSuffix(strings.TrimSpace(rest), ",")
	}
	if h.args, err = parseNames("ARGV", argv); err != nil {
		bad = append(bad, err)
	} else if fields["ARGV"] != "" && (len(h.args) == 0 || h.args[0] != "now") {
		bad = append(bad, fmt.Errorf("ARGV is %q; the first must be now (microseconds, 0 for the clock of Redis)", fields["ARGV"]))
	}
	if h.includes, err = parseNames("INCLUDE", fields["INCLUDE"]); err != nil {
		bad = append(bad, err)
	}
	return errors.Join(bad...)
}

// parseShebang reads "#!lua" or "#!lua flags=a,b".
func parseShebang(line string) ([]string, error) {
	rest, ok := strings.CutPrefix(line, "#!lua")
	if !ok || (rest != "" && rest[0] != ' ') {
		return nil, errors.New("the first line must be #!lua, optionally with flags=…")
	}
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return nil, nil
	}
	list, ok := strings.CutPrefix(rest, "flags=")
	if !ok || strings.ContainsAny(list, " \t") {
		return nil, fmt.Errorf("after #!lua only flags=a,b is allowed, not %q", rest)
	}
	flags := strings.Split(list, ",")
	for i, f := range flags {
		if !slices.Contains(knownFlags, f) {
			return nil, fmt.Errorf("unknown flag %q; known are %s", f, strings.Join(knownFlags, ", "))
		}
		if slices.Contains(flags[:i], f) {
			return nil, fmt.Errorf("flag %q is repeated", f)
		}
	}
	return flags, nil
}

// parseNames reads a comma-separated list of distinct names, without the remarks in parentheses.
func parseNames(field, list string) ([]string, error) {
	list = strings.TrimSpace(remark.ReplaceAllString(list, ""))
	if list == "" {
		return nil, nil
	}
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if !itemName.MatchString(names[i]) {
			return nil, fmt.Errorf("%s: %q is not a name; names are lower-case letters, digits and _, separated by commas", field, names[i])
		}
		if slices.Contains(names[:i], names[i]) {
			return nil, fmt.Errorf("%s: %q is repeated", field, names[i])
		}
	}
	return names, nil
}
