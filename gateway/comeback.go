package gateway

import (
	"errors"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/token"
)

// addEndedPass adds the pass of an ended session to a join, and reports whether the request carries such a pass. Call it after findPass
// has found no valid pass. The id of the ticket is derived from the session, unless the ticket belongs to an account, so that one
// session makes one ticket at all gateways.
func addEndedPass(v *visit, a *arrival) bool {
	if v.tokens.ended == nil {
		return false
	}
	p, ok := endedPass(v)
	if !ok {
		return false
	}
	end, cleared := v.ended(&p)
	a.Return = &admission.Return{
		Session: admission.ID(p.Session), Order: p.Order, Fence: p.Fence, Began: p.IssuedAt, Ended: end, Live: p.Live && p.Expires > v.now/1e6, Evacuated: cleared,
	}
	if a.used = max(0, end-p.IssuedAt); cleared && v.longestSession() > 0 {
		a.used = max(0, min(a.used, v.longestSession()-v.sessionTTL()))
	}
	if !a.Account {
		a.ID, a.Keyed = admission.ID(v.derive("return", p.Session[:])), true
	}
	return true
}

// endedPass returns the pass of an ended session, if the pass keeps an order and session.max leaves time for another session. After an
// evacuation there is always time. The store, which has the record of the session, decides whether the order is valid.
func endedPass(v *visit) (p token.Pass, ok bool) {
	policy := &v.room.queue.Snapshot().Policy
	end, cleared := int64(0), false
	// The store subtracts its outages from the age of the pass, so the pass may have ended longer ago than absence.
	p, err := v.g.cache.VerifyPass(v.tokens.ended, v.room.id, v.now/1e6-int64(policy.Absence.Seconds())-day)
	if err == nil {
		end, cleared = v.ended(&p)
	}
	longest := v.longestSession()
	switch {
	case err != nil, p.Order == 0, p.Fence == 0, !v.binding.Matches(p.Bind):
		return p, false
	case longest > 0 && !cleared && end-p.IssuedAt+int64(policy.SessionTTL.Seconds()) > longest:
		return p, false
	}
	return p, true
}

// ended returns when the session of an ended pass ended, in seconds of Redis's clock, and whether an evacuation has ended (cleared) it. A
// session that ended by silence counts as ended now: the visitor's silence counts towards session.max.
func (r *request) ended(p *token.Pass) (end int64, cleared bool) {
	end = p.Expires
	if p.Live {
		end = min(p.Expires, r.now/1e6)
	}
	e := r.room.queue.Snapshot().Evacuation
	if cleared = e.Ends(p.Claimed, p.IssuedAt); cleared {
		end = min(end, e.At/1e6)
	}
	return end, cleared
}

// longestSession returns session.max in seconds; 0: no limit.
func (r *request) longestSession() int64 { return int64(r.room.options.MaxSession.Seconds()) }

// noOrderKept reports whether a join with an ended pass failed because the pass keeps no order, or because the store is away. It is false
// after a single call without a reply: the visitor tries again with the pass, since a new ticket would have the order of now.
func (r *request) noOrderKept(err error) bool {
	return errors.Is(err, admission.ErrUnknown) || errors.Is(err, admission.ErrStore) && !r.room.queue.Reachable()
}

// joinReturning responds to a join with the pass of an ended session that keeps an order. done is false without such a pass: then the
// visitor joins like all others, including the proof of work.
func joinReturning(v *visit, body *joinBody, a arrival) (d decision, p *answer.Problem, done bool) {
	if _, in := v.tokens.findPass(); in {
		return d, nil, false // a valid pass: there is no order to keep
	}
	if a.Account || !addEndedPass(v, &a) {
		return d, nil, false
	}
	if v.room.requiresSolution() {
		a.Held = true
		s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
		switch {
		case err == nil:
			d, p = joined(v, 200, &a, &s, refusal, nil)
			return d, p, true
		case errors.Is(err, admission.ErrUnknown) && s.Reason != admission.ReasonKept:
			return d, nil, false
		}
		a.Held = false
		if a.Proof, p = checkSolutions(v, body); p != nil {
			return d, p, true
		}
	}
	s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	switch {
	case v.noOrderKept(err):
		return d, nil, false
	case a.Proof != (admission.ID{}) && err == nil && refusal == admission.Granted && s.State == admission.Ended:
		return d, v.room.refuseProof("spent", answer.ProofSpent), true
	case a.Proof != (admission.ID{}) && s.New:
		v.room.metrics.Proofs["accepted"].Inc()
	}
	d, p = joined(v, joinCode(&s), &a, &s, refusal, err)
	return d, p, true
}
