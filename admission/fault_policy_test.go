package admission_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/short"
)

// While the store is away, new visitors are treated by on_store_error and by the state of the last snapshot.
func TestOffline_NewVisitorsFollowPolicy(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	for _, row := range []struct {
		policy        string
		queue, paused bool
		first, second State // of two who come 100 ms after the breaker opened, at 10/s
		refusal       Refusal
	}{
		{policy: OnErrorWait, first: Waiting, second: Waiting},
		{policy: OnErrorWait, queue: true, first: Waiting, second: Waiting},
		{policy: OnErrorClosed, refusal: Unavailable},
		{policy: OnErrorClosed, queue: true, refusal: Unavailable},
		{policy: OnErrorOpen, first: Active, second: Active},
		{policy: OnErrorOpen, queue: true, first: Waiting, second: Waiting},
		{policy: OnErrorOpen, paused: true, first: Waiting, second: Waiting},
		{policy: OnErrorLocal, first: Active, second: Waiting},
		{policy: OnErrorLocal, queue: true, first: Waiting, second: Waiting},
		{policy: OnErrorLocal, paused: true, first: Waiting, second: Waiting},
	} {
		t.Run(fmt.Sprintf("%s, queue %t, paused %t", row.policy, row.queue, row.paused), func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst, p.OnStoreError, p.Paused = 10_000, 1000, row.policy, false
			s := newStage(t)
			g := s.gateway(p)
			g.tick()
			if row.queue {
				g.arrives() // takes the burst
				for range 20 {
					g.waits()
				}
			}
			if row.paused {
				if err := g.room.Pause(g.ctx(), "ann"); err != nil {
					t.Fatal(err)
				}
			}
			s.pass(time.Millisecond)
			g.tick2()
			s.cutOff(g)
			s.pass(100 * time.Millisecond)
			for _, want := range []State{row.first, row.second} {
				got, refusal := g.arrives()
				if got.State != want || refusal != row.refusal || refusal == Granted && !got.Offline {
					t.Fatalf("%+v %q, want state %d", got, refusal, want)
				}
			}
		})
	}
}

// Visitors who join during an outage are behind those who waited before it, ordered by the time of joining, and ahead of later
// ones, at every gateway.
func TestOffline_OrdersFollowTimeOfJoining(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives()
	var queue []Ticket
	for range 3 {
		s.pass(10 * time.Millisecond)
		queue = append(queue, g.waits())
	}
	g.tick2()
	other.tick()
	s.pass(200 * time.Millisecond)
	s.cutOff(g, other)
	for range 20 {
		s.pass(3 * time.Second)
		queue = append(queue, g.waits())
	}
	g.back()
	other.back()
	// A minute's orders take 60 ms of room time. Those who come after them are quicker
	// than the first poll of the queue.
	s.pass(30 * time.Millisecond)
	for range 3 {
		s.pass(50 * time.Millisecond)
		queue = append(queue, other.waits())
	}
	for i := range queue { // in reverse, since in order a clamped order would look like a correct one
		k := len(queue) - 1 - i
		if got := g.poll(&queue[k]); got.State != Waiting || got.Offline {
			t.Fatalf("guest %d: %+v", k, got)
		}
	}
	for i, k := range queue {
		f, err := g.room.Lookup(g.ctx(), k.ID)
		if err != nil || f.Ahead != int64(i) {
			t.Fatalf("guest %d is behind %d in the queue: %+v %v", i, f.Ahead, f, err)
		}
	}
}

