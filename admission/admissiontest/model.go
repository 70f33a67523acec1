package admissiontest

import (
	"cmp"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission"
)

const (
	gap    = 5_000_000
	hold   = 5_000_000
	memory = 900_000_000
)

// Place is a ticket in line.
type Place struct {
	Order  int64
	Seen   int64 // room time in whole milliseconds, as µs
	Until  int64 // present until, room time
	Parked bool
}

// Grant is what is known of a ticket that was admitted or ended.
type Grant struct {
	What     string // admitted, or a reason
	Wall     int64  // of the admission
	At       int64  // of the admission, room time
	Claimed  int64
	Client   admission.Client
	ForgetAt int64
}

// Admission is one visitor that was let in, for judging rate and order.
type Admission struct {
	ID         admission.ID
	Room, Wall int64
	Order      int64
}

// Model is one room. Times are microseconds.
type Model struct {
	P    admission.Policy
	Wall int64

	adj, tick, hold int64
	busy            bool
	limiter         limiter
	Line            map[admission.ID]*Place
	Grants          map[admission.ID]*Grant
	Sessions        map[admission.ID]int64 // until, room time
	Revoked         map[admission.ID]bool
	Admissions      []Admission
	Fence           int64
	Drawn, Gathered int64 // of a lottery: the room time of its opening, and how many were confirmed before
	lots            lots
	fresh           bool  // a snapshot was built since the last change by an operator
	built           int64 // when, by the wall
	joins           map[string]joins
}

// New is a room that begins now with a full bucket.
func New(p admission.Policy, wall int64) *Model {
	m := &Model{
		P: p, Wall: wall, tick: wall, Fence: 1,
		Line: map[admission.ID]*Place{}, Grants: map[admission.ID]*Grant{},
		Sessions: map[admission.ID]int64{}, Revoked: map[admission.ID]bool{}, joins: map[string]joins{}, lots: lots{of: map[admission.ID]lot{}},
	}
	m.limiter = limiter{strategy: p.Strategy, at: wall, level: m.full()}
	return m
}

func (m *Model) burst() int64 {
	if m.P.Burst > 0 {
		return m.P.Burst
	}
	return max(1000, m.P.Rate)
}

// Room is room time: the wall's without long silences and without jumps back.
func (m *Model) Room() int64 {
	switch d := m.Wall - m.tick; {
	case d > gap:
		m.adj -= d - 1_000_000 - d/1000
		m.tick = m.Wall
		if m.busy {
			m.hold = m.Wall + m.adj + hold
		}
	case d < 0:
		m.adj -= d
		m.tick = m.Wall
	}
	m.adj = max(m.adj, m.limiter.at-m.Wall)
	return m.Wall + m.adj
}

// Refill is what room_enter does to the limiter whatever it is asked.
func (m *Model) Refill() {
	now := m.Room()
	m.draw(now)
	m.meter(now).save()
}

func (m *Model) active() int64 {
	n := int64(len(m.Sessions))
	for _, g := range m.Grants {
		if g.What == "admitted" {
			n++
		}
	}
	return n
}

// shut tells whether nobody is let in.
func (m *Model) shut() bool { return m.P.Paused || m.P.Method == admission.Reject }

func (m *Model) waiting() int {
	n := 0
	for _, p := range m.Line {
		if !p.Parked {
			n++
		}
	}
	return n
}

func (m *Model) settled(now int64, id admission.ID, c admission.Client) (admission.State, bool) {
	g := m.Grants[id]
	if g == nil {
		return 0, false
	}
	switch g.What {
	case "admitted":
		if g.At+m.P.ClaimWindow.Microseconds() >= now {
			return admission.Admitted, true
		}
		m.end(now, id, admission.ReasonLapsed)
		return admission.Lapsed, true
	case admission.ReasonClaimed:
		m.remember(now, g)
		if m.Sessions[id] > now && c != (admission.Client{}) && c == g.Client && now-g.Claimed <= m.P.ClaimWindow.Microseconds() {
			return admission.Active, true
		}
		return admission.Ended, true
	}
	m.remember(now, g)
	switch g.What {
	case admission.ReasonLapsed:
		return admission.Lapsed, true
	case admission.ReasonRemoved:
		return admission.Expired, true
	}
	return admission.Ended, true
}

func (m *Model) remember(now int64, g *Grant) {
	g.ForgetAt = max(g.ForgetAt, now+m.P.Absence.Microseconds()+memory)
}

func (m *Model) end(now int64, id admission.ID, what string) {
	g := m.Grants[id]
	if g == nil {
		g = &Grant{}
		m.Grants[id] = g
	}
	g.What, g.Claimed, g.Client = what, 0, admission.Client{}
	m.remember(now, g)
	delete(m.Line, id)
}

