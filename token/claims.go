package token

// Waiting is a visitor's place in a room's queue.
type Waiting struct {
	ID       ID     // jti: the ticket
	Room     string // aud
	Order    int64  // ord: microseconds of order time; 0 (absent in the token) until a lottery is drawn
	Seen     int64  // seen: microseconds of order time of the store's last confirmation; 0 (absent) before the first
	Heard    int64  // hd: likewise, of a later response of a gateway without the store; 0 (absent): none
	Hold     int64  // hold: seconds after seen for which the store counts the ticket as present; 0 (absent): not known
	Epoch    string // ep: the store's epoch at that time; empty (absent): never enrolled
	Fence    int64  // fn: the room's fence; 0 (absent) when its gateway had never reached the store
	IssuedAt int64  // iat: seconds of the store's clock when the visitor joined
	Expires  int64  // exp: seconds of the store's clock
	AddrHash string // ah: hash of the client's address, for join limits; may be empty
	Bind     string // bnd: hash of what the token is bound to; may be empty
	Account  bool   // acc: the place is an account's, and jti derived from it

	// used: the seconds of the visitor's earlier sessions, if the visitor keeps the order of one; 0 (absent): none.
	Used int64

	// eta, elo, ehi: the announced wait on joining, and its range, s; absent if eta is 0.
	Promised, PromisedLow, PromisedHigh int64
}

// Pass is the session of an admitted visitor.
type Pass struct {
	ID       ID     // jti
	Session  ID     // sid
	Room     string // aud
	Order    int64  // ord: microseconds of order time at which the visitor arrived; 0 (absent): not known
	Fence    int64  // fn: the room's fence then; 0 (absent): not known
	IssuedAt int64  // iat: seconds of the store's clock at which the session began, less the seconds used by earlier sessions
	Expires  int64  // exp: seconds of the store's clock
	Bind     string // bnd; may be empty
	Off      bool   // off: signed or renewed while the store was away
	Claimed  int64  // ct: microseconds of order time at which the session was claimed; 0 (absent): not known
	Live     bool   // live: the gateways decide whether the session goes on; until exp it ends when its visitor is silent
}

const (
	// MaxLength is the longest accepted token, in bytes.
	MaxLength = 4096
	// Leeway is the number of seconds after exp for which a token is still valid (clocks of a store and its successor differ a
	// little).
	Leeway = 5
	// MaxLife bounds exp, in seconds from now: a year and a day, longer than any token of Anteroom.
	MaxLife = 366 * 24 * 3600
	// maxInteger is the largest integer that every JSON reader holds exactly (2^53 - 1, RFC 8259 §6).
	maxInteger = 1<<53 - 1
)

// A claim's bit in claimSet.has.
const (
	hasISS = 1 << iota
	hasAUD
	hasJTI
	hasSID
	hasIAT
	hasEXP
	hasORD
	hasSEEN
	hasEP
	hasFN
	hasAH
	hasBND
	hasOFF
	hasACC
	hasETA
	hasELO
	hasEHI
	hasHOLD
	hasHD
	hasUSED
	hasPATH
	hasMETHOD
	hasLIVE
	hasCT
)

// claimSet is the result of parseClaims. The byte slices point into the parsed buffer.
type claimSet struct {
	has                        uint32
	off, acc, live             bool
	iss, aud, jti, sid         []byte
	path, method               []byte
	ep, ah, bnd                []byte
	iat, exp, ord, seen, fence int64
	hold, eta, elo, ehi, heard int64
	used, claimed              int64
}

// parseClaims reads the claims from one JSON object, decoding escapes in place: buf is spent afterwards.
//
// It is stricter than JSON where two readers could differ (RFC 8725 §2.4): no name twice, names of lower-case letters,
// digits and underscores only (some readers ignore case), integers without fraction, exponent or minus and at most
// 2^53-1, valid UTF-8 without lone surrogates. Unknown claims, from a newer version, are skipped if their values are scalars.
func parseClaims(buf []byte, c *claimSet) error {
	s := scanner{buf: buf}
	var others names
	if err := s.open(); err != nil {
		return err
	}
	for first := true; ; first = false {
		name, done, err := s.member(first)
		if err != nil {
			return err
		}
		if done {
			return s.end()
		}
		if err := s.claim(c, name, &others); err != nil {
			return err
		}
	}
}

