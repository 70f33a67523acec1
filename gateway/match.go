package gateway

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/admission"
)

// own is the path below which the gateway itself answers, on every host.
const own = "/.waiting-room"

// table finds the room of a request.
type table struct {
	exact map[string]*paths
	wild  []wildcard // longest suffix first
	any   *paths
	rooms bool // there is one
}

type wildcard struct {
	suffix string // ".example.com"
	paths  *paths
}

// paths are the rooms of one host pattern.
type paths struct {
	regexes  []regexRoom
	prefixes []prefixRoom // longest first
}

type regexRoom struct {
	re   *regexp.Regexp
	room *room
}

type prefixRoom struct {
	prefix string // a reading without a trailing slash; "" for the root
	room   *room
}

// newTable indexes rooms by hosts and paths. Errors name the room, the setting and its value.
func newTable(rooms []*room) (*table, error) {
	t := &table{exact: map[string]*paths{}, rooms: len(rooms) > 0}
	for _, r := range rooms {
		for _, host := range r.options.Hosts {
			p, err := t.host(host)
			if err != nil {
				return nil, fmt.Errorf("rooms.%s.hosts: %w", r.id, err)
			}
			for _, path := range r.options.Paths {
				if err := p.add(path, r); err != nil {
					return nil, fmt.Errorf("rooms.%s.paths: %w", r.id, err)
				}
			}
		}
	}
	slices.SortStableFunc(t.wild, func(a, b wildcard) int { return len(b.suffix) - len(a.suffix) })
	for p := range t.all() {
		slices.SortStableFunc(p.prefixes, func(a, b prefixRoom) int { return len(b.prefix) - len(a.prefix) })
	}
	return t, nil
}

// all yields every host pattern's paths.
func (t *table) all() func(func(*paths) bool) {
	return func(yield func(*paths) bool) {
		for _, p := range t.exact {
			if !yield(p) {
				return
			}
		}
		for _, w := range t.wild {
			if !yield(w.paths) {
				return
			}
		}
		if t.any != nil {
			yield(t.any)
		}
	}
}

// host gives the paths of a host pattern, new ones where it is new.
func (t *table) host(pattern string) (*paths, error) {
	pattern = strings.TrimSuffix(strings.ToLower(pattern), ".")
	switch {
	case pattern == "*":
		if t.any == nil {
			t.any = &paths{}
		}
		return t.any, nil
	case strings.HasPrefix(pattern, "*."):
		suffix := pattern[1:]
		if len(suffix) < 2 || strings.ContainsAny(suffix, "*/") {
			break
		}
		for _, w := range t.wild {
			if w.suffix == suffix {
				return w.paths, nil
			}
		}
		w := wildcard{suffix, &paths{}}
		t.wild = append(t.wild, w)
		return w.paths, nil
	case pattern == "" || strings.ContainsAny(pattern, "*/"):
	default:
		host, _ := hostName([]byte(pattern), nil)
		name := string(host)
		if t.exact[name] == nil {
			t.exact[name] = &paths{}
		}
		return t.exact[name], nil
	}
	return nil, fmt.Errorf("%q: give a host name, one with a leading wildcard (*.example.com), or *", pattern)
}

func (p *paths) add(path string, r *room) error {
	if pattern, ok := strings.CutPrefix(path, "~"); ok {
		re, err := regexp.Compile("(?i)" + pattern)
		if err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
		p.regexes = append(p.regexes, regexRoom{re, r})
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%q: a path begins with / and a regular expression with ~", path)
	}
	prefix := strings.TrimSuffix(string(appendReading(nil, []byte(path), 0)), "/")
	for _, old := range p.prefixes {
		if old.prefix == prefix {
			if old.room == r {
				return nil
			}
			return fmt.Errorf("%q: room %s has this path too; give one of them another path or host", path, old.room.id)
		}
	}
	p.prefixes = append(p.prefixes, prefixRoom{prefix, r})
	return nil
}

