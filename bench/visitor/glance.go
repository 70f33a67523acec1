package visitor

import (
	"bytes"
	"strconv"
)

// Seen is what a glance at a status object shows. Its slices point into the body.
type Seen struct {
	State, Reason, AdmittedAt []byte
	Token, Pass               []byte
	Position, Waiting         int64 // 0: absent
	RefreshAfter              float64
}

// Glance reads the members of a status object that a crowd needs, without reflection and without memory of its own.
// It is for the gateway's own answers, in which a name followed by a colon stands nowhere but where a member begins:
// within a string the quotes would be escaped.
func Glance(body []byte) Seen {
	var s Seen
	for _, m := range []struct {
		name string
		into *[]byte
	}{{`"state":"`, &s.State}, {`"reason":"`, &s.Reason}, {`"admitted_at":"`, &s.AdmittedAt}, {`"token":"`, &s.Token}, {`"pass":"`, &s.Pass}} {
		if _, rest, ok := bytes.Cut(body, []byte(m.name)); ok {
			*m.into, _, _ = bytes.Cut(rest, []byte{'"'})
		}
	}
	s.Position, s.Waiting = count(body, `"position":`), count(body, `"waiting":`)
	if _, rest, ok := bytes.Cut(body, []byte(`"refresh_after":`)); ok {
		n := 0
		for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '.') {
			n++
		}
		s.RefreshAfter, _ = strconv.ParseFloat(string(rest[:n]), 64) // what is no number is none
	}
	return s
}

// Place is what a glance at a waiting token's payload shows.
type Place struct {
	ID        [22]byte // of base64url, as it stands there
	Order     int64    // 0: none
	Confirmed bool     // the store has
}

// GlancePlace reads a payload of the gateway's own making, as Glance reads a status object.
func GlancePlace(payload []byte) (p Place) {
	_, rest, _ := bytes.Cut(payload, []byte(`"jti":"`))
	id, _, _ := bytes.Cut(rest, []byte{'"'})
	copy(p.ID[:], id)
	p.Order = count(payload, `"ord":`)
	p.Confirmed = bytes.Contains(payload, []byte(`"ep":`))
	return p
}

func count(body []byte, name string) (n int64) {
	_, rest, _ := bytes.Cut(body, []byte(name))
	for _, c := range rest {
		if c < '0' || c > '9' || n > 1<<56 {
			break
		}
		n = 10*n + int64(c-'0')
	}
	return n
}
