package admission_test

import (
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
)

// device joins as one of an account's.
func (g *stagedGateway) device(account byte) Standing {
	g.s.t.Helper()
	a := Arrival{ID: ID{9, account}, Client: Client{9, account}, Keyed: true, Account: true, Interval: time.Minute}
	s, refusal, err := g.room.Join(g.ctx(), a)
	if err != nil || refusal != Granted {
		g.s.t.Fatalf("account %d: %v %q", account, err, refusal)
	}
	s.Ticket.Client, s.Ticket.Interval = a.Client, a.Interval
	return s
}

// While the store is away each gateway gives an account a place of its own. When the store is back they are one place.
func TestAccount_OfflinePlacesBecomeOne(t *testing.T) {
	t.Parallel()
	for _, onError := range []string{OnErrorWait, OnErrorOpen} {
		t.Run(onError, func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst, p.OnStoreError = 1, 1000, onError
			s := newStage(t)
			one, two := s.gateway(p), s.gateway(p)
			one.tick()
			two.tick()
			one.arrives() // takes the burst
			before := Standing{}
			if onError == OnErrorWait {
				before = one.device(1)
				one.tick2()
				two.tick()
			}
			s.cutOff(one, two)
			s.pass(time.Second)
			first, second := one.device(2), two.device(2)
			if first.Ticket.ID != second.Ticket.ID || first.State != second.State || !first.Offline {
				t.Fatalf("two places: %+v, %+v", first, second)
			}
			if onError == OnErrorWait {
				if again := one.device(1); again.Ticket.ID != before.Ticket.ID || again.Ticket.Order != before.Ticket.Order || again.New {
					t.Errorf("a place that this gateway knows is not found: %+v, it was %+v", again, before)
				}
			}
			one.back()
			two.back()
			s.pass(tick)
			one.tick()
			two.tick()
			got, other := two.check(first.Ticket), one.check(second.Ticket)
			if got.Ticket.Order != other.Ticket.Order || got.State != other.State {
				t.Errorf("one gateway returns %+v, the other %+v", got, other)
			}
			one.tick2()
			snap := one.room.Snapshot()
			if waiting, active := snap.Waiting, snap.Active; onError == OnErrorWait && (waiting != 2 || active != 1) || onError == OnErrorOpen && (waiting != 0 || active != 2) {
				t.Errorf("%d waiting, %d active", waiting, active)
			}
		})
	}
}

// A store that lost the room finds the older place of the account, whichever device polls first.
func TestAccount_PlaceSurvivesEmptiedStore(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1, 1000
	s := newStage(t)
	g, fresh := s.gateway(p), s.gateway(p)
	g.tick()
	g.arrives()
	phone := g.device(1)
	s.pass(time.Second)
	behind := g.waits()
	g.tick2()
	if err := s.server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.pass(tick)
	g.tick()
	fresh.tick()
	laptop := fresh.device(1)
	if laptop.Ticket.ID != phone.Ticket.ID || laptop.Ticket.Order <= behind.Order {
		t.Fatalf("the laptop came first and has %+v", laptop)
	}
	s.pass(2 * time.Second) // beyond what gateways remember of a poll
	if got := g.check(phone.Ticket); got.State != Waiting || got.Ticket.Order != phone.Ticket.Order {
		t.Errorf("the phone has %+v, it had %+v", got, phone)
	}
	if got := g.check(behind); got.State != Waiting || got.Ticket.Order != behind.Order {
		t.Errorf("the visitor behind has %+v", got)
	}
	s.pass(2 * time.Second)
	if got := fresh.check(laptop.Ticket); got.Ticket.Order != phone.Ticket.Order {
		t.Errorf("the laptop has %+v, not the phone's place", got)
	}
	g.tick2()
	if n := g.room.Snapshot().Waiting; n != 2 {
		t.Errorf("%d wait, want 2", n)
	}
}

// An account outlives its places: the id of a revoked session is not used again. A full or draining room gives no new place and
// finds existing ones.
func TestAccount_OutlivesItsPlaces(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst, p.Capacity = 1, 1000, 1
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	in := g.device(1)
	if in.State != Active || !in.New {
		t.Fatalf("admitted immediately: %+v", in)
	}
	for range 90 { // 6 minutes, and no silence that would be taken out of room time
		s.pass(4 * time.Second)
		g.tick()
	}
	other.tick()
	if got := other.device(1); got.State != Active || got.Ticket.ID != in.Ticket.ID || got.New || got.AdmittedAt != in.AdmittedAt {
		t.Errorf("another device long after the claim: %+v, want the session %+v", got, in)
	}
	if err := g.room.RevokeSession(g.ctx(), "ops", in.Ticket.ID); err != nil {
		t.Fatal(err)
	}
	next := other.device(1)
	if next.State != Waiting || next.Ticket.ID == in.Ticket.ID || !next.New || !next.Ticket.ID.Of(ID{9, 1}) {
		t.Errorf("after the revocation: %+v", next)
	}
	g.tick2()
	other.tick2()
	if got := g.device(1); got.Ticket.ID != next.Ticket.ID || got.New {
		t.Errorf("in a full room its holder is not found: %+v", got)
	}
	a := Arrival{ID: ID{9, 2}, Client: Client{9, 2}, Keyed: true, Account: true}
	if s, refusal, err := g.room.Join(g.ctx(), a); err != nil || refusal != Full {
		t.Errorf("a new account in a full room: %+v %q %v", s, refusal, err)
	}
	if err := g.room.Drain(g.ctx(), "ops"); err != nil {
		t.Fatal(err)
	}
	g.tick2()
	if got := g.device(1); got.Ticket.ID != next.Ticket.ID || got.New {
		t.Errorf("in a draining room its holder is not found: %+v", got)
	}
	if s, refusal, err := g.room.Join(g.ctx(), a); err != nil || refusal != Draining {
		t.Errorf("a new account in a draining room: %+v %q %v", s, refusal, err)
	}
	if s, refusal, err := g.room.Join(g.ctx(), Arrival{ID: ID{9, 3}, Keyed: true, Account: true, Held: true}); err != nil || refusal == Granted && s.State != Ended {
		t.Errorf("an account without a place: %+v %q %v", s, refusal, err)
	}
}

// A ticket that an account brings was admitted before and keeps its session, whatever this gateway remembers.
func TestAccount_BringsAdmittedTicket(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	g := s.gateway(p)
	g.tick()
	g.arrives() // takes the burst
	in := g.waits()
	s.pass(2 * time.Second)
	g.tick2()
	if got := g.poll(&in); got.State != Active {
		t.Fatalf("not admitted: %+v", got)
	}
	g.device(1)
	a := Arrival{ID: ID{9, 1}, Client: Client{9, 1}, Keyed: true, Account: true, Interval: time.Minute, From: in.ID}
	if _, refusal, err := g.room.Join(g.ctx(), a); err != nil || refusal != Granted {
		t.Fatalf("%v %q", err, refusal)
	}
	if got := g.check(in); got.State != Active {
		t.Errorf("a session of before is %+v", got)
	}
}
