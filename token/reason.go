package token

import "errors"

// Rejection is an error about a token that was refused. It contains no part of the token, so it may be logged. Each Rejection
// is a sentinel, so refusing does not allocate.
type Rejection struct{ reason, text string }

func (r *Rejection) Error() string { return "token: " + r.text }

// Reason returns the label for the metric; see Reasons.
func (r *Rejection) Reason() string { return r.reason }

// The rejections.
var (
	// ErrTooLong is returned before any parsing, ErrMalformed for a token that is not three parts, strict base64url or JSON,
	// and ErrCritical for a crit header (RFC 7515 §4.1.11).
	ErrTooLong   = &Rejection{"too_long", "longer than 4096 bytes"}
	ErrMalformed = &Rejection{"malformed", "not three parts of strict base64url holding one JSON object each"}
	ErrHeader    = &Rejection{"header", "the header has members other than alg, kid and typ"}
	ErrCritical  = &Rejection{"crit", "the header names critical extensions, and none is understood"}
	ErrAlgorithm = &Rejection{"alg", "the algorithm is not the one of its key"}
	ErrKey       = &Rejection{"kid", "the key is not known"}
	ErrSignature = &Rejection{"signature", "the signature does not match"}
	ErrType      = &Rejection{"type", "a token of another type"}
	ErrIssuer    = &Rejection{"issuer", "another issuer's token"}
	ErrAudience  = &Rejection{"audience", "a token for another room"}
	ErrExpired   = &Rejection{"expired", "it has expired"}
	ErrClaims    = &Rejection{"claims", "a claim is missing, repeated, of the wrong type or out of range"}
)

// Reasons lists every value that Reason returns for an error, the label of tokens_rejected_total{reason}. "other" is an error
// that is not a Rejection; the others belong to the rejections above.
var Reasons = []string{
	"too_long", "malformed", "header", "crit", "alg", "kid", "signature", "type", "issuer", "audience", "expired", "claims", "other",
}

// Reason returns the reason of an error as one of Reasons, "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var r *Rejection
	if errors.As(err, &r) {
		return r.reason
	}
	return "other"
}
