package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Options says where a configuration comes from.
type Options struct {
	// File is the YAML file; empty: none.
	File string
	// Environ has the variables as os.Environ gives them.
	Environ []string
	// Flags has the flags that were set: path to value, the value as text or
	// of the setting's type. The paths origin, rate, burst and max_active are
	// the shorthand that shapes one room over everything.
	Flags map[string]any
	// Check adds what only other packages can judge; nil: nothing. It is called
	// with configurations that have other problems too.
	Check func(*Config) []Problem
}

// Load reads flags over environment over file over defaults and checks the
// whole. Its error is a *Problems that lists everything that is wrong; the
// configuration is nil then.
func Load(o Options) (*Config, error) {
	problems := &Problems{}
	merged := koanf.New(".")
	merge := func(tree map[string]any, source func(path string) string) {
		// Each layer is judged by itself: a bad value in the file is worth
		// knowing of even where a flag covers it.
		var found Problems
		d := decoder{problems: &found}
		d.section(reflect.ValueOf(&Config{}).Elem(), tree, "")
		for _, p := range found.List {
			problems.add(p.Path, p.Message+source(p.Path))
		}
		if err := merged.Load(confmap.Provider(tree, ""), nil); err != nil {
			problems.add("", err.Error())
		}
	}

	// What is missing because the file cannot be read is not worth a word.
	unreadable := false
	if o.File != "" {
		tree, err := readFile(o.File, problems)
		if err != nil {
			problems.add("", err.Error())
		}
		merge(tree, func(string) string { return "" })
		unreadable = slices.ContainsFunc(problems.List, func(p Problem) bool { return p.Path == "" })
	}
	tree, err := environment(o.Environ, problems).Read()
	if err != nil {
		problems.add("", err.Error())
	}
	merge(tree, func(path string) string { return " (from " + envName(withoutIndex(path)) + ")" })
	short, flags := splitFlags(o.Flags, problems)
	merge(flags, func(string) string { return " (from the command line)" })

	cfg := decode(merged.Raw())
	applyShorthand(cfg, short, problems)
	if !unreadable {
		problems.addNew(short.rename(cfg.Validate()))
		if o.Check != nil {
			problems.addNew(o.Check(cfg))
		}
	}
	if len(problems.List) > 0 {
		return nil, problems
	}
	return cfg, nil
}

// decode fills a configuration from defaults and a tree whose problems are
// known already.
func decode(tree map[string]any) *Config {
	cfg := &Config{}
	setDefaults(reflect.ValueOf(cfg).Elem())
	d := decoder{problems: &Problems{}}
	d.section(reflect.ValueOf(cfg).Elem(), tree, "")
	return cfg
}

func readFile(name string, problems *Problems) (map[string]any, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w; give the path of a readable file, or leave it out", name, cause(err))
	}
	return parse(data, problems)
}

func parse(data []byte, problems *Problems) (map[string]any, error) {
	file := koanf.New(".")
	if err := file.Load(rawbytes.Provider(data), &strictYAML{problems: problems}); err != nil {
		return nil, err
	}
	return file.Raw(), nil
}

// shorthand is the room that --origin, --rate, --burst and --max-active make.
type shorthand map[string]plain

var shorthandFlags = map[string]string{
	"origin": "--origin", "rate": "--rate", "burst": "--burst", "max_active": "--max-active",
}

// rename gives what is wrong with the room of the shorthand the names of the
// flags that made it.
func (s shorthand) rename(list []Problem) []Problem {
	for i, p := range list {
		for name, path := range map[string]string{
			"origin": "origins[0].servers[0]", "rate": "rooms[0].admission.rate",
			"burst": "rooms[0].admission.burst", "max_active": "rooms[0].admission.max_active",
		} {
			if _, given := s[name]; given && p.Path == path {
				list[i].Path = shorthandFlags[name]
			}
		}
	}
	return list
}

func splitFlags(flags map[string]any, problems *Problems) (shorthand, map[string]any) {
	short, rest := shorthand{}, koanf.New(".")
	for _, path := range sortedKeys(flags) {
		value := plain(fmt.Sprint(flags[path]))
		if _, ok := shorthandFlags[path]; ok {
			short[path] = value
			continue
		}
		s, ok := settable[envName(path)]
		if !ok {
			problems.add(path, "no flag sets this")
			continue
		}
		var raw any = value
		if strings.HasPrefix(s.Kind, "list of ") {
			raw = commaList(string(value))
		}
		if err := rest.Set(path, raw); err != nil {
			problems.add(path, err.Error())
		}
	}
	return short, rest.Raw()
}

// The room and the origin of the shorthand.
const defaultID = "default"

func applyShorthand(cfg *Config, short shorthand, problems *Problems) {
	if len(short) == 0 {
		return
	}
	names := make([]string, 0, len(short))
	for name := range short {
		names = append(names, name)
	}
	sort.Strings(names)
	if len(cfg.Rooms) > 0 {
		for _, name := range names {
			problems.add(shorthandFlags[name], "the file has rooms, and this flag shapes a room of its own; change the file instead, or leave its rooms out")
			delete(short, name)
		}
		return
	}

	room := Room{}
	setDefaults(reflect.ValueOf(&room).Elem())
	room.ID = defaultID
	d := decoder{problems: problems}
	admission := reflect.ValueOf(&room.Admission).Elem()
	for _, s := range settingsOf(admission.Type()) {
		if raw, ok := short[s.Name]; ok {
			d.value(admission.Field(s.index), raw, shorthandFlags[s.Name], s)
		}
	}
	if url, ok := short["origin"]; ok {
		if len(cfg.Origins) > 0 {
			problems.add("--origin", "the file has origins; leave the flag out, or the file's origins")
			return
		}
		origin := Origin{}
		setDefaults(reflect.ValueOf(&origin).Elem())
		origin.ID = defaultID
		origin.Servers = []string{string(url)}
		cfg.Origins = []Origin{origin}
		room.Origin = defaultID
	}
	cfg.Rooms = []Room{room}
}
