package token

import "bytes"

// PermitLife is the life of a permit, in seconds.
const PermitLife = 60

// Permit lets one session send requests with one method to one path.
type Permit struct {
	ID       ID     // jti
	Session  ID     // sid
	Room     string // aud
	Path     string // path: valid UTF-8, decoded, without query
	Method   string // method: in capitals
	Epoch    string // ep: the store's epoch then; empty (absent): not known
	IssuedAt int64  // iat: seconds of the store's clock
	Expires  int64  // exp: seconds of the store's clock, at most PermitLife after IssuedAt
}

// AppendPermit appends the signed token for p to dst. The times must lie in 1..2^53-1; other tokens would not verify.
func (r *Ring) AppendPermit(dst []byte, p *Permit) []byte {
	s := scratches.Get().(*scratch)
	b := r.appendCommon(s.buf[:0], p.Room, p.ID, p.IssuedAt, p.Expires)
	b = strict64.AppendEncode(append(b, `,"sid":"`...), p.Session[:])
	b = append(b, '"')
	b = appendText(b, `,"path":`, p.Path)
	b = appendText(b, `,"method":`, p.Method)
	b = appendText(b, `,"ep":`, p.Epoch)
	dst = r.appendSigned(dst, permit, append(b, '}'))
	scratches.Put(s)
	return dst
}

// VerifyPermit checks a permit for a room and returns its claims. now is in seconds of the store's clock. Every error is a
// Rejection.
//
// A permit issued after now is refused: a store whose clock was set back may have dropped the record of its use.
func (r *Ring) VerifyPermit(raw []byte, room string, now int64) (Permit, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	var c claimSet
	if err := r.verify(raw, permit, room, now, s, &c); err != nil {
		return Permit{}, err
	}
	p := Permit{Room: room, IssuedAt: c.iat, Expires: c.exp}
	switch {
	case !parseIDBytes(&p.ID, c.jti), !parseIDBytes(&p.Session, c.sid), len(c.path) == 0, len(c.method) == 0:
		return Permit{}, ErrClaims
	case c.exp-c.iat > PermitLife, c.iat > now+Leeway:
		return Permit{}, ErrClaims
	}
	p.Path, p.Method, p.Epoch = string(c.path), string(c.method), r.epoch(c.ep)
	return p, nil
}

// ComparePermit compares the claims of a permit with a session, a path and a method, without verifying the permit. All results are true
// for a token that cannot be read or has no path; VerifyPermit refuses it.
func (r *Ring) ComparePermit(raw []byte, session ID, path, method []byte) (sameSession, samePath, sameMethod bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	claims, ok := claimsText(s, raw)
	var c claimSet
	var sid ID
	if !ok || parseClaims(claims, &c) != nil || len(c.path) == 0 || !parseIDBytes(&sid, c.sid) {
		return true, true, true
	}
	return sid == session, bytes.Equal(c.path, path), bytes.Equal(c.method, method)
}

// RoomOf returns the room that a token names, without verifying the token; empty if it cannot be read.
func (r *Ring) RoomOf(raw []byte) string {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	claims, ok := claimsText(s, raw)
	var c claimSet
	if !ok || parseClaims(claims, &c) != nil {
		return ""
	}
	return string(c.aud)
}

// claimsText decodes the claims of a token.
func claimsText(s *scratch, raw []byte) ([]byte, bool) {
	if len(raw) > MaxLength {
		return nil, false
	}
	_, rest, _ := bytes.Cut(raw, []byte("."))
	claims, _, ok := bytes.Cut(rest, []byte("."))
	if !ok {
		return nil, false
	}
	return decode(s.buf[:], claims)
}
