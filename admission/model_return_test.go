package admission_test

import "github.com/anteroom/anteroom/admission"

// lateHeartbeat is for how long after the end of a pass its session may still send requests with that pass, µs.
const lateHeartbeat = 10_000_000

// Return joins a visitor who comes back with the pass of an ended session and has no place for it yet. ok reports whether the pass
// keeps its order.
func (m *Model) Return(a admission.Arrival) (s admission.State, ok bool) {
	now := m.Save()
	gathering, _ := m.draw(now)
	m.meter(now).save()
	b := a.Return
	if gathering || !m.kept(now, b) {
		return 0, false
	}
	s, was := m.settled(now, a.ID, a.Client)
	switch {
	case was && s > admission.Active, !was && m.Sessions[a.ID] > now, a.Held:
		return 0, false
	}
	if s = m.arrive(now, a, min(b.Order, m.time)); s == admission.Refused {
		return s, true
	}
	m.Revoked[b.Session] = true
	delete(m.Sessions, b.Session)
	m.end(now, b.Session, admission.ReasonReturned)
	return s, true
}

// kept reports whether the pass of a session keeps its visitor's order.
func (m *Model) kept(now int64, b *admission.Return) bool {
	if g := m.Grants[b.Session]; g != nil && (g.What != admission.ReasonClaimed || g.Quit) || m.Revoked[b.Session] || b.Fence < m.Fence || b.Order <= m.reset {
		return false
	}
	over := m.age(b.Ended*second + m.lead)
	if over < 0 || over > m.absenceOf(now-over, 0) {
		return false
	}
	forgotten, alive := m.Sessions[b.Session]
	return !alive || lastHeartbeat(forgotten) <= now-over+lateHeartbeat
}
