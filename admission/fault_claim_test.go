package admission_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
)

// A full store enrols no new tickets; their joins follow on_store_error. Waiting visitors poll, are admitted and claim.
func TestOutOfMemory_ServesWaitingVisitors(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 10_000, 1000
	s := newStage(t)
	g := s.gateway(p)
	g.tick()
	g.arrives()
	var queue []Ticket
	for range 10 {
		s.pass(time.Millisecond)
		queue = append(queue, g.waits())
	}
	g.tick2()
	admin := s.server.Client()
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if k := g.waits(); k.Epoch != "" {
			t.Fatalf("enrolled beyond maxmemory: %+v", k)
		} else {
			queue = append(queue, k)
		}
		if g.room.Charge(g.ctx()) {
			t.Fatal("charged beyond maxmemory")
		}
		if !g.core.Up() {
			t.Fatal("the store answers, but the breaker opened")
		}
		s.pass(stagedTimeout * 6 / 10)
	}
	for range 28 { // the hold after the gap, and two seconds
		g.tick2()
	}
	in := 0
	for i := range queue {
		if got := g.poll(&queue[i]); got.State == Active {
			in++
		} else if i < 10 || !got.Offline {
			t.Fatalf("guest %d: %+v", i, got)
		}
	}
	if in != 10 {
		t.Fatalf("%d are in", in)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		s.pass(tick)
		g.tick()
		for i := range queue[10:] {
			if g.poll(&queue[10+i]).State == Active {
				in++
			}
		}
	}
	if in < 16 {
		t.Fatalf("%d of 16 are in", in)
	}
}

// The response that admitted a visitor without the store was lost, and the store is back. The same client gets the same session
// through any gateway, and no other client does. The same holds for a ticket that was admitted before the outage and not
// claimed.
func TestOfflineClaim_RepeatedAfterOutage(t *testing.T) {
	t.Parallel()
	for _, admitted := range []bool{false, true} {
		t.Run(fmt.Sprintf("admitted before: %t", admitted), func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst, p.OnStoreError = 1000, 1000, OnErrorOpen
			s := newStage(t)
			g, other := s.gateway(p), s.gateway(p)
			g.tick()
			g.arrives()
			k := g.waits()
			if admitted {
				s.pass(time.Second)
			}
			g.tick2()
			other.tick()
			s.cutOff(g)
			first := g.check(k)
			if first.State != Active || !first.Offline {
				t.Fatalf("%+v", first)
			}
			g.back()
			s.pass(tick)
			g.tick()
			if snap := g.room.Snapshot(); snap.Active != 2 || snap.Admitted != 0 || snap.Waiting != 0 {
				t.Fatalf("%d active, %d admitted, %d waiting", snap.Active, snap.Admitted, snap.Waiting)
			}
			thief := k
			thief.Client = Client{9, 9}
			for i, gw := range []*stagedGateway{g, other} {
				if got, err := gw.room.Claim(gw.ctx(), thief); err != nil || got.State == Active {
					t.Fatalf("another client through gateway %d: %+v %v", i, got, err)
				}
				got, err := gw.room.Claim(gw.ctx(), k)
				if err != nil || got.State != Active || !admitted && got.AdmittedAt != first.AdmittedAt {
					t.Fatalf("the same client through gateway %d: %+v %v, first %+v", i, got, err, first)
				}
			}
		})
	}
}

// The first request with a pass that was signed without the store may come through another gateway.
func TestOfflinePass_RegistersAtAnyGateway(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	g := s.gateway(faultPolicy)
	g.tick()
	sid := ID{7, 7, 7}
	g.room.Touch(sid, true)
	s.pass(tick)
	g.tick()
	if n := g.room.Snapshot().Active; n != 1 {
		t.Fatalf("%d sessions", n)
	}
	if got, err := g.room.Claim(g.ctx(), Ticket{ID: sid, Client: Client{1}}); err != nil || got.State == Active {
		t.Fatalf("its ticket is spent: %+v %v", got, err)
	}
}

// With on_store_error open and local, a room that is closed or has no rate admits nobody, and min_wait holds.
func TestOffline_ClosedRoomAdmitsNobody(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{OnErrorOpen, OnErrorLocal} {
		for name, change := range map[string]func(*Policy, *Live){
			"paused":   func(_ *Policy, l *Live) { yes := true; l.Paused = &yes },
			"reject":   func(_ *Policy, l *Live) { m := Reject; l.Method = &m },
			"rate 0":   func(_ *Policy, l *Live) { n := int64(0); l.Rate = &n },
			"min_wait": func(p *Policy, _ *Live) { p.MinWait = time.Minute },
		} {
			t.Run(policy+", "+name, func(t *testing.T) {
				t.Parallel()
				p := faultPolicy
				p.Rate, p.Burst, p.OnStoreError = 1000, 1000, policy
				var l Live
				change(&p, &l)
				s := newStage(t)
				g := s.gateway(p)
				g.tick()
				g.arrives()
				k := g.waits()
				if err := g.room.Patch(g.ctx(), "ann", l); err != nil {
					t.Fatal(err)
				}
				s.cutOff(g)
				for range 10 {
					s.pass(3 * time.Second)
					if got := g.check(k); got.State != Waiting {
						t.Fatalf("%+v", got)
					}
					if got, refusal := g.arrives(); got.State == Active {
						t.Fatalf("%+v %q", got, refusal)
					}
				}
				if name != "min_wait" {
					return
				}
				late := g.waits()
				s.pass(30 * time.Second)
				if got := g.check(k); got.State != Active {
					t.Fatalf("after a minute: %+v", got)
				}
				if got := g.check(late); got.State != Waiting {
					t.Fatalf("after half a minute: %+v", got)
				}
				s.pass(40 * time.Second)
				if got := g.check(late); got.State != Active {
					t.Fatalf("after more than a minute: %+v", got)
				}
			})
		}
	}
}

