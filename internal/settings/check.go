package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Checker collects the problems of a configuration.
type Checker struct {
	List    []Problem
	refused map[string]bool // paths that need no further problem
}

// Check compares a configuration, a pointer to a struct, with its tags: it finds settings that are not available, and values outside
// of enum, min and max.
func Check(config any) *Checker {
	c := &Checker{refused: make(map[string]bool)}
	Visit(config, func(path string, s Setting, v reflect.Value) {
		if s.Later == "" || IsEmpty(v) || format(v, s) == s.Default {
			return
		}
		value := ""
		if !s.holdsOthers() && s.Secret == "" {
			value = strconv.Quote(Clip(format(v, s))) + " "
		}
		c.Add(path, "%sis not available in this version; %s", value, s.Later)
		c.refused[path] = true
	})
	Visit(config, func(path string, s Setting, v reflect.Value) {
		if s.Optional {
			if v.IsNil() {
				return
			}
			v = v.Elem()
		}
		if s.Enum != nil && !slices.Contains(s.Enum, v.String()) {
			c.Add(path, "%q is not known; use %s", Clip(v.String()), choice(s))
			return
		}
		if low := s.bound(s.Min); low != nil && less(v, *low) {
			c.Add(path, "%s is too small; use at least %s", format(v, s), s.Min)
		}
		if high := s.bound(s.Max); high != nil && less(*high, v) {
			c.Add(path, "%s is too large; use at most %s", format(v, s), s.Max)
		}
	})
	return c
}

// Add adds a problem of a setting.
func (c *Checker) Add(path, format string, args ...any) {
	if !c.refused[path] {
		c.List = append(c.List, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// choice returns the allowed words of a setting.
func choice(s Setting) string {
	return OneOf(slices.DeleteFunc(slices.Clone(s.Enum), func(w string) bool { return w == "" }))
}

// OneOf returns words as "a, b or c".
func OneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// bound returns the value of a bound; nil for "".
func (s Setting) bound(text string) *reflect.Value {
	if text == "" {
		return nil
	}
	bound := reflect.New(s.goType).Elem()
	if problem := parseScalar(bound, text, s.Kind); problem != "" {
		panic("settings: the bound of " + s.Path + " does not fit: " + problem)
	}
	return &bound
}

func less(a, b reflect.Value) bool {
	if a.Kind() == reflect.Float64 {
		return a.Float() < b.Float()
	}
	return a.Int() < b.Int()
}

// IsEmpty reports whether a value is zero or an empty list.
func IsEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}

// Foreign lists the settings of a section that are set although, by their tag only, they belong to another kind of section.
func Foreign(section any, kind string) []Setting {
	var foreign []Setting
	v := reflect.ValueOf(section)
	for _, s := range settingsOf(v.Type(), "") {
		if s.Only != "" && s.Only != kind && !IsEmpty(v.Field(s.index)) {
			foreign = append(foreign, s)
		}
	}
	return foreign
}
