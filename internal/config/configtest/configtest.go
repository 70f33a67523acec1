// Package configtest tests that every setting reaches what a program builds from its configuration.
package configtest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/anteroom/anteroom/internal/config"
)

// Row is one setting off its default and what follows from that.
type Row struct {
	// Setting is the path with indices and names, as rooms[0].admission.rate.
	Setting string
	// Value is YAML; $DIR in it is the directory of Program.Files.
	Value string
	// Shows lists the leaves of the built value that differ from those without the setting, one a line, as
	// "Gateway.Rooms[0].Policy.Rate = 12500". A zero value is written "path = none"; "path..." stands for any
	// differences at and below path, for values that are derived or made of many parts.
	Shows string
	// With is YAML of other settings that the value needs. They are in force with and without the setting.
	With string
	// Also is YAML of settings that come with Value, and are not in force without it.
	Also string
	// Elsewhere names the test that shows the setting where nothing that is built from it can be compared.
	Elsewhere string
}

// Program is the program that the rows configure.
type Program struct {
	Settings []config.Setting
	Base     string // YAML that every row begins with
	Files    map[string]string
	// Build loads a configuration file and returns what the program makes of it.
	Build func(t testing.TB, file string) any
}

// Check tries each row, and fails for settings without one.
func (p Program) Check(t *testing.T, rows []Row) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range p.Files {
		write(t, filepath.Join(dir, name), text)
	}
	missing := make(map[string]bool)
	for _, s := range p.Settings {
		if !strings.Contains(s.Kind, "section") && s.Later == "" {
			missing[s.Path] = true
		}
	}
	for _, row := range rows {
		name := p.path(row.Setting)
		if _, ok := missing[name]; !ok {
			t.Errorf("%s: there is no such setting in this version", row.Setting)
		}
		missing[name] = false
		if row.Shows == "" {
			if row.Elsewhere == "" {
				t.Errorf("%s: the row names neither what shows the setting nor the test that does", row.Setting)
			}
			continue
		}
		t.Run(row.Setting, func(t *testing.T) { p.check(t, dir, row) })
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if !missing[name] {
			continue
		}
		t.Errorf("%s: no row. Add one with a value off the default; the failure then prints what it changes in what is built. "+
			"Nothing: the setting is not wired", name)
	}
}

func (p Program) check(t *testing.T, dir string, row Row) {
	usual := merged(parse(t, p.Base), parse(t, row.With))
	changed := merged(parse(t, p.Base), parse(t, row.With)) // merged changes its first tree
	changed = merged(merged(changed, nested(row.Setting, parse(t, row.Value))), parse(t, row.Also))
	built := func(tree any) map[string]string {
		text, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		write(t, file, strings.ReplaceAll(string(text), "$DIR", dir))
		all := leaves(p.Build(t, file))
		for path, value := range all {
			all[path] = strings.ReplaceAll(value, dir, "$DIR")
		}
		return all
	}
	got := differences(built(usual), built(changed))
	if want := strings.Split(row.Shows, "\n"); !slices.Equal(shortened(got, want), slices.Sorted(slices.Values(want))) {
		t.Errorf("%s: %s\ngot\n%s\nwant\n%s", row.Setting, row.Value, strings.Join(got, "\n"), row.Shows)
	}
}

// path returns Setting.Path for the path of a row.
func (p Program) path(setting string) string {
	setting = regexp.MustCompile(`\[\d+\]`).ReplaceAllString(setting, "[]")
	for _, s := range p.Settings {
		if before, after, ok := strings.Cut(s.Path, ".*."); ok && strings.HasPrefix(setting, before+".") {
			if _, rest, _ := strings.Cut(strings.TrimPrefix(setting, before+"."), "."); rest == after {
				return s.Path
			}
		}
	}
	return setting
}

// shortened replaces the differences below a path that is wanted as "path..." by that.
func shortened(got, want []string) []string {
	var all []string
	for _, line := range got {
		for _, w := range want {
			if prefix, ok := strings.CutSuffix(w, "..."); ok && strings.HasPrefix(line, prefix) && !slices.Contains(want, line) {
				line = w
			}
		}
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return all
}

// differences lists what is not in usual as it is in changed.
func differences(usual, changed map[string]string) []string {
	var lines []string
	for path, value := range changed {
		if usual[path] != value {
			lines = append(lines, path+" = "+value)
		}
	}
	for path := range usual {
		if _, ok := changed[path]; !ok {
			lines = append(lines, path+" = none")
		}
	}
	slices.Sort(lines)
	return lines
}

// parse reads YAML; it returns nil for "".
func parse(t testing.TB, text string) any {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tree
}

// nested returns a tree with value at path.
func nested(path string, value any) any {
	parts := strings.Split(strings.ReplaceAll(path, "[0]", ".[0]"), ".")
	for _, part := range slices.Backward(parts) {
		if part == "[0]" {
			value = []any{value}
		} else {
			value = map[string]any{part: value}
		}
	}
	return value
}

// merged returns tree with over laid over it: maps by key, lists of maps by index.
func merged(tree, over any) any {
	switch over := over.(type) {
	case nil:
		return tree
	case map[string]any:
		below, ok := tree.(map[string]any)
		if !ok {
			return over
		}
		for key, value := range over {
			below[key] = merged(below[key], value)
		}
		return below
	case []any:
		below, ok := tree.([]any)
		for i, value := range over {
			if _, section := value.(map[string]any); !ok || !section {
				return over
			}
			if i < len(below) {
				below[i] = merged(below[i], value)
			} else {
				below = append(below, value)
			}
		}
		return below
	}
	return over
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
