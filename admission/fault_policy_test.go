package admission_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
)

// stage is gateways on a clock of their own, each of which can be cut off from
// the store. Nothing ticks by itself.
type stage struct {
	t      *testing.T
	server *redistest.PrivateServer
	us     atomic.Int64
	serial uint64
}

type stagedGateway struct {
	s     *stage
	proxy *redistest.FaultProxy
	core  *Core
	room  *Room
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, server: redistest.Server(t)}
	s.us.Store(1_780_000_000_000_000)
	return s
}

func (s *stage) pass(d time.Duration) { s.us.Add(d.Microseconds()) }

const stagedTimeout = 5 * time.Second // generous: what fails here fails at once

// gateway is a new one; a first tick is left to the caller.
func (s *stage) gateway(p Policy) *stagedGateway {
	s.t.Helper()
	g := &stagedGateway{s: s, proxy: redistest.Proxy(s.t, s.server.Socket())}
	client, err := redisurl.Open("redis://"+g.proxy.Addr(), stagedTimeout)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	g.core, err = New(Options{Client: client, Timeout: stagedTimeout, Tick: tick, Log: slog.New(slog.DiscardHandler), Now: s.us.Load})
	if err != nil {
		s.t.Fatal(err)
	}
	g.room = g.core.Room("sale", p)
	return g
}

func (g *stagedGateway) tick() {
	g.s.t.Helper()
	if err := g.room.Tick(g.ctx()); err != nil {
		g.s.t.Fatal(err)
	}
}

func (g *stagedGateway) ctx() context.Context {
	ctx, cancel := context.WithTimeout(g.s.t.Context(), patience)
	g.s.t.Cleanup(cancel)
	return ctx
}

// cutOff takes the store away from gateways and lets their breakers open: when no
// call was answered for a deadline's time.
func (s *stage) cutOff(gs ...*stagedGateway) {
	s.t.Helper()
	for i := range 2 {
		if i > 0 {
			s.pass(stagedTimeout)
		}
		for _, g := range gs {
			g.proxy.Cut()
			if _, err := g.room.Claim(g.ctx(), Ticket{ID: ID{255}}); !errors.Is(err, ErrStore) {
				s.t.Fatalf("a claim without the store: %v", err)
			}
			if g.core.Up() != (i == 0) {
				s.t.Fatalf("up %t after %d failures", g.core.Up(), i+1)
			}
		}
	}
}

// back gives the store back and ticks until it is heard.
func (g *stagedGateway) back() {
	g.s.t.Helper()
	g.proxy.Heal()
	awaitWithin(g.s.t, patience, "the store is heard again", func() bool { return g.room.Tick(g.ctx()) == nil && g.core.Up() })
}

// arrives is one who joins through g.
func (g *stagedGateway) arrives() (Standing, Refusal) {
	g.s.t.Helper()
	g.s.serial++
	var id ID
	binary.BigEndian.PutUint64(id[:], g.s.serial)
	binary.BigEndian.PutUint64(id[8:], g.s.serial*0x9e3779b97f4a7c15)
	c := Client{1, byte(g.s.serial), byte(g.s.serial >> 8)}
	s, refusal, err := g.room.Join(g.ctx(), Arrival{ID: id, Client: c, Interval: time.Minute})
	if err != nil {
		g.s.t.Fatal(err)
	}
	s.Ticket.Client, s.Ticket.Interval = c, time.Minute
	return s, refusal
}

// waits is one who joins through g and has to wait.
func (g *stagedGateway) waits() Ticket {
	g.s.t.Helper()
	s, refusal := g.arrives()
	if s.State != Waiting || refusal != Granted {
		g.s.t.Fatalf("joined: %+v %q", s, refusal)
	}
	return s.Ticket
}

func (g *stagedGateway) check(t Ticket) Standing {
	g.s.t.Helper()
	s, err := g.room.Check(g.ctx(), t)
	if err != nil {
		g.s.t.Fatal(err)
	}
	s.Ticket.Client, s.Ticket.Interval = t.Client, t.Interval
	return s
}

// poll is check, and a claim when it is the turn.
func (g *stagedGateway) poll(t *Ticket) Standing {
	g.s.t.Helper()
	s := g.check(*t)
	if s.State == Admitted {
		var err error
		if s, err = g.room.Claim(g.ctx(), *t); err != nil && !errors.Is(err, ErrNotYet) {
			g.s.t.Fatal(err)
		}
	}
	if s.State == Waiting {
		c, i := t.Client, t.Interval
		*t = s.Ticket
		t.Client, t.Interval = c, i
	}
	return s
}

