package admissiontest

import (
	"maps"

	"github.com/anteroom/anteroom/admission"
)

// late is for how long admission waits after the spread of an opening.
const late = 3_000_000

// draw notes the opening of a lottery, once, and tells whether people gather for it still.
func (m *Model) draw(now int64) (gathering, noted bool) {
	if m.P.Method != admission.Lottery {
		return false, false
	}
	if m.Drawn == 0 && m.Wall >= m.P.OpensAt {
		m.Drawn, noted = m.time, true
		if m.Gathered > 0 {
			m.hold = max(m.hold, now+m.P.Spread(m.Gathered).Microseconds()+late)
		}
	}
	return m.Drawn == 0, noted
}

// lots are those who gather. Whoever was heard counts until a slot of an eighth of absence, in which that was, has been over
// for absence.
type lots struct {
	till int64 // of the newest slot
	of   map[admission.ID]lot
}

type lot struct{ heard, till int64 }

// gather confirms a ticket before the opening.
func (m *Model) gather(now int64, id admission.ID) admission.State {
	m.busy = true
	if m.lots.till <= m.time {
		m.lots.till = m.time + m.P.Absence.Microseconds()/8
	}
	m.lots.of[id] = lot{m.time, m.lots.till}
	m.countLots(now)
	return admission.Waiting
}

// leaveLot gives a lot up.
func (m *Model) leaveLot(now int64, id admission.ID) {
	if l, ok := m.lots.of[id]; ok && m.age(l.heard) <= m.P.Absence.Microseconds() {
		delete(m.lots.of, id)
		m.countLots(now)
	}
}

func (m *Model) countLots(now int64) {
	maps.DeleteFunc(m.lots.of, func(_ admission.ID, l lot) bool { return m.age(l.till) > m.P.Absence.Microseconds() })
	m.Gathered = int64(len(m.lots.of))
}

func (m *Model) noLots() {
	m.Gathered, m.lots.till = 0, 0
	clear(m.lots.of)
}

// drawn is the order of a ticket that had none before the opening; false: it gathers still.
func (m *Model) drawn(now int64, t admission.Ticket) (order int64, opened bool) {
	switch gathering, _ := m.draw(now); {
	case gathering:
		return 0, false
	case t.Epoch != "" && t.Seen < m.Drawn:
		return m.P.Plan.Draw(m.P.OpensAt).Order(t.ID, m.Drawn), true
	}
	return m.time, true
}