// find gives the room of one reading of a path and the length of what matched; a regular expression comes before
// prefixes.
func (p *paths) find(path []byte) (*room, int) {
	for i := range p.regexes {
		if p.regexes[i].re.Match(path) {
			return p.regexes[i].room, len(path)
		}
	}
	for i := range p.prefixes {
		prefix := p.prefixes[i].prefix
		if len(path) < len(prefix) || string(path[:len(prefix)]) != prefix {
			continue
		}
		if len(path) == len(prefix) || path[len(prefix)] == '/' || path[len(prefix)] == ';' {
			return p.prefixes[i].room, len(prefix)
		}
	}
	return nil, 0
}

// find gives the room of a host and one reading of a path: an exact host before a wildcard, a longer wildcard before a
// shorter one, * last; a host whose rooms have no fitting path goes on to the next.
func (t *table) find(host, path []byte) (*room, int) {
	if p := t.exact[string(host)]; p != nil {
		if r, n := p.find(path); r != nil {
			return r, n
		}
	}
	for i := range t.wild {
		if w := &t.wild[i]; w.fits(host) {
			if r, n := w.paths.find(path); r != nil {
				return r, n
			}
		}
	}
	if t.any != nil {
		return t.any.find(path)
	}
	return nil, 0
}

func (w *wildcard) fits(host []byte) bool {
	return len(host) > len(w.suffix) && string(host[len(host)-len(w.suffix):]) == w.suffix
}

// knows tells whether some room is served on a host.
func (t *table) knows(host []byte) bool {
	if t.any != nil || t.exact[string(host)] != nil {
		return true
	}
	return slices.ContainsFunc(t.wild, func(w wildcard) bool { return w.fits(host) })
}

// serves tells whether a room is served on a host.
func (t *table) serves(r *room, host []byte) bool {
	has := func(p *paths) bool {
		return p != nil && (slices.ContainsFunc(p.prefixes, func(x prefixRoom) bool { return x.room == r }) ||
			slices.ContainsFunc(p.regexes, func(x regexRoom) bool { return x.room == r }))
	}
	return has(t.any) || has(t.exact[string(host)]) ||
		slices.ContainsFunc(t.wild, func(w wildcard) bool { return w.fits(host) && has(w.paths) })
}

// place is where a request leads.
type place struct {
	room *room
	own  []byte // what follows /.waiting-room in its reading, when the gateway itself is asked
	ours bool
}

// locate finds the place of a request. scratch is for readings and comes back, perhaps grown; place.own may lie in it.
// Where a path reads in several ways, the stricter room holds.
func (t *table) locate(host, path, scratch []byte) (place, []byte) {
	clean, modes := inspect(path)
	if clean {
		if rest, ok := underOwn(path); ok {
			return place{own: rest, ours: true}, scratch
		}
		r, _ := t.find(host, path)
		return place{room: r}, scratch
	}
	var best *room
	var depth int
	for mode := reading(0); ; mode = (mode - modes) & modes { // every subset of modes, none first
		scratch = appendReading(scratch[:0], path, mode)
		if rest, ok := underOwn(scratch); ok {
			return place{own: rest, ours: true}, scratch
		}
		if r, n := t.find(host, scratch); r != nil && stricter(r, n, best, depth) {
			best, depth = r, n
		}
		if mode == modes {
			return place{room: best}, scratch
		}
	}
}

func underOwn(path []byte) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(path, []byte(own))
	return rest, ok && (len(rest) == 0 || rest[0] == '/' || rest[0] == ';')
}

// stricter tells whether room a, found by n bytes of path, lets fewer through than b, found by m.
func stricter(a *room, n int, b *room, m int) bool {
	if a == b || b == nil {
		return b == nil
	}
	x, y := a.line.Snapshot(), b.line.Snapshot()
	switch p, q := closeness(&x.Policy), closeness(&y.Policy); {
	case p != q:
		return p > q
	case x.Policy.Rate != y.Policy.Rate:
		return x.Policy.Rate < y.Policy.Rate
	}
	return n > m
}

// closeness ranks policies by whom they let through.
func closeness(p *admission.Policy) int {
	switch {
	case !p.Enabled || p.Method == admission.Passthrough:
		return 0
	case p.Method == admission.Reject:
		return 2
	}
	return 1
}

// hostName gives the name in a Host header: no port, no trailing dot, in lower case. Where letters change, the result
// lies in scratch, which comes back.
func hostName(host, scratch []byte) (name, grown []byte) {
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
