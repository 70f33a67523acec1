package admissiontest

import (
	"math"
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
	Seen   int64 // room time in whole tenths of a second, as µs
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
	Quit     bool // of a session: its visitor has left
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
	// Order time: by how much it was ahead of the wall and what it was when a script saved the room last, and what it is.
	lead, last, time int64
	reset            int64 // order time of the last reset
	moved            bool  // the wall has gone back, or a silence is over
	gaps             []silence
	quiet            int64 // room time at which the room was not empty, at last
	busy             bool
	limiter          limiterState
	Line             map[admission.ID]*Place
	Grants           map[admission.ID]*Grant
	Sessions         map[admission.ID]int64 // until, room time
	Revoked          map[admission.ID]bool
	Admissions       []Admission
	Fence            int64
	Drawn, Gathered  int64 // of a lottery: the order time of its opening, and how many were confirmed before
	lots             lots
	fresh            bool  // a snapshot was built since the last change by an operator
	built            int64 // when, by the wall
	joins            map[string]joins

	absence, absenceAt int64 // the shortest absence by which grants were remembered that may still come back, and when last
}

// silence is a time in which order time ran and room time did not.
type silence struct{ till, us int64 }

// New is a room that begins now with a full bucket.
func New(p admission.Policy, wall int64) *Model {
	m := &Model{
		P: p, Wall: wall, tick: wall, quiet: wall, Fence: 1,
		Line: map[admission.ID]*Place{}, Grants: map[admission.ID]*Grant{},
		Sessions: map[admission.ID]int64{}, Revoked: map[admission.ID]bool{}, joins: map[string]joins{}, lots: lots{of: map[admission.ID]lot{}},
	}
	m.limiter = limiterState{strategy: p.Strategy, at: wall, level: m.full()}
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
	var away int64
	switch d := m.Wall - m.tick; {
	case d > gap:
		away = d - 1_000_000
		m.adj -= away
		m.tick, m.moved = m.Wall, true
		if m.busy {
			m.hold = m.Wall + m.adj + hold
		}
	case d < 0:
		m.adj -= d
		m.tick, m.moved = m.Wall, true
	}
	if low := m.limiter.at - m.Wall; m.adj < low {
		m.adj, m.moved = low, true
	}
	m.time = max(m.Wall+m.lead, m.last) // without jumps back
	if away > 0 {
		m.gaps = append(m.gaps, silence{m.time, away})
	}
	return m.Wall + m.adj
}

// Save is Room in a script that saves the room.
func (m *Model) Save() int64 {
	now := m.Room()
	m.lead, m.last = m.time-m.Wall, m.time
	return now
}

// age is for how long a moment of order time has been over, in room time.
func (m *Model) age(then int64) int64 {
	us := m.time - then
	for _, g := range m.gaps {
		if g.till > then {
			us -= min(g.us, g.till-then)
		}
	}
	return us
}

// begin lets order time be the wall's again where nothing is left that an order could be compared with.
func (m *Model) begin() {
	if m.lead > 60_000_000 && m.Room()-m.quiet > m.P.Absence.Microseconds() && !slices.ContainsFunc(m.gaps, func(g silence) bool { return m.age(g.till) <= m.P.Absence.Microseconds()+memory }) && len(m.Grants) == 0 && len(m.joins) == 0 && (m.P.Method != admission.Lottery || m.Drawn == 0) {
		m.lead, m.last, m.time, m.gaps = 0, m.Wall, m.Wall, nil
		m.Drawn, m.reset = min(m.Drawn, m.Wall), min(m.reset, m.Wall)
	}
}

// Refill is what room_enter does to the limiter whatever it is asked.
func (m *Model) Refill() {
	now := m.Save()
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
	absence := m.P.Absence.Microseconds()
	g.ForgetAt = max(g.ForgetAt, now+absence+memory)
	if absence <= m.absence || m.absence == 0 || now-m.absenceAt > absence {
		m.absence, m.absenceAt = absence, now
	}
}

