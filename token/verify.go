package token

import (
	"bytes"
	"crypto/subtle"
	"slices"
)

// VerifyWaiting checks a waiting token for a room and returns its claims. now is in seconds of the store's clock. Every error is
// a Rejection.
func (r *Ring) VerifyWaiting(raw []byte, room string, now int64) (Waiting, error) {
	w, err := r.readWaiting(raw, room, now)
	if err != nil {
		return Waiting{}, err
	}
	return w, nil
}

// readWaiting is VerifyWaiting, which also returns the claims of a token that is good but for ErrExpired.
func (r *Ring) readWaiting(raw []byte, room string, now int64) (Waiting, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	var c claimSet
	err := r.verify(raw, waiting, room, now, s, &c)
	if err != nil && err != ErrExpired { //nolint:errorlint // verify returns it as it is
		return Waiting{}, err
	}
	w := Waiting{Room: room, Order: c.ord, Seen: c.seen, Hold: c.hold, Heard: c.heard, Fence: c.fence, IssuedAt: c.iat, Expires: c.exp, Account: c.acc, Used: c.used}
	if !parseIDBytes(&w.ID, c.jti) {
		return Waiting{}, ErrClaims
	}
	w.Promised, w.PromisedLow, w.PromisedHigh = c.eta, c.elo, c.ehi
	w.Epoch, w.AddrHash, w.Bind = r.epoch(c.ep), string(c.ah), string(c.bnd)
	return w, err
}

// VerifyPass checks a pass for a room and returns its claims. now is in seconds of the store's clock. Every error is a
// Rejection.
func (r *Ring) VerifyPass(raw []byte, room string, now int64) (Pass, error) {
	p, err := r.readPass(raw, room, now)
	if err != nil {
		return Pass{}, err
	}
	return p, nil
}

// readPass is VerifyPass, which also returns the claims of a pass that is good but for ErrExpired.
func (r *Ring) readPass(raw []byte, room string, now int64) (Pass, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	var c claimSet
	err := r.verify(raw, pass, room, now, s, &c)
	if err != nil && err != ErrExpired { //nolint:errorlint // verify returns it as it is
		return Pass{}, err
	}
	p := Pass{Room: room, Order: c.ord, Fence: c.fence, IssuedAt: c.iat, Expires: c.exp, Off: c.off, Live: c.live, Claimed: c.claimed}
	if !parseIDBytes(&p.ID, c.jti) || !parseIDBytes(&p.Session, c.sid) {
		return Pass{}, ErrClaims
	}
	p.Bind = string(c.bnd)
	return p, err
}

// verify checks a token of either kind and parses its claims. Claims are read only after the signature has matched.
func (r *Ring) verify(raw []byte, want kind, room string, now int64, s *scratch, c *claimSet) error {
	if len(raw) > MaxLength {
		return ErrTooLong
	}
	dot1 := bytes.IndexByte(raw, '.')
	dot2 := bytes.LastIndexByte(raw, '.')
	if dot1 < 0 || dot1 == dot2 || bytes.IndexByte(raw[dot1+1:dot2], '.') >= 0 {
		return ErrMalformed
	}
	h, known := r.headers[string(raw[:dot1])]
	if !known {
		var err error
		if h, err = r.parseHeader(raw[:dot1], s); err != nil {
			return err
		}
	}
	if h.kind != want {
		return ErrType
	}
	if !h.key.verifies(raw[:dot2], raw[dot2+1:]) {
		return ErrSignature
	}
	claims, ok := decode(s.buf[:], raw[dot1+1:dot2])
	if !ok {
		return ErrMalformed
	}
	if err := parseClaims(claims, c); err != nil {
		return err
	}
	switch {
	case string(c.iss) != r.issuer:
		return ErrIssuer
	case room == "" || string(c.aud) != room:
		return ErrAudience
	case c.has&hasIAT == 0 || c.exp < 1 || c.exp-now > MaxLife:
		return ErrClaims
	case expired(c.exp, now):
		return ErrExpired
	}
	return nil
}

func expired(exp, now int64) bool { return now >= exp+Leeway }

// verifies reports whether signature is this key's for text, by this key's algorithm and no other.
func (k *ringKey) verifies(text, signature []byte) bool {
	if k.private != nil {
		return k.matches(text, signature)
	}
	// Compared as text, so that no other spelling of the last character passes.
	m := k.sign(text)
	same := subtle.ConstantTimeCompare(m.text[:], signature) == 1
	k.macs.Put(m)
	return same
}

// parseHeader reads a header that is spelled differently from ours: another order of members, blanks, escapes.
func (r *Ring) parseHeader(text []byte, buf *scratch) (header, error) {
	plain, ok := decode(buf.buf[:], text)
	if !ok {
		return header{}, ErrMalformed
	}
	s := scanner{buf: plain}
	if err := s.open(); err != nil {
		return header{}, err
	}
	var alg, kid, typ []byte
	for first := true; ; first = false {
		name, done, err := s.member(first)
		if err != nil {
			return header{}, err
		}
		if done {
			break
		}
		var into *[]byte
		wrongType := ErrHeader
		switch string(name) {
		case "alg":
			into, wrongType = &alg, ErrAlgorithm
		case "kid":
			into, wrongType = &kid, ErrKey
		case "typ":
			into, wrongType = &typ, ErrType
		case "crit":
			return header{}, ErrCritical
		}
		if into == nil || *into != nil {
			return header{}, ErrHeader
		}
		if s.peek() != '"' {
			return header{}, wrongType
		}
		if *into, err = s.text(); err != nil {
			return header{}, err
		}
	}
	if err := s.end(); err != nil {
		return header{}, err
	}
	switch string(alg) {
	case HS256, ES256, EdDSA:
	default:
		return header{}, ErrAlgorithm
	}
	key, known := r.keys[string(kid)]
	if !known {
		return header{}, ErrKey
	}
	if key.alg != string(alg) {
		return header{}, ErrAlgorithm
	}
	if i := slices.Index(types[:], string(typ)); i >= 0 {
		return header{key: key, kind: kind(i)}, nil
	}
	return header{}, ErrType
}

// decode reads strict base64url into dst, which must be large enough.
func decode(dst, text []byte) ([]byte, bool) {
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 { // which encoding/base64 would skip
		return nil, false
	}
	n, err := strict64.Decode(dst, text)
	return dst[:n], err == nil
}

func parseIDBytes(id *ID, text []byte) bool {
	if len(text) != idChars {
		return false
	}
	_, ok := decode(id[:], text)
	return ok
}
