package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Event changes a room's policy for a time. Times are µs of Redis's clock.
type Event struct {
	ID      string // of a live event; "": of the configuration
	Name    string
	Starts  int64
	Ends    int64
	Gathers int64  // of a lottery, which opens at Starts: when its pre-queue opens
	Rate    int64  // thousandths; 0: the room's
	Method  string // "": the room's
}

// begins returns when the event first changes the policy.
func (e *Event) begins() int64 {
	if e.Gathers > 0 {
		return e.Gathers
	}
	return e.Starts
}

// Plan holds the scheduled events of a room and the draws of its lotteries. It is immutable.
type Plan struct {
	events []Event // ascending; none overlap
	draws  map[int64]*Draw
}

// NewPlan returns the plan of a room with that policy. secret seeds the draws; without a secret there are none.
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

// Draw returns the lottery that opens at a time, or nil.
func (p *Plan) Draw(opens int64) *Draw {
	if p == nil {
		return nil
	}
	return p.draws[opens]
}

// Lotteries returns the number of planned lotteries.
func (p *Plan) Lotteries() int {
	if p == nil {
		return 0
	}
	return len(p.draws)
}

// Openings returns the times at which lotteries open, ascending.
func (p *Plan) Openings() []int64 {
	if p == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(p.draws))
}

// DrawAfter returns the first lottery that opens after a time, or nil.
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

// All yields the events, the earliest first.
func (p *Plan) All() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		if p == nil {
			return
		}
		for _, e := range p.events {
			if !yield(e) {
				return
			}
		}
	}
}

// Events returns the event in force and the next one; nil for none. A lottery is in force from when its pre-queue opens.
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

// At returns the policy with the event applied that is in force at a time.
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
		// An adaptive strategy may reach the event's rate, and no more.
		p.MinRate, p.MaxRate = min(p.MinRate, e.Rate), e.Rate
	}
	return p
}

// NextOpening returns when a policy that is closed now opens by itself and, for a lottery, when its pre-queue opens; 0 where none
// is planned.
func (p Policy) NextOpening(now int64) (opens, gathers int64) {
	for _, at := range p.Plan.changes() {
		if q := p.At(at); at > now && q.Method != Reject {
			if q.Method == Lottery && q.OpensAt > at {
				return q.OpensAt, q.PrequeueAt
			}
			return at, 0
		}
	}
	return 0, 0
}

// NextClosing returns when a policy that is open now closes by itself; 0 where that is not planned.
func (p Policy) NextClosing(now int64) int64 {
	for _, at := range p.Plan.changes() {
		if at > now && p.At(at).Method == Reject {
			return at
		}
	}
	return 0
}

// Rates yields each future change: its time, and the rate from then on as RateAt returns it.
func (p Policy) Rates(now int64) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		for _, at := range p.Plan.changes() {
			if at > now && !yield(at, p.RateAt(at)) {
				return
			}
		}
	}
}

// RateAt returns the rate at a time, thousandths of a visitor per second; 0 while the room is closed or a pre-queue is open.
func (p Policy) RateAt(now int64) int64 {
	q := p.At(now)
	if q.Method == Reject || q.Method == Lottery && q.OpensAt > now {
		return 0
	}
	return q.Rate
}

// changes returns the times at which the plan changes the policy.
func (p *Plan) changes() []int64 {
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
