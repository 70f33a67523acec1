// Package settings loads a program's configuration from flags, environment, a YAML file and defaults into a struct with tags. It is
// strict: an unknown name or a value of another type is a problem that names the setting, the value and what to do, and all
// problems are reported together.
//
// The tags of a struct are the single source for loading, checking and documentation:
//
//	koanf    the name in file and environment
//	default  the value when nothing is given
//	doc      a sentence for the reference
//	enum     the words that are allowed; a leading comma allows an empty one
//	min, max the smallest and largest value, in the field's own notation
//	unit     what a plain number counts
//	live     "true" if operators may change it without a reload
//	secret   "true" hides the value, "url" hides the password in it
//	later    the setting is refused, because its feature is not in this version; what to do instead
//	only     the kind of section that has the setting
package settings

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Setting describes one key of a configuration, as the tags of its field have it.
type Setting struct {
	// Path is the key's path; an element of a list is written as rooms[], one of a map as processors.*.
	Path string
	// Name is the last part of Path.
	Name string
	// Kind is one of text, number, integer, boolean, duration, size, rate, list of text, list of CIDR, map of text, section, list of
	// sections and map of sections.
	Kind string
	// Default is the value when nothing is given, as it would be written.
	Default string
	Doc     string
	Unit    string
	// Enum lists the allowed words, Min and Max the bounds; empty: no limit.
	Enum     []string
	Min, Max string
	// Live settings may be changed by operators while the program runs.
	Live bool
	// Secret is "true" for a value that is never shown, "url" for a URL whose password is not.
	Secret string
	// Later is set if the setting is not available in this version: what to do instead.
	Later string
	// Optional marks a setting whose absence has a meaning of its own.
	Optional bool
	// Only is the kind of section that has this setting; empty: every one.
	Only string

	goType reflect.Type
	index  int
}

// Kinds of settings that hold others.
const (
	kindSection  = "section"
	kindSections = "list of sections"
	kindNamed    = "map of sections"
	kindTexts    = "map of text"
	listOf       = "list of "
)

// Schema describes the configuration T of one program.
type Schema[T any] struct{ *schema }

type schema struct {
	program   string
	settings  []Setting
	top       []Setting          // those that are in no section
	variables map[string]Setting // by the environment variable that sets them
}

// programs are all schemas, so that a variable of another program can be named as such.
var programs []*schema

// New returns the schema of a program's configuration. It panics if a tag is wrong.
func New[T any](program string) Schema[T] {
	t := reflect.TypeFor[T]()
	sc := &schema{program: program, settings: collect(t, ""), top: settingsOf(t, ""), variables: make(map[string]Setting)}
	for _, s := range sc.settings {
		if low, high := s.bound(s.Min), s.bound(s.Max); low != nil && high != nil && !less(*low, *high) {
			panic("settings: the bounds of " + s.Path + " exclude each other")
		}
		if !strings.ContainsAny(s.Path, "[*") && !s.holdsOthers() {
			sc.variables[s.Variable()] = s
		}
	}
	programs = append(programs, sc)
	return Schema[T]{sc}
}

// Settings lists every key in the order of the struct, sections before their settings.
func (sc *schema) Settings() []Setting { return slices.Clone(sc.settings) }

func collect(t reflect.Type, prefix string) []Setting {
	var all []Setting
	for _, s := range settingsOf(t, prefix) {
		all = append(all, s)
		switch s.Kind {
		case kindSection:
			all = append(all, collect(s.goType, s.Path)...)
		case kindSections, kindNamed:
			all = append(all, collect(s.goType.Elem(), s.inner())...)
		}
	}
	return all
}

func (s Setting) holdsOthers() bool {
	return s.Kind == kindSection || s.Kind == kindSections || s.Kind == kindNamed
}

// inner returns the Path of an element of a list or map of sections.
func (s Setting) inner() string {
	if s.Kind == kindNamed {
		return s.Path + ".*"
	}
	return s.Path + "[]"
}

// settingsOf describes the fields of a struct at prefix.
func settingsOf(t reflect.Type, prefix string) []Setting {
	all := make([]Setting, 0, t.NumField())
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get
		s := Setting{
			Name: tag("koanf"), Default: tag("default"), Doc: tag("doc"), Unit: tag("unit"), Min: tag("min"), Max: tag("max"),
			Live: tag("live") == "true", Secret: tag("secret"), Later: tag("later"), Only: tag("only"), goType: field.Type, index: i,
		}
		if words, ok := field.Tag.Lookup("enum"); ok {
			s.Enum = strings.Split(words, ",")
		}
		if s.goType.Kind() == reflect.Pointer {
			s.Optional, s.goType = true, s.goType.Elem()
		}
		s.Kind, s.Path = kindOf(s.goType), Join(prefix, s.Name)
		all = append(all, s)
	}
	return all
}

func kindOf(t reflect.Type) string {
	for name, k := range scalars {
		if k.goType == t {
			return name
		}
	}
	switch t.Kind() {
	case reflect.Int64:
		return "integer"
	case reflect.Struct:
		return kindSection
	case reflect.Map:
		if t.Elem().Kind() == reflect.Struct {
			return kindNamed
		}
		return kindTexts
	case reflect.Slice:
		if kind := kindOf(t.Elem()); kind != kindSection {
			return listOf + kind
		}
		return kindSections
	}
	panic("settings: no setting can be of type " + t.String())
}

// Join returns the path of a name in a section; "" is the whole configuration.
func Join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// Element returns the path of an element of a list.
func Element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Visit calls f for every setting of a configuration (a pointer to a struct) except sections; paths have the index of a list's
// element and the name of a map's. A list or map of sections comes before its sections.
func Visit(config any, f func(path string, s Setting, v reflect.Value)) {
	visit(reflect.ValueOf(config).Elem(), "", "", f)
}

func visit(v reflect.Value, path, place string, f func(path string, s Setting, v reflect.Value)) {
	for _, s := range settingsOf(v.Type(), place) {
		at, value := Join(path, s.Name), v.Field(s.index)
		if s.Kind == kindSection {
			visit(value, at, s.Path, f)
			continue
		}
		f(at, s, value)
		switch s.Kind {
		case kindSections:
			for i := range value.Len() {
				visit(value.Index(i), Element(at, i), s.inner(), f)
			}
		case kindNamed:
			for _, key := range mapKeys(value) {
				visit(value.MapIndex(reflect.ValueOf(key)), Join(at, key), s.inner(), f)
			}
		}
	}
}

// Files lists every file that a configuration names.
func Files(config any) []string {
	var files []string
	Visit(config, func(_ string, s Setting, v reflect.Value) {
		if strings.HasSuffix(s.Name, "_file") && v.String() != "" {
			files = append(files, v.String())
		}
	})
	return files
}

// mapKeys returns the keys of a map, sorted.
func mapKeys(v reflect.Value) []string {
	keys := make([]string, 0, v.Len())
	for _, key := range v.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}
