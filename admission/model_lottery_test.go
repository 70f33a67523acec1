package admission_test

import (
	"maps"

	"github.com/anteroom/anteroom/admission"
)

// late is for how long nobody is admitted after the spread of an opening.
const late = 3_000_000

// prequeue is the pre-queue of a lottery. A ticket counts until a slot of an eighth of absence, in which it was confirmed, has
// been over for absence.
type prequeue struct {
	Drawn     int64 // the order time of the opening; 0: not yet
	Prequeued int64 // the number of tickets that count; after the opening, at the opening
	slotTill  int64 // the end of the newest slot
	confirmed map[admission.ID]confirmation
}

// confirmation is a ticket's last one: when it was, and the end of its slot.
type confirmation struct{ at, slotTill int64 }

// confirm counts a ticket.
func (q *prequeue) confirm(c *clock, absence int64, id admission.ID) {
	if q.slotTill <= c.time {
		q.slotTill = c.time + absence/8
	}
	q.confirmed[id] = confirmation{c.time, q.slotTill}
	q.count(c, absence)
}

// leave removes a ticket that was confirmed within absence.
func (q *prequeue) leave(c *clock, absence int64, id admission.ID) {
	if last, ok := q.confirmed[id]; ok && c.age(last.at) <= absence {
		delete(q.confirmed, id)
		q.count(c, absence)
	}
}

func (q *prequeue) count(c *clock, absence int64) {
	maps.DeleteFunc(q.confirmed, func(_ admission.ID, last confirmation) bool { return c.age(last.slotTill) > absence })
	q.Prequeued = int64(len(q.confirmed))
}

func (q *prequeue) clear() {
	q.Prequeued, q.slotTill = 0, 0
	clear(q.confirmed)
}

// draw records the opening of a lottery, once, and reports whether the room has a pre-queue still, and whether this call has
// recorded the opening.
func (m *Model) draw(now int64) (gathering, recorded bool) {
	if m.P.Method != admission.Lottery {
		return false, false
	}
	if m.Drawn == 0 && m.Wall >= m.P.OpensAt {
		m.Drawn, recorded = m.time, true
		if m.Prequeued > 0 {
			m.hold = max(m.hold, now+m.P.Spread(m.Prequeued).Microseconds()+late)
		}
	}
	return m.Drawn == 0, recorded
}

// gather confirms a ticket in the pre-queue.
func (m *Model) gather(id admission.ID) admission.State {
	m.busy = true
	m.confirm(&m.clock, m.P.Absence.Microseconds(), id)
	return admission.Waiting
}

// drawn returns the order of a ticket that had none before the opening, and false while there is a pre-queue.
func (m *Model) drawn(now int64, t admission.Ticket) (order int64, opened bool) {
	switch gathering, _ := m.draw(now); {
	case gathering:
		return 0, false
	case t.Epoch != "" && t.Seen < m.Drawn:
		return m.P.Plan.Draw(m.P.OpensAt).Order(t.ID, m.Drawn), true
	}
	return m.time, true
}
