package route

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// paths are the rooms of one host pattern, by path.
type paths struct {
	host     string // pattern of the hosts; empty in rules without hosts
	patterns []pattern
	prefixes []prefix // longest first
	rooms    []int    // of all of them
}

type room struct {
	index int
	id    string
}

type pattern struct {
	re   *regexp.Regexp
	room int
	text string // as configured
}

type prefix struct {
	path string // in normal form without a trailing slash; "" for the root
	room room
	text string // as configured
}

// add assigns a path, as it is configured, to a room.
func (p *paths) add(path string, r room) error {
	if !slices.Contains(p.rooms, r.index) {
		p.rooms = append(p.rooms, r.index)
	}
	if text, ok := strings.CutPrefix(path, "~"); ok {
		re, err := compile(text)
		if err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
		p.patterns = append(p.patterns, pattern{re, r.index, path})
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%q: a path begins with / and a regular expression with ~", path)
	}
	normal := strings.TrimSuffix(string(normalize(nil, []byte(path), false)), "/")
	for _, old := range p.prefixes {
		if old.path == normal {
			if old.room == r {
				return nil
			}
			return fmt.Errorf("%q: room %s has this path too; give one of them another path or host", path, old.room.id)
		}
	}
	p.prefixes = append(p.prefixes, prefix{normal, r, path})
	return nil
}

func (p *paths) sort() {
	slices.SortStableFunc(p.prefixes, func(a, b prefix) int { return len(b.path) - len(a.path) })
}

// compile returns the regular expression of a pattern for paths in lower case. The letters of the expression are folded to
// lower case too, because an expression that ignores case takes up to ten times as long.
//
// A request that an expression fails to match passes the room. The expression therefore matches whatever some server's
// expression of the same text matches: a dot also matches a line feed, and the ASCII digits stand for those of every script.
func compile(pattern string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl|syntax.FoldCase|syntax.DotNL)
	if err != nil {
		return nil, err
	}
	foldTree(tree)
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

func foldTree(tree *syntax.Regexp) {
	if tree.Op == syntax.OpLiteral {
		tree.Flags &^= syntax.FoldCase
		tree.Rune = []rune(string(fold([]byte(string(tree.Rune)), 0)))
	}
	if tree.Op == syntax.OpCharClass && slices.Equal(tree.Rune, []rune{'0', '9'}) {
		tree.Rune = digits
	}
	for _, sub := range tree.Sub {
		foldTree(sub)
	}
}

// find returns the room of one reading of a path and the rule that matches; regular expressions come before prefixes.
func (p *paths) find(path []byte) (room int, rule string) {
	for i := range p.patterns {
		if p.patterns[i].re.Match(path) {
			return p.patterns[i].room, p.patterns[i].text
		}
	}
	for i := range p.prefixes {
		prefix := p.prefixes[i].path
		if len(path) < len(prefix) || string(path[:len(prefix)]) != prefix {
			continue
		}
		if segmentEnds(path[len(prefix):]) {
			return p.prefixes[i].room.index, p.prefixes[i].text
		}
	}
	return NoRoom, ""
}

// segmentEnds reports whether some server ends a segment where rest begins. The regular expressions of many frameworks take
// the end of a line for the end of the path.
func segmentEnds(rest []byte) bool {
	return len(rest) == 0 || rest[0] == '/' || rest[0] == ';' || rest[0] < ' ' || hasEscape(rest, ';')
}

// bypasses reports whether every reading of a path matches, so that a spelling that servers read in different ways bypasses
// nothing.
func (p *paths) bypasses(r *Readings) bool {
	if r.many || len(p.patterns) > 0 && r.size() > patternMax {
		return false
	}
	for i := range r.n {
		if !p.bypassesReading(r.at(i)) {
			return false
		}
	}
	return true
}

// bypassesReading reports whether one reading of a path matches. A prefix ends only where every server ends the segment:
// parameters and control characters are part of the segment for many servers, which then handle another path.
func (p *paths) bypassesReading(path []byte) bool {
	for i := range p.patterns {
		if p.patterns[i].re.Match(path) {
			return true
		}
	}
	for i := range p.prefixes {
		rest, ok := bytes.CutPrefix(path, []byte(p.prefixes[i].path))
		if ok && (len(rest) == 0 || rest[0] == '/') {
			return true
		}
	}
	return false
}
