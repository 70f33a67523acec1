package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/permit"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/refusal"
)

// redeemedView is a redeemed permit.
type redeemedView struct {
	Redeemed bool   `json:"redeemed"`
	Room     string `json:"room"`
	Session  string `json:"sid"`
	Path     string `json:"for"`
	Method   string `json:"method"`
}

// redeemPermit redeems a permit, once for all gateways. A request that repeats the Idempotency-Key of an earlier one has the same result.
func (c *Console) redeemPermit(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	key := r.Header.Get("Idempotency-Key")
	if key != "" && !validKey(key) || len(r.Header.Values("Idempotency-Key")) > 1 {
		return ophttp.NewProblem(http.StatusUnprocessableEntity, "idempotency_key", "send one Idempotency-Key of 22 to 128 printable ASCII characters without spaces")
	}
	body, err := readObject(r, false)
	if err != nil {
		return err
	}
	raw, faults := "", unknownFields(body, "permit")
	ophttp.Members(body, func(name, value []byte) bool {
		if string(name) == "permit" {
			raw, _ = text(value)
		}
		return true
	})
	if raw == "" {
		faults = append(faults, ophttp.Fault{Path: "permit", Problem: "is missing, empty, or not a string", Allowed: "the text of X-Waiting-Room-Permit"})
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	redeemed, err := read(r, func(ctx context.Context) (permit.Redemption, error) {
		return c.o.Redeem(ctx, raw, key, func(room string) bool { return who.May(access.Operator, room) })
	})
	switch {
	case errors.Is(err, permit.ErrSpent):
		return ophttp.NewProblem(http.StatusConflict, "already_redeemed", "the permit was redeemed before; refuse the step")
	case errors.Is(err, permit.ErrExpired):
		return ophttp.NewProblem(http.StatusGone, "permit_expired", "the permit has expired, or was issued before the store lost data; refuse the step, the visitor can request a new permit")
	case errors.Is(err, permit.ErrRevoked):
		return ophttp.NewProblem(http.StatusGone, "session_revoked", "the session of the permit was revoked; refuse the step")
	case errors.Is(err, permit.ErrInvalid):
		return ophttp.NewProblem(http.StatusUnprocessableEntity, "permit_invalid", "not a permit of this deployment: it may be damaged, a pass or a waiting token, or signed with a key that is no longer configured; refuse the step")
	case errors.Is(err, admission.ErrStore):
		p := asProblem(err)
		if _, refused := refusal.Of(err); refused {
			p.Detail += ", with the same Idempotency-Key, and refuse the step until it succeeds"
			return p
		}
		p.Detail = "the store did not reply in time; the permit may have been redeemed: repeat the request with the same Idempotency-Key, and refuse the step until it succeeds"
		return p
	case err != nil:
		return err
	}
	return ophttp.OK(w, redeemedView{true, redeemed.Room, redeemed.Session, redeemed.Path, redeemed.Method})
}

// validKey reports whether an Idempotency-Key is valid, by the rules of the visitors' side.
func validKey(key string) bool {
	return len(key) >= 22 && len(key) <= 128 && !strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })
}
