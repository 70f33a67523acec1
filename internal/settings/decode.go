package settings

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decoder fills the struct from a tree of maps, lists and scalars. It never
// guesses: what is not written as its setting wants it is a problem.
type decoder struct {
	schema   *schema
	problems *Problems
}

// setDefaults writes the default of every setting of a section. Lists of
// sections have none; the default of a map of sections are the names in it.
func setDefaults(v reflect.Value) {
	var discard Problems
	d := decoder{problems: &discard}
	for _, s := range settingsOf(v.Type(), "") {
		switch {
		case s.Kind == kindSection:
			setDefaults(v.Field(s.index))
		case s.Default == "":
		case s.Kind == kindNamed:
			tree := make(map[string]any)
			for name := range strings.SplitSeq(s.Default, ",") {
				tree[name] = nil
			}
			d.named(v.Field(s.index), tree, s.Name, s)
		case strings.HasPrefix(s.Kind, listOf):
			d.value(v.Field(s.index), commaList(s.Default), s.Name, s)
		default:
			d.value(v.Field(s.index), plain(s.Default), s.Name, s)
		}
	}
	if len(discard.List) > 0 {
		panic("settings: a default does not fit its setting: " + discard.Error())
	}
}

// section fills a section at path, which in the schema is place.
func (d *decoder) section(v reflect.Value, tree map[string]any, path, place string) {
	settings := settingsOf(v.Type(), place)
	for _, key := range sortedKeys(tree) {
		at := Join(path, key)
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == key })
		if i < 0 {
			d.problems.Add(at, d.schema.unknownKey(place, key, settings))
			continue
		}
		d.value(v.Field(settings[i].index), tree[key], at, settings[i])
	}
}

func (d *decoder) value(v reflect.Value, raw any, path string, s Setting) {
	switch s.Kind {
	case kindSection:
		switch tree := raw.(type) {
		case nil: // a heading with all its settings commented out
		case map[string]any:
			d.section(v, tree, path, s.Path)
		default:
			d.problems.Add(path, "is a section; write its settings below it, one per line")
		}
	case kindSections:
		d.sections(v, raw, path, s)
	case kindNamed:
		d.named(v, raw, path, s)
	case kindTexts:
		d.texts(v, raw, path, s)
	default:
		if strings.HasPrefix(s.Kind, listOf) {
			d.list(v, raw, path, s)
			return
		}
		if raw == nil && s.Optional {
			v.SetZero()
			return
		}
		target := reflect.New(s.goType).Elem()
		if message := setScalar(target, raw, s); message != "" {
			d.problems.Add(path, message)
			return
		}
		if s.Optional {
			v.Set(target.Addr())
		} else {
			v.Set(target)
		}
	}
}

func (d *decoder) sections(v reflect.Value, raw any, path string, s Setting) {
	items, ok := raw.([]any)
	if raw != nil && !ok {
		d.problems.Add(path, "is a list of sections; write each section after a dash")
		return
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		setDefaults(list.Index(i))
		if tree, ok := item.(map[string]any); ok {
			d.section(list.Index(i), tree, Element(path, i), s.inner())
		} else {
			d.problems.Add(Element(path, i), "is not a section; write settings such as id")
		}
	}
	v.Set(list)
}

// named adds sections to a map of sections, and changes existing ones.
func (d *decoder) named(v reflect.Value, raw any, path string, s Setting) {
	tree, ok := raw.(map[string]any)
	if raw != nil && !ok {
		d.problems.Add(path, "is a map of sections; write name: and its settings below, one per line")
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, key := range sortedKeys(tree) {
		name, item := reflect.ValueOf(key), reflect.New(v.Type().Elem()).Elem()
		if had := v.MapIndex(name); had.IsValid() {
			item.Set(had)
		} else {
			setDefaults(item)
		}
		switch settings := tree[key].(type) {
		case nil:
		case map[string]any:
			d.section(item, settings, Join(path, key), s.inner())
		default:
			d.problems.Add(Join(path, key), "is not a section; write its settings below it, one per line")
		}
		v.SetMapIndex(name, item)
	}
}

func (d *decoder) list(v reflect.Value, raw any, path string, s Setting) {
	items, ok := raw.([]any)
	if raw != nil && !ok {
		d.problems.Add(path, show(raw, s)+"is not a list; use [a, b] or one element per line after a dash")
		return
	}
	item := Setting{Kind: strings.TrimPrefix(s.Kind, listOf), Secret: s.Secret}
	list := reflect.MakeSlice(v.Type(), 0, len(items))
	for i, raw := range items {
		target := reflect.New(v.Type().Elem()).Elem()
		if message := setScalar(target, raw, item); message != "" {
			d.problems.Add(Element(path, i), message)
			continue
		}
		list = reflect.Append(list, target)
	}
	v.Set(list)
}

func (d *decoder) texts(v reflect.Value, raw any, path string, s Setting) {
	tree, ok := raw.(map[string]any)
	if raw != nil && !ok {
		d.problems.Add(path, show(raw, s)+"is not a map; use name: value, one per line")
		return
	}
	texts := make(map[string]string, len(tree))
	for _, key := range sortedKeys(tree) {
		var text string
		if message := setScalar(reflect.ValueOf(&text).Elem(), tree[key], Setting{Kind: "text", Secret: s.Secret}); message != "" {
			d.problems.Add(Join(path, key), message)
			continue
		}
		texts[key] = text
	}
	v.Set(reflect.ValueOf(texts))
}

// setScalar writes one value and returns what is wrong with it, if anything.
func setScalar(v reflect.Value, raw any, s Setting) string {
	switch raw.(type) {
	case nil:
		return "has no value; give one, or leave the line out for the default"
	case map[string]any, []any:
		if s.Enum != nil {
			return "use a single value: " + choice(s)
		}
		return "is a list or a section; " + scalars[s.Kind].want
	}
	if s.Kind == "text" {
		switch text := raw.(type) {
		case string:
			v.SetString(text)
		case plain:
			v.SetString(string(text))
		case bool: // of a setting that has other words beside true and false
			word := strconv.FormatBool(text)
			if !slices.Contains(s.Enum, word) {
				return notText(raw, s)
			}
			v.SetString(word)
		default:
			return notText(raw, s)
		}
		return ""
	}
	// A value must have the form of its kind: "10" in quotes is not a number, and 10 is not a duration.
	k, problem := scalars[s.Kind], ""
	switch value := raw.(type) {
	case malformed:
		problem = value.Want
	case plain:
		problem = parseScalar(v, string(value), s.Kind)
	case bool:
		if problem = k.want; s.Kind == "boolean" {
			problem = ""
			v.SetBool(value)
		}
	case number:
		if problem = k.want; k.number {
			problem = parseScalar(v, string(value), s.Kind)
		}
	case string:
		if problem = k.want; k.text && (!k.number || !AllDigits(value)) {
			problem = parseScalar(v, value, s.Kind)
		}
	}
	if problem != "" {
		return show(raw, s) + problem
	}
	return ""
}

// notText returns the problem of a value that is not text.
func notText(raw any, s Setting) string {
	if s.Enum != nil {
		return show(raw, s) + "is not known; use " + choice(s)
	}
	return show(raw, s) + "is not text; put it in quotes"
}

func sortedKeys(tree map[string]any) []string { return slices.Sorted(maps.Keys(tree)) }

// commaList returns a list as the environment, a flag and the default tags write it.
func commaList(text string) []any {
	list := []any{}
	if text == "" {
		return list
	}
	for item := range strings.SplitSeq(text, ",") {
		list = append(list, plain(strings.TrimSpace(item)))
	}
	return list
}
