package lua

import (
	"regexp"
	"strings"
)

var (
	libraryFunction = regexp.MustCompile(`^(?:local function ([A-Za-z_]\w*)|function ([A-Za-z_]\w*\.[A-Za-z_]\w*))\(`)
	luaComment      = regexp.MustCompile(`--.*`)
	luaName         = regexp.MustCompile(`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?`)
)

// part is a piece of a library: one function at the top level, or what stands between two of them.
type part struct {
	name        string // of a function, with its table; "" between functions
	first, last int    // lines, last is behind the part
	uses        []string
}

// prune blanks, in the lines of libraries, the functions that neither the script's own text nor anything that remains names. Redis makes
// every function of a script anew with each call, which took a third of a short call's time. Lines keep their numbers. A function begins
// at the left edge and ends with the next line that is "end", or with its own first line.
func prune(libraries [][]string, body string) {
	var parts []*part
	owner := map[*part][]string{} // the library's lines
	for _, lines := range libraries {
		for _, p := range cut(lines) {
			parts, owner[p] = append(parts, p), lines
		}
	}
	byName := map[string][]*part{}
	var wanted []string
	for _, p := range parts {
		if p.name == "" {
			wanted = append(wanted, p.uses...)
			continue
		}
		// A name is looked up whole, and a table's function also where only its name stands, as in types.f = g.
		byName[p.name] = append(byName[p.name], p)
	}
	wanted = append(wanted, names(strings.Split(body, "\n"))...)
	live := map[*part]bool{}
	for len(wanted) > 0 {
		name := wanted[len(wanted)-1]
		wanted = wanted[:len(wanted)-1]
		for _, p := range byName[name] {
			if !live[p] {
				live[p] = true
				wanted = append(wanted, p.uses...)
			}
		}
	}
	for _, p := range parts {
		if p.name == "" || live[p] {
			continue
		}
		for i := p.first; i < p.last; i++ {
			owner[p][i] = "\n"
		}
	}
}

// cut divides a library into its functions and what stands between them.
func cut(lines []string) []*part {
	var parts []*part
	between := &part{}
	for i := 0; i < len(lines); {
		m := libraryFunction.FindStringSubmatch(lines[i])
		if m == nil {
			between.uses = append(between.uses, names(lines[i:i+1])...)
			i++
			continue
		}
		p := &part{name: m[1] + m[2], first: i, last: i + 1}
		if !strings.HasSuffix(strings.TrimSpace(luaComment.ReplaceAllString(lines[i], "")), " end") {
			for p.last < len(lines) && strings.TrimRight(lines[p.last-1], "\n") != "end" {
				p.last++
			}
		}
		p.uses = names(lines[p.first:p.last])
		parts = append(parts, p)
		i = p.last
	}
	return append(parts, between)
}

// names gives the words of code lines: those with a dot whole, and also their first part.
func names(lines []string) []string {
	var all []string
	for _, line := range lines {
		for _, name := range luaName.FindAllString(luaComment.ReplaceAllString(line, ""), -1) {
			all = append(all, name)
			if table, _, dotted := strings.Cut(name, "."); dotted {
				all = append(all, table)
			}
		}
	}
	return all
}
