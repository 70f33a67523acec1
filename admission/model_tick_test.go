package admission_test

import (
	"cmp"
	"slices"

	"github.com/anteroom/anteroom/admission"
)

// Tick runs room_advance once and returns the ids that it admitted, in order. Within apart (µs) of the last tick it does no work.
func (m *Model) Tick(apart int64) []admission.ID {
	m.moved = false
	now := m.Room()
	gathering, opened := m.draw(now)
	if gathering && m.Prequeued > 0 {
		m.count(&m.clock, m.P.Absence.Microseconds())
	}
	if !opened && m.fresh && m.Wall-m.tick < apart && max(m.Wall-m.built, m.built-m.Wall) <= gap {
		if m.moved {
			m.Save()
		}
		return nil
	}
	m.Save()
	m.fresh = true
	m.built = m.Wall
	m.tick = m.Wall
	for id, till := range m.Sessions {
		if till <= now {
			delete(m.Sessions, id)
		}
	}
	for id, g := range m.Grants {
		if g.What == "admitted" && g.At <= now-m.P.ClaimWindow.Microseconds()-1 {
			m.end(now, id, admission.ReasonLapsed)
		}
	}
	for id, g := range m.Grants {
		if g.What != "admitted" && g.ForgetAt <= now {
			delete(m.Grants, id)
		}
	}
	for id, p := range m.Queue {
		if m.absent(now, p) {
			delete(m.Queue, id)
		}
	}
	m.joins.forget(&m.P, m.time)
	meter := m.meter(now)
	in := m.admit(now, meter)
	meter.Take(int64(len(in)))
	meter.rest()
	meter.save()
	m.busy = len(m.Queue)+len(m.Sessions) > 0 || gathering && m.Prequeued > 0
	for _, g := range m.Grants {
		m.busy = m.busy || g.What == "admitted"
	}
	if m.busy {
		m.quiet = now
	}
	m.begin()
	return in
}

func (m *Model) admit(now int64, meter meter) (in []admission.ID) {
	if now < m.hold {
		return nil
	}
	var k int64
	if gathering, _ := m.draw(now); !m.shut() && !gathering {
		k = meter.Available()
		if m.P.MaxActive > 0 {
			k = min(k, m.P.MaxActive-m.active())
		}
		if m.P.HeadWindow > 0 {
			k = min(k, m.P.HeadWindow)
		}
	}
	for _, id := range m.InOrder() {
		p := m.Queue[id]
		if p.Until < now {
			p.Parked = true
			continue
		}
		if int64(len(in)) >= k || max(p.Order, m.Drawn)+m.P.MinWait.Microseconds() > m.time {
			return in
		}
		delete(m.Queue, id)
		m.Grants[id] = &Grant{What: "admitted", Wall: m.Wall, At: now}
		m.Admissions = append(m.Admissions, Admission{id, now, m.Wall, p.Order})
		in = append(in, id)
	}
	return in
}

// InOrder returns the tickets that are not parked, by order.
func (ts *tickets) InOrder() []admission.ID {
	var ids []admission.ID
	for id, p := range ts.Queue {
		if !p.Parked {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b admission.ID) int {
		if c := cmp.Compare(ts.Queue[a].Order, ts.Queue[b].Order); c != 0 {
			return c
		}
		return slices.Compare(a[:], b[:])
	})
	return ids
}
