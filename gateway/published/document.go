package published

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
)

// Document is one version of a document. It is immutable.
type Document struct {
	Body []byte // must not be changed
	ETag string // strong (RFC 9110 §8.8.3)
}

// New returns the document with a body, which must not be changed afterwards.
func New(body []byte) *Document {
	sum := sha256.Sum256(body)
	return &Document{Body: body, ETag: `"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`}
}

// Matches reports whether a client that sends a value of If-None-Match has this version. Tags are compared weakly (RFC 9110 §13.1.2).
func (d *Document) Matches(ifNoneMatch []byte) bool {
	for len(ifNoneMatch) > 0 {
		var tag []byte
		tag, ifNoneMatch, _ = bytes.Cut(ifNoneMatch, []byte(",")) // tags made here have no comma
		tag = bytes.TrimPrefix(bytes.Trim(tag, " \t"), []byte("W/"))
		if string(tag) == d.ETag || string(tag) == "*" {
			return true
		}
	}
	return false
}
