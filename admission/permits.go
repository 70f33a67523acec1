package admission

import (
	"context"
	"errors"
	"fmt"
)

// PermitUse is a request to redeem a permit.
type PermitUse struct {
	ID      ID
	Epoch   string // the store's epoch when the permit was issued; empty: not known, so the permit cannot be redeemed
	Expires int64  // seconds of Redis's clock
	Leeway  int64  // seconds after Expires for which the permit is still valid
	// Key is the Idempotency-Key: a repetition with the same key has the same result. Empty: every request is another one.
	Key string
}

// PermitResult is the result of redeeming a permit.
type PermitResult uint8

const (
	PermitRedeemed PermitResult = iota
	PermitSpent                 // redeemed before
	PermitOutdated              // expired, or issued before the store lost data
)

// RedeemPermit redeems a permit, once for all gateways. The store keeps the record until after the end of the permit. After the store lost
// data, permits from before are PermitOutdated, because their record may be lost.
func (r *operators) RedeemPermit(ctx context.Context, p PermitUse) (PermitResult, error) {
	if r.store.away.Load() {
		return 0, r.store.away.err()
	}
	k := r.store.knowledge()
	if k.epoch != p.Epoch {
		k.seq = 0
	}
	request := "key " + p.Key
	if p.Key == "" {
		request = "call " + randomName() // the store's client may send a call twice
	}
	ctx, cancel := context.WithTimeout(ctx, r.c.o.Timeout)
	defer cancel()
	v, err := r.c.scripts.Run(ctx, "permit_redeem", permitKeys(r.c.o.Prefix, r.id, p.ID), r.c.now(), p.Epoch, k.seq, p.Expires, p.Leeway, request)
	if err != nil {
		if errors.Is(err, ErrStore) {
			r.store.failed(err)
		}
		return 0, err
	}
	switch v.String(0) {
	case replyRedeemed:
		return PermitRedeemed, nil
	case replySpent:
		return PermitSpent, nil
	case replyOutdated:
		return PermitOutdated, nil
	}
	return 0, fmt.Errorf("permit_redeem replied %v", v)
}