// TestNewcomersDuringAnOutage: what on_store_error gives to those who come while
// the store is away, by what the last snapshot showed.
func TestNewcomersDuringAnOutage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		policy        string
		line, paused  bool
		first, second State // of two who come 100 ms after the breaker opened, at 10/s
		refusal       Refusal
	}{
		{policy: OnErrorWait, first: Waiting, second: Waiting},
		{policy: OnErrorWait, line: true, first: Waiting, second: Waiting},
		{policy: OnErrorClosed, refusal: Unavailable},
		{policy: OnErrorClosed, line: true, refusal: Unavailable},
		{policy: OnErrorOpen, first: Active, second: Active},
		{policy: OnErrorOpen, line: true, first: Waiting, second: Waiting},
		{policy: OnErrorOpen, paused: true, first: Waiting, second: Waiting},
		{policy: OnErrorLocal, first: Active, second: Waiting},
		{policy: OnErrorLocal, line: true, first: Waiting, second: Waiting},
		{policy: OnErrorLocal, paused: true, first: Waiting, second: Waiting},
	} {
		t.Run(fmt.Sprintf("%s, line %t, paused %t", row.policy, row.line, row.paused), func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst, p.OnStoreError, p.Paused = 10_000, 1000, row.policy, false
			s := newStage(t)
			g := s.gateway(p)
			g.tick()
			if row.line {
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

// tick2 ticks twice, a tick apart, so that the snapshot is of now.
func (g *stagedGateway) tick2() {
	g.s.t.Helper()
	g.tick()
	g.s.pass(tick)
	g.tick()
}

// TestOrdersOfAnOutage: who joined during an outage sorts behind those in line
// before it, by the time of joining, and before all who come after it, through
// whatever gateway.
func TestOrdersOfAnOutage(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	g, other := s.gateway(p), s.gateway(p)
	g.tick()
	other.tick()
	g.arrives()
	var line []Ticket
	for range 3 {
		s.pass(10 * time.Millisecond)
		line = append(line, g.waits())
	}
	g.tick2()
	other.tick()
	s.pass(200 * time.Millisecond)
	s.cutOff(g, other)
	for range 20 {
		s.pass(3 * time.Second)
		line = append(line, g.waits())
	}
	g.back()
	other.back()
	// A minute's orders take 60 ms of room time. Those who come after them are quicker
	// than the first poll of the line.
	s.pass(30 * time.Millisecond)
	for range 3 {
		s.pass(50 * time.Millisecond)
		line = append(line, other.waits())
	}
	for i := range line { // in order, so that a clamped one would not be told from one in place
		k := len(line) - 1 - i
		if got := g.poll(&line[k]); got.State != Waiting || got.Offline {
			t.Fatalf("guest %d: %+v", k, got)
		}
	}
	for i, k := range line {
		f, err := g.room.Lookup(g.ctx(), k.ID)
		if err != nil || f.Ahead != int64(i) {
			t.Fatalf("guest %d is behind %d in line: %+v %v", i, f.Ahead, f, err)
		}
	}
}

// TestLocalAdmitsItsShare: two gateways without the store serve the line of the
// last snapshot in its order, together at the rate of the room, and newcomers
// after it. When the store is back their sessions are in it and nobody is in twice.
func TestLocalAdmitsItsShare(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst, p.OnStoreError = 4_000, 1000, OnErrorLocal
	s := newStage(t)
	gs := []*stagedGateway{s.gateway(p), s.gateway(p)}
	gs[0].tick()
	gs[1].tick()
	gs[0].arrives()
	var line []Ticket
	for range 40 {
		s.pass(time.Millisecond)
		line = append(line, gs[0].waits())
	}
	gs[0].tick2()
	gs[1].tick()
	if n := gs[1].room.Snapshot().Gateways; n != 2 {
		t.Fatalf("%d gateways", n)
	}
	inLine := int64(0) // admitted before the outage
	for i := range line {
		if gs[0].check(line[i]).State == Admitted {
			inLine++
		}
	}
	s.cutOff(gs...)
	began := s.us.Load()
	in := map[ID]int64{}
	newcomers := 0
	for len(in) < 30 {
		if s.us.Load()-began > 60e6 {
			t.Fatalf("%d in after a minute", len(in))
		}
		s.pass(50 * time.Millisecond)
		for _, g := range gs {
			if got, _ := g.arrives(); got.State != Waiting {
				t.Fatalf("a newcomer passed the line: %+v", got)
			}
			newcomers++
			// The last poll first, of those who are served by this gateway too.
			for i := len(line) - 1; i >= 0; i-- {
				if _, ok := in[line[i].ID]; ok {
					continue
				}
				got := g.check(line[i])
				if got.State != Active {
					continue
				}
				in[line[i].ID] = got.AdmittedAt
				elapsed := s.us.Load() - began
				if reached := elapsed*p.Rate/1e9 + inLine + 1; int64(i) > reached {
					t.Fatalf("after %d µs place %d was let in, the room has come to %d", elapsed, i, reached)
				}
				if most := elapsed*p.Rate/1e9 + 2; int64(len(in)) > most {
					t.Fatalf("after %d µs %d were let in, at most %d may be", elapsed, len(in), most)
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
		t.Fatalf("%d sessions, %d were let in", n, len(in)+1)
	}
	// Those who are in by now stay in, and their tickets make no second session.
	for i, k := range line {
		if _, ok := in[k.ID]; !ok {
			continue
		}
		thief := k
		thief.Client = Client{9, 9}
		if got, err := gs[i%2].room.Claim(gs[0].ctx(), thief); err == nil && got.State == Active {
			t.Fatalf("place %d makes a second session: %+v", i, got)
		}
	}
	_ = newcomers
}

// TestLetInWithoutTheStoreOnce: a repeated poll of one who was let in without
// the store gets the same session and costs no second share; another client gets none.
func TestLetInWithoutTheStoreOnce(t *testing.T) {
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

// TestOffPassesAboveMaxActive: who was let in without the store counts when it is
// back, even above max_active, and nobody more is admitted until there is room; who
// was revoked meanwhile is found revoked.
func TestOffPassesAboveMaxActive(t *testing.T) {
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
	var line []Ticket
	for range 4 {
		s.pass(time.Millisecond)
		line = append(line, g.waits())
	}
	g.tick2()
	other.tick()
	s.cutOff(g)
	for i := range 3 {
		got := g.check(line[i])
		if got.State != Active || !got.Offline {
			t.Fatalf("%+v", got)
		}
		in = append(in, line[i])
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
		g.check(line[3])
	}
	if snap := g.room.Snapshot(); snap.Active != 4 || snap.Admitted != 0 || snap.Waiting != 1 {
		t.Fatalf("%d active, %d admitted, %d waiting", snap.Active, snap.Admitted, snap.Waiting)
	}
	for _, i := range []int{1, 2} {
		g.room.Revoke(in[i].ID)
	}
	s.pass(tick)
	g.tick()
	if got := g.poll(&line[3]); got.State != Active {
		t.Fatalf("with room again: %+v", got)
	}
}

// TestAGatewayThatNeverHeardTheStore: its tokens enrol at the last tick when it
// hears the store at last: behind the line, before those who come later.
func TestAGatewayThatNeverHeardTheStore(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	s := newStage(t)
	other, g := s.gateway(p), s.gateway(p)
	other.tick()
	other.arrives()
	line := []Ticket{other.waits(), other.waits()}
	g.proxy.Cut()
	for range 5 {
		s.pass(100 * time.Millisecond)
		other.tick()
		k := g.waits()
		if got := g.check(k); got.State != Waiting || !got.Offline || got.Ticket != k {
			t.Fatalf("%+v of %+v", got, k)
		}
		line = append(line, k)
	}
	s.pass(tick)
	other.tick()
	g.back()
	for i := range line {
		s.pass(time.Millisecond)
		if got := g.poll(&line[i]); got.State != Waiting || got.Offline || got.Ticket.Epoch != g.room.Snapshot().Epoch {
			t.Fatalf("guest %d: %+v", i, got)
		}
	}
	s.pass(time.Millisecond)
	line = append(line, other.waits())
	for i, k := range line {
		f, err := g.room.Lookup(g.ctx(), k.ID)
		if err != nil || f.Ahead != int64(i) {
			t.Fatalf("guest %d is behind %d: %+v %v", i, f.Ahead, f, err)
		}
	}
}

// TestRestartedDuringAnOutage: a gateway that starts while the store is away and
// lets people in without it serves those who bring a waiting token too.
func TestRestartedDuringAnOutage(t *testing.T) {
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

// TestOutOfMemory: a store that is full takes nobody new, who are answered by
// on_store_error; those in line are heard, admitted and claim.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 10_000, 1000
	s := newStage(t)
	g := s.gateway(p)
	g.tick()
	g.arrives()
	var line []Ticket
	for range 10 {
		s.pass(time.Millisecond)
		line = append(line, g.waits())
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
			line = append(line, k)
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
	for i := range line {
		if got := g.poll(&line[i]); got.State == Active {
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
		for i := range line[10:] {
			if g.poll(&line[10+i]).State == Active {
				in++
			}
		}
	}
	if in < 16 {
		t.Fatalf("%d of 16 are in", in)
	}
}

// TestAClaimWithoutTheStoreMayBeRepeatedAfterIt: the answer that let somebody in
// was lost and the store is back: the same client gets the session, through any
// gateway, and nobody else does. So it is for one who was admitted before the outage and
// had not claimed.
func TestAClaimWithoutTheStoreMayBeRepeatedAfterIt(t *testing.T) {
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

// TestAPassWithoutTheStoreRegistersAnywhere: the first request with such a pass
// may come through another gateway.
func TestAPassWithoutTheStoreRegistersAnywhere(t *testing.T) {
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

// TestNobodyIsLetInWhereTheRoomAdmitsNobody: open and local keep to a room that is
// closed or has no rate, and to the floor on waiting.
func TestNobodyIsLetInWhereTheRoomAdmitsNobody(t *testing.T) {
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
