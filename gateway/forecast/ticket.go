package forecast

import (
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/token"
)

// Wait is an estimate of the time until an admission, in whole seconds.
type Wait struct {
	Known              bool
	Seconds, Low, High int64
}

// Announced returns the wait that was announced on joining, from the waiting token.
func Announced(w *token.Waiting) Wait {
	return Wait{w.Promised > 0, w.Promised, w.PromisedLow, w.PromisedHigh}
}

// Ticket is the forecast of a ticket.
type Ticket struct {
	Position int64 // from 1; 0: unknown
	Wait     Wait

	interval, longest float64 // until the next poll, in seconds
	prequeue          *pace.Gathering
}

// Ticket returns the forecast of the ticket with an order; 0: a ticket without an order, for example before a draw. Gateways with the
// same snapshot return the same forecast.
func (f *Forecaster) Ticket(r *Room, order int64) Ticket {
	var t Ticket
	if r.Prequeue && order == 0 {
		p := r.prequeue
		p.Left = float64(r.Snapshot.Policy.OpensAt-f.queue.RedisNow()) / 1e6
		t.prequeue = &p
		return t
	}
	if !r.Snapshot.Known || order == 0 {
		t.interval, t.longest = r.polls.Interval(0, 0, false), r.polls.Most(0, false)
		return t
	}
	ahead := max(f.queue.Ahead(order), 0) + f.queue.UnheardBefore(order)
	t.Position = ahead + 1
	if e := r.Waits.At(ahead); e.Known {
		least := int64(0)
		if floor := r.Snapshot.Policy.MinWait; floor > 0 {
			least = max(0, (max(order, r.Snapshot.Drawn)+floor.Microseconds()-f.queue.Now()+999_999)/1e6)
		}
		t.Wait = Wait{true, max(ceil(e.Seconds), least), max(ceil(e.Low), least), max(ceil(e.High), least)}
	}
	seconds := float64(t.Wait.Seconds)
	t.interval, t.longest = r.polls.Interval(ahead, seconds, t.Wait.Known), r.polls.Most(seconds, t.Wait.Known)
	return t
}

func ceil(f float64) int64 {
	n := int64(f)
	if float64(n) < f {
		n++
	}
	return n
}

// Poll returns the seconds until the next poll, spread by random, which lies in [0, 1).
func (t *Ticket) Poll(random float64) int {
	if t.prequeue != nil {
		return t.prequeue.Next(random)
	}
	return pace.Spread(t.interval, t.longest, random)
}

// Interval returns the mean number of seconds until the next poll.
func (t *Ticket) Interval() int { return max(1, int(t.interval)) }

const (
	nearWait     = 60 // seconds
	nearPosition = 50
)

// Near reports whether the ticket is likely to be admitted within a minute.
func (t *Ticket) Near() bool {
	if t.prequeue != nil {
		return t.prequeue.Left <= nearWait
	}
	if t.Wait.Known && t.Wait.Seconds <= nearWait {
		return true
	}
	return t.Position > 0 && (t.Position <= nearPosition || !t.Wait.Known && t.Position <= pace.Front)
}

// FirstPoll returns the seconds until the first poll of a new ticket. enrolled reports whether the store has confirmed the
// ticket already.
func (f *Forecaster) FirstPoll(r *Room, enrolled bool, t *Ticket, random float64) int {
	switch {
	case t.prequeue != nil && enrolled:
		return t.Poll(random)
	case t.prequeue != nil: // a ticket that the store has not confirmed is not drawn
		return min(r.polls.First(0, 0, false, random), max(1, int(t.prequeue.Left)))
	}
	arriving := int64(0) // an enrolled ticket polls to be admitted, the others to be enrolled
	if !enrolled {
		arriving = f.queue.Arriving()
	}
	return r.polls.First(arriving, float64(t.Wait.Seconds), t.Wait.Known, random)
}

// PollWithin shortens a poll interval so that a ticket that the store has just confirmed stays present until then.
func PollWithin(t *admission.Ticket, seconds int) int {
	if t.Hold <= 0 {
		return seconds
	}
	return max(1, min(seconds, int((t.Hold-admission.HoldSlack)/time.Second)))
}

// JoinNow returns the wait estimate of a visitor who joins now.
func (r *Room) JoinNow() eta.Estimate {
	s := r.Snapshot
	e := r.Waits.At(s.Waiting)
	if s.Known && s.Waiting == 0 && !s.Policy.Paused {
		e = eta.Estimate{Known: true}
	}
	least := s.Policy.MinWait.Seconds()
	e.Seconds, e.Low, e.High = max(e.Seconds, least), max(e.Low, least), max(e.High, least)
	return e
}
