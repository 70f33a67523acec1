package gateway

import (
	"errors"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/token"
)

// arrived returns the order and the fence that a pass keeps of its visitor's arrival: those of the ticket or, where the store has
// confirmed none, the moment of the admission, which is never earlier.
func (v *visit) arrived(s *admission.Standing) (order, fence int64) {
	if t := &s.Ticket; t.Order > 0 && t.Fence > 0 && (t.Address == "" || t.Counted()) { // a join limit may postpone what is not counted
		return t.Order, t.Fence
	}
	if fence = v.room.line.Snapshot().Fence; fence == 0 || s.AdmittedAt == 0 {
		return 0, 0
	}
	return v.room.line.Now() - max(0, v.now-s.AdmittedAt), fence
}

// atOnce notes that a visitor was admitted at once, with a session as new as any.
func (v *visit) atOnce(s *admission.Standing) {
	if s.New {
		v.used = 0
	}
}

// passCookie sets the pass's cookie. It outlives the pass by absence, for as long as the pass keeps its visitor's order.
func (v *visit) passCookie(p *token.Pass) {
	absence := int64(v.room.line.Snapshot().Policy.Absence.Seconds())
	v.cookie(v.names().Pass, v.pass, p.Expires-v.now/1e6+absence)
}

// comeBack puts the pass of an ended session that the request carries into an arrival, and reports whether there is one. Call it
// where findPass has found no valid one. The id of the place is derived from the session unless it is an account's, so one session
// makes one place, through whatever gateway.
func (v *visit) comeBack(a *admission.Arrival) bool {
	if v.ended == nil {
		return false
	}
	p, ok := v.endedPass()
	if !ok {
		return false
	}
	a.Return = &admission.Return{Session: admission.ID(p.Session), Order: p.Order, Fence: p.Fence, Began: p.IssuedAt, Ended: p.Expires}
	v.used = max(0, p.Expires-p.IssuedAt)
	if !a.Account {
		a.ID, a.Keyed = admission.ID(v.derived("return", p.Session[:])), true
	}
	return true
}

// endedPass returns the pass of a session that is over, where it keeps an order and session.max has room for another session.
// Whether the order counts, the store decides: it knows what became of the session.
func (v *visit) endedPass() (p token.Pass, ok bool) {
	policy := &v.room.line.Snapshot().Policy
	// The store takes the times of its absence out of the pass's age: it may have ended longer ago than absence.
	p, err := v.g.cache.Ring().VerifyPass(v.ended, v.room.id, v.now/1e6-int64(policy.Absence.Seconds())-day)
	most := int64(v.room.options.MaxSession.Seconds())
	switch {
	case err != nil, p.Order == 0, p.Fence == 0, !v.fits(p.Bind):
		return p, false
	case most > 0 && p.Expires-p.IssuedAt+int64(policy.SessionTTL.Seconds()) > most:
		return p, false
	}
	return p, true
}

// noneKept reports whether a join with an ended pass has found that it keeps no order, or could not find out.
func noneKept(err error) bool {
	return errors.Is(err, admission.ErrUnknown) || errors.Is(err, admission.ErrStore)
}

// joinBack answers a join that brings the pass of an ended session, where that keeps its visitor's order. A new place costs what it
// costs everybody.
func (v *visit) joinBack(body *joining, a admission.Arrival) (answered bool) {
	if _, in := v.findPass(); in {
		return false // it lets its visitor in: nothing has to be kept
	}
	if a.Account || !v.comeBack(&a) {
		return false
	}
	if v.room.asks() {
		a.Held = true
		s, refusal, err := v.room.line.Join(v.g.life, a)
		switch {
		case err == nil:
			v.joined(200, &a, s, refusal, nil)
			return true
		case errors.Is(err, admission.ErrUnknown) && s.Reason != admission.ReasonKept:
			v.used = 0
			return false
		}
		a.Held = false
		var earned bool
		if a.Proof, earned = v.earned(body); !earned {
			return true
		}
	}
	s, refusal, err := v.room.line.Join(v.g.life, a)
	switch {
	case noneKept(err):
		v.used = 0
		return false
	case a.Proof != (admission.ID{}) && err == nil && refusal == admission.Granted && s.State == admission.Ended:
		v.refuseProof("spent", problemProofSpent)
		return true
	case a.Proof != (admission.ID{}) && s.New:
		v.room.metrics.proofs["accepted"].Inc()
	}
	v.joined(codeOf(&s), &a, s, refusal, err)
	return true
}

// joinedWith is when the ticket of an arrival was taken, in seconds of Redis's clock: its order is older where it was kept.
func (v *visit) joinedWith(a *admission.Arrival, order int64) int64 {
	if a.Return != nil {
		return v.now / 1e6
	}
	return v.joinedSecond(order)
}
