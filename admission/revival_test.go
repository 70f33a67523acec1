package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// While the store is away a ticket whose session has ended makes no other session.
func TestOffline_EndedSessionStaysEnded(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		c, p := newTestClock(), basePolicy
		p.SessionTTL, p.ClaimWindow, p.MaxActive, p.Rate, p.Burst = time.Minute, 5*time.Minute, 1, 100_000, 100_000
		p.MinWait = time.Second
		r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
		tk := mustCheck(t, r, mustJoin(t, r, testID(), testClient(1)).Ticket).Ticket
		c.pass(time.Millisecond)
		other := mustCheck(t, r, mustJoin(t, r, testID(), testClient(2)).Ticket).Ticket
		pass := func(n int) {
			for range n {
				c.pass(time.Second)
				mustTick(t, r)
			}
		}
		pass(3)
		s, err := r.Claim(ctx5(t), tk)
		if err != nil || s.State != Active {
			t.Fatalf("%+v %v", s, err)
		}
		for range 10 {
			pass(10)
			o := mustCheck(t, r, other)
			if o.State == Waiting {
				other = o.Ticket
			}
		}
		if s, err := r.Claim(ctx5(t), other); err != nil || s.State != Active {
			t.Fatalf("the next visitor: %+v %v", s, err)
		}
		pass(2)
		if away {
			r.store.markAway(errAway)
		}
		c.pass(time.Second)
		if s, err = r.Check(ctx5(t), tk); err != nil || s.State != Ended {
			t.Errorf("away %t: %+v %v", away, s, err)
		}
	}
}

// While the store is away an old copy of a pass does not end a session that this gateway sees in use.
func TestOffline_OldPassEndsNoSession(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		c, p := newTestClock(), basePolicy
		p.SessionTTL, p.Rate, p.Burst = time.Minute, 1, 1000
		r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
		in := mustJoin(t, r, testID(), testClient(7))
		ends := c.us/1e6 + 60
		for range 180 {
			c.pass(time.Second)
			r.Touch(in.Ticket.ID, false)
			mustTick(t, r)
		}
		if away {
			r.store.markAway(errAway)
		}
		a := backWith(testID(), &in, ends)
		_, _, _ = r.Join(ctx5(t), a) // with the store up, it holds no such place
		if r.Revoked(in.Ticket.ID) {
			t.Errorf("away %t: a session in use was ended", away)
		}
	}
}