// The response to a join was lost, the ticket was admitted, and the join is repeated: its ticket can be checked and claimed
// like any other.
func TestJoin_RepeatedFindsAdmittedTicket(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	g := s.gateway(p)
	g.tick()
	g.arrives()
	k := g.waits()
	s.pass(2 * time.Second)
	g.tick2()
	again, refusal, err := g.room.Join(g.ctx(), Arrival{ID: k.ID, Client: k.Client, Keyed: true})
	if err != nil || refusal != Granted || again.State != Admitted {
		t.Fatalf("%+v %q %v", again, refusal, err)
	}
	for range 2 {
		if got := g.check(again.Ticket); got.State != Admitted {
			t.Fatalf("checked: %+v", got)
		}
		s.pass(time.Second)
	}
	if got, err := g.room.Claim(g.ctx(), again.Ticket); err != nil || got.State != Active {
		t.Fatalf("claimed: %+v %v", got, err)
	}
}

// More tickets are admitted and not claimed than one call of room_reset removes. After the reset none of them makes a session,
// the next visitor is admitted, and sessions stay.
func TestReset_IsBounded(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 20_000_000, 20_000_000
	s := newStage(t)
	g := s.gateway(p)
	g.tick()
	inside, _ := g.arrives()
	if err := g.room.Pause(g.ctx(), "ann"); err != nil {
		t.Fatal(err)
	}
	queue := make([]Ticket, 6000)
	var all sync.WaitGroup
	for i := range queue {
		queue[i] = Ticket{ID: ID{1, byte(i), byte(i >> 8), 7}, Client: Client{1, byte(i), byte(i >> 8)}}
		all.Go(func() {
			st, refusal, err := g.room.Join(g.ctx(), Arrival{ID: queue[i].ID, Client: queue[i].Client, Keyed: true})
			if err != nil || refusal != Granted || st.State != Waiting {
				t.Errorf("%+v %q %v", st, refusal, err)
			}
			st.Ticket.Client = queue[i].Client
			queue[i] = st.Ticket
		})
	}
	all.Wait()
	if err := g.room.Resume(g.ctx(), "ann"); err != nil {
		t.Fatal(err)
	}
	s.lives(time.Second, g)
	s.lives(time.Second, g)
	if n := g.room.Snapshot().Admitted; n != 6000 {
		t.Fatalf("%d admitted", n)
	}
	if err := g.room.Reset(g.ctx(), "ann"); err != nil {
		t.Fatal(err)
	}
	if snap := g.room.Snapshot(); snap.Admitted != 0 || snap.Active != 1 {
		t.Fatalf("%d admitted, %d active", snap.Admitted, snap.Active)
	}
	for _, i := range []int{0, 1, 4999, 5000, 5999} {
		if got, err := g.room.Claim(g.ctx(), queue[i]); err == nil && got.State == Active {
			t.Fatalf("ticket %d: %+v", i, got)
		}
	}
	if got, err := g.room.Claim(g.ctx(), Ticket{ID: inside.Ticket.ID, Client: inside.Ticket.Client}); err != nil || got.State != Active {
		t.Fatalf("the session: %+v %v", got, err)
	}
	if got, _ := g.arrives(); got.State != Active {
		t.Fatalf("the next visitor: %+v", got)
	}
}

// A full store does not count as away, so that it needs a log line of its own: once a minute, however many visitors arrive.
func TestOutOfMemory_IsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate = 0
	s := newStage(t)
	var log strings.Builder
	s.log = &log
	g := s.gateway(p)
	g.tick()
	if err := s.server.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for minute := 1; minute <= 2; minute++ {
		for range 3 {
			g.waits()
		}
		if got := strings.Count(log.String(), "the store's memory is full"); got != minute {
			t.Fatalf("%d lines in minute %d:\n%s", got, minute, log.String())
		}
		s.pass(time.Minute)
	}
	if !strings.Contains(log.String(), "raise maxmemory") || !strings.Contains(log.String(), "OOM") {
		t.Errorf("neither cause nor remedy: %s", log.String())
	}
}
