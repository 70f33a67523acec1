package admissiontest

import (
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
