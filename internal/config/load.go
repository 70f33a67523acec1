package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anteroom/anteroom/internal/settings"
)

// Types of package settings that both programs use.
type (
	Rate     = settings.Rate
	Size     = settings.Size
	Setting  = settings.Setting
	Problem  = settings.Problem
	Problems = settings.Problems
	// Options are the sources of the gateway's configuration. The flags origin, rate, burst and max_active make one room over all
	// paths.
	Options = settings.Sources[Config]
	// BulkOptions are the sources of the bulk worker's configuration.
	BulkOptions = settings.Sources[Bulk]
)

var (
	gatewaySchema = settings.New[Config]("gateway")
	bulkSchema    = settings.New[Bulk]("bulkworker")
)

// Settings lists every key of the gateway in the order of the struct, sections before their settings.
func Settings() []Setting { return gatewaySchema.Settings() }

// BulkSettings lists every key of the bulk worker likewise.
func BulkSettings() []Setting { return bulkSchema.Settings() }

// Load reads and checks the gateway's configuration.
func Load(o Options) (*Config, error) {
	short := shorthand{}
	rest := maps.Clone(o.Flags)
	for path, value := range o.Flags {
		if _, ok := shorthandFlags[path]; ok {
			short[path] = fmt.Sprint(value)
			delete(rest, path)
		}
	}
	o.Flags = rest
	return gatewaySchema.Load(o, short.apply, func(cfg *Config) []Problem { return short.rename(cfg.Validate()) })
}

// YAML returns the effective configuration as a file that Load reads, with secrets and the passwords of URLs masked.
func (c *Config) YAML() ([]byte, error) { return settings.YAML(c) }

// Files lists every file that the configuration names, so that a change of one can be noticed.
func (c *Config) Files() []string { return settings.Files(c) }

// shorthand holds the values of --origin, --rate, --burst and --max-active, which make one room.
type shorthand map[string]string

var shorthandFlags = map[string]struct{ flag, path string }{
	"origin":     {"--origin", "origins[0].servers[0]"},
	"rate":       {"--rate", "rooms[0].admission.rate"},
	"burst":      {"--burst", "rooms[0].admission.burst"},
	"max_active": {"--max-active", "rooms[0].admission.max_active"},
}

// rename replaces the paths of the shorthand's room by the flags that made it.
func (s shorthand) rename(list []Problem) []Problem {
	for i, p := range list {
		for name := range s {
			if f := shorthandFlags[name]; p.Path == f.path {
				list[i].Path = f.flag
			}
		}
	}
	return list
}

// defaultID is the id of the shorthand's room and origin.
const defaultID = "default"

// apply adds the shorthand's room to a configuration that has none.
func (s shorthand) apply(cfg *Config, problems *Problems) {
	if len(s) == 0 {
		return
	}
	if len(cfg.Rooms) > 0 {
		for _, name := range slices.Sorted(maps.Keys(s)) {
			problems.Add(shorthandFlags[name].flag, "the file has rooms, and this flag shapes a room of its own; change the file instead, or leave its rooms out")
		}
		clear(s)
		return
	}
	admission := map[string]any{}
	room := map[string]any{"id": defaultID, "admission": admission}
	tree := map[string]any{"rooms": []any{room}}
	for name, value := range s {
		admission[name] = value
	}
	if url, ok := s["origin"]; ok {
		delete(admission, "origin")
		if len(cfg.Origins) > 0 {
			problems.Add("--origin", "the file has origins; leave the flag out, or the file's origins")
			return
		}
		room["origin"] = defaultID
		tree["origins"] = []any{map[string]any{"id": defaultID, "servers": []any{url}}}
	}
	var found Problems
	gatewaySchema.Apply(cfg, tree, &found)
	problems.List = append(problems.List, s.rename(found.List)...)
}
