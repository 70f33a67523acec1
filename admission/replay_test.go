package admission_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"

	"github.com/anteroom/anteroom/internal/short"
)

// lives advances the clock by d while the gateways tick the room, so that room time runs.
func (s *stage) lives(d time.Duration, gs ...*stagedGateway) {
	s.t.Helper()
	for left := d; left > 0; {
		step := min(left, 4*time.Second)
		s.pass(step)
		left -= step
		for _, g := range gs {
			g.tick()
		}
	}
}

// A thousand places behind a long queue that nobody polls for are valid for absence and not a second longer, and leave nothing
// in the store.
func TestTokens_HoardedAreLate(t *testing.T) {
	short.Skip(t, "runs for long")
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1, 1000 // one visitor is admitted immediately, and none for a quarter of an hour
	s := newStage(t)
	g := s.gateway(p)
	g.tick()
	g.arrives()
	for range 1000 { // the front
		s.pass(time.Millisecond)
		g.waits()
	}
	g.tick2()
	hoard := make([]Ticket, 1000)
	for i := range hoard {
		s.pass(time.Millisecond)
		if hoard[i] = g.waits(); hoard[i].Epoch != "" {
			t.Fatalf("the store was asked: %+v", hoard[i])
		}
	}
	g.tick2()
	if n := g.room.Snapshot().Waiting; n != 1000 {
		t.Fatalf("%d in the queue", n)
	}
	s.lives(p.Absence-10*time.Second, g)
	if got := g.check(hoard[0]); got.State != Waiting || got.Ticket.Order != hoard[0].Order {
		t.Fatalf("within absence: %+v", got)
	}
	s.lives(12*time.Second, g)
	for i, k := range hoard[1:] {
		if got := g.check(k); got.State != Expired || got.Reason != ReasonLate {
			t.Fatalf("token %d: %+v", i, got)
		}
	}
	s.lives(time.Minute, g) // reaping is bounded, too
	if snap := g.room.Snapshot(); snap.Waiting+snap.Parked > 1 {
		t.Fatalf("%d in the queue and %d parked: one polled within absence", snap.Waiting, snap.Parked)
	}
}

// spendings are the ways in which a ticket ends.
var spendings = []struct {
	name string
	do   func(g *stagedGateway, k Ticket) error
}{
	{"claimed", func(g *stagedGateway, k Ticket) error {
		g.s.lives(3*time.Second, g)
		got := g.check(k)
		if got.State == Admitted {
			got, _ = g.room.Claim(g.ctx(), k)
		}
		if got.State != Active {
			return fmt.Errorf("%+v", got)
		}
		return nil
	}},
	{"left", func(g *stagedGateway, k Ticket) error { return g.room.Leave(g.ctx(), k) }},
	{"removed", func(g *stagedGateway, k Ticket) error { return g.room.RemoveTicket(g.ctx(), "ann", k.ID) }},
	{"revoked", func(g *stagedGateway, k Ticket) error { return g.room.RevokeSession(g.ctx(), "ann", k.ID) }},
	{"reset", func(g *stagedGateway, _ Ticket) error { return g.room.Reset(g.ctx(), "ann") }},
	{"lapsed", func(g *stagedGateway, _ Ticket) error {
		g.s.lives(3*time.Second, g)
		g.s.lives(faultPolicy.ClaimWindow+2*time.Second, g)
		return nil
	}},
}

// A copy of the token of an ended ticket makes neither a place nor a session, at any gateway and however late, also after a
// loss of data, as long as one gateway that handled the end runs.
func TestTicket_SpentIsNotReplayed(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	for _, spent := range spendings {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, data lost %t", spent.name, lost), func(t *testing.T) {
				t.Parallel()
				p := faultPolicy
				p.Rate, p.Burst = 1000, 1000
				s := newStage(t)
				g, other := s.gateway(p), s.gateway(p)
				g.tick()
				other.tick()
				g.arrives() // the burst
				first := g.waits()
				s.pass(time.Millisecond)
				newest := other.check(first).Ticket
				if err := spent.do(g, newest); err != nil {
					t.Fatal(err)
				}
				s.pass(tick)
				g.tick()
				other.tick()
				if lost {
					if err := s.server.Client().FlushAll(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
				}
				fresh := s.gateway(p)
				replay := func(when string) {
					t.Helper()
					for i, gw := range []*stagedGateway{fresh, other, g} { // the one that knows least first
						for _, k := range []Ticket{first, newest} {
							k.Client = Client{9, 9}
							s.lives(1100*time.Millisecond, g, other, fresh)
							got := gw.check(k)
							if got.State == Waiting || got.State == Admitted {
								got, _ = gw.room.Claim(gw.ctx(), k)
							}
							if got.State == Waiting || got.State == Admitted || got.State == Active {
								t.Fatalf("%s, gateway %d: %+v", when, i, got)
							}
						}
					}
				}
				if lost {
					// A gateway that is asked before the others have restored their records may take it for a place.
					k := first
					k.Client = Client{9, 9}
					if got := fresh.check(k); got.State == Active {
						t.Fatalf("%+v", got)
					}
					s.lives(4*time.Second, other, g, fresh)
				}
				replay("at once")
				s.lives(p.Absence-time.Minute, g, other, fresh)
				replay("before absence is over")
				s.lives(p.Absence+20*time.Minute, g) // the others come back from a rest
				replay("when nobody remembers it")
			})
		}
	}
}
