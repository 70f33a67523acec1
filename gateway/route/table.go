package route

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Own is the path below which the gateway itself responds, on every host.
const Own = "/.waiting-room"

// Rule assigns hosts and paths to a room.
type Rule struct {
	Room  string
	Hosts []string // exact, *.example.com, or *
	Paths []string // prefixes, or ~ and a regular expression
}

// NoRoom is the index of no room.
const NoRoom = -1

// Table finds the room of a request. Rooms are indices into the rules that the table was made of.
type Table struct {
	exact     map[string]*paths
	wildcards []wildcard // longest suffix first
	any       *paths
}

type wildcard struct {
	suffix string // ".example.com"
	paths  *paths
}

// New returns the table of a list of rules. Errors name the room, the setting and its value.
func New(rules []Rule) (*Table, error) {
	t := &Table{exact: map[string]*paths{}}
	for i, r := range rules {
		for _, host := range r.Hosts {
			p, err := t.host(host)
			if err != nil {
				return nil, fmt.Errorf("rooms.%s.hosts: %w", r.Room, err)
			}
			for _, path := range r.Paths {
				if err := p.add(path, room{i, r.Room}); err != nil {
					return nil, fmt.Errorf("rooms.%s.paths: %w", r.Room, err)
				}
			}
		}
	}
	slices.SortStableFunc(t.wildcards, func(a, b wildcard) int { return len(b.suffix) - len(a.suffix) })
	for _, p := range t.exact {
		p.sort()
	}
	for _, w := range t.wildcards {
		w.paths.sort()
	}
	if t.any != nil {
		t.any.sort()
	}
	return t, nil
}

// host returns the paths of a host pattern, adding the pattern where it is new.
func (t *Table) host(pattern string) (*paths, error) {
	pattern = strings.TrimSuffix(strings.ToLower(pattern), ".")
	switch {
	case pattern == "*":
		if t.any == nil {
			t.any = &paths{host: pattern}
		}
		return t.any, nil
	case strings.HasPrefix(pattern, "*."):
		suffix := pattern[1:]
		if len(suffix) < 2 || strings.ContainsAny(suffix, "*/") {
			break
		}
		for _, w := range t.wildcards {
			if w.suffix == suffix {
				return w.paths, nil
			}
		}
		w := wildcard{suffix, &paths{host: pattern}}
		t.wildcards = append(t.wildcards, w)
		return w.paths, nil
	case pattern == "" || strings.ContainsAny(pattern, "*/"):
	default:
		host, _ := HostName([]byte(pattern), nil)
		name := string(host)
		if t.exact[name] == nil {
			t.exact[name] = &paths{host: pattern}
		}
		return t.exact[name], nil
	}
	return nil, fmt.Errorf("%q: give a host name, one with a leading wildcard (*.example.com), or *", pattern)
}

// match is the rule of a room that matches a request.
type match struct {
	room       int
	host, path string // as configured
}

// find returns the match of a host and one reading of a path: an exact host comes before a wildcard, a longer wildcard before
// a shorter one, * last. Where no path of a host pattern matches, the next pattern is tried.
func (t *Table) find(host, path []byte) match {
	if p := t.exact[string(host)]; p != nil {
		if r, rule := p.find(path); r != NoRoom {
			return match{r, p.host, rule}
		}
	}
	for i := range t.wildcards {
		if w := &t.wildcards[i]; w.matches(host) {
			if r, rule := w.paths.find(path); r != NoRoom {
				return match{r, w.paths.host, rule}
			}
		}
	}
	if t.any != nil {
		r, rule := t.any.find(path)
		return match{r, t.any.host, rule}
	}
	return nowhere
}

var nowhere = match{room: NoRoom}

func (w *wildcard) matches(host []byte) bool {
	return len(host) > len(w.suffix) && string(host[len(host)-len(w.suffix):]) == w.suffix
}

// of yields the paths of every pattern that matches a host.
func (t *Table) of(host []byte) iter.Seq[*paths] {
	return func(yield func(*paths) bool) {
		if p := t.exact[string(host)]; p != nil && !yield(p) {
			return
		}
		for i := range t.wildcards {
			if w := &t.wildcards[i]; w.matches(host) && !yield(w.paths) {
				return
			}
		}
		if t.any != nil {
			yield(t.any)
		}
	}
}

