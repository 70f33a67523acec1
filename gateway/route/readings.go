package route

import "bytes"

// readingsMax is the highest number of readings of a path that are checked.
const readingsMax = 8

// readLengthMax is the longest path, in bytes, whose readings are listed where it has several.
const readLengthMax = 2 << 10

// Readings are the ways in which servers read one path: all results of the steps below on its normal form, in any order and
// combination. If there are more than readingsMax, or the path is longer than readLengthMax, many is set and the list is incomplete. A
// value is reused from request to request.
type Readings struct {
	only []byte // the path itself where it is its own only reading
	text []byte // else all readings, concatenated
	ends [readingsMax]int
	n    int
	many bool
}

// Set sets r to the readings of a path. They are valid until the next call and as long as path is.
func (r *Readings) Set(path []byte) {
	plain, letters := inspect(path)
	r.many, r.text = false, r.text[:0]
	if plain {
		r.only, r.n = path, 1
		return
	}
	r.only, r.n = nil, 0
	r.add(normalize(r.text, path, false))
	if r.many = len(path) > readLengthMax && (letters || ambiguities(r.at(0)) != 0); r.many {
		return
	}
	if letters {
		r.add(normalize(r.text, path, true))
	}
	for i := 0; i < r.n; i++ {
		s := r.at(i)
		need := ambiguities(s)
		for j := range steps {
			if need&(1<<j) == 0 {
				continue
			}
			if r.add(steps[j](r.text, s)); r.many {
				return
			}
		}
	}
}

// AreOwn reports whether every reading is a path below Own.
func (r *Readings) AreOwn() bool {
	for i := range r.n {
		if _, ok := underOwn(r.at(i)); !ok {
			return false
		}
	}
	return !r.many
}

// IsOwn reports whether a path is below Own as it is written. Proxies send such paths to the gateway, and all other spellings to the site.
func IsOwn(path []byte) bool { return bytes.HasPrefix(path, []byte(Own+"/")) }

// at returns a reading; the first is the path decoded once.
func (r *Readings) at(i int) []byte {
	if r.only != nil {
		return r.only
	}
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.text[from:r.ends[i]]
}

// List returns the readings as text; the first is the path decoded once.
func (r *Readings) List() (list []string) {
	for i := range r.n {
		list = append(list, string(r.at(i)))
	}
	return list
}

// size returns the length of all readings together.
func (r *Readings) size() int { return max(len(r.only), len(r.text)) }

// add adds the reading that was appended to r.text, unless it is listed already.
func (r *Readings) add(text []byte) {
	begin := len(r.text)
	s := text[begin:]
	for i := range r.n {
		if bytes.Equal(r.at(i), s) {
			r.text = text[:begin]
			return
		}
	}
	if r.many = r.n == readingsMax; r.many {
		r.text = text[:begin]
		return
	}
	r.text, r.ends[r.n] = text, len(text)
	r.n++
}

// A step is a change of a path that some servers make before they look up its handler, and others do not. It appends the changed
// path to dst.
type step func(dst, path []byte) []byte

// The indices of steps.
const (
	decodeDots      = iota // %2e%2e is the parent
	splitSlashes           // %2f separates segments
	splitBackslash         // %5c does
	cutAtNUL               // %00 ends the path
	cutParams              // ;v=1 is no part of a segment
	cutAllParams           // nor is %3bv=1
	cutAuthority           // //host/path is a URL without its scheme
	mergeSlashes           // // is /
	resolveDots            // a/../b is b
	decodeCodePoint        // %u0073 is s
)

var steps = [...]step{
	decodeDots:      func(dst, path []byte) []byte { return replace(dst, path, "%2e", '.') },
	splitSlashes:    func(dst, path []byte) []byte { return replace(dst, path, "%2f", '/') },
	splitBackslash:  func(dst, path []byte) []byte { return replace(dst, path, "%5c", '/') },
	cutAtNUL:        func(dst, path []byte) []byte { s, _, _ := bytes.Cut(path, []byte("%00")); return append(dst, s...) },
	cutParams:       func(dst, path []byte) []byte { return withoutParams(dst, path, false) },
	cutAllParams:    func(dst, path []byte) []byte { return withoutParams(dst, path, true) },
	cutAuthority:    withoutAuthority,
	mergeSlashes:    merged,
	resolveDots:     resolved,
	decodeCodePoint: codePoints,
}