// Two gateways without the store serve the queue of the last snapshot in its order, together at the rate of the room, and new
// visitors after that queue. When the store is back their sessions are registered, and no ticket has two.
func TestLocal_AdmitsItsShare(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst, p.OnStoreError = 4_000, 1000, OnErrorLocal
	s := newStage(t)
	gs := []*stagedGateway{s.gateway(p), s.gateway(p)}
	gs[0].tick()
	gs[1].tick()
	gs[0].arrives()
	var queue []Ticket
	for range 40 {
		s.pass(time.Millisecond)
		queue = append(queue, gs[0].waits())
	}
	gs[0].tick2()
	gs[1].tick()
	if n := gs[1].room.Snapshot().Gateways; n != 2 {
		t.Fatalf("%d gateways", n)
	}
	admittedBefore := int64(0) // admitted before the outage
	for i := range queue {
		if gs[0].check(queue[i]).State == Admitted {
			admittedBefore++
		}
	}
	s.cutOff(gs...)
	began := s.us.Load()
	in := map[ID]int64{}
	for len(in) < 30 {
		if s.us.Load()-began > 60e6 {
			t.Fatalf("%d in after a minute", len(in))
		}
		s.pass(50 * time.Millisecond)
		for _, g := range gs {
			if got, _ := g.arrives(); got.State != Waiting {
				t.Fatalf("a newcomer passed the queue: %+v", got)
			}
			// The last poll first, of those who are served by this gateway too.
			for i := len(queue) - 1; i >= 0; i-- {
				if _, ok := in[queue[i].ID]; ok {
					continue
				}
				got := g.check(queue[i])
				if got.State != Active {
					continue
				}
				in[queue[i].ID] = got.AdmittedAt
				elapsed := s.us.Load() - began
				if reached := elapsed*p.Rate/1e9 + admittedBefore + 1; int64(i) > reached {
					t.Fatalf("after %d µs place %d was admitted, the room has come to %d", elapsed, i, reached)
				}
				if most := elapsed*p.Rate/1e9 + 2; int64(len(in)) > most {
					t.Fatalf("after %d µs %d were admitted, at most %d may be", elapsed, len(in), most)
				}
			}
		}
	}
	for _, g := range gs {
		g.back()
	}
	s.pass(tick)
	for _, g := range gs {
		g.tick2()
	}
	if n := gs[0].room.Snapshot().Active; n != int64(len(in))+1 {
		t.Fatalf("%d sessions, %d were admitted", n, len(in)+1)
	}
	// Those who are in by now stay in, and their tickets make no second session.
	for i, k := range queue {
		if _, ok := in[k.ID]; !ok {
			continue
		}
		thief := k
		thief.Client = Client{9, 9}
		if got, err := gs[i%2].room.Claim(gs[0].ctx(), thief); err == nil && got.State == Active {
			t.Fatalf("place %d makes a second session: %+v", i, got)
		}
	}
}

// A repeated poll of a ticket that was admitted without the store returns the same session and takes no second share. Another
// client gets no session.
func TestOffline_AdmitsTicketOnce(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{OnErrorOpen, OnErrorLocal} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst, p.OnStoreError = 1000, 1000, policy
			s := newStage(t)
			g := s.gateway(p)
			g.tick()
			g.arrives()
			a, b := g.waits(), g.waits()
			g.tick2()
			s.cutOff(g)
			s.pass(2100 * time.Millisecond)
			first := g.check(a)
			if first.State != Active || !first.Offline {
				t.Fatalf("%+v", first)
			}
			s.pass(100 * time.Millisecond)
			if again := g.check(a); again.State != Active || again.AdmittedAt != first.AdmittedAt {
				t.Fatalf("a repeated poll: %+v, first %+v", again, first)
			}
			if again, err := g.room.Claim(g.ctx(), a); !errors.Is(err, ErrStore) && (err != nil || again.AdmittedAt != first.AdmittedAt) {
				t.Fatalf("a claim: %+v %v", again, err)
			}
			thief := a
			thief.Client = Client{9, 9}
			if got := g.check(thief); got.State == Active {
				t.Fatalf("another client with the same ticket: %+v", got)
			}
			s.pass(time.Second)
			if got := g.check(b); got.State != Active {
				t.Fatalf("the next: %+v", got)
			}
		})
	}
}

// Sessions that were made without the store count when it is back, even above max_active, and nobody else is admitted until
// slots are free. A session that was revoked meanwhile is revoked in the store.
func TestOfflinePass_CountsAboveMaxActive(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst, p.MaxActive, p.OnStoreError = 10_000, 3000, 3, OnErrorOpen
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	var in []Ticket
	for range 3 {
		got, _ := g.arrives()
		if got.State != Active {
			t.Fatalf("%+v", got)
		}
		in = append(in, got.Ticket)
	}
	var queue []Ticket
	for range 4 {
		s.pass(time.Millisecond)
		queue = append(queue, g.waits())
	}
	g.tick2()
	other.tick()
	s.cutOff(g)
	for i := range 3 {
		got := g.check(queue[i])
		if got.State != Active || !got.Offline {
			t.Fatalf("%+v", got)
		}
		in = append(in, queue[i])
	}
	if err := other.room.RevokeSession(other.ctx(), "ann", in[4].ID); err != nil {
		t.Fatal(err)
	}
	if err := other.room.RevokeSession(other.ctx(), "ann", in[0].ID); err != nil {
		t.Fatal(err)
	}
	g.back()
	for i, k := range in {
		if revoked := i == 4 || i == 0; g.room.Revoked(k.ID) != revoked {
			t.Fatalf("session %d: revoked %t", i, !revoked)
		}
	}
	for range 40 {
		s.pass(tick)
		g.tick()
		g.check(queue[3])
	}
	if snap := g.room.Snapshot(); snap.Active != 4 || snap.Admitted != 0 || snap.Waiting != 1 {
		t.Fatalf("%d active, %d admitted, %d waiting", snap.Active, snap.Admitted, snap.Waiting)
	}
	for _, i := range []int{1, 2} {
		g.room.Revoke(in[i].ID)
	}
	s.pass(tick)
	g.tick()
	if got := g.poll(&queue[3]); got.State != Active {
		t.Fatalf("with room again: %+v", got)
	}
}

