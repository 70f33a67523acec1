package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxBody  = 64 << 10
	maxDepth = 8 // of objects; no field is as deep
)

// node is a JSON value. Only objects have members, in the order sent.
type node struct {
	raw     json.RawMessage
	members []member
}

type member struct {
	name string
	node
}

func (n node) object() bool { return len(n.raw) > 0 && n.raw[0] == '{' }
func (n node) null() bool   { return string(n.raw) == "null" }

// text is the value of a string; false for anything else.
func (n node) text() (string, bool) {
	var s string
	if len(n.raw) == 0 || n.raw[0] != '"' || json.Unmarshal(n.raw, &s) != nil {
		return "", false
	}
	return s, true
}

func (n node) truth() (value, isBool bool) {
	switch string(n.raw) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

func (n node) number() bool {
	return len(n.raw) > 0 && (n.raw[0] == '-' || n.raw[0] >= '0' && n.raw[0] <= '9')
}

// readObject reads a request's body, which has to be one JSON object. An empty
// body is an empty object where mayBeEmpty.
func readObject(w http.ResponseWriter, r *http.Request, mayBeEmpty bool) (node, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			return node{}, newProblem(http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is longer than %d bytes", maxBody))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return node{}, newProblem(http.StatusRequestTimeout, "body_idle", "nothing more of the body came for too long; send it again")
		}
		return node{}, newProblem(http.StatusBadRequest, "bad_body", "the body ended early")
	}
	if len(body) == 0 && mayBeEmpty {
		return node{raw: json.RawMessage("{}")}, nil
	}
	if err := jsonContent(r); err != nil {
		return node{}, err
	}
	n, err := parseObject(body)
	if err != nil {
		return node{}, newProblem(http.StatusBadRequest, "bad_json", err.Error())
	}
	return n, nil
}

// jsonContent asks for a type that a plain HTML form cannot send. A form always
// names one; simple programs do not, and a page's script that names none is
// told by where it comes from.
func jsonContent(r *http.Request) error {
	types := r.Header.Values("Content-Type")
	if len(types) == 0 {
		return nil
	}
	if len(types) == 1 {
		if kind, _, err := mime.ParseMediaType(types[0]); err == nil && (kind == "application/json" || kind == "application/merge-patch+json") {
			return nil
		}
	}
	return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "send Content-Type: application/json or application/merge-patch+json")
}

// parseObject reads one JSON object, refusing what two readers could read in
// two ways: names given twice, invalid UTF-8, anything after its end.
func parseObject(body []byte) (node, error) {
	if !utf8.Valid(body) {
		return node{}, errors.New("the body is not valid UTF-8")
	}
	body = bytes.TrimSpace(body)
	if !json.Valid(body) {
		return node{}, errors.New("the body is not one valid JSON value")
	}
	n := node{raw: body}
	if !n.object() {
		return node{}, errors.New("the body is not a JSON object")
	}
	if err := n.expand("", 1); err != nil {
		return node{}, err
	}
	return n, nil
}

func (n *node) expand(path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("objects are nested more than %d deep", maxDepth)
	}
	d := json.NewDecoder(bytes.NewReader(n.raw))
	if _, err := d.Token(); err != nil { // its brace
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, isName := token.(string)
		if !isName {
			return errors.New("the body is not one valid JSON value")
		}
		at := join(path, name)
		if seen[name] {
			return fmt.Errorf("%s is given twice in one object", strconv.Quote(at))
		}
		seen[name] = true
		m := member{name: name}
		if err := d.Decode(&m.raw); err != nil {
			return err
		}
		if m.object() {
			if err := m.expand(at, depth+1); err != nil {
				return err
			}
		}
		n.members = append(n.members, m)
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

var (
	errFraction = errors.New("has more decimal places than are kept")
	errRange    = errors.New("is out of range")
)

// exact reads a JSON number as a whole number of 10^-places, without a detour
// through floating point. A fraction that would be lost is errFraction.
func exact(number string, places int) (int64, error) {
	digits, negative := strings.CutPrefix(number, "-")
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		text := digits[i+1:]
		digits = digits[:i]
		e, err := strconv.Atoi(text)
		if err != nil || e > 1<<20 || e < -1<<20 {
			// Beyond any length of digits that a body can hold: its sign decides.
			e = 1 << 20
			if strings.HasPrefix(text, "-") {
				e = -e
			}
		}
		exponent = e
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	exponent += places - len(fraction)
	digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	switch {
	case trimmed == "":
		return 0, nil
	case exponent < 0:
		return 0, errFraction
	case len(trimmed)+exponent > 18:
		return 0, errRange
	}
	n, err := strconv.ParseInt(trimmed+strings.Repeat("0", exponent), 10, 64)
	if err != nil {
		return 0, errRange
	}
	if negative {
		n = -n
	}
	return n, nil
}
