package admission_test

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

// Place is a ticket in the queue.
type Place struct {
	Order  int64
	Seen   int64 // room time in whole tenths of a second, as µs
	Until  int64 // present until, room time
	Parked bool
}

// Grant is the record of a ticket that was admitted or has ended.
type Grant struct {
	What     string // admitted, or the reason of its end
	Wall     int64  // time of the admission
	At       int64  // the same, room time
	Claimed  int64
	Client   admission.Client
	ForgetAt int64
	Quit     bool // the visitor of a session has left
}

// Admission is one admitted visitor, from which tests check rate and order.
type Admission struct {
	ID         admission.ID
	Room, Wall int64
	Order      int64
}

// Model simulates the scripts of one room without a store. Times are microseconds.
type Model struct {
	clock
	tickets
	prequeue

	Admissions []Admission
	Fence      int64
	limiter    limiterState
	joins      joinWindows
	reset      int64 // order time of the last reset
	quiet      int64 // room time at which the room last had visitors
	fresh      bool  // a snapshot was built since the last change by an operator
	built      int64 // when it was built, wall time
}

// clock is room time and order time.
type clock struct {
	Wall            int64
	adj, tick, hold int64
	lead, last      int64 // order time: by how much it was ahead of the wall, and its value, when a script saved the room last
	time            int64 // order time now
	moved           bool  // the wall has gone back, or a silence has ended
	busy            bool
	gaps            []silence
	limiterAt       int64 // room time of the limiter's last use
}

// silence is a time in which order time ran and room time did not.
type silence struct{ till, us int64 }

// tickets are the tickets of a room in all states, and its policy.
type tickets struct {
	P        admission.Policy
	Queue    map[admission.ID]*Place
	Grants   map[admission.ID]*Grant
	Sessions map[admission.ID]int64 // until, room time
	Revoked  map[admission.ID]bool

	// The shortest absence by which grants were remembered whose tokens may still come back, and when it last was.
	absence, absenceAt int64
}

// newModel returns a room that begins now with a full bucket.
func newModel(p admission.Policy, wall int64) *Model {
	m := &Model{
		clock: clock{Wall: wall, tick: wall, limiterAt: wall},
		tickets: tickets{
			P: p, Queue: map[admission.ID]*Place{}, Grants: map[admission.ID]*Grant{},
			Sessions: map[admission.ID]int64{}, Revoked: map[admission.ID]bool{},
		},
		prequeue: prequeue{confirmed: map[admission.ID]confirmation{}},
		joins:    joinWindows{},
		quiet:    wall, Fence: 1,
	}
	m.limiter = limiterState{strategy: p.Strategy, level: m.full()}
	return m
}

func (m *Model) burst() int64 {
	if m.P.Burst > 0 {
		return m.P.Burst
	}
	return max(1000, m.P.Rate)
}

// Room returns room time: wall time without long silences and without steps back.
func (c *clock) Room() int64 {
	var away int64
	switch d := c.Wall - c.tick; {
	case d > gap:
		away = d - 1_000_000
		c.adj -= away
		c.tick, c.moved = c.Wall, true
		if c.busy {
			c.hold = c.Wall + c.adj + hold
		}
	case d < 0:
		c.adj -= d
		c.tick, c.moved = c.Wall, true
	}
	if low := c.limiterAt - c.Wall; c.adj < low {
		c.adj, c.moved = low, true
	}
	c.time = max(c.Wall+c.lead, c.last) // never goes back
	if away > 0 {
		c.gaps = append(c.gaps, silence{c.time, away})
	}
	return c.Wall + c.adj
}

// Save returns room time, as Room does, and keeps order time, as a script that saves the room does.
func (c *clock) Save() int64 {
	now := c.Room()
	c.lead, c.last = c.time-c.Wall, c.time
	return now
}

// age returns how long ago, in room time, a moment of order time was.
func (c *clock) age(then int64) int64 {
	us := c.time - then
	for _, g := range c.gaps {
		if g.till > then {
			us -= min(g.us, g.till-then)
		}
	}
	return us
}