// Tickets of a gateway that never reached the store enrol at the time of the last tick when it reaches the store: behind the
// queue, ahead of later visitors.
func TestNeverConnected_TicketsEnrolAtLastTick(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	other, g := s.gateway(p), s.gateway(p)
	other.tick()
	other.arrives()
	queue := []Ticket{other.waits(), other.waits()}
	g.proxy.Cut()
	for range 5 {
		s.pass(100 * time.Millisecond)
		other.tick()
		k := g.waits()
		if got := g.check(k); got.State != Waiting || !got.Offline || got.Ticket != k {
			t.Fatalf("%+v of %+v", got, k)
		}
		queue = append(queue, k)
	}
	s.pass(tick)
	other.tick()
	g.back()
	for i := range queue {
		s.pass(time.Millisecond)
		if got := g.poll(&queue[i]); got.State != Waiting || got.Offline || got.Ticket.Epoch != g.room.Snapshot().Epoch {
			t.Fatalf("guest %d: %+v", i, got)
		}
	}
	s.pass(time.Millisecond)
	queue = append(queue, other.waits())
	for i, k := range queue {
		f, err := g.room.Lookup(g.ctx(), k.ID)
		if err != nil || f.Ahead != int64(i) {
			t.Fatalf("guest %d is behind %d: %+v %v", i, f.Ahead, f, err)
		}
	}
}

// A gateway that starts while the store is away and admits new visitors also admits visitors with waiting tokens.
func TestStart_DuringOutageServesTokens(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		policy string
		want   State
	}{{OnErrorOpen, Active}, {OnErrorLocal, Active}, {OnErrorWait, Waiting}, {OnErrorClosed, Waiting}} {
		t.Run(row.policy, func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst, p.OnStoreError = 1000, 1000, row.policy
			s := newStage(t)
			before := s.gateway(p)
			before.tick()
			before.arrives()
			k := before.waits()
			g := s.gateway(p)
			g.proxy.Cut()
			s.pass(3 * time.Second)
			if got := g.check(k); got.State != row.want || !got.Offline {
				t.Fatalf("a waiting token: %+v", got)
			}
		})
	}
}

// The first call of a gateway got a reply and its first tick did not, so it has no snapshot. The places that it then gives have
// the current fence.
func TestStart_WithoutSnapshotUsesFence(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	other := s.gateway(p)
	other.tick()
	other.arrives()
	if err := other.room.Reset(other.ctx(), "ann"); err != nil {
		t.Fatal(err)
	}
	g := s.gateway(p)
	if _, err := g.room.Lookup(g.ctx(), ID{1}); !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	s.cutOff(g)
	k := g.waits()
	s.pass(tick)
	other.tick()
	s.pass(tick)
	g.back()
	for i, gw := range []*stagedGateway{g, other} {
		if got := gw.poll(&k); got.State != Waiting || got.Offline {
			t.Fatalf("gateway %d: %+v", i, got)
		}
	}
}

// The gateways share the slots that were free in the last snapshot. A session that its origin ends meanwhile frees a slot for
// one more visitor.
func TestLocal_KeepsMaxActive(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst, p.MaxActive, p.OnStoreError = 10_000, 3000, 7, OnErrorLocal
	s := newStage(t)
	gs := []*stagedGateway{s.gateway(p), s.gateway(p)}
	gs[0].tick()
	gs[1].tick()
	var inside []ID
	for range 3 {
		got, _ := gs[0].arrives()
		if got.State != Active {
			t.Fatalf("%+v", got)
		}
		inside = append(inside, got.Ticket.ID)
	}
	gs[0].tick2()
	gs[1].tick()
	if snap := gs[1].room.Snapshot(); snap.Active != 3 || snap.Gateways != 2 {
		t.Fatalf("%d active, %d gateways", snap.Active, snap.Gateways)
	}
	s.cutOff(gs...)
	minute := func() (in int) {
		for range 60 {
			s.pass(time.Second)
			for _, g := range gs {
				if got, _ := g.arrives(); got.State == Active {
					in++
				}
			}
		}
		return in
	}
	if n := minute(); n != 4 {
		t.Fatalf("%d were admitted where 4 had room", n)
	}
	gs[1].room.Revoke(inside[0])
	gs[1].room.Revoke(inside[0])
	if n := minute(); n != 1 {
		t.Fatalf("%d were admitted when one had gone", n)
	}
	for _, g := range gs {
		g.back()
	}
	s.pass(tick)
	gs[0].tick2()
	if n := gs[0].room.Snapshot().Active; n != 7 {
		t.Fatalf("%d active", n)
	}
}