func (s *scanner) claim(c *claimSet, name []byte, others *names) error {
	switch string(name) {
	case "iss":
		return s.textClaim(c, hasISS, &c.iss, ErrIssuer)
	case "aud":
		return s.textClaim(c, hasAUD, &c.aud, ErrAudience)
	case "jti":
		return s.textClaim(c, hasJTI, &c.jti, ErrClaims)
	case "sid":
		return s.textClaim(c, hasSID, &c.sid, ErrClaims)
	case "ep":
		return s.textClaim(c, hasEP, &c.ep, ErrClaims)
	case "ah":
		return s.textClaim(c, hasAH, &c.ah, ErrClaims)
	case "bnd":
		return s.textClaim(c, hasBND, &c.bnd, ErrClaims)
	case "path":
		return s.textClaim(c, hasPATH, &c.path, ErrClaims)
	case "method":
		return s.textClaim(c, hasMETHOD, &c.method, ErrClaims)
	case "iat":
		return s.integerClaim(c, hasIAT, &c.iat)
	case "exp":
		return s.integerClaim(c, hasEXP, &c.exp)
	case "ord":
		return s.integerClaim(c, hasORD, &c.ord)
	case "seen":
		return s.integerClaim(c, hasSEEN, &c.seen)
	case "hold":
		return s.integerClaim(c, hasHOLD, &c.hold)
	case "hd":
		return s.integerClaim(c, hasHD, &c.heard)
	case "fn":
		return s.integerClaim(c, hasFN, &c.fence)
	case "used":
		return s.integerClaim(c, hasUSED, &c.used)
	case "ct":
		return s.integerClaim(c, hasCT, &c.claimed)
	case "eta":
		return s.integerClaim(c, hasETA, &c.eta)
	case "elo":
		return s.integerClaim(c, hasELO, &c.elo)
	case "ehi":
		return s.integerClaim(c, hasEHI, &c.ehi)
	case "off":
		return s.booleanClaim(c, hasOFF, &c.off)
	case "acc":
		return s.booleanClaim(c, hasACC, &c.acc)
	case "live":
		return s.booleanClaim(c, hasLIVE, &c.live)
	case "nbf": // not a claim of Anteroom; a cache of verified tokens could not represent it
		return ErrClaims
	}
	if !plainName(name) || !others.add(name) {
		return ErrClaims
	}
	return s.skipScalar()
}

func (c *claimSet) once(bit uint32) error {
	if c.has&bit != 0 {
		return ErrClaims
	}
	c.has |= bit
	return nil
}

func (s *scanner) textClaim(c *claimSet, bit uint32, into *[]byte, wrongType error) error {
	if err := c.once(bit); err != nil {
		return err
	}
	if s.peek() != '"' {
		return wrongType
	}
	v, err := s.text()
	*into = v
	return err
}

func (s *scanner) integerClaim(c *claimSet, bit uint32, into *int64) error {
	if err := c.once(bit); err != nil {
		return err
	}
	v, err := s.integer()
	*into = v
	return err
}

func (s *scanner) booleanClaim(c *claimSet, bit uint32, into *bool) error {
	if err := c.once(bit); err != nil {
		return err
	}
	v, err := s.boolean()
	*into = v
	return err
}

// names has the unknown members, so that a repeated one is found.
type names struct {
	list [16][]byte
	n    int
}

func (l *names) add(name []byte) bool {
	for _, old := range l.list[:l.n] {
		if string(old) == string(name) {
			return false
		}
	}
	if l.n == len(l.list) {
		return false
	}
	l.list[l.n] = name
	l.n++
	return true
}

func plainName(name []byte) bool {
	if len(name) == 0 || len(name) > 32 {
		return false
	}
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			return false
		}
	}
	return true
}
