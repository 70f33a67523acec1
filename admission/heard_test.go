package admission_test

import (
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/short"
)

// behindTheFront returns a ticket that was admitted while no other was present, and is behind the front since 1,500 earlier
// tickets came back.
func behindTheFront(t *testing.T, absence, silence time.Duration) (Ticket, []*stagedGateway) {
	t.Helper()
	p := faultPolicy
	p.Rate, p.Burst, p.Absence = 1000, 1000, absence
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives() // takes the burst
	queue := make([]Ticket, 1501)
	for i := range queue {
		s.pass(time.Millisecond)
		queue[i] = g.waits()
		g.poll(&queue[i])
	}
	v := &queue[1500]
	g.tick2()
	other.tick()
	s.lives(silence, g, other) // nobody polls; all are parked
	g.poll(v)
	s.lives(2*time.Second, g, other)
	for i := range queue[:1500] {
		s.pass(time.Millisecond)
		g.poll(&queue[i])
	}
	s.lives(2*time.Second, g, other)
	if f, err := g.room.Lookup(g.ctx(), v.ID); err != nil || f.State != Admitted {
		t.Fatalf("the store has %+v %v", f, err)
	}
	if n := g.room.Ahead(v.Order); n < 1000 {
		t.Fatalf("%d are ahead", n)
	}
	return *v, []*stagedGateway{g, other}
}

// The next poll of an admitted ticket reports the admission, wherever its order is and at any gateway.
func TestCheck_FindsAdmittedTicketBehindFront(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	for name, c := range map[string]struct{ absence, silence time.Duration }{
		"an absence of 10m": {10 * time.Minute, 400 * time.Second},
		"an absence of 1h":  {time.Hour, 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, gateways := behindTheFront(t, c.absence, c.silence)
			for n, g := range gateways {
				if got := g.check(v); got.State != Admitted {
					t.Errorf("gateway %d answers state %d", n, got.State)
				}
			}
			// Also when the last answer is no longer remembered as new.
			v2 := v
			gateways[0].s.lives(4*time.Second, gateways...)
			for n, g := range gateways {
				if got := g.check(v2); got.State != Admitted {
					t.Errorf("4 s later gateway %d answers state %d", n, got.State)
				}
			}
		})
	}
}

// A ticket that an operator removed through another gateway keeps waiting at this one until its hold does not reach beyond the
// next poll. A hold is at most 12 minutes, however long absence is.
func TestCheck_FindsTicketRemovedElsewhereAfterHold(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst, p.Absence = 10, 1000, 12*time.Hour
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives()
	queue := make([]Ticket, 1100)
	for i := range queue {
		s.pass(time.Millisecond)
		queue[i] = g.waits()
		if i < len(queue)-1 {
			queue[i].Interval = 15 * time.Minute // they stay present meanwhile
		}
		g.poll(&queue[i])
	}
	k := queue[len(queue)-1]
	g.tick2()
	other.tick()
	if err := other.room.RemoveTicket(other.ctx(), "ann", k.ID); err != nil {
		t.Fatal(err)
	}
	if got := other.check(k); got.State != Expired || got.Reason != ReasonRemoved {
		t.Errorf("the gateway that removed it answers state %d %q", got.State, got.Reason)
	}
	began := s.us.Load()
	for {
		after := time.Duration(s.us.Load()-began) * time.Microsecond
		if got := g.check(k); got.State == Expired && got.Reason == ReasonRemoved {
			t.Logf("the other gateway answers that it was removed after %s", after)
			break
		} else if got.State != Waiting || after > 12*time.Minute {
			t.Fatalf("after %s the other gateway answers state %d %q", after, got.State, got.Reason)
		}
		s.lives(k.Interval, g, other)
	}
}
