package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Setting describes one key of the configuration, as the struct's tags have it.
type Setting struct {
	// Path is the key's place; an element of a list is written as rooms[].
	Path string
	// Name is the last part of Path.
	Name string
	// Kind is one of text, number, integer, boolean, duration, size, rate,
	// list of text, list of CIDR, map of text, section and list of sections.
	Kind string
	// Default is the value when nothing is given, as it would be written.
	Default string
	Doc     string
	Unit    string
	// Enum lists the allowed words, Min and Max the bounds; empty: no limit.
	Enum     []string
	Min, Max string
	// Live settings may be changed by operators while the gateway runs.
	Live bool
	// Secret is "true" for a value that is never shown, "url" where the
	// password in it is not.
	Secret string
	// Later says what of the setting this version does not have; empty: it has
	// all of it.
	Later string
	// Optional marks a setting whose being unset means something of its own.
	Optional bool

	goType reflect.Type
	index  int
}

// Kinds of settings that hold others.
const (
	kindSection  = "section"
	kindSections = "list of sections"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	rateType     = reflect.TypeFor[Rate]()
	sizeType     = reflect.TypeFor[Size]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	configType   = reflect.TypeFor[Config]()
)

// Settings lists every key in the order of the struct, sections before what
// they hold.
func Settings() []Setting {
	return slices.Clone(allSettings)
}

var allSettings = collect(configType, "")

func collect(t reflect.Type, prefix string) []Setting {
	var all []Setting
	for _, s := range settingsOf(t) {
		s.Path = join(prefix, s.Name)
		s.Later = later(s.Path)
		all = append(all, s)
		switch s.Kind {
		case kindSection:
			all = append(all, collect(s.goType, s.Path)...)
		case kindSections:
			all = append(all, collect(s.goType.Elem(), s.Path+"[]")...)
		}
	}
	return all
}

// settingsOf describes the fields of one struct.
func settingsOf(t reflect.Type) []Setting {
	settings := make([]Setting, 0, t.NumField())
	for i := range t.NumField() {
		field := t.Field(i)
		s := Setting{
			Name:    field.Tag.Get("koanf"),
			Default: field.Tag.Get("default"),
			Doc:     field.Tag.Get("doc"),
			Unit:    field.Tag.Get("unit"),
			Min:     field.Tag.Get("min"),
			Max:     field.Tag.Get("max"),
			Live:    field.Tag.Get("live") == "true",
			Secret:  field.Tag.Get("secret"),
			goType:  field.Type,
			index:   i,
		}
		if words, ok := field.Tag.Lookup("enum"); ok {
			s.Enum = strings.Split(words, ",")
		}
		if s.goType.Kind() == reflect.Pointer {
			s.Optional = true
			s.goType = s.goType.Elem()
		}
		s.Kind = kindOf(s.goType)
		settings = append(settings, s)
	}
	return settings
}

func kindOf(t reflect.Type) string {
	switch t {
	case durationType:
		return "duration"
	case rateType:
		return "rate"
	case sizeType:
		return "size"
	case prefixType:
		return "CIDR"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Struct:
		return kindSection
	case reflect.Map:
		return "map of text"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct && t.Elem() != prefixType {
			return kindSections
		}
		return "list of " + kindOf(t.Elem())
	}
	panic("config: no setting can be of type " + t.String())
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// visit calls f for every setting but sections, list elements with their index
// in the path. A list of sections comes before what it holds.
func visit(v reflect.Value, prefix string, f func(path string, s Setting, v reflect.Value)) {
	for _, s := range settingsOf(v.Type()) {
		path, value := join(prefix, s.Name), v.Field(s.index)
		switch s.Kind {
		case kindSection:
			visit(value, path, f)
		case kindSections:
			f(path, s, value)
			for i := range value.Len() {
				visit(value.Index(i), element(path, i), f)
			}
		default:
			f(path, s, value)
		}
	}
}

// withoutIndex is the path of a list for the path of one of its elements.
func withoutIndex(path string) string {
	path, _, _ = strings.Cut(path, "[")
	return path
}
