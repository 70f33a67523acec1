package lua

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// knownFlags are the flags that a script here may carry. no-cluster and allow-cross-slot-keys are left out on purpose:
// every script has to run on a cluster, with all its keys under one hash tag.
var knownFlags = []string{"no-writes", "allow-oom", "allow-stale"}

var (
	fileName  = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	itemName  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	libName   = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	fieldLine = regexp.MustCompile(`^([A-Z]+):(.*)$`)
	remark    = regexp.MustCompile(`\([^)]*\)`)
)

// header is what the first comment block of a script declares.
type header struct {
	flags    []string
	keys     []string
	args     []string
	variadic bool
	includes []string
	lines    int // how many lines it takes, the #! line too
}

// parseHeader reads the header of the script called name and reports everything that is wrong with it.
func parseHeader(name, text string) (header, error) {
	var h header
	if !fileName.MatchString(name) {
		return h, errors.New("a script is named <aggregate>_<verb>.lua, in lower-case letters")
	}
	if strings.Contains(text, "\r") {
		return h, errors.New("has carriage returns; lines end in \\n alone")
	}
	lines := strings.Split(text, "\n")
	flags, err := parseShebang(lines[0])
	if err != nil {
		return h, err
	}
	h.flags, h.lines = flags, 1

	fields := map[string]string{}
	current := ""
	var bad []error
	for _, line := range lines[1:] {
		comment, ok := strings.CutPrefix(line, "--")
		if !ok {
			break
		}
		h.lines++
		comment = strings.TrimSpace(comment)
		if h.lines == 2 {
			purpose, ok := strings.CutPrefix(comment, name+":")
			if !ok {
				return h, fmt.Errorf("line 2 must be \"-- %s: <purpose>\"", name)
			}
			current = "purpose"
			fields[current] = strings.TrimSpace(purpose)
			continue
		}
		m := fieldLine.FindStringSubmatch(comment)
		if m == nil {
			fields[current] = strings.TrimSpace(fields[current] + " " + comment)
			continue
		}
		current = m[1]
		if !slices.Contains([]string{"KEYS", "ARGV", "RETURNS", "INVARIANT", "INCLUDE"}, current) {
			bad = append(bad, fmt.Errorf("line %d: unknown field %s; known are KEYS, ARGV, RETURNS, INVARIANT, INCLUDE", h.lines, current))
		} else if _, twice := fields[current]; twice {
			bad = append(bad, fmt.Errorf("line %d: %s stands there twice", h.lines, current))
		}
		fields[current] = strings.TrimSpace(m[2])
	}

	for _, need := range []string{"purpose", "KEYS", "ARGV", "RETURNS", "INVARIANT"} {
		if fields[need] == "" {
			bad = append(bad, fmt.Errorf("%s is missing in the header", need))
		}
	}
	if h.keys, err = parseNames("KEYS", fields["KEYS"], itemName); err != nil {
		bad = append(bad, err)
	} else if len(h.keys) == 0 && fields["KEYS"] != "" {
		bad = append(bad, errors.New("KEYS names no key; a script without one could run on any node of a cluster"))
	}
	argv := remark.ReplaceAllString(fields["ARGV"], "")
	if rest, ok := strings.CutSuffix(strings.TrimSpace(argv), "..."); ok {
		h.variadic = true
		argv = strings.TrimSuffix(strings.TrimSpace(rest), ",")
	}
	if h.args, err = parseNames("ARGV", argv, itemName); err != nil {
		bad = append(bad, err)
	} else if fields["ARGV"] != "" && (len(h.args) == 0 || h.args[0] != "now") {
		bad = append(bad, fmt.Errorf("ARGV is %q; the first must be now (microseconds, 0 for the clock of Redis)", fields["ARGV"]))
	}
	if h.includes, err = parseNames("INCLUDE", fields["INCLUDE"], libName); err != nil {
		bad = append(bad, err)
	}
	return h, errors.Join(bad...)
}

// parseShebang reads "#!lua" or "#!lua flags=a,b".
func parseShebang(line string) ([]string, error) {
	rest, ok := strings.CutPrefix(line, "#!lua")
	if !ok || (rest != "" && rest[0] != ' ') {
		return nil, errors.New("the first line must be #!lua, with flags=… where it needs any")
	}
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return nil, nil
	}
	list, ok := strings.CutPrefix(rest, "flags=")
	if !ok || strings.ContainsAny(list, " \t") {
		return nil, fmt.Errorf("after #!lua only flags=a,b may stand, not %q", rest)
	}
	flags := strings.Split(list, ",")
	for i, f := range flags {
		if !slices.Contains(knownFlags, f) {
			return nil, fmt.Errorf("unknown flag %q; known are %s", f, strings.Join(knownFlags, ", "))
		}
		if slices.Contains(flags[:i], f) {
			return nil, fmt.Errorf("flag %q stands there twice", f)
		}
	}
	return flags, nil
}

// parseNames reads a comma-separated list of distinct names; remarks in parentheses are dropped.
func parseNames(field, list string, valid *regexp.Regexp) ([]string, error) {
	list = strings.TrimSpace(remark.ReplaceAllString(list, ""))
	if list == "" {
		return nil, nil
	}
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if !valid.MatchString(names[i]) {
			return nil, fmt.Errorf("%s: %q is not a name; names are lower-case letters, digits and _, with commas between", field, names[i])
		}
		if slices.Contains(names[:i], names[i]) {
			return nil, fmt.Errorf("%s: %q stands there twice", field, names[i])
		}
	}
	return names, nil
}
