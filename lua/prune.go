package lua

import (
	"regexp"
	"slices"
	"strings"
)

var (
	libraryFunction = regexp.MustCompile(`^(?:local function ([A-Za-z_]\w*)|function ([A-Za-z_]\w*\.[A-Za-z_]\w*))\(`)
	luaName         = regexp.MustCompile(`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?`)
)

// library is a lib/*.lua, read once for all scripts that include it.
type library struct {
	lines     []string
	functions []*function // at the top level
	uses      []string    // the names between functions
	records   map[string][]string
}

// function is one function at the top level of a library.
type function struct {
	name        string // with its table
	first, last int    // lines, last is behind the function
	uses        []string
}

// readLibraries cuts each library into its functions and reads its records.
func readLibraries(texts map[string]string) (map[string]*library, error) {
	libs := make(map[string]*library, len(texts))
	for name, text := range texts {
		lib := cut(strings.SplitAfter(text, "\n"))
		var err error
		if lib.records, err = readRecords(name, text); err != nil {
			return nil, err
		}
		libs[name] = lib
	}
	return libs, nil
}

// prune returns the lines of libraries, in which the functions that neither the script's own text nor anything that remains names are
// blank. Redis makes every function of a script anew with each call, which took a third of a short call's time. Lines keep their numbers.
// A function begins at the left edge and ends with the next line that is "end", or with its own first line.
func prune(libraries []*library, body string) [][]string {
	byName := map[string][]*function{}
	wanted := names(strings.Split(body, "\n"))
	for _, lib := range libraries {
		wanted = append(wanted, lib.uses...)
		for _, f := range lib.functions {
			byName[f.name] = append(byName[f.name], f)
		}
	}
	live := map[*function]bool{}
	for len(wanted) > 0 {
		name := wanted[len(wanted)-1]
		wanted = wanted[:len(wanted)-1]
		for _, f := range byName[name] {
			if !live[f] {
				live[f] = true
				wanted = append(wanted, f.uses...)
			}
		}
	}
	pruned := make([][]string, len(libraries))
	for i, lib := range libraries {
		pruned[i] = slices.Clone(lib.lines)
		for _, f := range lib.functions {
			for at := f.first; at < f.last && !live[f]; at++ {
				pruned[i][at] = "\n"
			}
		}
	}
	return pruned
}

// cut divides a library into its functions and what stands between them.
func cut(lines []string) *library {
	lib := &library{lines: lines}
	for i := 0; i < len(lines); {
		m := libraryFunction.FindStringSubmatch(lines[i])
		if m == nil {
			lib.uses = append(lib.uses, names(lines[i:i+1])...)
			i++
			continue
		}
		f := &function{name: m[1] + m[2], first: i, last: i + 1}
		if !strings.HasSuffix(strings.TrimSpace(code(lines[i])), " end") {
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

// names gives the words of code lines once: those with a dot whole, and also their first part, as in types.f = g.
func names(lines []string) []string {
	var all []string
	for _, line := range lines {
		for _, name := range luaName.FindAllString(code(line), -1) {
			all = append(all, name)
			if table, _, dotted := strings.Cut(name, "."); dotted {
				all = append(all, table)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// code is a line without its comment.
func code(line string) string {
	line, _, _ = strings.Cut(line, "--")
	return line
}
