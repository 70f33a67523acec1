package config

import (
	"fmt"
	"reflect"
	"sort"
)

// shorthand is the room that --origin, --rate, --burst and --max-active make.
type shorthand map[string]plain

var shorthandFlags = map[string]string{
	"origin": "--origin", "rate": "--rate", "burst": "--burst", "max_active": "--max-active",
}

// rename gives what is wrong with the room of the shorthand the names of the
// flags that made it.
func (s shorthand) rename(list []Problem) []Problem {
	for i, p := range list {
		for name, path := range map[string]string{
			"origin": "origins[0].servers[0]", "rate": "rooms[0].admission.rate",
			"burst": "rooms[0].admission.burst", "max_active": "rooms[0].admission.max_active",
		} {
			if _, given := s[name]; given && p.Path == path {
				list[i].Path = shorthandFlags[name]
			}
		}
	}
	return list
}

// splitShorthand parts the shorthand from the flags that set a path.
func splitShorthand(flags map[string]any) (shorthand, map[string]any) {
	short, rest := shorthand{}, make(map[string]any)
	for path, value := range flags {
		if _, ok := shorthandFlags[path]; ok {
			short[path] = plain(fmt.Sprint(value))
		} else {
			rest[path] = value
		}
	}
	return short, rest
}

// The room and the origin of the shorthand.
const defaultID = "default"

func applyShorthand(cfg *Config, short shorthand, problems *Problems) {
	if len(short) == 0 {
		return
	}
	names := make([]string, 0, len(short))
	for name := range short {
		names = append(names, name)
	}
	sort.Strings(names)
	if len(cfg.Rooms) > 0 {
		for _, name := range names {
			problems.add(shorthandFlags[name], "the file has rooms, and this flag shapes a room of its own; change the file instead, or leave its rooms out")
			delete(short, name)
		}
		return
	}

	room := Room{}
	setDefaults(reflect.ValueOf(&room).Elem())
	room.ID = defaultID
	d := decoder{schema: gatewaySchema, problems: problems}
	admission := reflect.ValueOf(&room.Admission).Elem()
	for _, s := range settingsOf(admission.Type(), "rooms[].admission") {
		if raw, ok := short[s.Name]; ok {
			d.value(admission.Field(s.index), raw, shorthandFlags[s.Name], s)
		}
	}
	if url, ok := short["origin"]; ok {
		if len(cfg.Origins) > 0 {
			problems.add("--origin", "the file has origins; leave the flag out, or the file's origins")
			return
		}
		origin := Origin{}
		setDefaults(reflect.ValueOf(&origin).Elem())
		origin.ID = defaultID
		origin.Servers = []string{string(url)}
		cfg.Origins = []Origin{origin}
		room.Origin = defaultID
	}
	cfg.Rooms = []Room{room}
}
