package admission

// UnheardBefore is how many of the unheard are ahead of an order, by its share of the numbers drawn: those are uniform.
func (r *Room) UnheardBefore(order int64) int64 {
	s := r.Snapshot()
	n := s.Unheard()
	if n == 0 || order >= s.Drawn {
		return n
	}
	d := r.draw(s.Opens)
	if d == nil {
		return n
	}
	span := d.Span()
	return int64(float64(n) * float64(max(0, order-(s.Drawn-span))) / float64(span))
}

// draw gives the lottery of that opening; nil where the configuration has none, or another gateway has its seed.
func (r *Room) draw(opens int64) *Draw {
	d := r.config.Load().Policy.Plan.Draw(opens)
	if d == nil {
		return nil
	}
	switch _, seed, known := r.Lot(d); {
	case !known:
		return nil
	case seed != d.Seed:
		return &Draw{Opens: d.Opens, Gathers: d.Gathers, Seed: seed}
	}
	return d
}

// toOrder is the lot of a ticket without an order.
type toOrder uint8

const (
	hasOrder toOrder = iota
	gathers          // it has none yet, and is confirmed
	placed           // it has one now, and is enrolled
)

// order gives a ticket the order that it has come to have since it was signed without one: the drawn one, by opens and drawn
// of an opening; where the room takes people in the order in which they come, that of when it was signed; 0, that of its
// enrolment, to whom nobody confirmed in time.
func (r *Room) order(s *Snapshot, t Ticket, opens, drawn int64) (Ticket, toOrder) {
	if t.Order != 0 {
		return t, hasOrder
	}
	heard := t.Epoch != ""
	if t.Fence == 0 {
		t.Fence = s.Fence // it has no order of its gateway's clock
	}
	d := r.draw(opens)
	switch {
	case !s.Known:
		return t, gathers
	case d != nil && drawn > 0 && heard && t.Seen < drawn:
		t.Order = d.Order(t.ID, drawn)
	case d == nil && drawn > 0 && heard && t.Seen < drawn && s.Policy.Method == Lottery &&
		(opens > s.Policy.OpensAt && s.Policy.Plan.Lotteries() > 0 || s.Policy.Plan.Draw(opens) != nil):
		return t, gathers // the draw of another configuration, or by another's secret: a gateway that has it knows the place
	case s.Policy.Method == Reject, s.Policy.Method == Passthrough, s.Gathering() && (drawn == 0 || opens < s.Policy.OpensAt):
		return t, gathers
	case heard && s.Policy.Method != Lottery && t.Joined > 0:
		t.Order = max(1, t.Joined*1e6+r.orderLead())
	}
	return t, placed
}
