package lua

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/anteroom/anteroom/internal/redistest"
)

const good = `#!lua flags=no-writes,allow-oom
-- room_peek: reads a room
-- and says so on a second line.
-- KEYS:      state, line (sorted set by order)
-- ARGV:      now, epoch, id, order, ...   (id and order for each)
-- RETURNS:   {1}
-- INVARIANT: none is touched
-- INCLUDE:   one, two

-- not the header any more: NOTE
return {one + two}
`

func fixture(body string) fstest.MapFS {
	return fstest.MapFS{
		"room_peek.lua": {Data: []byte(body)},
		"lib/one.lua":   {Data: []byte("-- one\nlocal one = 1")},
		"lib/two.lua":   {Data: []byte("-- two\n\nlocal two = 2\n")},
	}
}

func TestHeader_IsRead(t *testing.T) {
	set, err := LoadFS(fixture(good))
	if err != nil {
		t.Fatal(err)
	}
	sc := set.Script("room_peek")
	if !slices.Equal(sc.keys, []string{"state", "line"}) || !slices.Equal(sc.args, []string{"now", "epoch", "id", "order"}) ||
		!sc.variadic || !slices.Equal(sc.flags, []string{"no-writes", "allow-oom"}) ||
		!slices.Equal(sc.includes, []string{"one", "two"}) || len(sc.SHA) != 40 {
		t.Fatalf("read %+v", sc)
	}
	header, rest, _ := strings.Cut(good, "\n\n")
	want := header + "\n-- one\nlocal one = 1\n-- two\n\nlocal two = 2\n\n" + rest
	if sc.Source != want {
		t.Fatalf("composed:\n%s\nwant:\n%s", sc.Source, want)
	}
	if got := set.Names(); !slices.Equal(got, []string{"room_peek"}) {
		t.Fatalf("names %v", got)
	}
}

func TestLocate_FindsEveryLine(t *testing.T) {
	fsys := fixture(good)
	set, err := LoadFS(fsys)
	if err != nil {
		t.Fatal(err)
	}
	sc := set.Script("room_peek")
	for i, line := range strings.Split(strings.TrimSuffix(sc.Source, "\n"), "\n") {
		file, at := sc.locate(i + 1)
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			t.Fatalf("line %d is located in %s: %v", i+1, file, err)
		}
		if lines := strings.Split(string(text), "\n"); at < 1 || at > len(lines) || lines[at-1] != line {
			t.Errorf("line %d (%q) is located at %s:%d", i+1, line, file, at)
		}
	}
}

func TestHeader_IsChecked(t *testing.T) {
	swap := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the fixture has no %q", old)
		}
		return strings.Replace(good, old, with, 1)
	}
	for _, row := range []struct{ name, body, want string }{
		{"no shebang", swap("#!lua flags=no-writes,allow-oom", "-- a script"), "first line must be #!lua"},
		{"another engine", swap("#!lua flags", "#!luajit flags"), "first line must be #!lua"},
		{"a library name", swap("#!lua flags", "#!lua name=x flags"), "only flags=a,b is allowed"},
		{"unknown flag", swap("no-writes", "no-write"), `unknown flag "no-write"`},
		{"flag that breaks clusters", swap("no-writes", "allow-cross-slot-keys"), `unknown flag "allow-cross-slot-keys"`},
		{"flag twice", swap("no-writes,allow-oom", "no-writes,no-writes"), "is repeated"},
		{"empty flag", swap("no-writes,allow-oom", "no-writes,"), `unknown flag ""`},
		{"another name", swap("room_peek:", "room_look:"), `line 2 must be "-- room_peek: <purpose>"`},
		{"no purpose", swap("reads a room\n-- and says so on a second line.", ""), "purpose is missing"},
		{"no KEYS", swap("-- KEYS:      state, line (sorted set by order)\n", ""), "KEYS is missing"},
		{"empty KEYS", swap("state, line (sorted set by order)", ""), "KEYS is missing"},
		{"no ARGV", swap("-- ARGV:      now, epoch, id, order, ...   (id and order for each)\n", ""), "ARGV is missing"},
		{"no RETURNS", swap("-- RETURNS:   {1}\n", ""), "RETURNS is missing"},
		{"no INVARIANT", swap("-- INVARIANT: none is touched\n", ""), "INVARIANT is missing"},
		{"unknown field", swap("INCLUDE:", "INCLUDES:"), "unknown field INCLUDES"},
		{"field twice", swap("-- RETURNS:", "-- KEYS: a\n-- RETURNS:"), "there are two fields KEYS"},
		{"now is not first", swap("now, epoch", "epoch, now"), `ARGV is "epoch, now, id`},
		{"a remark is no key", swap("state, line (", "(state, line "), "KEYS names no key"},
		{"a remark is no argument", swap("now, epoch, id, order, ...   (", "(now "), "the first must be now"},
		{"a key twice", swap("state, line", "state, state"), `KEYS: "state" is repeated`},
		{"blanks between keys", swap("state, line", "state line"), `KEYS: "state line" is not a name`},
		{"dots in the middle", swap("now, epoch, id, order, ...", "now, ..., id"), `ARGV: "..." is not a name`},
		{"unknown library", swap("one, two", "one, three"), "there is no lib/three.lua"},
		{"a path as a library", swap("one, two", "../one"), `INCLUDE: "../one" is not a name`},
		{"carriage returns", strings.ReplaceAll(good, "\n", "\r\n"), "carriage returns"},
		{"empty file", "", "first line must be #!lua"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := LoadFS(fixture(row.body))
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "room_peek.lua") {
				t.Fatalf("got %v\nwant the file's name and %q", err, row.want)
			}
		})
	}
}

