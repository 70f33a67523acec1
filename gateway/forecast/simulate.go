package forecast

import (
	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
)

// Change is a change of a room's admissions by an operator; nil leaves a value as it is.
type Change struct {
	Rate      *float64
	MaxActive *int64
	Paused    *bool
}

// Simulate returns the future of the queue as it is, and with a change. ok is false where neither is known: before the first snapshot,
// before the opening of a lottery, and while the room admits everybody or nobody. It changes nothing.
func (f *Forecaster) Simulate(c Change) (now, with eta.Outcome, ok bool) {
	s := f.queue.Snapshot()
	if !s.Known || s.Gathering() || s.Policy.Open() || s.Policy.Method == admission.Reject {
		return now, with, false
	}
	f.mu.Lock()
	in := f.room(s, &input{})
	f.mu.Unlock()
	as := eta.Plan{Rate: in.Rate, MaxActive: in.MaxActive, Paused: in.Paused}
	to := as
	if c.Rate != nil {
		to.Rate = *c.Rate
	}
	if c.MaxActive != nil {
		to.MaxActive = *c.MaxActive
	}
	if c.Paused != nil {
		to.Paused = *c.Paused
	}
	session := s.Policy.SessionTTL.Seconds()
	return eta.Simulate(in, as, session), eta.Simulate(in, to, session), true
}