// ambiguities returns which steps change a path in normal form, a bit each.
func ambiguities(path []byte) (need uint) {
	for i, c := range path {
		if c != '/' && c != ';' && c != '%' {
			continue
		}
		switch c {
		case '/':
			switch rest := path[i+1:]; {
			case len(rest) == 0:
			case rest[0] == '/':
				if need |= 1 << mergeSlashes; i == 0 {
					need |= 1 << cutAuthority
				}
			case rest[0] == '.':
				segment, _, _ := bytes.Cut(rest[:min(len(rest), 3)], []byte("/"))
				if s := string(segment); s == "." || s == ".." {
					need |= 1 << resolveDots
				}
			}
		case ';':
			need |= 1 << cutParams
		case '%':
			switch c, _ := unhex(path[i:]); c {
			case '.':
				need |= 1 << decodeDots
			case '/':
				need |= 1 << splitSlashes
			case '\\':
				need |= 1 << splitBackslash
			case 0:
				need |= 1 << cutAtNUL
			case ';':
				need |= 1 << cutAllParams
			case '%':
				if _, ok := codePoint(path[i:]); ok {
					need |= 1 << decodeCodePoint
				}
			}
		}
	}
	return need
}

// replace appends path with every escape replaced by a character.
func replace(dst, path []byte, escape string, c byte) []byte {
	for {
		i := bytes.Index(path, []byte(escape))
		if i < 0 {
			return append(dst, path...)
		}
		dst, path = append(append(dst, path[:i]...), c), path[i+len(escape):]
	}
}

// withoutParams appends path without what follows a semicolon in each segment; with escaped also without what follows an
// escaped semicolon.
func withoutParams(dst, path []byte, escaped bool) []byte {
	skip := false
	for i, c := range path {
		switch {
		case c == '/':
			skip = false
		case c == ';', escaped && c == '%' && hasEscape(path[i:], ';'):
			skip = true
		}
		if !skip {
			dst = append(dst, c)
		}
	}
	return dst
}

// withoutAuthority appends the path after the host in //host/path, or / if there is none.
func withoutAuthority(dst, path []byte) []byte {
	path = bytes.TrimLeft(path, "/")
	i := bytes.IndexByte(path, '/')
	if i < 0 {
		return append(dst, '/')
	}
	return append(dst, path[i:]...)
}

// merged appends path with each run of slashes replaced by one.
func merged(dst, path []byte) []byte {
	for i, c := range path {
		if c != '/' || i == 0 || path[i-1] != '/' {
			dst = append(dst, c)
		}
	}
	return dst
}

// resolved appends path without dot segments (RFC 3986 section 5.2.4). An empty segment is one that ".." removes.
func resolved(dst, path []byte) []byte {
	start := len(dst)
	dst = append(dst, '/')
	segment := len(dst)
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			dst = append(dst, path[i])
			continue
		}
		switch string(dst[segment:]) {
		case ".":
			dst = dst[:segment]
		case "..":
			if dst = dst[:segment]; segment > start+1 {
				dst = dst[:start+1+bytes.LastIndexByte(dst[start:segment-1], '/')]
			}
		default:
			if i < len(path) {
				dst = append(dst, '/')
			}
		}
		segment = len(dst)
	}
	return dst
}

// codePoints appends path with each %uXXXX decoded, as IIS does.
func codePoints(dst, path []byte) []byte {
	start := len(dst)
	for i := 0; i < len(path); i++ {
		r, ok := codePoint(path[i:])
		if !ok {
			dst = append(dst, path[i])
			continue
		}
		switch r {
		case '/', '\\', '%', ';', 0:
			const hex = "0123456789abcdef"
			dst = append(dst, '%', hex[r>>4], hex[r&15])
		default:
			dst = append(dst, string(r)...)
		}
		i += len("%25u0073") - 1
	}
	return fold(dst, start)
}

// codePoint decodes %uXXXX, which is %25uXXXX in normal form.
func codePoint(s []byte) (rune, bool) {
	if len(s) < len("%25u0073") || string(s[:4]) != "%25u" {
		return 0, false
	}
	var r rune
	for _, c := range s[4:8] {
		d := nibble(c)
		if d > 15 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}