func TestLoadFS_NamesEveryBadFile(t *testing.T) {
	fsys := fixture("return 1")
	fsys["Room.lua"] = &fstest.MapFile{Data: []byte(good)}
	fsys["lib/one.lua"] = &fstest.MapFile{Data: []byte("#!lua\n")}
	fsys["room_seen.lua"] = &fstest.MapFile{Data: []byte(strings.Replace(good, "room_peek", "room_seen", 1))}
	_, err := LoadFS(fsys)
	for _, want := range []string{"room_peek.lua: ", "Room.lua: a script is named", "room_seen.lua: INCLUDE \"one\": lib/one.lua starts with #!"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %q", err, want)
		}
	}
}

// TestScripts_Compile: every file of the directory is embedded and compiles in a real Redis, and every library is used.
func TestScripts_Compile(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("found %v, %v", paths, err)
	}
	client := redistest.Client(t)
	used := map[string]bool{}
	for _, path := range paths {
		sc := set.Script(strings.TrimSuffix(path, ".lua"))
		sha, err := client.ScriptLoad(t.Context(), sc.Source).Result()
		if err != nil {
			t.Errorf("%v", sc.explain(err))
		} else if sha != sc.SHA {
			t.Errorf("%s: Redis its hash is %s, want %s", path, sha, sc.SHA)
		}
		for _, lib := range sc.includes {
			used[lib] = true
		}
	}
	libs, err := filepath.Glob("lib/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range libs {
		if name := strings.TrimSuffix(filepath.Base(path), ".lua"); !used[name] {
			t.Errorf("%s is included nowhere", path)
		}
	}
}

// TestScripts_KeepTheRules: no script computes a key, uses cjson or runs an unbounded command.
func TestScripts_KeepTheRules(t *testing.T) {
	set := MustLoad()
	for _, name := range set.Names() {
		sc := set.Script(name)
		for i, line := range strings.Split(sc.Source, "\n") {
			code, _, _ := strings.Cut(line, "--")
			for _, rule := range []struct {
				found *regexp.Regexp
				why   string
			}{
				{regexp.MustCompile(`redis\.p?call\(\s*['"][A-Za-z]+['"]\s*,\s*(['"]|KEYS\[\d+\]\s*\.\.)`), "a key is computed or written out; keys come in KEYS alone"},
				{regexp.MustCompile(`\bcjson\b`), "cjson keeps 14 digits of a number; orders have 16"},
				{regexp.MustCompile(`redis\.p?call\(\s*['"](?i:keys|flushall|flushdb|scan)['"]`), "not bounded, or not ours to empty"},
			} {
				if rule.found.MatchString(code) {
					file, at := sc.locate(i + 1)
					t.Errorf("lua/%s:%d: %s: %s", file, at, rule.why, strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestSet_PanicsOnAnUnknownName(t *testing.T) {
	defer func() {
		if msg, _ := recover().(string); !strings.Contains(msg, `no script "room_nowhere"`) {
			t.Fatalf("recovered %q", msg)
		}
	}()
	MustLoad().Script("room_nowhere")
}

func FuzzLoad(f *testing.F) {
	f.Add(good)
	f.Add("#!lua\n-- room_peek: x\n-- KEYS: a\n-- ARGV: now\n-- RETURNS: 1\n-- INVARIANT: none")
	f.Add("#!lua flags=\n--\n--:\n-- KEYS:(\n")
	f.Fuzz(func(t *testing.T, body string) {
		set, err := LoadFS(fixture(body))
		if err != nil {
			return
		}
		sc := set.Script("room_peek")
		if len(sc.keys) == 0 || len(sc.args) == 0 || sc.args[0] != "now" || !strings.HasPrefix(sc.Source, "#!lua") {
			t.Fatalf("accepted %+v", sc)
		}
	})
}

// TestScripts_AssignNoFunctionAgain: libraries share tables such as types. A field that one of them sets must not be a function of another.
func TestScripts_AssignNoFunctionAgain(t *testing.T) {
	function := regexp.MustCompile(`(?m)^function (\w+\.\w+)\(`)
	assigned := regexp.MustCompile(`(?m)^ *((?:\w+\.\w+|\w+)(?:, (?:\w+\.\w+|\w+))*) = `)
	set := MustLoad()
	for _, name := range set.Names() {
		source := set.Script(name).Source
		functions := map[string]bool{}
		for _, m := range function.FindAllStringSubmatch(source, -1) {
			if functions[m[1]] {
				t.Errorf("%s defines %s twice", name, m[1])
			}
			functions[m[1]] = true
		}
		for _, m := range assigned.FindAllStringSubmatch(source, -1) {
			for field := range strings.SplitSeq(m[1], ", ") {
				if functions[field] {
					t.Errorf("%s assigns %s, which is a function", name, field)
				}
			}
		}
	}
}
