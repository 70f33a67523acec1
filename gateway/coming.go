package gateway

import (
	"slices"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
)

// coming is what a snapshot says of the room's near future. Times are µs of Redis's clock; 0: nothing is known.
type coming struct {
	gathers bool  // a lottery before its opening
	unheard int64 // how many of those who were drawn may still come
	opens   int64 // while it is closed, or a lottery gathers
	joins   int64 // while a lottery takes nobody yet: when it does
	closes  int64 // while it is open
	event   bool  // one is in force
}

func (r *room) coming(s *admission.Snapshot) coming {
	now, p := s.RedisTime, &s.Policy
	if !s.Known {
		now = r.line.RedisNow()
	}
	c := coming{gathers: s.Gathering(), unheard: s.Unheard()}
	file := r.options.Policy
	current, _ := file.Plan.Events(now)
	c.event = current != nil
	switch live := slices.Contains(s.Live, "method"); {
	case c.gathers:
		c.opens = p.OpensAt
		if now < p.PrequeueAt {
			c.joins = p.PrequeueAt
		}
	case live: // it ends when an operator says so
	case p.Method == admission.Reject:
		c.opens, c.joins = file.NextOpening(now)
	default:
		c.closes = file.NextClosing(now)
	}
	return c
}

// steps are the rates to come by the plan, unless an operator holds the rate or the method.
func (r *room) steps(s *admission.Snapshot) []eta.Step {
	if slices.Contains(s.Live, "rate") || slices.Contains(s.Live, "method") {
		return nil
	}
	var steps []eta.Step
	for at, rate := range r.options.Policy.Rates(s.RedisTime) {
		steps = append(steps, eta.Step{At: s.RoomTime + at - s.RedisTime, Rate: float64(rate) / 1000})
	}
	return steps
}

// stateOf is the state of somebody who waits with a ticket of that order.
func (o *outlook) stateOf(order int64) string {
	switch {
	case o.snapshot.Policy.Open():
		return stateAdmitted
	case o.snapshot.Policy.Method == admission.Reject:
		return stateRejected
	case o.gathers && order == 0:
		return statePrequeue
	}
	return stateWaiting
}

// append adds to a problem until when the room is closed.
func (c *coming) append(object []byte) []byte {
	if c.opens == 0 {
		return object
	}
	b := appendTime(append(object[:len(object)-1], `,"opens_at":`...), c.opens)
	if c.joins > 0 {
		b = appendTime(append(b, `,"prequeue_at":`...), c.joins)
	}
	return append(b, '}')
}
