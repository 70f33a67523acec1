package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
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
	l := loader{schema: gatewaySchema, problems: &Problems{}}
	short, flags := splitShorthand(o.Flags)
	cfg := &Config{}
	l.read(cfg, o.File, o.Environ, flags)
	applyShorthand(cfg, short, l.problems)
	if !l.unreadable {
		l.problems.addNew(short.rename(cfg.Validate()))
		if o.Check != nil {
			l.problems.addNew(o.Check(cfg))
		}
	}
	if len(l.problems.List) > 0 {
		return nil, l.problems
	}
	return cfg, nil
}

// loader reads the sources of one program's configuration.
type loader struct {
	schema   *schema
	problems *Problems
	// unreadable: what is missing because the file cannot be read is not worth a word.
	unreadable bool
}

// read fills config, a pointer to the schema's struct, from all sources.
func (l *loader) read(config any, file string, environ []string, flags map[string]any) {
	merged := koanf.New(".")
	merge := func(tree map[string]any, source func(path string) string) {
		// Each layer is judged by itself: a bad value in the file is worth
		// knowing of even where a flag covers it.
		var found Problems
		d := decoder{schema: l.schema, problems: &found}
		d.section(reflect.New(l.schema.goType).Elem(), tree, "", "")
		for _, p := range found.List {
			l.problems.add(p.Path, p.Message+source(p.Path))
		}
		if err := merged.Load(confmap.Provider(tree, ""), nil); err != nil {
			l.problems.add("", err.Error())
		}
	}

	if file != "" {
		tree, err := readFile(file, l.problems)
		if err != nil {
			l.problems.add("", err.Error())
		}
		merge(tree, func(string) string { return "" })
		l.unreadable = slices.ContainsFunc(l.problems.List, func(p Problem) bool { return p.Path == "" })
	}
	tree, err := l.schema.environment(environ, l.problems).Read()
	if err != nil {
		l.problems.add("", err.Error())
	}
	merge(tree, func(path string) string { return " (from " + envName(withoutIndex(path)) + ")" })
	merge(l.flags(flags), func(string) string { return " (from the command line)" })

	// The problems of the merged tree are known already.
	target := reflect.ValueOf(config).Elem()
	setDefaults(target)
	d := decoder{schema: l.schema, problems: &Problems{}}
	d.section(target, merged.Raw(), "", "")
}

// flags makes a tree of paths and values.
func (l *loader) flags(flags map[string]any) map[string]any {
	tree := koanf.New(".")
	for path, given := range flags {
		s, ok := l.schema.variables[envName(path)]
		if !ok {
			l.problems.add(path, "no flag sets this")
			continue
		}
		text := fmt.Sprint(given)
		var raw any = plain(text)
		if strings.HasPrefix(s.Kind, "list of ") {
			raw = commaList(text)
		}
		if err := tree.Set(path, raw); err != nil {
			l.problems.add(path, err.Error())
		}
	}
	return tree.Raw()
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
