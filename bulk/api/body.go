package api

import (
	"io"
	"net/http"

	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	maxBody = 64 << 10 // of a JSON body
	// maxDrain is the most bytes of a refused upload that are still read, so that a client that writes before it
	// reads gets the response.
	maxDrain = 8 << 20
)

// readObject reads a request's JSON body. An empty body is an empty object where optional.
func readObject(r *http.Request, optional bool) ([]byte, error) {
	if err := ophttp.CheckContentType(r, true, ophttp.JSONTypes...); err != nil {
		return nil, err
	}
	return ophttp.ReadObject(r, optional)
}

// readFields sets to from a request's JSON body, as readObject reads it.
func readFields[T any](r *http.Request, fields []field[T], optional bool, to *T) error {
	body, err := readObject(r, optional)
	if err != nil {
		return err
	}
	return invalid(decode(fields, body, to))
}

// readQuery sets to from a request's query.
func readQuery[T any](r *http.Request, fields []field[T], to *T) error {
	return invalid(decodeQuery(fields, r.URL.Query(), to))
}

// noQuery refuses any parameter: a misspelt one would silently have no effect.
func noQuery(r *http.Request) error { return readQuery(r, nil, &struct{}{}) }

func invalid(faults []ophttp.Fault) error {
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	return nil
}

// drain discards the rest of a body, up to most bytes (negative: all of it).
func drain(body io.Reader, most int64) error {
	if most >= 0 {
		body = io.LimitReader(body, most)
	}
	_, err := io.Copy(io.Discard, body)
	return err
}

// creation reads what every request that creates something has: its Idempotency-Key and its body, an object; it has no query.
func creation(r *http.Request) (key string, body []byte, err error) {
	if err := noQuery(r); err != nil {
		return "", nil, err
	}
	if key, err = uploadKey(r); err != nil {
		return "", nil, err
	}
	body, err = readObject(r, false)
	return key, body, err
}
