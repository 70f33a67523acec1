package admission

import (
	"context"
	"errors"
	"fmt"
)

// PermitUse is a request to redeem a permit.
type PermitUse struct {
	ID      ID
	Epoch   string // the store's when the permit was issued; empty: not known, so the permit cannot be redeemed
	Expires int64  // seconds of Redis's clock
	Leeway  int64  // seconds after Expires for which the permit is still valid
	// Key names the request, so that a repetition has the same result; empty: the request has no repetition.
	Key string
}

// PermitResult is the result of redeeming a permit.
type PermitResult uint8

const (
	PermitRedeemed PermitResult = iota
	PermitSpent                 // it was redeemed before
	PermitOutdated              // it has expired, or was issued before the store lost data
)

// RedeemPermit redeems a permit, once for all gateways. The store's record of redeemed permits ends after the permits do. If the
// store loses data, permits issued before are PermitOutdated, because their record may be lost.
func (r *operators) RedeemPermit(ctx context.Context, p PermitUse) (PermitResult, error) {
	if r.store.away.Load() {
		return 0, ErrStore
	}
	k := r.store.knowledge()
	if k.epoch != p.Epoch {
		k.seq = 0
	}
	request := "key " + p.Key
	if p.Key == "" {
		request = "call " + randomName() // the client of the store may send the call twice
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
