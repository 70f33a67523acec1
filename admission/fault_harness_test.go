package admission_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
)

// Settings of the fault tests. Calls time out and ticks follow each other many times faster than in production, so that an outage
// of half a second is long.
const (
	faultTimeout = 100 * time.Millisecond
	faultTick    = 20 * time.Millisecond
	// faultSlack is what a machine may add to a deadline, beside what it does to others (lateness). A call that waits for
	// the fault to end takes longer.
	faultSlack = 2 * time.Second
	patience   = 3 * time.Minute
)

var faultPolicy = Policy{
	Enabled: true, Method: FIFO, Rate: 30_000, Burst: 5_000, Absence: 10 * time.Minute,
	ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: OnErrorWait,
}

// site is two gateways over one store, each behind a proxy of its own that can
// break the way to it.
type site struct {
	t       testing.TB
	server  *redistest.PrivateServer
	admin   redis.UniversalClient // past the proxies
	proxies []*redistest.FaultProxy
	cores   []*Core
	rooms   []*Room
	stop    func()               // ends Run
	errs    sync.Map             // what the store calls failed with, by text
	patient time.Duration        // for how long a guest waits; 0: patience
	late    func() time.Duration // what this machine may add to a call
}

// callHops is how often a call may have to wait for the processor, in turn with others.
const callHops = 10

// lateness measures how late timers fire on this machine, and returns how much longer a call may take because of that.
func lateness(t testing.TB) func() time.Duration {
	var most atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			const nap = 10 * time.Millisecond
			began := time.Now()
			select {
			case <-done:
				return
			case <-time.After(nap):
				most.Store(max(most.Load(), int64(time.Since(began)-nap)))
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended })
	return func() time.Duration { return callHops * time.Duration(most.Load()) }
}

// failedWith reports whether a store call failed with an error that contains text.
func (s *site) failedWith(text string) bool {
	found := false
	s.errs.Range(func(k, _ any) bool {
		found = strings.Contains(k.(string), text)
		return !found
	})
	return found
}