// absenceOf is for how long a token counts that was heard at a room time: what it may have become must be remembered, which was
// for extra more than an absence that has been raised since.
func (m *Model) absenceOf(heard, extra int64) int64 {
	if m.absence == 0 || heard > m.absenceAt {
		return m.P.Absence.Microseconds()
	}
	return min(m.P.Absence.Microseconds(), m.absence+extra)
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

// checked renews a place and holds it for that long, never shorter than before. A visitor who was silent before and came back
// is held for as long the next time, up to 90 s: a browser may wake a hidden page once a minute only.
func (m *Model) checked(now int64, p *Place, hold int64) {
	if p.Seen > 0 {
		silence := (now - p.Seen) / second
		hold = max(hold, 15+min(75, silence))
		if left := p.Until - now; left > 0 {
			hold = max(hold, (left+second-1)/second)
		}
	}
	p.Seen = now / tenth * tenth
	p.Until = p.Seen + hold*second
	p.Parked = false
}

const second = 1_000_000

// joinHold and pollHold return for how many seconds a join and a poll hold a place. The model's line is never longer than the
// front, where every poll is checked and held for two more of its intervals.
func joinHold(a admission.Arrival) int64 {
	if a.Keyed {
		return 90 + pollHold(a.Interval) // it may lie beyond the front
	}
	return max(20, pollHold(a.Interval))
}

func pollHold(interval time.Duration) int64 {
	if interval <= 0 {
		interval = 10 * time.Second
	}
	return int64(math.Ceil(2*interval.Seconds() + 10))
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
	return p.Seen < now-m.P.Absence.Microseconds()-second && p.Until < now-second
}

// allowed is for how long the visitor of a ticket that the line does not hold may have been silent, µs: a longer absence of before
// had the visitor poll less often.
func (m *Model) allowed(now int64, t admission.Ticket, age int64) int64 {
	return max(m.absenceOf(now-age, memory), min(t.Hold.Microseconds(), memory))
}

// unit is the grain of a session's end, µs; what the end has below it is the session's ttl in seconds.
const unit = 131072

func (m *Model) keepSession(now int64, id admission.ID) {
	ttl := m.P.SessionTTL.Microseconds()
	till := (now+ttl*3/2+unit-1)/unit*unit + (ttl+second-1)/second
	if was := m.Sessions[id]; till > was {
		m.Sessions[id] = till
	} else { // by a ttl that has been lowered since
		end := was - was%unit
		m.Sessions[id] = end + (2*(end-now)+3*second-1)/(3*second)
	}
}

// heard is when a session with that end was last heard of.
func heard(end int64) int64 { return end - end%unit - end%unit*second*3/2 }

// Arrive is a newcomer.
func (m *Model) Arrive(a admission.Arrival) admission.State {
	return m.arrive(m.Save(), a, 0)
}

// arrive is Arrive at a room time, in the order that the visitor keeps; 0: that of now.
func (m *Model) arrive(now int64, a admission.Arrival, order int64) admission.State {
	gathering, _ := m.draw(now)
	meter := m.meter(now)
	defer func() { meter.save() }()
	if s, ok := m.settled(now, a.ID, a.Client); ok {
		return s
	}
	if p := m.place(now, a.ID); p != nil {
		m.checked(now, p, joinHold(a))
		if order > 0 {
			p.Order = min(p.Order, order)
		}
		return admission.Waiting
	}
	count, _, ok := m.places(a.Address, m.time, m.time)
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
		m.keepSession(now, a.ID)
		m.Admissions = append(m.Admissions, Admission{a.ID, now, m.Wall, m.time})
		return admission.Active
	}
	if order == 0 {
		order = m.time
	}
	p := &Place{Order: order}
	m.checked(now, p, joinHold(a))
	m.Line[a.ID] = p
	return admission.Waiting
}

// Seen is a poll that reached the store; a ticket that the line does not hold is enrolled.
func (m *Model) Seen(t admission.Ticket) (admission.State, string) {
	now := m.Save()
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
				if t.Epoch != "" && m.age(t.Seen) > m.allowed(now, t, m.age(t.Seen)) {
					return admission.Expired, admission.ReasonLate
				}
				return m.gather(now, t.ID), ""
			}
		}
		if t.Epoch == "" {
			from = t.Order
		}
		if m.age(from) > m.allowed(now, t, m.age(from)) {
			return admission.Expired, admission.ReasonLate
		}
		order := min(t.Order, m.time)
		if t.Epoch == "" {
			count, fits, ok := m.places(t.Address, order, m.time)
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
	m.checked(now, p, max(20, pollHold(t.Interval)))
	return admission.Waiting, ""
}

// Claim exchanges an admitted ticket; ok is false when the line knows nothing of it.
func (m *Model) Claim(id admission.ID, c admission.Client) (s admission.State, ok bool) {
	now := m.Save()
	s, ok = m.settled(now, id, c)
	switch {
	case s == admission.Admitted:
		g := m.Grants[id]
		g.What, g.Claimed, g.Client = admission.ReasonClaimed, now, c
		m.remember(now, g)
		m.keepSession(now, id)
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
	m.meter(m.Save()).save()
	change(&m.P)
	m.fresh = false
}

// Leave gives a place back. A session goes on, and keeps no order when it is over.
func (m *Model) Leave(id admission.ID) {
	now := m.Save()
	gathering, _ := m.draw(now)
	if g := m.Grants[id]; g == nil || g.What == "admitted" {
		if g == nil && gathering {
			m.leaveLot(now, id)
		}
		m.end(now, id, admission.ReasonLeft)
	} else if g.What == admission.ReasonClaimed {
		g.Quit = true
		m.remember(now, g)
	}
}

// Revoke ends a session.
func (m *Model) Revoke(id admission.ID) {
	now := m.Save()
	m.Revoked[id] = true
	delete(m.Sessions, id)
	m.end(now, id, admission.ReasonRevoked)
}

// Reset empties the line.
func (m *Model) Reset() {
	m.Save()
	m.Fence++
	m.reset = m.time
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
