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

// Order is the request for a permit: {"for":"/seatmap/812","method":"POST"}.
type Order struct {
	For    string // the path, as the request will spell it or decoded
	Method string
}

// Fault is a mistake in the body of an order.
type Fault struct {
	Member string // empty: the whole body
	Detail string
}

const validMembers = "Valid members: for, method."

// ParseOrder parses the body of an order. It accepts one JSON object with exactly the members for and method.
func ParseOrder(body []byte) (Order, *Fault) {
	var o Order
	faultOfBody := &Fault{Detail: `The body is not a JSON object. Send {"for":"/path","method":"POST"}.`}
	if !utf8.Valid(body) {
		return o, faultOfBody
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, faultOfBody
	}
	given := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return o, faultOfBody
		}
		member, _ := name.(string) // the decoder accepts no other names
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return o, faultOfBody
		}
		if given[member] {
			return o, &Fault{clip(member), "This member is given twice. Send it once."}
		}
		given[member] = true
		switch member {
		case "for":
			if o.For, err = textOf(value); err != nil || !isPath(o.For) {
				return o, &Fault{"for", "The for is a path of 1 to 1024 bytes that begins with /, without query and fragment, such as /seatmap/812."}
			}
		case "method":
			if o.Method, err = textOf(value); err != nil || !isMethod(o.Method) {
				return o, &Fault{"method", "The method is an HTTP method in capitals, such as GET or POST."}
			}
		default:
			return o, &Fault{clip(member), "This member is unknown. " + validMembers}
		}
	}
	if _, err := d.Token(); err != nil {
		return o, faultOfBody
	}
	if _, err := d.Token(); err != io.EOF {
		return o, faultOfBody
	}
	for _, member := range []string{"for", "method"} {
		if !given[member] {
			return o, &Fault{member, "This member is missing. Send {\"for\":\"/path\",\"method\":\"POST\"}."}
		}
	}
	return o, nil
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
	if s == "" || len(s) > methodMax {
		return false
	}
	for _, c := range []byte(s) {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return true
}

// clip shortens the name of a member for a response.
func clip(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "")
	}
	return name
}
