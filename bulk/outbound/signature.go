package outbound

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader has the value t=<unix seconds>,v1=<HMAC-SHA256 of t + "." + body as lowercase hex>.
const SignatureHeader = "X-Bulk-Signature"

// MaxSkew is the most that a signature's time may differ from the receiver's. It bounds how long a recorded request
// can be replayed.
const MaxSkew = 5 * time.Minute

// Errors of Verify.
var (
	ErrMalformed = errors.New(SignatureHeader + " is not t=<unix seconds>,v1=<64 lowercase hex digits>")
	ErrMismatch  = errors.New(SignatureHeader + " was not made with this secret for this body")
	ErrStale     = errors.New(SignatureHeader + " is more than 5 minutes away from now")
)

// Sign returns the header's value for body at now.
func Sign(secret []byte, now time.Time, body []byte) string {
	return format(now.Unix(), digest(secret, now.Unix(), body))
}

func format(t int64, mac []byte) string {
	return "t=" + strconv.FormatInt(t, 10) + ",v1=" + hex.EncodeToString(mac)
}

// Verify returns nil if header is a signature of body by secret, made within MaxSkew of now. It compares the digest
// in constant time and before it checks the time, so ErrStale is about a signature that was valid once.
func Verify(secret []byte, header string, now time.Time, body []byte) error {
	t, mac, err := parseSignature(header)
	if err != nil {
		return err
	}
	if !hmac.Equal(mac, digest(secret, t, body)) {
		return ErrMismatch
	}
	if skew := now.Sub(time.Unix(t, 0)); skew > MaxSkew || skew < -MaxSkew {
		return fmt.Errorf("%w: signed at %s", ErrStale, time.Unix(t, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// digest covers the time too, so that neither can be replaced.
func digest(secret []byte, t int64, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(strconv.AppendInt(nil, t, 10))
	h.Write([]byte{'.'})
	h.Write(body)
	return h.Sum(nil)
}

// parseSignature parses exactly the form of Sign: each signature has one spelling, so that the header can serve as a
// key.
func parseSignature(header string) (t int64, mac []byte, err error) {
	at, sum, ok := strings.Cut(header, ",")
	seconds, isTime := strings.CutPrefix(at, "t=")
	digits, isSum := strings.CutPrefix(sum, "v1=")
	// Eleven digits suffice for 3,000 years and cannot overflow.
	if !ok || !isTime || !isSum || len(seconds) == 0 || len(seconds) > 11 || len(digits) != 2*sha256.Size {
		return 0, nil, ErrMalformed
	}
	t, err = strconv.ParseInt(seconds, 10, 64)
	if err != nil || t < 0 || strconv.FormatInt(t, 10) != seconds {
		return 0, nil, ErrMalformed
	}
	mac, err = hex.DecodeString(digits)
	if err != nil || digits != strings.ToLower(digits) {
		return 0, nil, ErrMalformed
	}
	return t, mac, nil
}
