package token

import (
	"encoding/base64"
)

// ID is 128 bits that name a ticket, a pass or a session. Its text is 22 characters of unpadded base64url.
type ID [16]byte

const idChars = 22

// strict64 refuses padding and set bits after the last whole byte, so that every value has one spelling (RFC 4648 §3.5).
var strict64 = base64.RawURLEncoding.Strict()

// String returns the ID in 22 characters of base64url.
func (id ID) String() string {
	var text [idChars]byte
	strict64.Encode(text[:], id[:])
	return string(text[:])
}

// AppendText appends the 22 characters to dst.
func (id ID) AppendText(dst []byte) ([]byte, error) { return strict64.AppendEncode(dst, id[:]), nil }

// IsZero reports whether no bit is set.
func (id ID) IsZero() bool { return id == ID{} }

func isBase64URL(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
