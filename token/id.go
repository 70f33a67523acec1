package token

import (
	"encoding/base64"
	"fmt"
)

// ID is 128 bits that name a ticket, a pass or a session. Its text is 22 characters of unpadded base64url.
type ID [16]byte

const idChars = 22

// strict64 refuses padding and set bits after the last whole byte, so that every value has one spelling (RFC 4648 §3.5).
var strict64 = base64.RawURLEncoding.Strict()

// String gives the 22 characters that ParseID reads.
func (id ID) String() string {
	var text [idChars]byte
	strict64.Encode(text[:], id[:])
	return string(text[:])
}

// AppendText appends the 22 characters to dst.
func (id ID) AppendText(dst []byte) ([]byte, error) { return strict64.AppendEncode(dst, id[:]), nil }

// IsZero tells whether no bit is set.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID reads the text of an ID. Exactly one text is accepted for each ID: 22 characters of the base64url alphabet
// whose last four bits are zero.
func ParseID(text string) (ID, error) {
	var id ID
	if len(text) != idChars {
		return ID{}, fmt.Errorf("token: an id has %d characters of base64url, not %d", idChars, len(text))
	}
	for i := range len(text) {
		if !isBase64URL(text[i]) {
			return ID{}, fmt.Errorf("token: character %d of an id is outside base64url (A-Z a-z 0-9 - _)", i+1)
		}
	}
	if _, err := strict64.Decode(id[:], []byte(text)); err != nil {
		return ID{}, fmt.Errorf("token: the last character of an id carries bits beyond its 128: %w", err)
	}
	return id, nil
}

// isBase64URL is asked before decoding because encoding/base64 skips line breaks, even when strict.
func isBase64URL(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
