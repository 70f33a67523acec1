package ophttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
)

// MaxBody is the most bytes of a JSON body.
const MaxBody = 64 << 10

// JSONTypes are the content types of a JSON body.
var JSONTypes = []string{"application/json", "application/merge-patch+json"}

// ReadObject reads a body that is one JSON object of at most MaxBody bytes and returns it without surrounding blanks. If optional, an
// empty body is an empty object. Its error is a *Problem.
func ReadObject(r *http.Request, optional bool) ([]byte, error) {
	return ReadObjectOf(r, MaxBody, optional)
}

// ReadObjectOf is ReadObject with a limit of its own.
func ReadObjectOf(r *http.Request, most int64, optional bool) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	switch {
	case err != nil:
		return nil, BrokenBody(err)
	case int64(len(body)) > most:
		return nil, NewProblem(http.StatusRequestEntityTooLarge, "too_large", "the body is longer than %d bytes", most)
	case len(body) == 0 && optional:
		return []byte("{}"), nil
	}
	o, err := Object(body)
	if err != nil {
		return nil, NewProblem(http.StatusBadRequest, "bad_json", "the body is %s", err)
	}
	return o, nil
}

// CheckContentType returns a *Problem unless the body has one of types or none. An HTML form always has a type, and none of these: a page of
// another site cannot have a browser send it. forms also admits a form's type from clients that are not browsers, as curl sends it.
func CheckContentType(r *http.Request, forms bool, types ...string) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Encoding is %q: send the body uncompressed", Shorten(coding))
	}
	sent := r.Header.Values("Content-Type")
	if len(sent) == 0 {
		return nil
	}
	if len(sent) == 1 {
		kind, _, err := mime.ParseMediaType(sent[0])
		form := kind == "application/x-www-form-urlencoded" || kind == "text/plain"
		if err == nil && (slices.Contains(types, kind) || forms && form && !fromPage(r)) {
			return nil
		}
	}
	return NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type is %q: send %s", Shorten(sent[0]), types[0])
}

func fromPage(r *http.Request) bool {
	return slices.ContainsFunc([]string{"Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode"},
		func(name string) bool { return r.Header.Get(name) != "" })
}

// BrokenBody returns the Problem of a body that could not be read; err may be one.
func BrokenBody(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return NewProblem(http.StatusRequestTimeout, "body_idle", "the rest of the body did not arrive in time; send the request again")
	}
	return NewProblem(http.StatusBadRequest, "bad_body", "the connection broke within the body; send the request again")
}
