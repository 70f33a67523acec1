package config

import "strings"

// nearest is the candidate with the fewest edits to name, or "" when none is
// near enough to be what was meant.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", max(1, len(name)/3)+1
	for _, candidate := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// editDistance counts insertions, deletions and replacements.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(diagonal+cost, row[j]+1, row[j+1]+1)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// unknownKey is the message for a key that its section does not have.
func unknownKey(path, name string, siblings []Setting) string {
	// A key at the wrong level: admission.rate written as rate.
	section := indexPattern.ReplaceAllString(strings.TrimSuffix(path, name), "[]")
	for _, s := range allSettings {
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
	for _, s := range allSettings {
		if s.Name == name || s.Path == name {
			return "unknown key here; did you mean " + s.Path + "?"
		}
	}
	return "unknown key; here are known: " + strings.Join(names, " ")
}
