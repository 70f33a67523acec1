package admission_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
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
	log    io.Writer // what the gateways log
}

type stagedGateway struct {
	s     *stage
	proxy *redistest.FaultProxy
	core  *Core
	room  *Room
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, server: redistest.Server(t), log: io.Discard}
	s.us.Store(1_780_000_000_000_000)
	return s
}

func (s *stage) pass(d time.Duration) { s.us.Add(d.Microseconds()) }

const stagedTimeout = 20 * time.Second // a busy machine may stand still for seconds; what fails here fails at once

// gateway returns a new gateway. The caller runs its first tick.
func (s *stage) gateway(p Policy) *stagedGateway {
	s.t.Helper()
	g := &stagedGateway{s: s, proxy: redistest.Proxy(s.t, s.server.Socket())}
	client, err := redisurl.Open("redis://"+g.proxy.Addr(), stagedTimeout)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	g.core, err = New(Options{Client: client, Timeout: stagedTimeout, Tick: tick, Log: slog.New(slog.NewTextHandler(s.log, nil)), Now: s.us.Load})
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

// cutOff makes the store unreachable for gateways, and waits until they count it as away: after a deadline without a reply.
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

// back makes the store reachable again and ticks until the gateway is up.
func (g *stagedGateway) back() {
	g.s.t.Helper()
	g.proxy.Heal()
	awaitWithin(g.s.t, patience, "the store is reachable again", func() bool { return g.room.Tick(g.ctx()) == nil && g.core.Up() })
}

// arrives joins a new visitor through g.
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

// waits joins a new visitor through g, who has to wait.
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

// poll checks a ticket, and claims it when it is admitted.
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

// tick2 ticks twice, a tick apart, so that the snapshot is of now.
func (g *stagedGateway) tick2() {
	g.s.t.Helper()
	g.tick()
	g.s.pass(tick)
	g.tick()
}
