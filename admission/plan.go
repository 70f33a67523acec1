package admission

import (
	"cmp"
	"iter"
	"slices"
)

// Event overrides a room's policy for a time. Times are µs of Redis's clock.
type Event struct {
	Name    string
	Starts  int64
	Ends    int64
	Gathers int64  // of a lottery, which opens at Starts: from when people gather
	Rate    int64  // thousandths; 0: the room's
	Method  string // "": the room's
}

// begins is when an event first matters.
func (e *Event) begins() int64 {
	if e.Gathers > 0 {
		return e.Gathers
	}
	return e.Starts
}

// Plan is what is known beforehand of a room: its events, and the draws of its lotteries. It is immutable.
type Plan struct {
	events []Event // by time; none overlap
	draws  map[int64]*Draw
}

// NewPlan plans a room with that policy. secret seeds the draws; without one there are none.
func NewPlan(secret []byte, room string, p *Policy, events []Event) *Plan {
	plan := &Plan{events: slices.Clone(events), draws: map[int64]*Draw{}}
	slices.SortFunc(plan.events, func(a, b Event) int { return cmp.Compare(a.begins(), b.begins()) })
	draw := func(gathers, opens int64) {
		if len(secret) > 0 && opens > 0 {
			plan.draws[opens] = NewDraw(secret, room, gathers, opens)
		}
	}
	draw(p.PrequeueAt, p.OpensAt)
	for i := range plan.events {
		if e := &plan.events[i]; e.Method == Lottery {
			draw(e.Gathers, e.Starts)
		}
	}
	return plan
}

// Draw gives the lottery that opens then; nil where none is planned.
func (p *Plan) Draw(opens int64) *Draw {
	if p == nil {
		return nil
	}
	return p.draws[opens]
}

// lots is how many lotteries are planned.
func (p *Plan) lots() int {
	if p == nil {
		return 0
	}
	return len(p.draws)
}

// DrawAfter gives the first lottery that opens after a time; nil where none is planned.
func (p *Plan) DrawAfter(now int64) (next *Draw) {
	if p == nil {
		return nil
	}
	for opens, d := range p.draws {
		if opens > now && (next == nil || opens < next.Opens) {
			next = d
		}
	}
	return next
}

// Events gives the one in force, which for a lottery it is from when people gather, and the next one; nil for none.
func (p *Plan) Events(now int64) (current, next *Event) {
	if p == nil {
		return nil, nil
	}
	for i := range p.events {
		switch e := &p.events[i]; {
		case now >= e.Ends:
		case now >= e.begins():
			current = e
		default:
			return current, e
		}
	}
	return current, nil
}

// At is the policy with the event over it that is in force then.
func (p Policy) At(now int64) Policy {
	e, _ := p.Plan.Events(now)
	if e == nil {
		return p
	}
	if e.Method != "" {
		p.Method = e.Method
	}
	if e.Method == Lottery {
		p.OpensAt, p.PrequeueAt = e.Starts, e.Gathers
	}
	if e.Rate > 0 && now >= e.Starts {
		p.Rate = e.Rate
		// An adaptive strategy may reach it, and go no higher.
		p.MinRate, p.MaxRate = min(p.MinRate, e.Rate), e.Rate
	}
	return p
}

// NextOpening is when a policy that is closed now opens by itself, and, should it then be a lottery, from when people gather
// for that; 0: that is not known.
func (p Policy) NextOpening(now int64) (opens, gathers int64) {
	for _, at := range p.Plan.moments() {
		if q := p.At(at); at > now && q.Method != Reject {
			if q.Method == Lottery && q.OpensAt > at {
				return q.OpensAt, q.PrequeueAt
			}
			return at, 0
		}
	}
	return 0, 0
}

// NextClosing is when a policy that is open now closes by itself; 0: that is not known.
func (p Policy) NextClosing(now int64) int64 {
	for _, at := range p.Plan.moments() {
		if at > now && p.At(at).Method == Reject {
			return at
		}
	}
	return 0
}

// Rates are those to come, thousandths, by the time from which they hold; 0 while the room is closed or a lottery gathers.
func (p Policy) Rates(now int64) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		for _, at := range p.Plan.moments() {
			if at > now && !yield(at, p.RateAt(at)) {
				return
			}
		}
	}
}

// RateAt is that of a time, thousandths; 0 while the room is closed or a lottery gathers.
func (p Policy) RateAt(now int64) int64 {
	q := p.At(now)
	if q.Method == Reject || q.Method == Lottery && q.OpensAt > now {
		return 0
	}
	return q.Rate
}

// moments are when the policy becomes another by itself.
func (p *Plan) moments() []int64 {
	if p == nil {
		return nil
	}
	var all []int64
	for i := range p.events {
		e := &p.events[i]
		all = append(all, e.begins(), e.Starts, e.Ends)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
