package lua

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestPrune_KeepsWhatTheBodyNeeds(t *testing.T) {
	text := `-- used and unused are both named here
local function unused(a)
  return a
end

local function deep(a) return a + 1 end

local t = {}
function t.used()
  return deep(1)
end
function t.unused() return 'x' end
local function first()
  local function unused() return 1 end
  return unused() -- its own
end
local a = first()
`
	lib := divide(strings.SplitAfter(text, "\n"))
	got := strings.Join(prune([]*library{lib}, "return t.used() -- and not t.unused\n")[0], "")
	want := text
	for _, gone := range []string{"function t.unused() return 'x' end"} {
		want = strings.Replace(want, gone, "", 1)
	}
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if strings.Count(got, "\n") != strings.Count(text, "\n") {
		t.Error("lines have moved")
	}
}

// TestScripts_NeedEveryLibraryFunction: every library function is needed by a script, and no script calls a function that it lacks.
func TestScripts_NeedEveryLibraryFunction(t *testing.T) {
	set := MustLoad()
	libs, err := readAll(files, "lib/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	called, comment := regexp.MustCompile(`[A-Za-z_][\w.]*\(`), regexp.MustCompile(`--.*`)
	calls := map[string]map[string]bool{} // by script: what it calls
	for _, script := range set.Names() {
		calls[script] = map[string]bool{}
		for _, call := range called.FindAllString(comment.ReplaceAllString(set.Script(script).Source, ""), -1) {
			calls[script][strings.TrimSuffix(call, "(")] = true
		}
	}
	total, left := 0, 0
	for lib, text := range libs {
		for _, f := range divide(strings.SplitAfter(text, "\n")).functions {
			used := false
			for _, script := range set.Names() {
				sc := set.Script(script)
				if !slices.Contains(sc.includes, lib) {
					continue
				}
				total++
				if strings.Contains(sc.Source, "\nlocal function "+f.name+"(") || strings.Contains(sc.Source, "\nfunction "+f.name+"(") {
					used, left = true, left+1
				} else if calls[script][f.name] {
					t.Errorf("%s calls %s, which it does not have", script, f.name)
				}
			}
			if !used {
				t.Errorf("lib/%s.lua: no script needs %s", lib, f.name)
			}
		}
	}
	t.Logf("of %d functions in all scripts %d are left", total, left)
}

// names finds in every script and library what this pattern finds, which took most of the time in which a program starts.
func TestNames_AreThoseOfThePattern(t *testing.T) {
	pattern := regexp.MustCompile(`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?`)
	lines := []string{"a.b.c = x9._y + 0x1F .. d. e -- not.this", "f.1 é.g _ .h i.", ""}
	for _, kind := range []string{"*.lua", "lib/*.lua"} {
		texts, err := readAll(files, kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			lines = append(lines, strings.Split(text, "\n")...)
		}
	}
	for _, line := range lines {
		var want []string
		for _, name := range pattern.FindAllString(withoutComment(line), -1) {
			table, _, _ := strings.Cut(name, ".")
			want = append(want, name, table)
		}
		slices.Sort(want)
		if got := names([]string{line}); !slices.Equal(got, slices.Compact(want)) {
			t.Fatalf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestHasWord_FindsWholeWords(t *testing.T) {
	for code, want := range map[string]bool{"X": true, "(X)": true, "XY X": true, "XX": false, "_X": false, "X1": false, "a.X": true, "": false} {
		if hasWord(code, "X") != want {
			t.Errorf("%q: %t", code, !want)
		}
	}
}
