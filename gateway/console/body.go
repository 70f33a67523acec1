package console

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/anteroom/anteroom/internal/ophttp"
)

const maxDepth = 8 // of objects; every field is less deep

// readObject reads a request's body, which must be one JSON object without repeated names. With optional, an empty body is an
// empty object.
func readObject(r *http.Request, optional bool) ([]byte, error) {
	if r.ContentLength != 0 || !optional {
		if err := ophttp.CheckContentType(r, false, ophttp.JSONTypes...); err != nil {
			return nil, err
		}
	}
	o, err := ophttp.ReadObject(r, optional)
	if err != nil {
		return nil, err
	}
	if err := checkNames(o, "", 1); err != nil {
		return nil, ophttp.NewProblem(http.StatusBadRequest, "bad_json", "%s", err)
	}
	return o, nil
}

// checkNames returns an error for a repeated name in an object, which readers could interpret differently.
func checkNames(object []byte, path string, depth int) (err error) {
	if depth > maxDepth {
		return fmt.Errorf("objects are nested more than %d deep", maxDepth)
	}
	seen := map[string]bool{}
	ophttp.Members(object, func(name, value []byte) bool {
		at := join(path, string(name))
		if seen[string(name)] {
			err = fmt.Errorf("%q is given twice", at)
		} else if isObject(value) {
			err = checkNames(value, at, depth+1)
		}
		seen[string(name)] = true
		return err == nil
	})
	return err
}

func isObject(raw []byte) bool { return raw[0] == '{' }

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

// exact parses a JSON number as a whole number of 10^-places without floating point. It returns errFraction for more
// decimal places.
func exact(number string, places int) (int64, error) {
	digits, negative := strings.CutPrefix(number, "-")
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		text := digits[i+1:]
		digits = digits[:i]
		e, err := strconv.Atoi(text)
		if err != nil || e > 1<<20 || e < -1<<20 {
			// Larger than any number of digits in a body: the sign decides.
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
