package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
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
		case strings.HasPrefix(s.Kind, "list of "):
			d.value(v.Field(s.index), commaList(s.Default), s.Name, s)
		default:
			d.value(v.Field(s.index), plain(s.Default), s.Name, s)
		}
	}
	if len(discard.List) > 0 {
		panic("config: a default does not fit its setting: " + discard.Error())
	}
}

// section fills a section at path, which in the schema is place.
func (d *decoder) section(v reflect.Value, tree map[string]any, path, place string) {
	settings := settingsOf(v.Type(), place)
	for _, key := range sortedKeys(tree) {
		at := join(path, key)
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == key })
		if i < 0 {
			d.problems.add(at, d.schema.unknownKey(place, key, settings))
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
			d.problems.add(path, "is a section; want its settings below it, one a line")
		}
	case kindSections:
		d.sections(v, raw, path, s)
	case kindNamed:
		d.named(v, raw, path, s)
	case "list of text", "list of CIDR":
		d.list(v, raw, path, s)
	case "map of text":
		d.texts(v, raw, path, s)
	default:
		if raw == nil && s.Optional {
			v.SetZero()
			return
		}
		target := reflect.New(s.goType).Elem()
		if message := setScalar(target, raw, s); message != "" {
			d.problems.add(path, message)
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
		d.problems.add(path, "is a list of sections; want each one after a dash")
		return
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		setDefaults(list.Index(i))
		if tree, ok := item.(map[string]any); ok {
			d.section(list.Index(i), tree, element(path, i), s.inner())
		} else {
			d.problems.add(element(path, i), "is not a section; want settings such as id")
		}
	}
	v.Set(list)
}

// named adds to what a map of sections has, and changes what it has already.
func (d *decoder) named(v reflect.Value, raw any, path string, s Setting) {
	tree, ok := raw.(map[string]any)
	if raw != nil && !ok {
		d.problems.add(path, "is a map of sections; want name: and its settings below, one a line")
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
			d.section(item, settings, join(path, key), s.inner())
		default:
			d.problems.add(join(path, key), "is not a section; want its settings below it, one a line")
		}
		v.SetMapIndex(name, item)
	}
}

func (d *decoder) list(v reflect.Value, raw any, path string, s Setting) {
	items, ok := raw.([]any)
	if raw != nil && !ok {
		d.problems.add(path, show(raw, s)+"is not a list; want [a, b] or one element a line after a dash")
		return
	}
	item := Setting{Kind: strings.TrimPrefix(s.Kind, "list of "), Secret: s.Secret}
	list := reflect.MakeSlice(v.Type(), 0, len(items))
	for i, raw := range items {
		target := reflect.New(v.Type().Elem()).Elem()
		if message := setScalar(target, raw, item); message != "" {
			d.problems.add(element(path, i), message)
			continue
		}
		list = reflect.Append(list, target)
	}
	v.Set(list)
}

func (d *decoder) texts(v reflect.Value, raw any, path string, s Setting) {
	tree, ok := raw.(map[string]any)
	if raw != nil && !ok {
		d.problems.add(path, show(raw, s)+"is not a map; want name: value, one a line")
		return
	}
	texts := make(map[string]string, len(tree))
	for _, key := range sortedKeys(tree) {
		var text string
		if message := setScalar(reflect.ValueOf(&text).Elem(), tree[key], Setting{Kind: "text", Secret: s.Secret}); message != "" {
			d.problems.add(join(path, key), message)
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
			return "want a single value: " + choice(s)
		}
		return "want a single value, no list and no section: " + wanted(s.Kind)
	}
	if s.Kind == "text" {
		switch text := raw.(type) {
		case string:
			v.SetString(text)
		case plain:
			v.SetString(string(text))
		default:
			if s.Enum != nil {
				return show(raw, s) + "is not known; want " + choice(s)
			}
			return show(raw, s) + "is not text; put it in quotes"
		}
		return ""
	}
	if bad, ok := raw.(malformed); ok {
		return show(raw, s) + bad.Want
	}
	text, ok := scalarText(raw, s.Kind)
	if !ok {
		return show(raw, s) + wanted(s.Kind)
	}
	if err := parseScalar(v, text, s.Kind); err != nil {
		return show(raw, s) + err.Error()
	}
	return ""
}

// scalarText gives the text to parse if the value was written in the form
// that the kind wants: "10" in quotes is no number, and 10 no duration.
func scalarText(raw any, kind string) (string, bool) {
	switch value := raw.(type) {
	case plain:
		return string(value), true
	case bool:
		return strconv.FormatBool(value), kind == "boolean"
	case number:
		return string(value), kind == "rate" || kind == "integer" || kind == "number" || kind == "size"
	case string:
		return value, kind == "duration" || kind == "CIDR" || kind == "size" && !allDigits(value)
	}
	return "", false
}

func parseScalar(v reflect.Value, text, kind string) error {
	switch kind {
	case "boolean":
		if text != "true" && text != "false" {
			return fmt.Errorf("%s", wanted(kind))
		}
		v.SetBool(text == "true")
	case "integer":
		if !allDigits(strings.TrimPrefix(text, "-")) {
			return fmt.Errorf("%s", wanted(kind))
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("is too large; %s", wanted(kind))
		}
		v.SetInt(n)
	case "number":
		if !decimalPattern.MatchString(text) {
			return fmt.Errorf("%s", wanted(kind))
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("is too large; %s", wanted(kind))
		}
		v.SetFloat(f)
	case "rate":
		rate, err := ParseRate(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(rate))
	case "size":
		size, err := ParseSize(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(size))
	case "duration":
		duration, err := parseDuration(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(duration))
	case "CIDR":
		prefix, err := parsePrefix(text)
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(prefix))
	}
	return nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.Prefix{}, fmt.Errorf("has no length; want %s/%d for this address alone", text, address.BitLen())
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s", wanted("CIDR"))
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("is IPv4 written as IPv6 and would fit nobody; want the IPv4 form, such as 10.0.0.0/8")
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("has bits beyond its length; want %s", prefix.Masked())
	}
	return prefix, nil
}

func wanted(kind string) string {
	switch kind {
	case "boolean":
		return "want true or false"
	case "integer":
		return "want a whole number such as 100"
	case "number":
		return "want a decimal number such as 0.5"
	case "rate":
		return "want a number without quotes, such as 10 or 2.5"
	case "size":
		return "want a number of bytes such as 4096, or 16KiB"
	case "duration":
		return "want a duration with its unit, such as 30s or 10m"
	case "CIDR":
		return "want an address range such as 10.0.0.0/8 or fd00::/8"
	}
	return "want text"
}

// show quotes a value for a message, or hides it where it is a secret.
func show(raw any, s Setting) string {
	if s.Secret != "" {
		return ""
	}
	text := ""
	switch value := raw.(type) {
	case string:
		text = value
	case plain:
		text = string(value)
	case number:
		return clip(string(value)) + ": "
	case bool:
		return strconv.FormatBool(value) + ": "
	case malformed:
		text = value.Value
	case time.Duration:
		text = formatDuration(value)
	default:
		return ""
	}
	return strconv.Quote(clip(text)) + ": "
}

func clip(text string) string {
	if runes := []rune(text); len(runes) > 80 {
		return string(runes[:80]) + "…"
	}
	return text
}

func sortedKeys(tree map[string]any) []string {
	keys := make([]string, 0, len(tree))
	for key := range tree {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// commaList is a list as the environment, a flag and the default tags write it.
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
