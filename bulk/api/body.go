package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
)

const (
	maxBody = 64 << 10 // of a JSON body
	// maxDrain is how much of a refused upload is still read, so that a client that writes before it reads gets the answer.
	maxDrain = 8 << 20
)

// readObject reads a request's body, which has to be one JSON object. An empty body is an empty object where mayBeEmpty.
func readObject(r *http.Request, mayBeEmpty bool) ([]byte, error) {
	if err := content(r, "application/json", "application/merge-patch+json"); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, brokenBody(err)
	}
	if len(body) > maxBody {
		return nil, newProblem(http.StatusRequestEntityTooLarge, "too_large", "the body is longer than %d bytes", maxBody)
	}
	if len(body) == 0 && mayBeEmpty {
		return []byte("{}"), nil
	}
	o, err := object(body)
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, "bad_json", "the body is %s", err)
	}
	return o, nil
}

// content asks for a type that a plain HTML form cannot send, of what may come from a browser. A form always names its type,
// and says where it comes from; simple programs name none, or a form's without knowing, as curl does.
func content(r *http.Request, kinds ...string) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Encoding is %q: send the body as it is", shorten(coding))
	}
	types := r.Header.Values("Content-Type")
	if len(types) == 0 {
		return nil
	}
	if len(types) == 1 {
		kind, _, err := mime.ParseMediaType(types[0])
		if err == nil && (slices.Contains(kinds, kind) || (kind == "application/x-www-form-urlencoded" || kind == "text/plain") && !fromPage(r)) {
			return nil
		}
	}
	return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type is %q: send %s", shorten(types[0]), kinds[0])
}

func fromPage(r *http.Request) bool {
	for _, name := range []string{"Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

func brokenBody(err error) *problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return newProblem(http.StatusRequestTimeout, "body_idle", "nothing more of the body came for too long; send it again")
	}
	return newProblem(http.StatusBadRequest, "bad_body", "the body broke off; send it again")
}

// drain reads what is left of a body that is not wanted, up to most bytes (negative: all of it).
func drain(body io.Reader, most int64) error {
	if most >= 0 {
		body = io.LimitReader(body, most)
	}
	_, err := io.Copy(io.Discard, body)
	return err
}
