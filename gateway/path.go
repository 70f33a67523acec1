package gateway

import (
	"bytes"
	"unicode/utf8"
)

// reading is how the spellings of a path that servers read in different ways are taken. A path without such spellings
// has one reading.
type reading uint8

const (
	splitSlash        reading = 1 << iota // an encoded slash separates segments
	splitBackslash                        // a backslash, encoded or not, separates segments
	cutNUL                                // an encoded NUL ends the path
	dropParams                            // what follows a semicolon in a segment is not part of it
	dropEncodedParams                     // nor is what follows an encoded one
)

// inspect tells whether a path is its own only reading, and if not, which readings there are besides the plain one.
func inspect(path []byte) (clean bool, modes reading) {
	if len(path) == 0 || path[0] != '/' {
		return false, 0
	}
	clean = true
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '/':
			if i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.' && dotSegment(path[i+1:])) {
				clean = false
			}
		case c == '%':
			clean = false
			switch d, ok := unhex(path[i:]); {
			case !ok:
			case d == '/':
				modes |= splitSlash
			case d == '\\':
				modes |= splitBackslash
			case d == 0:
				modes |= cutNUL
			case d == ';':
				modes |= dropEncodedParams
			}
		case c == '\\':
			clean, modes = false, modes|splitBackslash
		case c == ';':
			clean, modes = false, modes|dropParams
		case c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf || c == 0:
			clean = false
		}
	}
	return clean, modes
}

// dotSegment tells whether s, which begins with a dot, begins with a segment "." or "..".
func dotSegment(s []byte) bool {
	n := 1
	if len(s) > 1 && s[1] == '.' {
		n = 2
	}
	return len(s) == n || s[n] == '/'
}

// appendReading appends one reading of path to dst: decoded once, in lower case, with slashes merged and dots resolved.
// A slash that was encoded and does not separate stays written as %2f, so that it is not taken for one that does.
func appendReading(dst, path []byte, mode reading) []byte {
	start := len(dst)
	dst = append(dst, '/')
	segment := len(dst)
	params := false
	for i := 0; i < len(path); i++ {
		c, encoded := path[i], false
		if c == '%' {
			if d, ok := unhex(path[i:]); ok {
				c, encoded = d, true
				i += 2
			}
		}
		switch {
		case c == '/' && (!encoded || mode&splitSlash != 0), c == '\\' && mode&splitBackslash != 0:
			params = false
			dst = endSegment(dst, start, segment)
			if dst[len(dst)-1] != '/' {
				dst = append(dst, '/')
			}
			segment = len(dst)
		case c == 0 && mode&cutNUL != 0:
			return fold(endSegment(dst, start, segment), start)
		case params:
		case c == ';' && (!encoded && mode&dropParams != 0 || encoded && mode&dropEncodedParams != 0):
			params = true
		case c == '/':
			dst = append(dst, "%2f"...)
		default:
			dst = append(dst, c)
		}
	}
	return fold(endSegment(dst, start, segment), start)
}

// endSegment takes the last segment, which begins at segment, off dst when it is "." or "..", the latter with the one
// before it. What is left ends with a slash then.
func endSegment(dst []byte, start, segment int) []byte {
	switch string(dst[segment:]) {
	case ".":
		return dst[:segment]
	case "..":
		if segment-1 == start {
			return dst[:segment]
		}
		return dst[:start+1+bytes.LastIndexByte(dst[start:segment-1], '/')]
	}
	return dst
}

// fold turns dst[start:] to lower case.
func fold(dst []byte, start int) []byte {
	for i := start; i < len(dst); i++ {
		switch c := dst[i]; {
		case c >= 'A' && c <= 'Z':
			dst[i] = c + 'a' - 'A'
		case c >= utf8.RuneSelf:
			return append(dst[:start], bytes.ToLower(dst[start:])...)
		}
	}
	return dst
}

// unhex decodes the escape that s begins with.
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

// pathOf gives the path of a request target in origin form or absolute form, as it was sent.
func pathOf(target []byte) []byte {
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
