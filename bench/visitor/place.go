package visitor

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrToken is returned for a string that is not a JWT with a JSON payload.
var ErrToken = errors.New("not a token")

// Claims are the claims of a waiting token or a pass.
type Claims struct {
	ID      string          `json:"jti"`
	Room    string          `json:"aud"`
	Order   *int64          `json:"ord"` // microseconds of room time; nil before a lottery's draw
	Epoch   json.RawMessage `json:"ep"`  // absent until the store has confirmed the place
	Session string          `json:"sid"` // of a pass
}

// Confirmed reports whether the store holds the place.
func (c Claims) Confirmed() bool { return len(c.Epoch) > 0 }

// Decode returns the claims of a token. It does not verify the signature: visitors have no key.
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

// Place is a visitor's place in the queue, as the visitor's tokens describe it.
type Place struct {
	ID        string
	Order     int64 // 0 before a lottery's draw
	Confirmed bool  // whether the store holds it
	Improved  bool  // whether the gateway has corrected the order to an earlier one
}

// Update reads a new token. It returns why the place was lost, or an empty string.
func (p *Place) Update(token string) (lost string, err error) {
	c, err := Decode(token)
	if err != nil {
		return "", err
	}
	old := *p
	p.ID, p.Confirmed = c.ID, c.Confirmed()
	if c.Order != nil {
		p.Order = *c.Order
	}
	switch {
	case old.ID != "" && p.ID != old.ID:
		return "another ticket", nil
	case old.Order > 0 && p.Order > old.Order:
		return "moved back", nil
	case old.Order > 0 && p.Order < old.Order:
		p.Improved = true
	}
	return "", nil
}

// Presence records whether a waiting visitor polls often enough to count as present.
type Presence struct {
	Interval time.Duration // the advised polling interval
	last     time.Time     // of the last response
}

// Received records a response. It returns whether the visitor was absent since the previous response.
func (p *Presence) Received(now time.Time) (absent bool) {
	absent = !p.last.IsZero() && now.Sub(p.last) > max(30*time.Second, 2*p.Interval+10*time.Second)
	p.last = now
	return absent
}

// After reports whether the last response came after t.
func (p *Presence) After(t time.Time) bool { return p.last.After(t) }

// Advise stores the polling interval that a response advises, or 2 s if it advises none, and returns it.
func (p *Presence) Advise(r *Response) time.Duration {
	p.Interval = time.Duration(r.Status.RefreshAfter * float64(time.Second))
	if p.Interval <= 0 {
		p.Interval = r.RetryAfter
	}
	if p.Interval <= 0 {
		p.Interval = 2 * time.Second
	}
	return p.Interval
}

// AdmittedAt returns when the store admitted the visitor, in microseconds since 1970, or 0 if the response has no such time.
func (r *Response) AdmittedAt() int64 {
	t, err := time.Parse(time.RFC3339Nano, r.Status.AdmittedAt)
	if err != nil {
		return 0
	}
	return t.UnixMicro()
}
