package config

import (
	"reflect"
	"slices"
	"strconv"
)

// A setting that belongs to the configuration but whose feature is not in this
// version is refused: one that does nothing would be worse. Each row names a
// setting and the values that do work; a feature that arrives takes its row
// away.
type unavailable struct {
	setting string // as Setting.Path
	// allowed are the values that work; an empty one and the default always do.
	allowed []string
	instead string
}

var gatewayLater = []unavailable{
	{"tracing.otlp_endpoint", nil, "leave it empty"},
	{"tracing.sample", nil, "leave it out"},
}

func (c *checker) unavailable(cfg any, later []unavailable) {
	c.refused = make(map[string]bool)
	visit(cfg, func(path string, s Setting, v reflect.Value) {
		for _, row := range later {
			if row.setting != s.Path || isEmpty(v) || format(v, s) == s.Default || slices.Contains(row.allowed, format(v, s)) {
				continue
			}
			if s.Enum != nil && !slices.Contains(s.Enum, format(v, s)) {
				continue // a word that no version knows
			}
			value := ""
			if !s.holdsOthers() && s.Secret == "" {
				value = strconv.Quote(clip(format(v, s))) + " "
			}
			c.add(path, "%sis not available in this version; %s", value, row.instead)
			c.refused[path] = true
		}
	})
}

func isEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}

// laterNote is what the reference says of a setting that is not there yet.
func (sc *schema) laterNote(path string) string {
	for _, row := range sc.later {
		switch {
		case row.setting != path:
		case len(row.allowed) > 0:
			return "In this version only " + oneOf(row.allowed) + "."
		default:
			return "Not available in this version."
		}
	}
	return ""
}
