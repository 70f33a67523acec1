package gateway

import (
	"bytes"
	"strconv"

	"github.com/anteroom/anteroom/gateway/proxy"
)

// SameSite of the cookies.
const (
	SameSiteLax    = "lax"
	SameSiteStrict = "strict"
	SameSiteNone   = "none"
)

// cookieNames are a room's cookies.
type cookieNames struct{ ticket, nonce, pass string }

// namesOf gives a room's cookie names. On TLS they carry the __Host- prefix, so that no sibling host can set them.
func namesOf(room string, secure bool) cookieNames {
	prefix := "wr_" + room + "_"
	if secure {
		prefix = "__Host-" + prefix
	}
	return cookieNames{prefix + "ticket", prefix + "nonce", prefix + "pass"}
}

// sameName is how many cookies of one name are looked at: somebody else may have set one beside ours.
const sameName = 4

// values are what a request carries under one name.
type values struct {
	list [sameName][]byte
	n    int
}

func (v *values) add(b []byte) {
	if v.n < sameName && len(b) > 0 {
		v.list[v.n] = b
		v.n++
	}
}

func (v *values) all() [][]byte { return v.list[:v.n] }

// jar is what a request carries of a room's cookies. It points into the request.
type jar struct{ ticket, nonce, pass values }

// read finds a room's cookies in a request.
func (j *jar) read(q *proxy.Request, names *cookieNames) {
	*j = jar{}
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
			case names.ticket:
				j.ticket.add(value)
			case names.nonce:
				j.nonce.add(value)
			case names.pass:
				j.pass.add(value)
			}
		}
	}
}

// trimBlanks cuts off what HTTP calls blank and no more: of a name behind a blank of Unicode browsers do not see how it
// begins, and any host may set it.
func trimBlanks(b []byte) []byte { return bytes.Trim(b, " \t") }

// appendCookie appends a Set-Cookie value. maxAge is in seconds; 0 deletes the cookie.
func appendCookie(dst []byte, name string, value []byte, maxAge int64, sameSite string, secure bool) []byte {
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
