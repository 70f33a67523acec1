package token

import "errors"

// Rejection is the reason for which a token was refused. It holds nothing of the token, so it may be logged. All of them are
// made once: refusing allocates nothing.
type Rejection struct{ reason, text string }

func (r *Rejection) Error() string { return "token: " + r.text }

// Reason returns the label for the metric; see Reasons.
func (r *Rejection) Reason() string { return r.reason }

// Sentinels, for errors.Is.
var (
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
	ErrExpired   = &Rejection{"expired", "its time has passed"}
	ErrClaims    = &Rejection{"claims", "a claim is missing, repeated, of the wrong type or out of range"}
)

// Reasons lists every value that Reason gives to an error, for the label of tokens_rejected_total{reason}:
//
//	too_long   over 4 KiB; nothing was parsed
//	malformed  not three parts, not strict base64url, not JSON
//	header     a header member other than alg, kid, typ
//	crit       a crit header (RFC 7515 §4.1.11)
//	alg        none, an unknown algorithm, or not that of the key
//	kid        no key id, or one that is not in the ring
//	signature  wrong or missing signature
//	type       wrong or missing typ: a pass shown as a waiting token, the reverse, or neither
//	issuer     wrong or missing iss
//	audience   wrong or missing aud: another room's token
//	expired    exp has passed
//	claims     any other claim missing, repeated, mistyped or out of range
//	other      an error that is not a Rejection
var Reasons = []string{
	"too_long", "malformed", "header", "crit", "alg", "kid", "signature", "type", "issuer", "audience", "expired", "claims", "other",
}

// Reason returns why a verification failed, as one of Reasons; nil has the empty reason.
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
