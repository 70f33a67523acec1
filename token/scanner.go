package token

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads one flat JSON object (RFC 8259) without allocating. Every error is a Rejection.
type scanner struct {
	buf []byte
	pos int
}

func (s *scanner) blanks() {
	for s.pos < len(s.buf) {
		switch s.buf[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end (a NUL is never valid here either).
func (s *scanner) peek() byte {
	if s.pos < len(s.buf) {
		return s.buf[s.pos]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.pos >= len(s.buf) {
		return false
	}
	s.pos++
	return true
}

// open checks the whole text's encoding and enters the object.
func (s *scanner) open() error {
	if !utf8.Valid(s.buf) {
		return ErrMalformed
	}
	s.blanks()
	if !s.take('{') {
		return ErrMalformed
	}
	return nil
}

// member returns the next member's name and advances to its value; done reports the end of the object.
func (s *scanner) member(first bool) (name []byte, done bool, err error) {
	s.blanks()
	if s.take('}') {
		return nil, true, nil
	}
	if !first {
		if !s.take(',') {
			return nil, false, ErrMalformed
		}
		s.blanks()
	}
	if s.peek() != '"' {
		return nil, false, ErrMalformed
	}
	if name, err = s.text(); err != nil {
		return nil, false, err
	}
	s.blanks()
	if !s.take(':') {
		return nil, false, ErrMalformed
	}
	s.blanks()
	return name, false, nil
}

// end checks that only blanks follow the object.
func (s *scanner) end() error {
	if s.blanks(); s.pos != len(s.buf) {
		return ErrMalformed
	}
	return nil
}

// text reads a string. Without escapes the result is a slice of buf. A string with escapes is decoded in place, as its spelling
// is longer.
func (s *scanner) text() ([]byte, error) {
	if !s.take('"') {
		return nil, ErrMalformed
	}
	start := s.pos
	for ; s.pos < len(s.buf); s.pos++ {
		switch c := s.buf[s.pos]; {
		case c == '"':
			s.pos++
			return s.buf[start : s.pos-1], nil
		case c == '\\':
			return s.escapedText(start)
		case c < 0x20:
			return nil, ErrMalformed
		}
	}
	return nil, ErrMalformed
}

func (s *scanner) escapedText(start int) ([]byte, error) {
	out := s.buf[start:s.pos]
	for s.pos < len(s.buf) {
		c := s.buf[s.pos]
		s.pos++
		switch {
		case c == '"':
			return out, nil
		case c < 0x20:
			return nil, ErrMalformed
		case c != '\\':
			out = append(out, c)
		default:
			r, ok := s.escape()
			if !ok {
				return nil, ErrMalformed
			}
			out = utf8.AppendRune(out, r)
		}
	}
	return nil, ErrMalformed
}

// escape reads an escape behind its backslash. Surrogates must come in pairs.
func (s *scanner) escape() (rune, bool) {
	if s.pos >= len(s.buf) {
		return 0, false
	}
	c := s.buf[s.pos]
	s.pos++
	if i := bytes.IndexByte([]byte(`"\/bfnrt`), c); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), true
	}
	if c != 'u' {
		return 0, false
	}
	r, ok := s.hex4()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if !s.take('\\') || !s.take('u') {
		return 0, false
	}
	low, ok := s.hex4()
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, false
	}
	return r, true
}

func (s *scanner) hex4() (rune, bool) {
	if len(s.buf)-s.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s.buf[s.pos : s.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	s.pos += 4
	return r, true
}

// integer reads a whole number from 0 to 2^53-1, written in plain digits.
func (s *scanner) integer() (int64, error) {
	start := s.pos
	var v int64
	for ; s.pos < len(s.buf) && isDigit(s.buf[s.pos]); s.pos++ {
		if v = v*10 + int64(s.buf[s.pos]-'0'); v > maxInteger {
			return 0, ErrClaims
		}
	}
	if s.pos == start || s.buf[start] == '0' && s.pos > start+1 {
		return 0, ErrClaims
	}
	switch s.peek() {
	case '.', 'e', 'E':
		return 0, ErrClaims
	}
	return v, nil
}

func (s *scanner) boolean() (bool, error) {
	if s.word("true") {
		return true, nil
	}
	if s.word("false") {
		return false, nil
	}
	return false, ErrClaims
}

func (s *scanner) word(w string) bool {
	if len(s.buf)-s.pos < len(w) || string(s.buf[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}

// skipScalar skips an unknown value.
func (s *scanner) skipScalar() error {
	switch c := s.peek(); {
	case c == '"':
		_, err := s.text()
		return err
	case c == '-' || isDigit(c):
		return s.skipNumber()
	case c == '{' || c == '[':
		return ErrClaims
	}
	if s.word("true") || s.word("false") || s.word("null") {
		return nil
	}
	return ErrMalformed
}

func (s *scanner) skipNumber() error {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return ErrMalformed
	}
	if s.take('.') && !s.digits() {
		return ErrMalformed
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return ErrMalformed
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.buf) && isDigit(s.buf[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
