package token

import (
	"strconv"
	"sync"
	"unicode/utf8"
)

// scratch holds a token's decoded claims while it is signed or read.
type scratch struct{ buf [MaxLength]byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// AppendWaiting appends the signed token for w to dst. With an HS256 key and room in dst (about 400 bytes) it allocates
// nothing. All integers must lie in 0..2^53-1, and Expires must not be 0; other tokens would not verify.
func (r *Ring) AppendWaiting(dst []byte, w *Waiting) []byte {
	s := scratches.Get().(*scratch)
	b := r.appendCommon(s.buf[:0], w.Room, w.ID, w.IssuedAt, w.Expires)
	b = appendNumber(b, `,"ord":`, w.Order)
	b = appendNumber(b, `,"seen":`, w.Seen)
	b = appendNumber(b, `,"hold":`, w.Hold)
	b = appendNumber(b, `,"hd":`, w.Heard)
	b = appendText(b, `,"ep":`, w.Epoch)
	b = appendNumber(b, `,"fn":`, w.Fence)
	b = appendText(b, `,"ah":`, w.AddrHash)
	b = appendText(b, `,"bnd":`, w.Bind)
	if w.Account {
		b = append(b, `,"acc":true`...)
	}
	b = appendNumber(b, `,"used":`, w.Used)
	if w.Promised > 0 {
		b = strconv.AppendInt(append(b, `,"eta":`...), w.Promised, 10)
		b = strconv.AppendInt(append(b, `,"elo":`...), w.PromisedLow, 10)
		b = strconv.AppendInt(append(b, `,"ehi":`...), w.PromisedHigh, 10)
	}
	dst = r.appendSigned(dst, waiting, append(b, '}'))
	scratches.Put(s)
	return dst
}

// AppendPass appends the signed token for p to dst. With an HS256 key and room in dst (about 400 bytes) it allocates
// nothing. All integers must lie in 0..2^53-1, and Expires must not be 0; other tokens would not verify.
func (r *Ring) AppendPass(dst []byte, p *Pass) []byte {
	s := scratches.Get().(*scratch)
	b := r.appendCommon(s.buf[:0], p.Room, p.ID, p.IssuedAt, p.Expires)
	b = strict64.AppendEncode(append(b, `,"sid":"`...), p.Session[:])
	b = append(b, '"')
	b = appendNumber(b, `,"ord":`, p.Order)
	b = appendNumber(b, `,"fn":`, p.Fence)
	b = appendNumber(b, `,"ct":`, p.Claimed)
	b = appendText(b, `,"bnd":`, p.Bind)
	if p.Off {
		b = append(b, `,"off":true`...)
	}
	if p.Live {
		b = append(b, `,"live":true`...)
	}
	dst = r.appendSigned(dst, pass, append(b, '}'))
	scratches.Put(s)
	return dst
}

// appendNumber appends a claim unless it is 0.
func appendNumber(b []byte, name string, v int64) []byte {
	if v == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), v, 10)
}

// appendText appends a claim unless it is empty.
func appendText(b []byte, name, v string) []byte {
	if v == "" {
		return b
	}
	return appendJSON(append(b, name...), v)
}

func (r *Ring) appendCommon(b []byte, room string, id ID, iat, exp int64) []byte {
	b = appendJSON(append(b, r.issJSON...), room)
	b = strict64.AppendEncode(append(b, `,"jti":"`...), id[:])
	b = strconv.AppendInt(append(b, `","iat":`...), iat, 10)
	return strconv.AppendInt(append(b, `,"exp":`...), exp, 10)
}

func (r *Ring) appendSigned(dst []byte, kind kind, claims []byte) []byte {
	k, start := r.active, len(dst)
	dst = append(dst, k.heads[kind]...)
	dst = strict64.AppendEncode(dst, claims)
	if k.private != nil {
		signature := k.signature(dst[start:])
		return strict64.AppendEncode(append(dst, '.'), signature[:])
	}
	m := k.sign(dst[start:])
	dst = append(append(dst, '.'), m.text[:]...)
	k.macs.Put(m)
	return dst
}

// appendJSON appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendJSON(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		case c < utf8.RuneSelf:
			b = append(b, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
		}
	}
	return append(b, '"')
}
