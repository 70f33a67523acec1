package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Sources are the sources of a configuration.
type Sources[T any] struct {
	// File is the YAML file; empty: none.
	File string
	// Environ has the variables as os.Environ returns them.
	Environ []string
	// Flags has the flags that were set, by path; the value is text or of the setting's type.
	Flags map[string]any
	// Check returns problems that only other packages can find; nil: none. It is also called with configurations that have other
	// problems.
	Check func(*T) []Problem
}

// Load reads flags over environment over file over defaults. Then it calls complete, which may change the configuration, and
// unless the file cannot be read, validate and Sources.Check. Its error is a *Problems that lists everything that is wrong; the
// configuration is nil then.
func (sc Schema[T]) Load(from Sources[T], complete func(*T, *Problems), validate func(*T) []Problem) (*T, error) {
	l, cfg := loader{schema: sc.schema, problems: &Problems{}}, new(T)
	l.read(reflect.ValueOf(cfg).Elem(), from.File, from.Environ, from.Flags)
	complete(cfg, l.problems)
	if !l.unreadable {
		l.problems.addNew(validate(cfg))
		if from.Check != nil {
			l.problems.addNew(from.Check(cfg))
		}
	}
	if len(l.problems.List) > 0 {
		return nil, l.problems
	}
	return cfg, nil
}

// Apply sets the values of a tree of maps and lists in a configuration; values are text, as in the environment.
func (sc Schema[T]) Apply(cfg *T, tree map[string]any, problems *Problems) {
	d := decoder{schema: sc.schema, problems: problems}
	d.section(reflect.ValueOf(cfg).Elem(), plainTree(tree).(map[string]any), "", "")
}

func plainTree(value any) any {
	switch value := value.(type) {
	case string:
		return plain(value)
	case []any:
		for i := range value {
			value[i] = plainTree(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = plainTree(value[key])
		}
	}
	return value
}

// Defaults sets every setting of a section, a pointer to a struct, to its default.
func Defaults(section any) { setDefaults(reflect.ValueOf(section).Elem()) }

// loader reads the sources of one program's configuration.
type loader struct {
	schema   *schema
	problems *Problems
	// unreadable is set if the file cannot be read; then what is missing is not worth reporting.
	unreadable bool
}

// read fills target from all sources.
func (l *loader) read(target reflect.Value, file string, environ []string, flags map[string]any) {
	merged := koanf.New(".")
	merge := func(tree map[string]any, source func(path string) string) {
		// Each layer is checked by itself: a bad value in the file is reported even if a flag overrides it.
		var found Problems
		d := decoder{schema: l.schema, problems: &found}
		d.section(reflect.New(target.Type()).Elem(), tree, "", "")
		for _, p := range found.List {
			l.problems.Add(p.Path, p.Message+source(p.Path))
		}
		if err := merged.Load(confmap.Provider(tree, ""), nil); err != nil {
			l.problems.Add("", err.Error())
		}
	}
	if file != "" {
		merge(l.file(file), func(string) string { return "" })
		l.unreadable = slices.ContainsFunc(l.problems.List, func(p Problem) bool { return p.Path == "" })
	}
	tree, err := l.schema.environment(environ, l.problems).Read()
	if err != nil {
		l.problems.Add("", err.Error())
	}
	merge(tree, func(path string) string {
		path, _, _ = strings.Cut(path, "[") // an element's list
		return " (from " + envName(path) + ")"
	})
	merge(l.flags(flags), func(string) string { return " (from the command line)" })

	// The problems of the merged tree are known already.
	setDefaults(target)
	d := decoder{schema: l.schema, problems: &Problems{}}
	d.section(target, merged.Raw(), "", "")
}

// flags returns the tree of paths and values.
func (l *loader) flags(flags map[string]any) map[string]any {
	tree := koanf.New(".")
	for path, given := range flags {
		s, ok := l.schema.variables[envName(path)]
		if !ok {
			l.problems.Add(path, "no flag sets this")
			continue
		}
		text := fmt.Sprint(given)
		var raw any = plain(text)
		if strings.HasPrefix(s.Kind, listOf) {
			raw = commaList(text)
		}
		if err := tree.Set(path, raw); err != nil {
			l.problems.Add(path, err.Error())
		}
	}
	return tree.Raw()
}

func (l *loader) file(name string) map[string]any {
	data, err := os.ReadFile(name)
	if err != nil {
		l.problems.Add("", fmt.Sprintf("--config %s: %v; give the path of a readable file, or leave it out", name, Cause(err)))
		return nil
	}
	file := koanf.New(".")
	if err := file.Load(rawbytes.Provider(data), &strictYAML{problems: l.problems}); err != nil {
		l.problems.Add("", err.Error())
	}
	return file.Raw()
}

// Cause returns an error without the path that a message names already.
func Cause(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err
	}
	return err
}
