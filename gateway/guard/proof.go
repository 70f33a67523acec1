package guard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"strconv"
	"strings"
)

// The reasons for which a proof is rejected.
var (
	ErrProof   = errors.New("guard: the proof does not verify")
	ErrExpired = errors.New("guard: the proof's challenge has expired")
)

// Life is the time in seconds for which a challenge is valid. It is far less than the time for which rooms remember ended
// tickets, so that a proof makes one place, and long enough for a slow telephone at the highest number.
const Life = 300

// Algorithm of the challenges, as ALTCHA names it.
const Algorithm = "SHA-256"

// Challenge is a challenge of ALTCHA: find the number from 0 to MaxNumber for which SHA-256(salt + number) is the challenge.
type Challenge struct {
	Algorithm string `json:"algorithm"`
	Challenge string `json:"challenge"` // lower-case hex
	MaxNumber int64  `json:"maxnumber"`
	Salt      string `json:"salt"`
	Signature string `json:"signature"` // lower-case hex of HMAC-SHA256(key, challenge)
}

// Proofs makes challenges and checks their solutions. It keeps no state: a challenge is recognized by its signature, and its
// time is part of its salt.
type Proofs struct{ key []byte }

// NewProofs returns Proofs that sign with key. Each room has a key of its own, so that a proof is valid in one room.
func NewProofs(key []byte) *Proofs { return &Proofs{key: key} }

// Challenge returns a challenge that takes at most number tries, half of them on average, and is valid until expires (seconds
// since 1970). Salt and number fit into one block of SHA-256.
func (p *Proofs) Challenge(number, expires int64) Challenge {
	var random [12]byte
	rand.Read(random[:])
	salt := hex.EncodeToString(random[:]) + "?expires=" + strconv.FormatInt(expires, 10) + "&"
	secret, err := rand.Int(rand.Reader, big.NewInt(number+1))
	if err != nil {
		panic(err) // the system's source of randomness never fails
	}
	sum := sha256.Sum256(secret.Append([]byte(salt), 10))
	challenge := hex.EncodeToString(sum[:])
	return Challenge{Algorithm: Algorithm, Challenge: challenge, MaxNumber: number, Salt: salt, Signature: p.sign(challenge)}
}

func (p *Proofs) sign(challenge string) string {
	h := hmac.New(sha256.New, p.key)
	h.Write([]byte(challenge))
	return hex.EncodeToString(h.Sum(nil))
}

// ProofMost is the longest solution, in characters of base64.
const ProofMost = 1024

// Verify checks a solution as ALTCHA's clients send it, base64 of JSON, at now (seconds since 1970), and returns its challenge,
// the same for each repetition of the proof. The signature is checked first: a forgery costs one HMAC.
func (p *Proofs) Verify(payload string, now int64) (challenge string, err error) {
	if len(payload) > ProofMost {
		return "", ErrProof
	}
	text, err := base64.StdEncoding.DecodeString(payload)
	if err != nil {
		return "", ErrProof
	}
	var s struct {
		Algorithm, Challenge, Salt, Signature string
		Number                                int64
	}
	if json.Unmarshal(text, &s) != nil || s.Algorithm != Algorithm || s.Number < 0 {
		return "", ErrProof
	}
	if !hmac.Equal([]byte(p.sign(s.Challenge)), []byte(s.Signature)) {
		return "", ErrProof
	}
	// Without the mark at the end, digits could move between salt and number.
	if !strings.HasSuffix(s.Salt, "&") {
		return "", ErrProof
	}
	sum := sha256.Sum256(strconv.AppendInt([]byte(s.Salt), s.Number, 10))
	if hex.EncodeToString(sum[:]) != s.Challenge {
		return "", ErrProof
	}
	_, rest, ok := strings.Cut(s.Salt, "?expires=")
	expires, err := strconv.ParseInt(strings.TrimSuffix(rest, "&"), 10, 64)
	if !ok || err != nil {
		return "", ErrProof
	}
	if now > expires {
		return "", ErrExpired
	}
	return s.Challenge, nil
}
