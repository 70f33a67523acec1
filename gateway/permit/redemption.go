package permit

import (
	"context"
	"errors"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/token"
)

// Redemption describes a redeemed permit.
type Redemption struct {
	Room, Session string // ids
	Path, Method  string // of the step
}

// Reasons why a permit cannot be redeemed.
var (
	// ErrInvalid is returned for a text that is not a permit of this deployment: malformed, of another type, key, issuer or room.
	ErrInvalid = errors.New("not a valid permit of this deployment")
	// ErrExpired is returned when the permit's time is over, or the store has lost the record of redeemed permits since it was issued.
	ErrExpired = errors.New("the permit has expired")
	// ErrRevoked is returned when the session of the permit was revoked, or ended by an evacuation.
	ErrRevoked = errors.New("the session of the permit was revoked")
	// ErrSpent is returned when the permit was redeemed before.
	ErrSpent = errors.New("the permit was redeemed before")
)

// Room is the room of a permit. *admission.Room is one.
type Room interface {
	RedisNow() int64 // µs of the store's clock
	Revoked(session admission.ID) bool
	Evacuation() admission.Evacuation
	RedeemPermit(context.Context, admission.PermitUse) (admission.PermitResult, error)
}

var _ Room = (*admission.Room)(nil)

// Redeem redeems a permit, once for all gateways. find returns the room with an id, or nil. key is the Idempotency-Key of the request: a
// repetition with the same key has the same result, and one without a key gets ErrSpent. Errors are those above, or of the store.
func Redeem(ctx context.Context, ring *token.Ring, find func(id string) Room, raw, key string) (Redemption, error) {
	id := ring.RoomOf([]byte(raw))
	r := find(id)
	if r == nil {
		return Redemption{}, ErrInvalid
	}
	p, err := ring.VerifyPermit([]byte(raw), id, r.RedisNow()/1e6)
	switch {
	case errors.Is(err, token.ErrExpired):
		return Redemption{}, ErrExpired
	case err != nil:
		return Redemption{}, ErrInvalid
	case r.Revoked(admission.ID(p.Session)):
		return Redemption{}, ErrRevoked
	}
	// Nobody is admitted for seconds after an evacuation, so the time of issue decides.
	if e := r.Evacuation(); e.Ends(0, p.IssuedAt) {
		return Redemption{}, ErrRevoked
	}
	result, err := r.RedeemPermit(ctx, admission.PermitUse{ID: admission.ID(p.ID), Epoch: p.Epoch, Expires: p.Expires, Leeway: token.Leeway, Key: key})
	switch {
	case err != nil:
		return Redemption{}, err
	case result == admission.PermitSpent:
		return Redemption{}, ErrSpent
	case result != admission.PermitRedeemed:
		return Redemption{}, ErrExpired
	}
	return Redemption{Room: id, Session: p.Session.String(), Path: p.Path, Method: p.Method}, nil
}
