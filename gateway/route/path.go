package route

import (
	"bytes"
	"unicode/utf8"
)

// inspect reports whether a path is in normal form and has no other reading, and otherwise whether it escapes a letter or a
// digit, which no client needs to.
func inspect(path []byte) (plain, letters bool) {
	if len(path) == 0 || path[0] != '/' {
		return false, false
	}
	plain = true
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '/':
			if i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.' && dotSegment(path[i+1:]) > 0) {
				plain = false
			}
		case c == '%':
			plain = false
			d, ok := unhex(path[i:])
			letters = letters || ok && alphanumeric(d)
		case c == '\\', c == ';', c < ' ', c >= 'A' && c <= 'Z', c >= utf8.RuneSelf:
			plain = false
		}
	}
	return plain, letters
}

// dotSegment returns the length of the segment "." or ".." at the start of s, also where its dots are escaped or parameters
// follow; 0 without one.
func dotSegment(s []byte) int {
	n := 0
	for range 2 {
		switch {
		case n < len(s) && s[n] == '.':
			n++
		case hasEscape(s[n:], '.'):
			n += 3
		}
	}
	switch rest := s[n:]; {
	case len(rest) == 0, rest[0] == '/', rest[0] == '\\', rest[0] == ';':
		return n
	case hasEscape(rest, '/'), hasEscape(rest, '\\'), hasEscape(rest, ';'), hasEscape(rest, 0):
		return n
	}
	return 0
}

// normalize appends the normal form of path to dst: in lower case and decoded once, except for what servers read in
// different ways. The escapes of slash, backslash, NUL, semicolon and percent sign stay, as do those of dots in dot
// segments. A percent sign that begins no escape becomes %25. With asIs the escapes of letters and digits stay too, as a
// server sees them that finds its handlers by the undecoded path.
func normalize(dst, path []byte, asIs bool) []byte {
	start := len(dst)
	return fold(decoded(dst, path, asIs), start)
}

// decoded is normalize without the change to lower case.
func decoded(dst, path []byte, asIs bool) []byte {
	dst = append(dst, '/')
	path = bytes.TrimPrefix(path, []byte{'/'})
	begins := true // a segment
	for len(path) > 0 {
		if begins && (path[0] == '.' || path[0] == '%') {
			n := dotSegment(path)
			dst, path = append(dst, path[:n]...), path[n:]
			if begins = false; n > 0 {
				continue
			}
		}
		begins = false
		if n := plainRun(path); n > 0 {
			dst, path = append(dst, path[:n]...), path[n:]
			continue
		}
		c, n := path[0], 1
		if c == '%' {
			if d, ok := unhex(path); ok {
				if c, n = d, 3; asIs && alphanumeric(c) {
					dst, path = append(dst, path[:n]...), path[n:]
					continue
				}
			}
		}
		switch escaped := n == 3; {
		case c == 0, c == '\\', c == '%', escaped && (c == '/' || c == ';'):
			const hex = "0123456789abcdef"
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
		begins = c == '/' || c == '\\'
		path = path[n:]
	}
	return dst
}

// special are the bytes of a path that normalize does not copy: separators, escapes, and what it escapes.
var special = [256]bool{'/': true, '%': true, '\\': true, 0: true}

// plainRun returns how many of the first bytes of s are copied by normalize.
func plainRun(s []byte) int {
	for i, c := range s {
		if special[c] {
			return i
		}
	}
	return len(s)
}

// fold converts dst[start:] to lower case. The long s (U+017F) becomes s, as in regular expressions of Go, Python and Java
// that ignore case.
func fold(dst []byte, start int) []byte {
	for i := start; i < len(dst); i++ {
		switch c := dst[i]; {
		case c >= 'A' && c <= 'Z':
			dst[i] = c + 'a' - 'A'
		case c >= utf8.RuneSelf:
			return append(dst[:start], bytes.ReplaceAll(bytes.ToLower(dst[start:]), []byte("ſ"), []byte("s"))...)
		}
	}
	return dst
}

// hasEscape reports whether s begins with the escape of a character.
func hasEscape(s []byte, c byte) bool {
	d, ok := unhex(s)
	return ok && d == c
}

// unhex decodes the escape at the start of s.
func unhex(s []byte) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	a, b := nibble(s[1]), nibble(s[2])
	return a<<4 | b, a < 16 && b < 16
}

func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// PathOf returns the path of a request target in origin form or absolute form, as it was sent.
func PathOf(target []byte) []byte {
	if len(target) > 0 && target[0] != '/' {
		if i := bytes.Index(target, []byte("://")); i >= 0 {
			target = target[i+3:]
			if i = bytes.IndexAny(target, "/?#"); i < 0 || target[i] != '/' {
				return []byte("/")
			}
			target = target[i:]
		}
	}
	if i := bytes.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	return target
}

// AppendResolved appends a path as it was sent, with slashes merged and dot segments resolved. The result begins with
// one slash and never with two, so that no client takes it for the address of another host.
func AppendResolved(dst, path []byte) []byte {
	start := len(dst)
	dst = append(dst, '/')
	for i, segment := 0, []byte(nil); i <= len(path); i += len(segment) + 1 {
		segment, _, _ = bytes.Cut(path[i:], []byte("/"))
		last := i+len(segment) == len(path)
		n := dotSegment(segment)
		switch {
		case len(segment) == 0:
		case n == 0 || n < len(segment) && segment[n] != ';':
			if dst = append(dst, segment...); !last {
				dst = append(dst, '/')
			}
		case (n == 2 || n > 3) && len(dst) > start+1: // ".."
			dst = dst[:start+1+bytes.LastIndexByte(dst[start:len(dst)-1], '/')]
		}
	}
	return dst
}
