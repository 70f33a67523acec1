package gateway

import (
	"context"
	"errors"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
)

// problemOf returns the problem of an error, except for errors of origins.
func problemOf(err error) *answer.Problem {
	p := answer.Internal
	switch {
	case errors.Is(err, admission.ErrNotYet):
		p = answer.NotAdmitted
	case errors.Is(err, admission.ErrUnknown):
		p = answer.Ended
	case errors.Is(err, admission.ErrStore), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p = answer.StoreUnavailable
	}
	return p.Because(err)
}

// problemOfRefusal returns the problem of a refused join.
func problemOfRefusal(r admission.Refusal) *answer.Problem {
	switch r {
	case admission.Closed:
		return answer.RoomClosed
	case admission.Draining:
		return answer.RoomDraining
	case admission.Full:
		return answer.RoomFull
	case admission.TooMany:
		return answer.TooManyJoins
	case admission.Spent:
		return answer.AccountSpent
	}
	return answer.StoreUnavailable
}

// problemOfEnded returns the problem of a claim whose ticket has ended.
func problemOfEnded(s *admission.Standing) *answer.Problem {
	switch {
	case s.State == admission.Lapsed:
		return answer.Lapsed
	case s.State == admission.Expired:
		return answer.Expired
	case s.Reason == admission.ReasonClaimed:
		return answer.Claimed
	}
	return answer.Ended
}

// refusalReason returns the label of a refused join in joins_refused_total.
func refusalReason(why admission.Refusal, s *admission.Standing) string {
	switch why {
	case admission.TooMany:
		if s.Reason == admission.ReasonNetwork {
			return admission.ReasonNetwork
		}
		return admission.ReasonAddress
	case admission.Closed:
		return "closed"
	case admission.Draining:
		return "draining"
	case admission.Full:
		return "full"
	case admission.Spent:
		return "account"
	}
	return "store"
}

func (r *room) countRefusedJoin(reason string) { r.metrics.Refused[reason].Inc() }