// begin sets order time back to the wall when nothing is left that an order could be compared with.
func (m *Model) begin() {
	if m.lead > 60_000_000 && m.Room()-m.quiet > m.P.Absence.Microseconds() && !slices.ContainsFunc(m.gaps, func(g silence) bool { return m.age(g.till) <= m.P.Absence.Microseconds()+memory }) && len(m.Grants) == 0 && len(m.joins) == 0 && (m.P.Method != admission.Lottery || m.Drawn == 0) {
		m.lead, m.last, m.time, m.gaps = 0, m.Wall, m.Wall, nil
		m.Drawn, m.reset = min(m.Drawn, m.Wall), min(m.reset, m.Wall)
	}
}

// Refill refills the limiter, as room_enter does with every call.
func (m *Model) Refill() {
	now := m.Save()
	m.draw(now)
	m.meter(now).save()
}

func (ts *tickets) active() int64 {
	n := int64(len(ts.Sessions))
	for _, g := range ts.Grants {
		if g.What == "admitted" {
			n++
		}
	}
	return n
}

// shut reports whether the room admits nobody.
func (m *Model) shut() bool { return m.P.Paused || m.P.Method == admission.Reject }

func (ts *tickets) waiting() int {
	n := 0
	for _, p := range ts.Queue {
		if !p.Parked {
			n++
		}
	}
	return n
}

func (ts *tickets) settled(now int64, id admission.ID, c admission.Client) (admission.State, bool) {
	g := ts.Grants[id]
	if g == nil {
		return 0, false
	}
	switch g.What {
	case "admitted":
		if g.At+ts.P.ClaimWindow.Microseconds() >= now {
			return admission.Admitted, true
		}
		ts.end(now, id, admission.ReasonLapsed)
		return admission.Lapsed, true
	case admission.ReasonClaimed:
		ts.remember(now, g)
		if ts.Sessions[id] > now && c != (admission.Client{}) && c == g.Client && now-g.Claimed <= ts.P.ClaimWindow.Microseconds() {
			return admission.Active, true
		}
		return admission.Ended, true
	}
	ts.remember(now, g)
	switch g.What {
	case admission.ReasonLapsed:
		return admission.Lapsed, true
	case admission.ReasonRemoved:
		return admission.Expired, true
	}
	return admission.Ended, true
}

func (ts *tickets) remember(now int64, g *Grant) {
	absence := ts.P.Absence.Microseconds()
	g.ForgetAt = max(g.ForgetAt, now+absence+memory)
	if absence <= ts.absence || ts.absence == 0 || now-ts.absenceAt > absence {
		ts.absence, ts.absenceAt = absence, now
	}
}

// absenceOf returns for how long a token counts whose visitor last got a reply at a room time. The end of its ticket must still
// be remembered: where absence was raised since, for extra more than the former absence.
func (ts *tickets) absenceOf(replied, extra int64) int64 {
	if ts.absence == 0 || replied > ts.absenceAt {
		return ts.P.Absence.Microseconds()
	}
	return min(ts.P.Absence.Microseconds(), ts.absence+extra)
}

func (ts *tickets) end(now int64, id admission.ID, what string) {
	g := ts.Grants[id]
	if g == nil {
		g = &Grant{}
		ts.Grants[id] = g
	}
	g.What, g.Claimed, g.Client = what, 0, admission.Client{}
	ts.remember(now, g)
	delete(ts.Queue, id)
}

