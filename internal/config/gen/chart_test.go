package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/config"
)

// The schema has every setting except those that the chart writes itself and those that are secret.
func TestValuesSchema_HasEverySetting(t *testing.T) {
	var schema struct {
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(valuesSchema()), &schema); err != nil {
		t.Fatal(err)
	}
	for definition, p := range map[string]*program{"gatewayConfig": gateway, "bulkworkerConfig": bulkworker} {
		for _, path := range p.chartSets {
			if !slices.ContainsFunc(p.settings, func(s config.Setting) bool { return s.Path == path }) {
				t.Errorf("%s: the chart sets %s, which is no setting", definition, path)
			}
		}
		for _, s := range p.settings {
			hidden := s.Secret == "true" && s.Kind == "text" || slices.ContainsFunc(p.chartSets, func(path string) bool {
				return s.Path == path || strings.HasPrefix(s.Path, path+".") || strings.HasPrefix(s.Path, path+"[")
			})
			if has := inSchema(schema.Defs[definition], s.Path); has == hidden {
				t.Errorf("%s has %s: %t", definition, s.Path, has)
			}
		}
	}
}

// inSchema follows a path, as rooms[].admission.rate, through a schema.
func inSchema(schema object, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	properties, _ := schema["properties"].(object)
	if name == "*" {
		return inSchema(schema["additionalProperties"].(object), rest)
	}
	name, list := strings.CutSuffix(name, "[]")
	below, ok := properties[name].(object)
	if !ok || !more {
		return ok
	}
	if list {
		below = below["items"].(object)
	}
	return inSchema(below, rest)
}
