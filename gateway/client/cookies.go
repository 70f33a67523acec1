package client

import (
	"bytes"
	"strconv"

	"github.com/anteroom/anteroom/gateway/wire"
)

// Values of the SameSite attribute.
const (
	SameSiteLax    = "lax"
	SameSiteStrict = "strict"
	SameSiteNone   = "none"
)

// CookieNames are the names of a room's cookies.
type CookieNames struct{ Ticket, Nonce, Pass, Permit string }

// NamesOf returns the cookie names of a room. Over TLS they have the prefix __Host-, so that no sibling host can set them.
func NamesOf(room string, secure bool) CookieNames {
	prefix := "wr_" + room + "_"
	if secure {
		prefix = "__Host-" + prefix
	}
	return CookieNames{prefix + "ticket", prefix + "nonce", prefix + "pass", prefix + "permit"}
}

// IsOwnCookie reports whether a cookie belongs to some room. Such cookies are never forwarded to an origin.
func IsOwnCookie(name []byte) bool {
	name = bytes.TrimPrefix(name, []byte("__Host-"))
	if !bytes.HasPrefix(name, []byte("wr_")) {
		return false
	}
	return bytes.HasSuffix(name, []byte("_ticket")) || bytes.HasSuffix(name, []byte("_nonce")) || bytes.HasSuffix(name, []byte("_pass")) || bytes.HasSuffix(name, []byte("_permit"))
}

// sameNameMax is the number of cookies of one name that are read. Another host may have set a cookie of the same name.
const sameNameMax = 4

// Values are the values of the cookies of one name, in the order of the request.
type Values struct {
	list [sameNameMax][]byte
	n    int
}

// Add adds a value. Empty values, and those beyond the fourth, are dropped.
func (v *Values) Add(b []byte) {
	if v.n < sameNameMax && len(b) > 0 {
		v.list[v.n] = b
		v.n++
	}
}

// All returns the values.
func (v *Values) All() [][]byte { return v.list[:v.n] }

// First returns the first value, nil without one.
func (v *Values) First() []byte { return v.list[0] }

// Jar holds a request's cookies of one room. The values point into the request.
type Jar struct{ Ticket, Nonce, Pass, Permit Values }

// Read sets the jar to the cookies of a request that have these names.
func (j *Jar) Read(q *wire.Request, names *CookieNames) {
	*j = Jar{}
	for _, line := range q.PeekAll("cookie") {
		for len(line) > 0 {
			pair := line
			if i := bytes.IndexByte(line, ';'); i >= 0 {
				pair, line = line[:i], line[i+1:]
			} else {
				line = nil
			}
			i := bytes.IndexByte(pair, '=')
			if i < 0 {
				continue
			}
			key, value := trimBlanks(pair[:i]), trimBlanks(pair[i+1:])
			if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			switch string(key) {
			case names.Ticket:
				j.Ticket.Add(value)
			case names.Nonce:
				j.Nonce.Add(value)
			case names.Pass:
				j.Pass.Add(value)
			case names.Permit:
				j.Permit.Add(value)
			}
		}
	}
}

// trimBlanks removes spaces and tabs, and no other white space: browsers do not apply the rules of __Host- to a name that
// begins with a blank of Unicode, so any host may set such a cookie.
func trimBlanks(b []byte) []byte { return bytes.Trim(b, " \t") }

// AppendCookie appends a Set-Cookie value. maxAge is in seconds; 0 deletes the cookie.
func AppendCookie(dst []byte, name string, value []byte, maxAge int64, sameSite string, secure bool) []byte {
	dst = append(append(append(dst, name...), '='), value...)
	dst = strconv.AppendInt(append(dst, "; Path=/; Max-Age="...), maxAge, 10)
	dst = append(dst, "; HttpOnly; SameSite="...)
	switch sameSite {
	case SameSiteStrict:
		dst = append(dst, "Strict"...)
	case SameSiteNone:
		dst = append(dst, "None"...)
	default:
		dst = append(dst, "Lax"...)
	}
	if secure {
		dst = append(dst, "; Secure"...)
		if sameSite == SameSiteNone {
			dst = append(dst, "; Partitioned"...)
		}
	}
	return dst
}
