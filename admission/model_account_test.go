package admission_test

import "github.com/anteroom/anteroom/admission"

// accountIDs is the number of ids of an account. month is the time for which the first id is remembered once there is a second, µs.
const (
	accountIDs = 32
	month      = 31 * 24 * 3600 * 1_000_000
)

// Account joins a device of an account whose first id is the arrival's. It returns the account's place, which may be under a former
// key, or a new place (fresh).
func (m *Model) Account(a admission.Arrival) (s admission.State, id admission.ID, fresh bool) {
	now := m.Save()
	defer func() {
		if fresh && a.Proof != (admission.ID{}) {
			m.Grants[a.Proof] = &Grant{What: "spent", Client: admission.Client(id)}
			m.remember(now, m.Grants[a.Proof])
		}
	}()
	m.Refill()
	id, alive, active := m.placeOf(now, a.ID)
	for i := 0; i < len(a.Former) && !alive; i++ {
		if other, lives, in := m.placeOf(now, a.Former[i]); lives {
			id, alive, active = other, true, in
		}
	}
	switch {
	case active:
		m.adopt(now, a, nil)
		return admission.Active, id, false
	case alive:
		old := m.place(now, a.From)
		m.adopt(now, a, nil)
		if p := m.place(now, id); p != nil && old != nil {
			p.Order = min(p.Order, old.Order)
		}
	case a.Held:
		return admission.Ended, a.ID, false
	case m.Grants[a.Proof] != nil && m.Grants[a.Proof].Client != admission.Client(id):
		return admission.Ended, a.ID, false
	case a.From != (admission.ID{}):
		if m.adopt(now, a, &id) {
			return admission.Waiting, id, true
		}
		return admission.Ended, a.ID, false
	}
	a.ID = id
	return m.Arrive(a), id, !alive
}

// placeOf returns the place of an account by its first id: the place's id, whether it is alive, and whether it is a session. An
// account without a place gets the id for a new one.
func (ts *tickets) placeOf(now int64, base admission.ID) (id admission.ID, alive, active bool) {
	free := -1
	for n := range accountIDs {
		id = base
		id[len(id)-1] += byte(n)
		if active = ts.Sessions[id] > now; active || ts.place(now, id) != nil {
			alive = true
			break
		}
		switch g := ts.Grants[id]; {
		case g == nil && !ts.Revoked[id] && free < 0:
			free = n
		case g != nil && g.What == "admitted" && g.At+ts.P.ClaimWindow.Microseconds() >= now:
			alive = true
		case g != nil && g.What == "admitted":
			ts.end(now, id, admission.ReasonLapsed)
		}
		if alive {
			break
		}
	}
	if g := ts.Grants[base]; g != nil && (id != base || !alive) { // the first is remembered, so that the others are found
		g.ForgetAt = max(g.ForgetAt, now+month)
	}
	if !alive {
		id = base
		id[len(id)-1] += byte(free)
	}
	return id, alive, active
}

// adopt ends a waiting ticket in favour of an account. If to is not nil, that id gets the ticket's place.
func (ts *tickets) adopt(now int64, a admission.Arrival, to *admission.ID) bool {
	old := ts.place(now, a.From)
	if old == nil {
		return false
	}
	ts.end(now, a.From, admission.ReasonLeft)
	if to != nil {
		p := &Place{Order: old.Order}
		ts.checked(now, p, joinHold(a))
		ts.Queue[*to] = p
	}
	return to != nil
}
