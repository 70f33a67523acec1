package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
	"github.com/anteroom/anteroom/bench/wire"
)

// ticket is one place of a fill: 48 bytes, beside its token on the shelf. Times are milliseconds since the fill began.
type ticket struct {
	order    int64 // while a join is under way: the highest order that was answered before it was sent
	sent     uint32
	joined   uint32
	heard    uint32 // the last answer
	due      uint32
	next     int32  // in the wheel
	place    uint32 // the last position; 0: none was told
	interval uint16 // s, as advised
	state    ticketState
	fails    uint8 // in a row
}

const ticketBytes = int(unsafe.Sizeof(ticket{}))

type ticketState uint8

const (
	unborn   ticketState = iota
	asking               // a join is under way
	signed               // joined, and not polled yet
	enrolled             // polled at least once
	inside               // let in
	gone                 // lost
)

// tally is what all parts of a fill count together, while it runs.
type tally struct {
	total                          int64
	joinedAt, settledAt            atomic.Int64 // ms: when the last had joined, and was polled first
	joined, settled, inside, lost  atomic.Int64
	polls, returned, waiting       atomic.Int64
	unconfirmed                    atomic.Int64 // first polls that were answered without the store
	grewEarly, grewLater           growth       // over what was told in the rush; over what was told when all were in
	newest, swapped, swappedMicros atomic.Int64 // the highest order answered; joins that got one below it, by how much at most
}

// growth is of positions that grew though not so many people came back.
type growth struct {
	polls, worst, of atomic.Int64 // by how much at most, and how many waited then
}

func (g *growth) add(by, waiting int64) {
	g.polls.Add(1)
	if raise(&g.worst, by) {
		g.of.Store(waiting)
	}
}

func raise(to *atomic.Int64, n int64) (raised bool) {
	for {
		have := to.Load()
		if n <= have {
			return false
		}
		if to.CompareAndSwap(have, n) {
			return true
		}
	}
}

// filler fills a room with its part of the tickets and keeps them polling. It is a timetable of a loop, and used by
// that loop's goroutine alone; between two loops it may be looked at.
type filler struct {
	*tally
	n       int
	tickets []ticket
	tokens  *shelf
	wheel   *wheel
	born    int           // tickets that have begun to join
	joining bool          // the next request is a join
	polled  int           // since the last join
	begun   time.Duration // of the loop, since the fill's
	now     uint32
	pause   uint32 // no joins before: the gateway cannot be reached
	until   func(now time.Duration) bool
	line    [2]string // of a poll: what stands before and after the token
	join    string
	refused error          // what makes the rest pointless
	why     map[string]int // of the lost
	in      []verdict.Admission
}

func newFiller(t *tally, n int, host, room string) *filler {
	f := &filler{tally: t, n: n, tickets: make([]ticket, n), tokens: newShelf(n), why: map[string]int{}}
	f.wheel = newWheel(f.tickets)
	common := " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: anteroom-loadgen\r\nAccept: application/json\r\n"
	base := "/.waiting-room/" + room
	f.line = [2]string{"GET " + base + "/status" + common + "X-Waiting-Room-Token: ", "\r\n\r\n"}
	f.join = "POST " + base + "/tickets" + common + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	return f
}

// The kinds of a filler's requests.
const (
	fillJoin = iota
	fillPoll
	fillKinds
)

var _ wire.Timetable = (*filler)(nil)

func (f *filler) ms(d time.Duration) uint32 { return uint32((f.begun + d) / time.Millisecond) }

// Due lets those go first who are due, but for every fourth request, with which somebody joins: where the gateway is too
// slow for its own advice, polls are late, and the room fills all the same.
func (f *filler) Due(now time.Duration) (time.Duration, bool) {
	f.now = f.ms(now)
	f.wheel.turn(f.now)
	may := f.born < f.n && f.now >= f.pause
	i := f.wheel.first
	f.joining = may && (i == nobody || f.polled >= 3)
	if f.joining || i == nobody {
		return now, f.joining
	}
	return min(now, time.Duration(f.tickets[i].due)*time.Millisecond-f.begun), true
}

func (f *filler) Over(now time.Duration) bool { return f.refused != nil || f.until(now) }

func (f *filler) Next(_ int, b []byte) ([]byte, int, int) {
	var i int32
	if f.joining {
		i, f.polled = int32(f.born), 0
		f.born++
	} else {
		i = f.wheel.take()
		f.polled++
	}
	t := &f.tickets[i]
	t.sent = f.now
	if t.state <= asking {
		t.state, t.order = asking, f.newest.Load()
		return append(b, f.join...), fillJoin, int(i)
	}
	b = f.tokens.add(append(b, f.line[0]...), int(i))
	return append(b, f.line[1]...), fillPoll, int(i)
}

// Failed asks again after a while, as Answered does where the gateway is busy: a quarter of a second that doubles up to four.
func (f *filler) Failed(kind, tag int) {
	if kind == fillJoin {
		f.pause = f.now + 100
	}
	f.later(tag)
}

func (f *filler) later(i int) {
	t := &f.tickets[i]
	f.again(i, (250<<min(t.fails, 4))+rand.Uint32N(100)) //nolint:gosec // jitter is no secret
	t.fails = min(t.fails, 100) + 1
}

func (f *filler) again(i int, after uint32) {
	f.tickets[i].due = f.now + after
	f.wheel.add(int32(i))
}

