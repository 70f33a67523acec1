package visitor

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrToken says that a string is not a JWT with a JSON payload.
var ErrToken = errors.New("not a token")

// Claims is what a waiting token says about its place, or a pass about its session.
type Claims struct {
	ID    string          `json:"jti"`
	Room  string          `json:"aud"`
	Order *int64          `json:"ord"` // microseconds of room time; nil before a lottery's draw
	Epoch json.RawMessage `json:"ep"`  // absent until the store has confirmed the place
	// Session is a pass's.
	Session string `json:"sid"`
}

// Confirmed reports whether the store has enrolled the place at least once.
func (c Claims) Confirmed() bool { return len(c.Epoch) > 0 }

// Decode reads a token's payload without verifying its signature: a load generator has no key, and only compares what
// the gateway says with what it said before.
func Decode(token string) (Claims, error) {
	_, rest, ok := strings.Cut(token, ".")
	payload, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || strings.Contains(signature, ".") {
		return Claims{}, fmt.Errorf("%w: want three parts separated by dots", ErrToken)
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: payload: %w", ErrToken, err)
	}
	var c Claims
	if err := json.Unmarshal(raw, &c); err != nil {
		return Claims{}, fmt.Errorf("%w: payload: %w", ErrToken, err)
	}
	if c.ID == "" {
		return Claims{}, fmt.Errorf("%w: no jti", ErrToken)
	}
	return c, nil
}
