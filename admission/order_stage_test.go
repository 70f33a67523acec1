package admission_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/short"
)

// A visitor who joins through a gateway that alone is cut off has the place of that time, not one ahead of visitors who joined
// elsewhere before.
func TestCutOff_JoinersKeepTheirTime(t *testing.T) {
	p := faultPolicy
	p.Rate, p.Burst = 1, 1000
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives()
	s.cutOff(g)
	other.tick()
	var elsewhere []Ticket
	for range 8 {
		s.lives(30*time.Second, other)
		elsewhere = append(elsewhere, other.waits())
		s.lives(30*time.Second, other)
		for i := range elsewhere {
			other.poll(&elsewhere[i])
		}
	}
	last := g.waits()
	other.check(last) // a balancer moves its visitor
	if f, err := other.room.Lookup(other.ctx(), last.ID); err != nil || f.Ahead != int64(len(elsewhere)) {
		t.Fatalf("behind %d of the %d who joined before: %v", f.Ahead, len(elsewhere), err)
	}
}

// A gateway that alone is cut off for longer than absence records the polls of its visitors in their tickets.
func TestCutOff_PollersAreNotLate(t *testing.T) {
	p := faultPolicy
	p.Rate, p.Burst = 1, 1000
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives()
	before := g.waits()
	g.poll(&before)
	gone := g.waits()
	s.cutOff(g)
	other.tick()
	early := g.waits()
	for range int((p.Absence + 2*time.Minute) / time.Minute) {
		s.lives(time.Minute, other)
		for _, k := range []*Ticket{&before, &early} {
			if got := g.poll(k); got.State != Waiting || !got.Offline {
				t.Fatalf("%+v", got)
			}
		}
	}
	last := g.waits()
	s.pass(time.Second)
	g.back()
	other.tick()
	for _, row := range []struct {
		name string
		t    Ticket
		want State
	}{{"in the queue before, and polled", before, Waiting}, {"joined at the beginning, and polled", early, Waiting}, {"joined at the end", last, Waiting}, {"silent", gone, Expired}} {
		if got := g.check(row.t); got.State != row.want {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

// A ticket that is spent elsewhere does not outlive the memory of its end, however long its holder polls a gateway that is cut
// off.
func TestCutOff_VouchesForALimitedTime(t *testing.T) {
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives()
	k := g.waits()
	g.poll(&k)
	spent := k
	s.cutOff(g)
	other.tick()
	s.lives(8*time.Second, other)
	if got := other.poll(&spent); got.State != Active {
		t.Fatalf("elsewhere: %+v", got)
	}
	for range 60 {
		s.lives(time.Minute, other)
		if got := g.poll(&k); got.State != Waiting {
			t.Fatalf("%+v", got)
		}
	}
	g.back()
	for range 10 {
		if got := g.poll(&k); got.State != Expired && got.State != Ended {
			t.Fatalf("the ticket of an ended session, an hour later: %+v", got)
		}
		s.lives(2*time.Second, other)
	}
}

// With on_store_error local, a gateway that alone is cut off admits at most its share, beside the full rate of the others. When
// it is back, what it admitted is charged to the limiter.
func TestCutOff_LocalAdmissions(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	p := faultPolicy
	p.Rate, p.Burst, p.OnStoreError = 4_000, 1000, OnErrorLocal
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives()
	var queue []Ticket
	for range 600 {
		s.pass(time.Millisecond)
		queue = append(queue, g.waits())
	}
	g.tick2()
	other.tick()
	s.cutOff(g)
	other.tick()
	from, local := s.us.Load(), 0
	for s.us.Load()-from < 60e6 {
		s.pass(tick)
		other.tick()
		for i := range queue {
			if queue[i].ID != (ID{}) && i%2 == 0 && g.check(queue[i]).State == Active {
				queue[i], local = Ticket{}, local+1
			}
			if i%2 == 1 && queue[i].ID != (ID{}) && s.us.Load()/250_000%40 == 0 && other.poll(&queue[i]).State == Active {
				queue[i] = Ticket{}
			}
		}
	}
	if most := 65*4/2 + 1; local == 0 || local > most {
		t.Errorf("%d were admitted by the gateway that was cut off, want at most %d", local, most)
	}
	before := other.room.Snapshot().Admissions
	g.back()
	for range 4 * 4 {
		s.pass(tick)
		g.tick()
	}
	if n := g.room.Snapshot().Admissions - before; n > 2 {
		t.Errorf("%d were admitted in the 4 s after it was back: nothing was taken from the limiter", n)
	}
}

// The token of a gateway that never reached the store makes one session, becomes late, and does not outlive a reset.
func TestNeverConnected_TokenIsSpentOnce(t *testing.T) {
	p := faultPolicy
	p.Rate, p.Burst = 10_000, 1000
	s := newStage(t)
	other, g := s.gateway(p), s.gateway(p)
	other.tick()
	s.lives(p.Absence, other)
	g.proxy.Cut()
	k, kept := g.waits(), g.waits()
	if k.Fence != 0 || k.Epoch != "" {
		t.Fatalf("%+v", k)
	}
	s.pass(tick)
	other.tick()
	in := func() (got Standing) {
		for range 5 {
			got = other.check(k)
			if got.State == Admitted {
				var err error
				if got, err = other.room.Claim(other.ctx(), k); err != nil && !errors.Is(err, ErrNotYet) {
					t.Fatal(err)
				}
			}
			if got.State != Waiting {
				return got
			}
			s.lives(1100*time.Millisecond, other)
		}
		return got
	}
	if got := in(); got.State != Active {
		t.Fatalf("first: %+v", got)
	}
	s.lives(p.Absence+16*time.Minute, other)
	if got := in(); got.State != Expired || got.Reason != ReasonLate {
		t.Errorf("27 minutes later, the same token: %+v", got)
	}
	k = g.waits()
	s.pass(time.Second)
	if err := other.room.Reset(other.ctx(), "ann"); err != nil {
		t.Fatal(err)
	}
	if got := in(); got.State != Expired || got.Reason != ReasonReset {
		t.Errorf("after a reset: %+v", got)
	}
	k = kept
	if got := in(); got.State != Expired {
		t.Errorf("one that was put by: %+v", got)
	}
}

// The place of such a token among those of other gateways is that of the time at which it was signed.
func TestNeverConnected_OrderIsTimeOfJoining(t *testing.T) {
	p := faultPolicy
	p.Rate, p.Burst = 1, 1000
	s := newStage(t)
	other, g := s.gateway(p), s.gateway(p)
	other.tick()
	other.arrives()
	g.proxy.Cut()
	var queue []Ticket
	for i := range 6 {
		s.lives(time.Second, other)
		queue = append(queue, []*stagedGateway{g, other}[i%2].waits())
	}
	for i := range queue {
		other.check(queue[i])
	}
	for i := range queue {
		if f, err := other.room.Lookup(other.ctx(), queue[i].ID); err != nil || f.Ahead != int64(i) {
			t.Errorf("visitor %d has %d ahead: %v", i, f.Ahead, err)
		}
	}
}
