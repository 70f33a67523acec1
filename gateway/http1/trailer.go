package http1

import "bytes"

// AppendTrailers appends those of lines that were announced and may follow a body.
func AppendTrailers(dst, lines []byte, announced func(name []byte) bool) []byte {
	for len(lines) > 0 {
		nl := bytes.IndexByte(lines, '\n')
		l := lines[:nl+1]
		lines = lines[nl+1:]
		name := l[:bytes.IndexByte(l, ':')]
		if !ForbiddenTrailer(name) && announced(name) {
			dst = append(dst, l...)
		}
	}
	return dst
}

// AppendAllowedNames appends those names of list that may be announced in Trailer and that drop is false for, as lines
// that begin with CRLF. n is the number of names that were appended before; it returns the new one.
func AppendAllowedNames(dst, list []byte, n int, drop func(name []byte) bool) ([]byte, int) {
	for len(list) > 0 {
		var e []byte
		if e, list = nextElement(list); !IsToken(e) || ForbiddenTrailer(e) || drop != nil && drop(e) {
			continue
		}
		if n == 0 {
			dst = append(dst, "\r\nTrailer: "...)
		} else {
			dst = append(dst, ", "...)
		}
		dst = append(dst, e...)
		n++
	}
	return dst, n
}