// heard renews a place. Who was silent before and came back is waited for as long the next time, up to 90 s: a browser
// may let a hidden page wake once a minute only.
func (m *Model) heard(now int64, p *Place, grace time.Duration) {
	if p.Seen > 0 {
		silence := time.Duration((now/1000-p.Seen/1000)/1000) * time.Second
		grace = max(grace, 15*time.Second+min(75*time.Second, silence))
	}
	p.Seen = now / 1000 * 1000
	p.Until = p.Seen + grace.Microseconds()
	p.Parked = false
}

// Grace is for how long a ticket counts as present after it was heard.
func Grace(interval time.Duration) time.Duration {
	if interval <= 0 {
		interval = 10 * time.Second
	}
	g := max(30*time.Second, 2*interval+10*time.Second)
	return min(255*time.Second, (g+time.Second-1)/time.Second*time.Second)
}

// place is the ticket's place in line; one that was absent is given up when it is asked for, should no tick have come to it yet.
func (m *Model) place(now int64, id admission.ID) *Place {
	p := m.Line[id]
	if p != nil && m.absent(now, p) {
		delete(m.Line, id)
		return nil
	}
	return p
}

func (m *Model) absent(now int64, p *Place) bool {
	return p.Seen/1000 < (now-m.P.Absence.Microseconds())/1000-1000
}

// Arrive is a newcomer.
func (m *Model) Arrive(a admission.Arrival) admission.State {
	now := m.Room()
	gathering, _ := m.draw(now)
	meter := m.meter(now)
	defer func() { meter.save() }()
	if s, ok := m.settled(now, a.ID, a.Client); ok {
		return s
	}
	if p := m.place(now, a.ID); p != nil {
		m.heard(now, p, Grace(a.Interval))
		return admission.Waiting
	}
	count, _, ok := m.places(a.Address, now, now)
	if !ok {
		return admission.Refused
	}
	count()
	m.busy = true
	if gathering {
		return m.gather(now, a.ID)
	}
	if !m.shut() && m.P.MinWait == 0 && m.waiting() == 0 && now >= m.hold &&
		(m.P.MaxActive == 0 || m.active() < m.P.MaxActive) && meter.Available() >= 1 {
		meter.Take(1)
		m.Grants[a.ID] = &Grant{What: admission.ReasonClaimed, Wall: m.Wall, At: now, Claimed: now, Client: a.Client}
		m.remember(now, m.Grants[a.ID])
		m.Sessions[a.ID] = now + m.P.SessionTTL.Microseconds()*3/2
		m.Admissions = append(m.Admissions, Admission{a.ID, now, m.Wall, now})
		return admission.Active
	}
	p := &Place{Order: now}
	m.heard(now, p, Grace(a.Interval))
	m.Line[a.ID] = p
	return admission.Waiting
}

// accountIDs is how many ids an account has; month is for how long the first is remembered once there is a second, µs.
const (
	accountIDs = 32
	month      = 31 * 24 * 3600 * 1_000_000
)