func (f *filler) Answered(kind, i int, a *wire.Answer) string {
	t := &f.tickets[i]
	switch {
	case kind == fillPoll && a.Status == 401:
		f.lose(i, "token refused (401)")
		return "poll: status 401"
	case kind == fillJoin && a.Status >= 400 && a.Status < 500 && a.Status != 429:
		// Asking again will not help: there is no such room here.
		f.refused = fmt.Errorf("a join was refused: status %d %.200s", a.Status, a.Body())
		f.later(i)
		return "join: refused"
	case a.Status != 200 && a.Status != 201:
		f.later(i)
		return fmt.Sprintf("%s: status %d", []string{"join", "poll"}[kind], a.Status)
	}
	s := visitor.Glance(a.Body())
	state := string(s.State)
	if kind == fillJoin && len(s.Token) == 0 && len(s.Pass) == 0 {
		f.later(i)
		return "join: neither a token nor a pass"
	}
	before := f.heardOf(t)
	if kind == fillPoll {
		f.polls.Add(1)
	} else if t.joined = f.now; f.joined.Add(1) == f.total {
		f.joinedAt.Store(int64(f.now))
	}
	switch state {
	case "expired", "lapsed", "ended", "prequeue", "rejected":
		f.lose(i, strings.TrimSuffix(state+": "+string(s.Reason), ": "))
		return ""
	}
	if lost := f.keep(i, s.Token); lost != "" {
		f.lose(i, lost)
		return ""
	}
	if len(s.Pass) > 0 {
		f.letIn(t, &s)
		return ""
	}
	switch {
	case kind == fillJoin:
		t.state = signed
	case t.state == signed && !f.tokens.place(i).Confirmed: // the store was too slow for the gateway
		f.unconfirmed.Add(1)
		f.moved(t, &s, &f.grewEarly)
		f.again(i, 1000)
		return ""
	case t.state == signed:
		t.state = enrolled
		f.settle()
	}
	grew := &f.grewEarly
	if all := f.settledAt.Load(); all > 0 && int64(before) > all+calm {
		grew = &f.grewLater
	}
	f.moved(t, &s, grew)
	t.interval = uint16(min(max(s.RefreshAfter, 0), 1<<15))
	if t.interval == 0 {
		t.interval = 2
	}
	// A page's timer and its network are late by some: whole seconds after the same answer would keep those together for
	// good who once were.
	f.again(i, uint32(max(s.RefreshAfter, 0.01)*1000)+rand.Uint32N(250)) //nolint:gosec // as above
	return ""
}

// calm is after how many ms every gateway knows of everybody who has joined at another. A position that was told before
// may be short of those who came in the same moments.
const calm = 2000

// heardOf notes who was out of touch for longer than presence lasts and has come back, and gives the time of the answer
// before.
func (f *filler) heardOf(t *ticket) (before uint32) {
	present := max(30, 2*uint32(t.interval)+10) * 1000
	if t.state >= signed && f.now-t.heard > present {
		f.returned.Add(1)
	}
	before, t.heard, t.fails = t.heard, f.now, 0
	return before
}

// keep notes a newly heard token, and says how the place changed if it did so for the worse.
func (f *filler) keep(i int, token []byte) (lost string) {
	if len(token) == 0 {
		return ""
	}
	t := &f.tickets[i]
	had := visitor.Place{}
	if t.state >= signed {
		had = f.tokens.place(i)
	}
	f.tokens.put(i, string(token))
	p := f.tokens.place(i)
	switch {
	case t.state >= signed && p.ID != had.ID:
		return "another ticket"
	case t.state >= signed && p.Order > t.order:
		return "moved back"
	case t.state == asking:
		if p.Order <= t.order && p.Order > 0 {
			f.swapped.Add(1)
			raise(&f.swappedMicros, t.order-p.Order+1)
		}
		raise(&f.newest, p.Order)
	}
	t.order = p.Order
	return ""
}

// moved compares a position with the one before. It may grow by as many as were away and have come back.
func (f *filler) moved(t *ticket, s *visitor.Seen, grew *growth) {
	if s.Position == 0 {
		return
	}
	f.waiting.Store(s.Waiting)
	if by := s.Position - int64(t.place); t.place > 0 && by > f.returned.Load() {
		grew.add(by, s.Waiting)
	}
	t.place = uint32(s.Position)
}

func (f *filler) letIn(t *ticket, s *visitor.Seen) {
	if t.state != enrolled {
		f.settle()
	}
	a := verdict.Admission{Ordered: t.state >= signed, Sent: int64(t.sent) * 1000, Answered: int64(t.joined) * 1000}
	if a.Ordered {
		a.Order = t.order
	}
	if at, err := time.Parse(time.RFC3339Nano, string(s.AdmittedAt)); err == nil {
		a.At = at.UnixMicro()
		f.in = append(f.in, a)
	}
	t.state = inside
	f.inside.Add(1)
}

// settle counts a ticket of which the fill itself is over.
func (f *filler) settle() {
	if f.settled.Add(1) == f.total {
		f.settledAt.Store(int64(f.now))
	}
}

func (f *filler) lose(i int, why string) {
	t := &f.tickets[i]
	if t.state != enrolled {
		f.settle()
	}
	t.state = gone
	f.lost.Add(1)
	f.why[why]++
}
