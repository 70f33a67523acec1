package ophttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Object returns text without surrounding blanks if it is one JSON object in valid UTF-8.
func Object(text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not valid UTF-8")
	}
	text = bytes.Trim(text, " \t\r\n")
	if !json.Valid(text) {
		if len(text) == 0 {
			return nil, errors.New("empty, where a JSON object is expected")
		}
		var discard json.RawMessage
		err := json.Unmarshal(text, &discard)
		if syntax, is := errors.AsType[*json.SyntaxError](err); is {
			return nil, fmt.Errorf("not valid JSON: %s at byte %d", syntax.Error(), syntax.Offset)
		}
		return nil, errors.New("not valid JSON")
	}
	if text[0] != '{' {
		return nil, errors.New("not a JSON object")
	}
	return text, nil
}

// Members calls f with each member of an object that Object returned, in order, until f returns false. Values, and names without
// escapes, alias the object.
func Members(o []byte, f func(name, value []byte) (more bool)) {
	i := blanks(o, 1)
	for o[i] != '}' {
		end := valueEnd(o, i)
		name := o[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(Text(o[i:end]))
		}
		i = blanks(o, blanks(o, end)+1) // over the colon
		end = valueEnd(o, i)
		if !f(name, o[i:end]) {
			return
		}
		if i = blanks(o, end); o[i] == ',' {
			i = blanks(o, i+1)
		}
	}
}

func blanks(o []byte, i int) int {
	for o[i] == ' ' || o[i] == '\t' || o[i] == '\r' || o[i] == '\n' {
		i++
	}
	return i
}

// valueEnd returns where the value that begins at i ends, in valid JSON.
func valueEnd(o []byte, i int) int {
	depth := 0
	for ; ; i++ {
		switch o[i] {
		case '"':
			for i++; o[i] != '"'; i++ {
				if o[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1
			}
		default:
			if depth == 0 { // a number or a word
				for i < len(o) && o[i] != ',' && o[i] != '}' && o[i] != ']' && o[i] != ' ' && o[i] != '\t' && o[i] != '\r' && o[i] != '\n' {
					i++
				}
				return i
			}
		}
	}
}

// IsText, IsNull and IsNumber report the kind of a valid JSON value.
func IsText(raw []byte) bool   { return raw[0] == '"' }
func IsNull(raw []byte) bool   { return raw[0] == 'n' }
func IsNumber(raw []byte) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

// Text returns the value of a valid JSON string.
func Text(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // valid, as its object was
	return s
}