// HasRooms reports whether there is any room.
func (t *Table) HasRooms() bool { return len(t.exact) > 0 || len(t.wildcards) > 0 || t.any != nil }

// Knows reports whether some room is served on a host.
func (t *Table) Knows(host []byte) bool {
	for range t.of(host) {
		return true
	}
	return false
}

// Serves reports whether a room is served on a host.
func (t *Table) Serves(room int, host []byte) bool {
	for p := range t.of(host) {
		if slices.Contains(p.rooms, room) {
			return true
		}
	}
	return false
}

// Kind is the kind of destination of a request.
type Kind uint8

// Kinds of destinations.
const (
	ToRoom   Kind = iota // to Place.Room
	ToOrigin             // to no room
	ToOwn                // to the gateway itself
	TwoRooms             // nowhere: the readings of the path lead to different rooms
	TooMany              // nowhere: the path has more readings, or is longer, than are checked
)

// Place is the destination of a request.
type Place struct {
	Kind Kind
	Room int    // where Kind is ToRoom
	Rest []byte // where Kind is ToOwn: what follows Own in that reading
	// Host and Path are the rule of the room that matched, as configured; Path is empty where the path was not matched.
	Host, Path string
}

// patternMax is the largest size of all readings of a path together, in bytes, for which regular expressions are matched. A longer
// path matches no expression of a bypass rule, and on a host with expressions leads where locateUnread decides.
const patternMax = 1 << 10

// Locate returns where a request leads, and sets r to the readings of its path. Place.Rest may point into them.
func (t *Table) Locate(host, path []byte, r *Readings) Place {
	r.Set(path)
	for i := range r.n {
		if rest, ok := underOwn(r.at(i)); ok {
			return Place{Kind: ToOwn, Room: NoRoom, Rest: rest}
		}
	}
	if r.many || r.size() > patternMax && t.hasPatterns(host) {
		return t.locateUnread(host)
	}
	found, bare := nowhere, nowhere // by all readings, and by those without parameters
	differ, bareDiffer := false, false
	for i := range r.n {
		s := r.at(i)
		m := t.find(host, s)
		if m.room == NoRoom {
			continue
		}
		differ = differ || found.room != NoRoom && found.room != m.room
		found = m
		if bytes.IndexByte(s, ';') < 0 {
			bareDiffer = bareDiffer || bare.room != NoRoom && bare.room != m.room
			bare = m
		}
	}
	switch {
	case !differ:
		return to(found)
	case bare.room != NoRoom && !bareDiffer:
		return to(bare)
	}
	return Place{Kind: TwoRooms, Room: NoRoom}
}

func to(m match) Place {
	if m.room == NoRoom {
		return Place{Kind: ToOrigin, Room: NoRoom}
	}
	return Place{Kind: ToRoom, Room: m.room, Host: m.host, Path: m.path}
}

// locateUnread returns the destination of a request whose path cannot be matched: the only room of the host, whatever the paths of
// that room are.
func (t *Table) locateUnread(host []byte) Place {
	only := nowhere
	for p := range t.of(host) {
		for _, r := range p.rooms {
			if only.room != NoRoom && only.room != r {
				return Place{Kind: TooMany, Room: NoRoom}
			}
			only = match{room: r, host: p.host}
		}
	}
	return to(only)
}

// hasPatterns reports whether a room of a host has regular expressions.
func (t *Table) hasPatterns(host []byte) bool {
	for p := range t.of(host) {
		if len(p.patterns) > 0 {
			return true
		}
	}
	return false
}

func underOwn(path []byte) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(path, []byte(Own))
	return rest, ok && (len(rest) == 0 || rest[0] == '/' || rest[0] == ';')
}

// HostName returns the name in a Host field: without port and trailing dot, in lower case. Where letters change, the result
// lies in scratch, which is returned too.
func HostName(host, scratch []byte) (name, grown []byte) {
	if i := bytes.LastIndexByte(host, ':'); i >= 0 && bytes.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	if n := len(host); n > 1 && host[n-1] == '.' {
		host = host[:n-1]
	}
	for _, c := range host {
		if c >= 'A' && c <= 'Z' {
			scratch = fold(append(scratch[:0], host...), 0)
			return scratch, scratch
		}
	}
	return host, scratch
}
