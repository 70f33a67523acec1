package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate checks what the types cannot: bounds, references, files, and that
// nothing is asked for which this version does not have. It reads the files
// that the configuration names and gives every problem at once.
func (c *Config) Validate() []Problem {
	check := &checker{}
	check.unavailable(c, gatewayLater)
	check.bounds(c)
	check.edge(c)
	check.admin(c)
	check.store(c.Store)
	check.tokens(c)
	check.origins(c)
	check.rooms(c)
	return check.list
}

type checker struct {
	list []Problem
	// refused has the settings of which no more need be said.
	refused map[string]bool
}

func (c *checker) add(path, format string, args ...any) {
	if !c.refused[path] {
		c.list = append(c.list, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// bounds holds every value against the enum, min and max of its tags.
func (c *checker) bounds(cfg any) {
	visit(cfg, func(path string, s Setting, v reflect.Value) {
		if s.Optional {
			if v.IsNil() {
				return
			}
			v = v.Elem()
		}
		if s.Enum != nil && !slices.Contains(s.Enum, v.String()) {
			c.add(path, "%q is not known; want %s", clip(v.String()), choice(s))
			return
		}
		if low := parseBound(s, s.Min); low != nil && less(v, *low) {
			c.add(path, "%s is too small; want at least %s", format(v, s), s.Min)
		}
		if high := parseBound(s, s.Max); high != nil && less(*high, v) {
			c.add(path, "%s is too large; want at most %s", format(v, s), s.Max)
		}
	})
}

// choice names the words that a setting takes.
func choice(s Setting) string {
	return oneOf(slices.DeleteFunc(slices.Clone(s.Enum), func(w string) bool { return w == "" }))
}

func parseBound(s Setting, text string) *reflect.Value {
	if text == "" {
		return nil
	}
	bound := reflect.New(s.goType).Elem()
	if err := parseScalar(bound, text, s.Kind); err != nil {
		panic("config: the bound of " + s.Path + " does not fit: " + err.Error())
	}
	return &bound
}

func less(a, b reflect.Value) bool {
	if a.Kind() == reflect.Float64 {
		return a.Float() < b.Float()
	}
	return a.Int() < b.Int()
}

// format writes a value as the file would have it.
func format(v reflect.Value, s Setting) string {
	switch s.Kind {
	case "rate":
		return Rate(v.Int()).String()
	case "size":
		return Size(v.Int()).String()
	case "duration":
		return formatDuration(time.Duration(v.Int()))
	case "number":
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// id checks one id and that no other has it.
func (c *checker) id(path, id string, seen map[string]string) {
	switch first, taken := seen[id]; {
	case id == "":
		c.add(path, "is missing; want a name of lower-case letters, digits and dashes")
	case !idPattern.MatchString(id):
		c.add(path, "%q is no id; want 1 to 63 lower-case letters, digits and dashes, not beginning with a dash", clip(id))
	case taken:
		c.add(path, "%q is the id of %s already; ids are unique", id, first)
	default:
		seen[id] = strings.TrimSuffix(path, ".id")
	}
}

// largestFile bounds every file that the configuration names.
const largestFile = 1 << 20

// file reads a file that a setting names; nil and false when it cannot.
func (c *checker) file(path, name string) ([]byte, bool) {
	data, err := readSmall(name)
	if err != nil {
		c.add(path, "%v", err)
		return nil, false
	}
	return data, true
}

func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read: %w; check the path and its permissions", name, cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file", name)
	}
	if info.Size() > largestFile {
		return nil, fmt.Errorf("%q has %d bytes; want at most %d", name, info.Size(), largestFile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read: %w; check the path and its permissions", name, cause(err))
	}
	return data, nil
}

// cause is an error without the path that the message names already.
func cause(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