// checked renews a place and holds it for hold seconds, never shorter than before. A visitor who was silent and came back is held
// for as long the next time, up to 90 s: a browser may wake a hidden page once a minute only.
func (ts *tickets) checked(now int64, p *Place, hold int64) {
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

// joinHold and pollHold return for how many seconds a join and a poll hold a place. The model's queue is never longer than the
// front, where every poll is checked and holds the place for two more of its intervals.
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

// place returns the ticket's place in the queue. It removes the place of a visitor who was absent for too long, as a tick would.
func (ts *tickets) place(now int64, id admission.ID) *Place {
	p := ts.Queue[id]
	if p != nil && ts.absent(now, p) {
		delete(ts.Queue, id)
		return nil
	}
	return p
}

func (ts *tickets) absent(now int64, p *Place) bool {
	return p.Seen < now-ts.P.Absence.Microseconds()-second && p.Until < now-second
}

// allowed returns for how long the visitor of a ticket outside the queue may have been silent, µs. The ticket's own hold counts
// where it is longer: by a former, longer absence the visitor was advised to poll less often.
func (ts *tickets) allowed(now int64, t admission.Ticket, age int64) int64 {
	return max(ts.absenceOf(now-age, memory), min(t.Hold.Microseconds(), memory))
}

// unit is the precision of a session's end, µs; the remainder below it is the session's ttl in seconds.
const unit = 131072

func (ts *tickets) keepSession(now int64, id admission.ID) {
	ttl := ts.P.SessionTTL.Microseconds()
	till := (now+ttl*3/2+unit-1)/unit*unit + (ttl+second-1)/second
	if was := ts.Sessions[id]; till > was {
		ts.Sessions[id] = till
	} else { // the ttl was lowered since
		end := was - was%unit
		ts.Sessions[id] = end + (2*(end-now)+3*second-1)/(3*second)
	}
}

// lastHeartbeat returns when a session with that end sent its last request.
func lastHeartbeat(end int64) int64 { return end - end%unit - end%unit*second*3/2 }

// Arrive joins a visitor.
func (m *Model) Arrive(a admission.Arrival) admission.State {
	return m.arrive(m.Save(), a, 0)
}

// arrive joins a visitor at a room time, at the order that the visitor keeps; 0: the order of now.
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
	count, _, ok := m.joins.find(&m.P, a.Address, m.time, m.time)
	if !ok {
		return admission.Refused
	}
	count()
	m.busy = true
	if gathering {
		return m.gather(a.ID)
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
	m.Queue[a.ID] = p
	return admission.Waiting
}

// Seen checks a poll in the store. A ticket outside the queue is enrolled.
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
				return m.gather(t.ID), ""
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
			count, fits, ok := m.joins.find(&m.P, t.Address, order, m.time)
			if !ok {
				return admission.Refused, ""
			}
			count()
			order = fits
		}
		p = &Place{Order: order}
		m.Queue[t.ID] = p
		m.busy = true
	}
	m.checked(now, p, max(20, pollHold(t.Interval)))
	return admission.Waiting, ""
}

// Claim exchanges an admitted ticket for a session. ok is false for a ticket that the store does not hold.
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
	case m.Queue[id] != nil:
		return admission.Waiting, true
	}
	return 0, false
}

// Patch changes the policy. The limiter is first refilled at the old rate.
func (m *Model) Patch(change func(*admission.Policy)) {
	m.meter(m.Save()).save()
	change(&m.P)
	m.fresh = false
}

// Evacuate ends every session and takes back the admissions that are not claimed.
func (m *Model) Evacuate() {
	now := m.Save()
	for id, g := range m.Grants {
		if g.What == "admitted" {
			delete(m.Grants, id)
		}
	}
	clear(m.Sessions)
	m.adj, m.lead = m.adj+1, m.lead+1
	m.time++
	m.last = m.time
	m.hold = max(m.hold, now+1+hold)
	m.busy, m.fresh = true, false
}

// Leave gives up a place. A session goes on, and its pass keeps no order.
func (m *Model) Leave(id admission.ID) {
	now := m.Save()
	gathering, _ := m.draw(now)
	if g := m.Grants[id]; g == nil || g.What == "admitted" {
		if g == nil && gathering {
			m.leave(&m.clock, m.P.Absence.Microseconds(), id)
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

// Reset empties the queue.
func (m *Model) Reset() {
	m.Save()
	m.Fence++
	m.reset = m.time
	m.prequeue.clear()
	m.fresh = false
	clear(m.Queue)
	clear(m.joins)
	for id, g := range m.Grants {
		if g.What == "admitted" {
			delete(m.Grants, id)
		}
	}
}
