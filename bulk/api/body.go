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

// drain discards the rest of a body, up to most bytes (negative: all of it).
func drain(body io.Reader, most int64) error {
	if most >= 0 {
		body = io.LimitReader(body, most)
	}
	_, err := io.Copy(io.Discard, body)
	return err
}
