package permit

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// PathMax is the longest path of a permit, in bytes, so that the token fits into a cookie.
	PathMax   = 1024
	methodMax = 32
)

// Request is the body of a request for a permit: {"for":"/seatmap/812","method":"POST"}.
type Request struct {
	For    string // path of the step, with or without escapes
	Method string // of the step
}

// Fault is a mistake in a body.
type Fault struct {
	Member string // empty: the whole body
	Detail string
}

const validMembers = "Valid members: for, method."

// ParseRequest parses a body. It accepts one JSON object with exactly the members for and method.
func ParseRequest(body []byte) (Request, *Fault) {
	var r Request
	faultOfBody := &Fault{Detail: `The body is not a JSON object. Send {"for":"/path","method":"POST"}.`}
	if !utf8.Valid(body) {
		return r, faultOfBody
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return r, faultOfBody
	}
	given := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return r, faultOfBody
		}
		member, _ := name.(string) // the decoder accepts no other names
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return r, faultOfBody
		}
		if given[member] {
			return r, &Fault{clip(member), "This member is given twice. Send it once."}
		}
		given[member] = true
		switch member {
		case "for":
			if r.For, err = textOf(value); err != nil || !isPath(r.For) {
				return r, &Fault{"for", "This member is a path of 1 to 1024 bytes that begins with /, without query and fragment, such as /seatmap/812."}
			}
		case "method":
			if r.Method, err = textOf(value); err != nil || !isMethod(r.Method) {
				return r, &Fault{"method", "This member is an HTTP method in capitals, such as GET or POST."}
			}
		default:
			return r, &Fault{clip(member), "This member is unknown. " + validMembers}
		}
	}
	if _, err := d.Token(); err != nil {
		return r, faultOfBody
	}
	if _, err := d.Token(); err != io.EOF {
		return r, faultOfBody
	}
	for _, member := range []string{"for", "method"} {
		if !given[member] {
			return r, &Fault{member, "This member is missing. Send {\"for\":\"/path\",\"method\":\"POST\"}."}
		}
	}
	return r, nil
}

func textOf(value json.RawMessage) (string, error) {
	var s *string
	if err := json.Unmarshal(value, &s); err != nil {
		return "", err
	}
	if s == nil { // null
		return "", nil
	}
	return *s, nil
}

func isPath(s string) bool {
	return strings.HasPrefix(s, "/") && len(s) <= PathMax && !strings.ContainsAny(s, "?#")
}

func isMethod(s string) bool {
	return s != "" && len(s) <= methodMax && !strings.ContainsFunc(s, func(c rune) bool { return c < 'A' || c > 'Z' })
}

// clip shortens the name of a member for a response.
func clip(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "")
	}
	return name
}
