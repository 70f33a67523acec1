package settings

import "strings"

// longestName is longer than any setting or variable.
const longestName = 100

// nearest returns the candidate with the fewest edits to name, or "" if every candidate needs more than a third of its length.
func nearest(name string, candidates []string) string {
	if len(name) > longestName {
		return ""
	}
	best, bestDistance := "", max(1, len(name)/3)+1
	for _, candidate := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swapped
// neighbours (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j-1]+cost, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// unknownKey returns the message for a key that the section at place does not have.
func (sc *schema) unknownKey(place, name string, siblings []Setting) string {
	// A key at the wrong level: admission.rate written as rate.
	section := ""
	if place != "" {
		section = place + "."
	}
	for _, s := range sc.settings {
		if s.Name == name && strings.HasPrefix(s.Path, section) {
			return "unknown key here; did you mean " + strings.TrimPrefix(s.Path, section) + "?"
		}
	}
	names := make([]string, len(siblings))
	for i, s := range siblings {
		names[i] = s.Name
	}
	if near := nearest(name, names); near != "" {
		return "unknown key; did you mean " + near + "?"
	}
	for _, s := range sc.settings {
		if s.Name == name || s.Path == name {
			return "unknown key here; did you mean " + s.Path + "?"
		}
	}
	return "unknown key; here are known: " + strings.Join(names, " ")
}