// storeClient returns the client that the programs open for a store of that address.
func storeClient(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := redisurl.Open("redis://"+addr, faultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newSite(t testing.TB, p Policy, args ...string) *site {
	t.Helper()
	s := &site{t: t, server: redistest.Server(t, args...), late: lateness(t)}
	s.admin = s.server.Client()
	running, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	s.stop = func() { cancel(); runs.Wait() }
	for range 2 {
		proxy := redistest.Proxy(t, s.server.Socket())
		core, err := New(Options{
			Client: storeClient(t, proxy.Addr()), Timeout: faultTimeout, Tick: faultTick, Log: slog.New(slog.DiscardHandler),
			Observe: func(_ string, _ time.Duration, err error) {
				if err != nil {
					s.errs.Store(err.Error(), true)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.proxies = append(s.proxies, proxy)
		s.cores = append(s.cores, core)
		s.rooms = append(s.rooms, core.Room("sale", p))
		runs.Go(func() { _ = core.Run(running) })
	}
	t.Cleanup(s.stop)
	s.await("the first tick", func() bool { return s.up() && s.rooms[0].Snapshot().Known && s.rooms[1].Snapshot().Known })
	return s
}

func (s *site) up() bool { return s.cores[0].Up() && s.cores[1].Up() }

func (s *site) eachProxy(f func(*redistest.FaultProxy)) {
	for _, p := range s.proxies {
		f(p)
	}
}

func (s *site) await(what string, ok func() bool) {
	s.t.Helper()
	awaitWithin(s.t, patience, what, ok)
}

func awaitWithin(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %s", what, d)
		case <-tick.C:
		}
	}
}

// wait lets d of real time pass, for a fault that has to last.
func wait(t testing.TB, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// guest is a visitor who joins, polls and claims through both gateways in turn, and keeps the newest token.
type guest struct {
	id        ID
	client    Client
	ticket    Ticket
	confirmed int64 // Redis's clock after the store first confirmed the place, µs
	at        int64 // admitted_at
	in        bool
	entered   atomic.Int64 // the same, readable while the crowd runs
}

// audience is a crowd of guests and what it saw.
type audience struct {
	s       *site
	guests  []*guest
	done    sync.WaitGroup
	in      atomic.Int64
	offline atomic.Int64 // answers made without the store
	refused atomic.Int64 // claims that the store did not answer
	longest atomic.Int64 // call, ns
	leave   context.CancelFunc
	left    atomic.Bool
}

// abandon ends the visits of guests who are not admitted yet, which is then no failure.
func (a *audience) abandon() {
	a.left.Store(true)
	a.leave()
	a.done.Wait()
}

// send starts n guests, one every so often.
func (s *site) send(n int, every time.Duration) *audience {
	a := &audience{s: s}
	for range n {
		g := &guest{}
		_, _ = rand.Read(g.id[:])
		copy(g.client[:], g.id[:])
		a.guests = append(a.guests, g)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), max(patience, s.patient))
	s.t.Cleanup(cancel)
	a.leave = cancel
	for i, g := range a.guests {
		a.done.Go(func() {
			t := time.NewTimer(time.Duration(i) * every)
			defer t.Stop()
			select {
			case <-ctx.Done():
			case <-t.C:
				a.visit(ctx, g, i)
			}
		})
	}
	return a
}

// timed runs one call and keeps the time of the longest.
func (a *audience) timed(call func()) {
	began := time.Now()
	call()
	took := int64(time.Since(began))
	for old := a.longest.Load(); took > old && !a.longest.CompareAndSwap(old, took); old = a.longest.Load() {
	}
}

func (a *audience) visit(ctx context.Context, g *guest, i int) {
	t := a.s.t
	room := func(n int) *Room { return a.s.rooms[(i+n)%len(a.s.rooms)] }
	var s Standing
	var err error
	var refusal Refusal
	a.timed(func() {
		s, refusal, err = room(0).Join(ctx, Arrival{ID: g.id, Client: g.client, Interval: 2 * time.Second})
	})
	if err != nil || refusal != Granted {
		t.Errorf("join: %v %q", err, refusal)
		return
	}
	g.ticket = s.Ticket
	g.ticket.Client, g.ticket.Interval = g.client, 2*time.Second
	a.note(g, s)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for n := 1; s.State != Active; n++ {
		select {
		case <-ctx.Done():
			if !a.left.Load() {
				t.Errorf("guest %d never got in: %+v", i, s)
			}
			return
		case <-tick.C:
		}
		r := room(n / 8)
		a.timed(func() { s, err = r.Check(ctx, g.ticket) })
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("check: %v", err)
			}
			return
		}
		if s.State == Admitted {
			a.timed(func() { s, err = r.Claim(ctx, g.ticket) })
			if errors.Is(err, ErrStore) {
				a.refused.Add(1)
				s = Standing{State: Admitted}
				continue
			}
			if err != nil && ctx.Err() != nil {
				return
			}
			if err != nil && !errors.Is(err, ErrNotYet) {
				t.Errorf("claim: %v", err)
				return
			}
		}
		if s.State != Waiting && s.State != Active && s.State != Admitted {
			t.Errorf("guest %d, who polled, lost the place: %+v", i, s)
			return
		}
		a.note(g, s)
	}
	r := room(0)
	r.Touch(g.id, s.Offline)
	g.at, g.in = s.AdmittedAt, true
	g.entered.Store(s.AdmittedAt)
	a.in.Add(1)
}

func (a *audience) note(g *guest, s Standing) {
	if s.Offline {
		a.offline.Add(1)
	}
	if s.State != Waiting {
		return
	}
	g.ticket = s.Ticket
	g.ticket.Client, g.ticket.Interval = g.client, 2*time.Second
	if g.confirmed == 0 && !s.Offline && s.Ticket.Epoch != "" {
		g.confirmed = a.s.clock()
	}
}

// clock reads Redis's clock past the proxies; 0 where it does not answer.
func (s *site) clock() int64 {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	now, err := s.admin.Time(ctx).Result()
	if err != nil {
		return 0
	}
	return now.UnixMicro()
}

// loss is what a failover may lose: writes that a master acknowledged between two moments of Redis's clock and its successor
// does not have.
type loss struct {
	from, till int64 // µs; both 0: nothing is lost
	visitors   int64 // thousandths of a visitor that may be admitted again
}

func (l loss) holds(at int64) bool { return l.from <= at && at < l.till }

// judge checks the whole run: the limit and the order hold, a ticket makes one session, and no call exceeds its deadline.
func (a *audience) judge(p Policy) { a.judgeAfter(p, loss{}) }

// judgeAfter is judge after a failover that may have lost writes.
func (a *audience) judgeAfter(p Policy, lost loss) {
	t := a.s.t
	t.Helper()
	a.done.Wait()
	if t.Failed() {
		return
	}
	if d := time.Duration(a.longest.Load()); d > faultSlack+a.s.late() {
		t.Errorf("a call took %s; its deadline is %s, and timers were late by %s at most", d, faultTimeout, a.s.late()/callHops)
	}
	byTime := slices.Clone(a.guests)
	slices.SortFunc(byTime, func(x, y *guest) int { return int(x.at - y.at) })
	var list []Admission
	for _, g := range byTime {
		list = append(list, Admission{ID: g.id, Room: g.at})
	}
	// Redis's clock runs on where room time stands still, never the other way round.
	if err := OverRate(list, p.Rate, p.Burst+lost.visitors); err != nil {
		t.Error(err)
	}
	for _, x := range a.guests {
		for _, y := range a.guests {
			// x was in the queue for certain when y was admitted, with a smaller order or while y had none. An order that
			// the store never confirmed does not count: a join whose reply was lost has an earlier one. Nor does y if it was
			// admitted in a lost moment: x may have been admitted before it, and the store has forgotten that.
			ahead := x.confirmed > 0 && x.confirmed < y.at && !lost.holds(x.confirmed) && !lost.holds(y.at) &&
				(y.ticket.Order == 0 || y.confirmed > 0 && x.ticket.Order < y.ticket.Order)
			if ahead && y.at < x.at {
				t.Fatalf("order %d was admitted at %d, before order %d, in the queue since %d and admitted at %d",
					y.ticket.Order, y.at, x.ticket.Order, x.confirmed, x.at)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, g := range a.guests {
		if lost.visitors > 0 && lost.holds(g.at) {
			continue // its place may be in the queue again
		}
		thief := g.ticket
		thief.ID, thief.Client = g.id, Client{9, 9}
		s, err := a.s.rooms[i%2].Claim(ctx, thief)
		if err == nil && s.State == Active {
			t.Fatalf("a second session of one ticket: %+v", s)
		}
	}
	if lost.visitors > 0 {
		return // sessions of a lost moment come back with their heartbeats
	}
	a.s.await("every session is in the store", func() bool {
		snap := a.s.rooms[0].Snapshot()
		return snap.Active == int64(len(a.guests)) && snap.Admitted == 0 && snap.Waiting == 0
	})
}
