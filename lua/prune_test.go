package lua

import (
	"regexp"
	"strings"
	"testing"
)

func TestPrune_LeavesWhatIsNamed(t *testing.T) {
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
	lib := cut(strings.SplitAfter(text, "\n"))
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

// Every function of a library is needed by some script, and no script names one that it does not have.
func TestScripts_NeedEveryLibraryFunction(t *testing.T) {
	set := MustLoad()
	libs, err := readAll(files, "lib/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	has := func(source, name string) bool {
		return strings.Contains(source, "\nlocal function "+name+"(") || strings.Contains(source, "\nfunction "+name+"(")
	}
	total, left := 0, 0
	for lib, text := range libs {
		for _, p := range cut(strings.SplitAfter(text, "\n")).functions {
			used := false
			for _, script := range set.Names() {
				sc := set.Script(script)
				for _, include := range sc.Includes {
					if include != lib {
						continue
					}
					total++
					if has(sc.Source, p.name) {
						used, left = true, left+1
					} else if code := regexp.MustCompile(`--.*`).ReplaceAllString(sc.Source, ""); regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(p.name) + `\(`).MatchString(code) {
						t.Errorf("%s calls %s, which it does not have", script, p.name)
					}
				}
			}
			if !used {
				t.Errorf("lib/%s.lua: no script needs %s", lib, p.name)
			}
		}
	}
	t.Logf("of %d functions in all scripts %d are left", total, left)
}
