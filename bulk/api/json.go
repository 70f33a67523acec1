package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// object checks that text is one JSON object in UTF-8 that every reader reads alike, and gives it without the blanks around it.
func object(text []byte) ([]byte, error) {
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

// members calls f with each member of what object has accepted, in the order sent, until f says stop. Names and values are
// parts of it, but for names with escapes.
func members(o []byte, f func(name, value []byte) (goOn bool)) {
	i := blanks(o, 1)
	for o[i] != '}' {
		end := valueEnd(o, i)
		name := o[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(text(o[i:end]))
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

// valueEnd is where the value that begins at i ends, in valid JSON.
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

func isText(raw []byte) bool   { return raw[0] == '"' }
func isNull(raw []byte) bool   { return raw[0] == 'n' }
func isNumber(raw []byte) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

// text is the value of a valid JSON string.
func text(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // valid, as its object was
	return s
}

// decimal reads a JSON number with at most three decimal places.
func decimal(raw []byte, least, most float64) (value float64, wrong string) {
	if !isNumber(raw) {
		return 0, "is not a number"
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || v < least || v > most:
		return 0, "is out of range"
	case math.Round(v*1000)/1000 != v:
		return 0, "has more than three decimal places"
	}
	return v + 0, "" // not −0
}

// whole reads a JSON number without a fraction.
func whole(raw []byte, least, most int64) (value int64, wrong string) {
	if !isNumber(raw) {
		return 0, "is not a number"
	}
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		if v < least || v > most {
			return 0, "is out of range"
		}
		return v, ""
	}
	v, err := strconv.ParseFloat(string(raw), 64) // 1e3, 5.0
	switch {
	case err != nil || v < float64(least) || v > float64(most):
		return 0, "is out of range"
	case v != math.Trunc(v):
		return 0, "is not a whole number"
	}
	return int64(v), ""
}

// shorten keeps foreign text that goes into an answer within bounds.
func shorten(s string) string {
	const enough = 64
	if len(s) <= enough {
		return s
	}
	for i := range s {
		if i > enough {
			return s[:i] + "…"
		}
	}
	return s
}
