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
	// Path is the key's place; an element of a list is written as rooms[], one
	// of a map as processors.*.
	Path string
	// Name is the last part of Path.
	Name string
	// Kind is one of text, number, integer, boolean, duration, size, rate,
	// list of text, list of CIDR, map of text, section, list of sections and
	// map of sections.
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
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	rateType     = reflect.TypeFor[Rate]()
	sizeType     = reflect.TypeFor[Size]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
)

// schema is what one program's configuration can hold.
type schema struct {
	program  string
	goType   reflect.Type
	settings []Setting
	// variables maps every environment variable that may be set to its setting.
	variables map[string]Setting
	later     []unavailable
}

// The programs' schemas.
var (
	gatewaySchema = newSchema("gateway", reflect.TypeFor[Config](), gatewayLater)
	bulkSchema    = newSchema("bulkworker", reflect.TypeFor[Bulk](), bulkLater)
)

func newSchema(program string, t reflect.Type, later []unavailable) *schema {
	sc := &schema{program: program, goType: t, variables: make(map[string]Setting), later: later}
	sc.settings = sc.collect(t, "")
	for _, s := range sc.settings {
		if !strings.ContainsAny(s.Path, "[*") && !s.holdsOthers() {
			sc.variables[envName(s.Path)] = s
		}
	}
	return sc
}

// Settings lists every key of the gateway in the order of the struct, sections
// before what they hold.
func Settings() []Setting { return slices.Clone(gatewaySchema.settings) }

// BulkSettings lists every key of the bulk worker likewise.
func BulkSettings() []Setting { return slices.Clone(bulkSchema.settings) }

func (sc *schema) collect(t reflect.Type, prefix string) []Setting {
	var all []Setting
	for _, s := range settingsOf(t, prefix) {
		s.Later = sc.laterNote(s.Path)
		all = append(all, s)
		switch s.Kind {
		case kindSection:
			all = append(all, sc.collect(s.goType, s.Path)...)
		case kindSections, kindNamed:
			all = append(all, sc.collect(s.goType.Elem(), s.inner())...)
		}
	}
	return all
}

func (s Setting) holdsOthers() bool {
	return s.Kind == kindSection || s.Kind == kindSections || s.Kind == kindNamed
}

// inner is the Path of an element of a list or map of sections.
func (s Setting) inner() string {
	if s.Kind == kindNamed {
		return s.Path + ".*"
	}
	return s.Path + "[]"
}

// settingsOf describes the fields of one struct, which stands at prefix.
func settingsOf(t reflect.Type, prefix string) []Setting {
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
			Only:    field.Tag.Get("only"),
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
		s.Path = join(prefix, s.Name)
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
		if t.Elem().Kind() == reflect.Struct {
			return kindNamed
		}
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

// visit calls f for every setting of a configuration but sections, list
// elements with their index in the path, those of a map with their name. A list
// or map of sections comes before what it holds.
func visit(config any, f func(path string, s Setting, v reflect.Value)) {
	visitSection(reflect.ValueOf(config).Elem(), "", "", f)
}

func visitSection(v reflect.Value, path, place string, f func(path string, s Setting, v reflect.Value)) {
	for _, s := range settingsOf(v.Type(), place) {
		at, value := join(path, s.Name), v.Field(s.index)
		if s.Kind == kindSection {
			visitSection(value, at, s.Path, f)
			continue
		}
		f(at, s, value)
		switch s.Kind {
		case kindSections:
			for i := range value.Len() {
				visitSection(value.Index(i), element(at, i), s.inner(), f)
			}
		case kindNamed:
			for _, key := range mapKeys(value) {
				visitSection(value.MapIndex(reflect.ValueOf(key)), join(at, key), s.inner(), f)
			}
		}
	}
}

// mapKeys are the keys of a map of any kind, in their order.
func mapKeys(v reflect.Value) []string {
	keys := make([]string, 0, v.Len())
	for _, key := range v.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}

// withoutIndex is the path of a list for the path of one of its elements.
func withoutIndex(path string) string {
	path, _, _ = strings.Cut(path, "[")
	return path
}
