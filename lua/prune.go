package lua

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var libraryFunction = regexp.MustCompile(`^(?:local function ([A-Za-z_]\w*)|function ([A-Za-z_]\w*\.[A-Za-z_]\w*))\(`)

// library is a file lib/*.lua, divided into its top-level functions and the rest.
type library struct {
	lines     []string
	functions []*function
	uses      []string // names outside of functions
	constants constants
}

// function is a top-level function of a library.
type function struct {
	name        string // with its table
	first, last int    // lines of the library; last is exclusive
	uses        []string
}

func readLibraries(texts map[string]string) (map[string]*library, error) {
	libs := make(map[string]*library, len(texts))
	for name, text := range texts {
		lib := divide(strings.SplitAfter(text, "\n"))
		var err error
		if lib.constants, err = readConstants(text); err != nil {
			return nil, fmt.Errorf("lib/%s.lua: %w", name, err)
		}
		libs[name] = lib
	}
	return libs, nil
}

// prune returns the lines of each library. Functions that the script's body does not need, directly or through others, are
// replaced by empty lines: Redis creates every function of a script anew with each call, which took a third of a short call's
// time.
func prune(libraries []*library, body string) [][]string {
	byName := map[string][]*function{}
	wanted := names(strings.Split(body, "\n"))
	for _, lib := range libraries {
		wanted = append(wanted, lib.uses...)
		for _, f := range lib.functions {
			byName[f.name] = append(byName[f.name], f)
		}
	}
	needed := map[*function]bool{}
	for len(wanted) > 0 {
		name := wanted[len(wanted)-1]
		wanted = wanted[:len(wanted)-1]
		for _, f := range byName[name] {
			if !needed[f] {
				needed[f] = true
				wanted = append(wanted, f.uses...)
			}
		}
	}
	pruned := make([][]string, len(libraries))
	for i, lib := range libraries {
		pruned[i] = slices.Clone(lib.lines)
		for _, f := range lib.functions {
			for at := f.first; at < f.last && !needed[f]; at++ {
				pruned[i][at] = "\n"
			}
		}
	}
	return pruned
}

// divide finds the top-level functions of a library. A function begins at the left edge and ends with its first line, where
// that closes with "end", or with the next line that is "end".
func divide(lines []string) *library {
	lib := &library{lines: lines}
	for i := 0; i < len(lines); {
		var m []string
		if strings.HasPrefix(lines[i], "local function ") || strings.HasPrefix(lines[i], "function ") { // most lines are not matched
			m = libraryFunction.FindStringSubmatch(lines[i])
		}
		if m == nil {
			lib.uses = append(lib.uses, names(lines[i:i+1])...)
			i++
			continue
		}
		f := &function{name: m[1] + m[2], first: i, last: i + 1}
		if !strings.HasSuffix(strings.TrimSpace(withoutComment(lines[i])), " end") {
			for f.last < len(lines) && strings.TrimRight(lines[f.last-1], "\n") != "end" {
				f.last++
			}
		}
		f.uses = names(lines[f.first:f.last])
		lib.functions = append(lib.functions, f)
		i = f.last
	}
	slices.Sort(lib.uses)
	lib.uses = slices.Compact(lib.uses)
	return lib
}

// names returns the distinct names in the code of some lines. A name with a dot is listed whole and by its table alone, as in
// types.f = g.
func names(lines []string) []string {
	all := map[string]struct{}{}
	for _, line := range lines {
		for code := withoutComment(line); code != ""; {
			start := strings.IndexFunc(code, beginsName)
			if start < 0 {
				break
			}
			code = code[start:]
			end := nameEnd(code)
			all[code[:end]] = struct{}{}
			if end+1 < len(code) && code[end] == '.' && beginsName(rune(code[end+1])) {
				end += 1 + nameEnd(code[end+1:])
				all[code[:end]] = struct{}{}
			}
			code = code[end:]
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func beginsName(c rune) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' }

// nameEnd returns the length of the name, without dots, at the start of some code.
func nameEnd(code string) int {
	end := 0
	for end < len(code) && inName(code[end]) {
		end++
	}
	return end
}

func withoutComment(line string) string {
	line, _, _ = strings.Cut(line, "--")
	return line
}
