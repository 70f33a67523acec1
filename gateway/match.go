package gateway

import (
	"bytes"
	"fmt"
	"iter"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
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
	rooms    []*room      // of all of them
}

type regexRoom struct {
	re   *regexp.Regexp
	room *room
}

type prefixRoom struct {
	prefix string // in normal form without a trailing slash; "" for the root
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
	if !slices.Contains(p.rooms, r) {
		p.rooms = append(p.rooms, r)
	}
	if pattern, ok := strings.CutPrefix(path, "~"); ok {
		re, err := compile(pattern)
		if err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
		p.regexes = append(p.regexes, regexRoom{re, r})
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%q: a path begins with / and a regular expression with ~", path)
	}
	prefix := strings.TrimSuffix(string(normalize(nil, []byte(path), false)), "/")
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

// compile returns the regular expression of a pattern for paths in lower case. Its letters are turned to lower case too: an expression
// that ignores case takes up to ten times as long.
//
// An expression leads into a room, so it matches what some server's expression of the same text does: a dot also a line feed, and the
// ASCII digits those of every script.
func compile(pattern string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl|syntax.FoldCase|syntax.DotNL)
	if err != nil {
		return nil, err
	}
	lower(tree)
	return regexp.Compile(tree.String())
}

// digits are the ranges of the decimal digits of every script.
var digits = func() (ranges []rune) {
	for _, r := range unicode.Nd.R16 {
		ranges = append(ranges, rune(r.Lo), rune(r.Hi))
	}
	for _, r := range unicode.Nd.R32 {
		ranges = append(ranges, rune(r.Lo), rune(r.Hi))
	}
	return ranges
}()

func lower(tree *syntax.Regexp) {
	if tree.Op == syntax.OpLiteral {
		tree.Flags &^= syntax.FoldCase
		tree.Rune = []rune(string(fold([]byte(string(tree.Rune)), 0)))
	}
	if tree.Op == syntax.OpCharClass && slices.Equal(tree.Rune, []rune{'0', '9'}) {
		tree.Rune = digits
	}
	for _, sub := range tree.Sub {
		lower(sub)
	}
}

// find returns the room of one reading of a path; a regular expression comes before prefixes.
func (p *paths) find(path []byte) *room {
	for i := range p.regexes {
		if p.regexes[i].re.Match(path) {
			return p.regexes[i].room
		}
	}
	for i := range p.prefixes {
		prefix := p.prefixes[i].prefix
		if len(path) < len(prefix) || string(path[:len(prefix)]) != prefix {
			continue
		}
		if ends(path[len(prefix):]) {
			return p.prefixes[i].room
		}
	}
	return nil
}

// opens reports whether a bypass rule fits one reading of a path. A prefix ends where every server sees the end of a segment: what
// follows as a parameter or behind a control character is for many servers part of the segment, and so another path.
func (p *paths) opens(path []byte) bool {
	for i := range p.regexes {
		if p.regexes[i].re.Match(path) {
			return true
		}
	}
	for i := range p.prefixes {
		rest, ok := bytes.CutPrefix(path, []byte(p.prefixes[i].prefix))
		if ok && (len(rest) == 0 || rest[0] == '/') {
			return true
		}
	}
	return false
}

// ends reports whether a segment ends where rest begins. Regular expressions of many frameworks take the end of a line
// for the end of the path.
func ends(rest []byte) bool {
	return len(rest) == 0 || rest[0] == '/' || rest[0] == ';' || rest[0] < ' ' || hasEscape(rest, ';')
}

// find returns the room of a host and one reading of a path: an exact host before a wildcard, a longer wildcard before a
// shorter one, * last; a host whose rooms have no fitting path goes on to the next.
func (t *table) find(host, path []byte) *room {
	if p := t.exact[string(host)]; p != nil {
		if r := p.find(path); r != nil {
			return r
		}
	}
	for i := range t.wild {
		if w := &t.wild[i]; w.fits(host) {
			if r := w.paths.find(path); r != nil {
				return r
			}
		}
	}
	if t.any != nil {
		return t.any.find(path)
	}
	return nil
}

func (w *wildcard) fits(host []byte) bool {
	return len(host) > len(w.suffix) && string(host[len(host)-len(w.suffix):]) == w.suffix
}

// of yields the paths of every pattern that a host fits.
func (t *table) of(host []byte) iter.Seq[*paths] {
	return func(yield func(*paths) bool) {
		if p := t.exact[string(host)]; p != nil && !yield(p) {
			return
		}
		for i := range t.wild {
			if w := &t.wild[i]; w.fits(host) && !yield(w.paths) {
				return
			}
		}
		if t.any != nil {
			yield(t.any)
		}
	}
}

// knows reports whether some room is served on a host.
func (t *table) knows(host []byte) bool {
	for range t.of(host) {
		return true
	}
	return false
}

// serves reports whether a room is served on a host.
func (t *table) serves(r *room, host []byte) bool {
	for p := range t.of(host) {
		if slices.Contains(p.rooms, r) {
			return true
		}
	}
	return false
}

// place is where a request leads.
type place struct {
	room    *room
	own     []byte // what follows /.waiting-room in its reading, when the gateway itself is asked
	ours    bool
	unclear ambiguity
}

// ambiguity is why no room can be named for a path.
type ambiguity uint8

const (
	unambiguous ambiguity = iota
	twoRooms              // the readings of the path lead to different rooms
	tooMany               // the path has more readings, or is longer, than are looked at
)

// patternMost is how many bytes of a path, all its readings together, a regular expression sees. Longer paths match none
// that would open something, and are not taken past one that protects something.
const patternMost = 1 << 10

// locate returns the place of a request, whose path has the readings that r then holds. place.own may lie in them.
func (t *table) locate(host, path []byte, r *readings) place {
	r.of(path)
	for i := range r.n {
		if rest, ok := underOwn(r.at(i)); ok {
			return place{own: rest, ours: true}
		}
	}
	if r.many || r.size() > patternMost && t.hasPatterns(host) {
		return t.locateUnread(host)
	}
	var found, bare *room // by all readings, and by those without parameters
	several, bareSeveral := false, false
	for i := range r.n {
		s := r.at(i)
		named := t.find(host, s)
		if named == nil {
			continue
		}
		several = several || found != nil && found != named
		found = named
		if bytes.IndexByte(s, ';') < 0 {
			bareSeveral = bareSeveral || bare != nil && bare != named
			bare = named
		}
	}
	switch {
	case !several:
		return place{room: found}
	case bare != nil && !bareSeveral:
		return place{room: bare}
	}
	return place{unclear: twoRooms}
}

// locateUnread returns the place of a request whose path cannot be looked up: the room of the host where there is but
// one, whatever its paths.
func (t *table) locateUnread(host []byte) place {
	var only *room
	for p := range t.of(host) {
		for _, r := range p.rooms {
			if only != nil && only != r {
				return place{unclear: tooMany}
			}
			only = r
		}
	}
	return place{room: only}
}

// hasPatterns reports whether regular expressions protect paths of a host.
func (t *table) hasPatterns(host []byte) bool {
	for p := range t.of(host) {
		if len(p.regexes) > 0 {
			return true
		}
	}
	return false
}

func underOwn(path []byte) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(path, []byte(own))
	return rest, ok && (len(rest) == 0 || rest[0] == '/' || rest[0] == ';')
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
