package forecast

import (
	"slices"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
)

// Events are the next openings and closings of a room by its plan. Times are in µs of Redis's clock; 0: unknown.
type Events struct {
	Prequeue  bool  // a lottery before its opening
	Unheard   int64 // drawn tickets whose visitors may still poll
	OpensAt   int64 // while the room is closed, or a lottery's pre-queue fills
	JoinsAt   int64 // the time at which a lottery begins to take joins
	ClosesAt  int64 // while the room is open
	Event     bool  // an event is in force
	EventEnds int64 // the end of that event
}

func (f *Forecaster) events(s *admission.Snapshot) Events {
	now, p := s.RedisTime, &s.Policy
	if !s.Known {
		now = f.queue.RedisNow()
	}
	e := Events{Prequeue: s.Gathering(), Unheard: s.Unheard()}
	configured := f.queue.Scheduled()
	current, _ := configured.Plan.Events(now)
	if current != nil {
		e.Event, e.EventEnds = true, current.Ends
	}
	switch live := slices.Contains(s.Live, "method"); {
	case e.Prequeue:
		e.OpensAt = p.OpensAt
		if now < p.PrequeueAt {
			e.JoinsAt = p.PrequeueAt
		}
	case live: // an operator ends it
	case p.Method == admission.Reject:
		e.OpensAt, e.JoinsAt = configured.NextOpening(now)
	default:
		e.ClosesAt = configured.NextClosing(now)
	}
	return e
}

// rates returns the planned changes of the rate; none while an operator has set the rate or the method.
func (f *Forecaster) rates(s *admission.Snapshot) []eta.Step {
	if slices.Contains(s.Live, "rate") || slices.Contains(s.Live, "method") {
		return nil
	}
	var steps []eta.Step
	for at, rate := range f.queue.Scheduled().Rates(s.RedisTime) {
		steps = append(steps, eta.Step{At: s.RoomTime + at - s.RedisTime, Rate: float64(rate) / 1000})
	}
	return steps
}
