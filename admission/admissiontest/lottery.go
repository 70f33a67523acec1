package admissiontest

import "github.com/anteroom/anteroom/admission"

// late is for how long admission waits after the spread of an opening.
const late = 3_000_000

// draw notes the opening of a lottery, once, and tells whether people gather for it still.
func (m *Model) draw(now int64) (gathering, noted bool) {
	if m.P.Method != admission.Lottery {
		return false, false
	}
	if m.Drawn == 0 && m.Wall >= m.P.OpensAt {
		m.Drawn, noted = now, true
		if m.Gathered > 0 {
			m.hold = max(m.hold, now+m.P.Spread(m.Gathered).Microseconds()+late)
		}
	}
	return m.Drawn == 0, noted
}

// gather confirms a ticket before the opening.
func (m *Model) gather(first bool) admission.State {
	m.busy = true
	if first {
		m.Gathered++
	}
	return admission.Waiting
}

// drawn is the order of a ticket that had none before the opening; false: it gathers still.
func (m *Model) drawn(now int64, t admission.Ticket) (order int64, opened bool) {
	switch gathering, _ := m.draw(now); {
	case gathering:
		return 0, false
	case t.Epoch != "" && t.Seen < m.Drawn:
		return m.P.Plan.Draw(m.P.OpensAt).Order(t.ID, m.Drawn), true
	}
	return now, true
}
