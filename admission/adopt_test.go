package admission_test

import (
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
)

// An account that has a place and brings a ticket with an earlier order waits at the earlier order.
func TestJoin_AccountTakesEarlierOrder(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 10, 1000
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives() // takes the burst
	early := g.waits()
	s.pass(time.Second)
	g.waits()
	account := Arrival{ID: ID{0: 7, 15: 240}, Client: Client{7}, Keyed: true, Account: true, Interval: 3 * time.Second}
	st, _, err := g.room.Join(g.ctx(), account)
	if err != nil || st.State != Waiting || st.Ticket.Order <= early.Order {
		t.Fatalf("%+v %v", st, err)
	}
	if got := other.check(st.Ticket); got.State != Waiting || got.Ticket.Order != st.Ticket.Order {
		t.Fatalf("another gateway: %+v", got)
	}
	account.From = early.ID
	st, _, err = g.room.Join(g.ctx(), account)
	if err != nil || st.State != Waiting || st.New || st.Ticket.Order != early.Order {
		t.Errorf("%+v %v, want the order %d", st, err, early.Order)
	}
	if f, err := g.room.Lookup(g.ctx(), st.Ticket.ID); err != nil || f.Ahead != 0 || f.Order != early.Order {
		t.Errorf("the store has %+v %v", f, err)
	}
	if got := other.check(st.Ticket); got.State != Waiting || got.Ticket.Order != early.Order {
		t.Errorf("a gateway that remembers the later order: %+v, want the order %d", got, early.Order)
	}
	if got := g.check(early); got.State != Ended {
		t.Errorf("the ticket that was brought is in state %d", got.State)
	}
}