// Account is a device of an account, whose first id is the arrival's: the place that it has, one under another key too, or a
// new one.
func (m *Model) Account(a admission.Arrival) (s admission.State, id admission.ID, fresh bool) {
	now := m.Room()
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
		m.adopt(now, a, nil)
	case a.Held:
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

// placeOf finds what an account has by the first of its ids: the id, whether it is alive, and whether it is a session; else the id
// of a new one.
func (m *Model) placeOf(now int64, base admission.ID) (id admission.ID, alive, active bool) {
	free := -1
	for n := range accountIDs {
		id = base
		id[len(id)-1] += byte(n)
		if active = m.Sessions[id] > now; active || m.place(now, id) != nil {
			alive = true
			break
		}
		switch g := m.Grants[id]; {
		case g == nil && !m.Revoked[id] && free < 0:
			free = n
		case g != nil && g.What == "admitted" && g.At+m.P.ClaimWindow.Microseconds() >= now:
			alive = true
		case g != nil && g.What == "admitted":
			m.end(now, id, admission.ReasonLapsed)
		}
		if alive {
			break
		}
	}
	if g := m.Grants[base]; g != nil && (id != base || !alive) { // the first is remembered, so that the others are found
		g.ForgetAt = max(g.ForgetAt, now+month)
	}
	if !alive {
		id = base
		id[len(id)-1] += byte(free)
	}
	return id, alive, active
}

// adopt ends a ticket that waits, in favour of an account: its place, where to is not nil, becomes that id's.
func (m *Model) adopt(now int64, a admission.Arrival, to *admission.ID) bool {
	old := m.place(now, a.From)
	if old == nil {
		return false
	}
	m.end(now, a.From, admission.ReasonLeft)
	if to != nil {
		p := &Place{Order: old.Order}
		m.heard(now, p, Grace(a.Interval))
		m.Line[*to] = p
	}
	return to != nil
}

// Seen is a poll that reached the store; a ticket that the line does not hold is enrolled.
func (m *Model) Seen(t admission.Ticket) (admission.State, string) {
	now := m.Room()
	if s, ok := m.settled(now, t.ID, t.Client); ok {
		return s, ""
	}
	p := m.place(now, t.ID)
	if p == nil {
		if t.Fence < m.Fence {
			return admission.Expired, admission.ReasonReset
		}
		from, fresh := t.Seen, t.Order == 0
		if fresh {
			var opened bool
			if t.Order, opened = m.drawn(now, t); !opened {
				if t.Epoch != "" && now-t.Seen > m.P.Absence.Microseconds() {
					return admission.Expired, admission.ReasonLate
				}
				return m.gather(now, t.ID), ""
			}
		}
		if t.Epoch == "" {
			from = t.Order
		}
		if now-from > m.P.Absence.Microseconds() {
			return admission.Expired, admission.ReasonLate
		}
		order := min(t.Order, now)
		if t.Epoch == "" {
			count, fits, ok := m.places(t.Address, order, now)
			if !ok {
				return admission.Refused, ""
			}
			count()
			order = fits
		}
		p = &Place{Order: order}
		m.Line[t.ID] = p
		m.busy = true
	}
	m.heard(now, p, Grace(t.Interval))
	return admission.Waiting, ""
}

// Claim exchanges an admitted ticket; ok is false when the line knows nothing of it.
func (m *Model) Claim(id admission.ID, c admission.Client) (s admission.State, ok bool) {
	now := m.Room()
	s, ok = m.settled(now, id, c)
	switch {
	case s == admission.Admitted:
		g := m.Grants[id]
		g.What, g.Claimed, g.Client = admission.ReasonClaimed, now, c
		m.remember(now, g)
		m.Sessions[id] = now + m.P.SessionTTL.Microseconds()*3/2
		m.busy = true
		return admission.Active, true
	case ok:
		return s, true
	case m.Line[id] != nil:
		return admission.Waiting, true
	}
	return 0, false
}

// Patch changes the policy; what was earned so far was earned at the old rate.
func (m *Model) Patch(change func(*admission.Policy)) {
	m.meter(m.Room()).save()
	change(&m.P)
	m.fresh = false
}

// Leave gives a place back.
func (m *Model) Leave(id admission.ID) {
	now := m.Room()
	gathering, _ := m.draw(now)
	if g := m.Grants[id]; g == nil || g.What == "admitted" {
		if g == nil && gathering {
			m.leaveLot(now, id)
		}
		m.end(now, id, admission.ReasonLeft)
	}
}

// Revoke ends a session.
func (m *Model) Revoke(id admission.ID) {
	now := m.Room()
	m.Revoked[id] = true
	delete(m.Sessions, id)
	m.end(now, id, admission.ReasonRevoked)
}

// Reset empties the line.
func (m *Model) Reset() {
	m.Room()
	m.Fence++
	m.noLots()
	m.fresh = false
	clear(m.Line)
	clear(m.joins)
	for id, g := range m.Grants {
		if g.What == "admitted" {
			delete(m.Grants, id)
		}
	}
}

// Tick is one room_advance. One that comes sooner than apart (µs) after the
// last does no work. It returns what it admitted, in order.
func (m *Model) Tick(apart int64) []admission.ID {
	now := m.Room()
	gathering, opened := m.draw(now)
	if gathering && m.Gathered > 0 {
		m.countLots(now)
	}
	if !opened && m.fresh && m.Wall-m.tick < apart && m.Wall-m.built <= gap {
		return nil
	}
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
	for id, p := range m.Line {
		if m.absent(now, p) {
			delete(m.Line, id)
		}
	}
	m.forgetJoins(now)
	meter := m.meter(now)
	in := m.admit(now, meter)
	meter.Take(int64(len(in)))
	meter.rest()
	meter.save()
	m.busy = len(m.Line)+len(m.Sessions) > 0 || gathering && m.Gathered > 0
	for _, g := range m.Grants {
		m.busy = m.busy || g.What == "admitted"
	}
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
		p := m.Line[id]
		if p.Until < now {
			p.Parked = true
			continue
		}
		if int64(len(in)) >= k || max(p.Order, m.Drawn)+m.P.MinWait.Microseconds() > now {
			return in
		}
		delete(m.Line, id)
		m.Grants[id] = &Grant{What: "admitted", Wall: m.Wall, At: now}
		m.Admissions = append(m.Admissions, Admission{id, now, m.Wall, p.Order})
		in = append(in, id)
	}
	return in
}

// InOrder gives the tickets that are not parked, first come first.
func (m *Model) InOrder() []admission.ID {
	var ids []admission.ID
	for id, p := range m.Line {
		if !p.Parked {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b admission.ID) int {
		if c := cmp.Compare(m.Line[a].Order, m.Line[b].Order); c != 0 {
			return c
		}
		return slices.Compare(a[:], b[:])
	})
	return ids
}
