package admission_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
)

// 500 concurrent callers over a pool of two connections to a store that does not reply each get a response by their deadline,
// and leave no goroutine or connection behind.
func TestSilentStore_NothingPilesUp(t *testing.T) {
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Socket())
	client := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true, DialerRetries: 1,
		DialTimeout: 2 * faultTimeout, ReadTimeout: faultTimeout, WriteTimeout: faultTimeout,
		PoolSize: 2, MaxActiveConns: 2, PoolTimeout: faultTimeout / 4,
	})
	t.Cleanup(func() { _ = client.Close() })
	core, err := New(Options{Client: client, Timeout: faultTimeout, Tick: faultTick, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p := faultPolicy
	p.Rate, p.Burst = 1000, 1000
	r := core.Room("sale", p)
	awaitWithin(t, patience, "the first tick", func() bool { return r.Tick(t.Context()) == nil })
	before := runtime.NumGoroutine()
	var longest, most atomic.Int64
	crowd := func(wave byte) {
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				id := ID{0: byte(i), 1: byte(i >> 8), 2: wave}
				began := time.Now()
				s, refusal, err := r.Join(t.Context(), Arrival{ID: id, Client: Client{1}})
				if err != nil || refusal != Granted {
					t.Errorf("join: %v %q", err, refusal)
					return
				}
				s.Ticket.Client = Client{1}
				if s.State == Waiting {
					if _, err = r.Check(t.Context(), s.Ticket); err != nil {
						t.Errorf("check: %v", err)
					}
				}
				if _, err = r.Claim(t.Context(), s.Ticket); err != nil && !errors.Is(err, ErrStore) && !errors.Is(err, ErrNotYet) {
					t.Errorf("claim: %v", err)
				}
				took := int64(time.Since(began))
				for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
				}
			})
		}
		most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
		all.Wait()
	}
	crowd(0) // healthy
	for i, fault := range []func(){proxy.Hold, proxy.Half, func() { proxy.Drop(nil) }, proxy.Cut} {
		fault()
		for range 3 {
			crowd(byte(1 + i))
		}
		proxy.Heal()
		proxy.Reset()
		awaitWithin(t, patience, "the store is reachable", func() bool { return r.Tick(t.Context()) == nil && core.Up() })
	}
	// Join, check (which may have to enrol) and claim: four deadlines, far from it even on a busy machine. A call without one never ends.
	if d := time.Duration(longest.Load()); d > patience/2 {
		t.Errorf("three calls took %s, a deadline is %s", d, faultTimeout)
	}
	if n := most.Load(); n > int64(before)+600 {
		t.Errorf("%d goroutines for 500 callers", n-int64(before))
	}
	// Two connections through the proxy and their dials may come and go.
	awaitWithin(t, patience, "the goroutines end", func() bool { return runtime.NumGoroutine() <= before+10 })
}

// A gateway that starts while the store is away, frozen or half-open serves by on_store_error immediately, and is up soon after
// the store is.
func TestStart_ServesWithoutStore(t *testing.T) {
	for _, row := range []struct {
		name       string
		begin, end func(*redistest.PrivateServer, *redistest.FaultProxy)
	}{
		{"down", func(s *redistest.PrivateServer, _ *redistest.FaultProxy) { s.Kill() }, func(s *redistest.PrivateServer, _ *redistest.FaultProxy) { s.Restart() }},
		{"frozen", func(s *redistest.PrivateServer, _ *redistest.FaultProxy) { s.Stop() }, func(s *redistest.PrivateServer, _ *redistest.FaultProxy) { s.Cont() }},
		{"half-open", func(_ *redistest.PrivateServer, p *redistest.FaultProxy) { p.Hold() }, func(_ *redistest.PrivateServer, p *redistest.FaultProxy) { p.Heal() }},
		{"cut off", func(_ *redistest.PrivateServer, p *redistest.FaultProxy) { p.Cut() }, func(_ *redistest.PrivateServer, p *redistest.FaultProxy) { p.Heal() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Server(t)
			proxy := redistest.Proxy(t, server.Socket())
			row.begin(server, proxy)
			core, err := New(Options{Client: storeClient(t, proxy.Addr()), Timeout: faultTimeout, Tick: faultTick, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r := core.Room("sale", faultPolicy)
			running, stop := context.WithCancel(ctx)
			var run sync.WaitGroup
			run.Go(func() { _ = core.Run(running) })
			defer run.Wait()
			defer stop()
			core.Settle(ctx)
			if ctx.Err() != nil {
				t.Fatal("the first tick does not end")
			}
			var tickets []Ticket
			for i := range 20 {
				s, refusal, err := r.Join(ctx, Arrival{ID: ID{1, byte(i)}, Client: Client{1, byte(i)}})
				if err != nil || refusal != Granted || s.State != Waiting || !s.Offline {
					t.Fatalf("%+v %q %v", s, refusal, err)
				}
				s.Ticket.Client = Client{1, byte(i)}
				tickets = append(tickets, s.Ticket)
			}
			awaitWithin(t, patience, "down", func() bool { return !core.Up() })
			for _, k := range tickets {
				if s, err := r.Check(ctx, k); err != nil || s.State != Waiting || !s.Offline || s.Ticket != k {
					t.Fatalf("%+v %v", s, err)
				}
			}
			row.end(server, proxy)
			awaitWithin(t, patience, "up", core.Up)
			for in := 0; in < len(tickets); {
				in = 0
				wait(t, faultTick)
				for _, k := range tickets {
					s, err := r.Check(ctx, k)
					if err == nil && (s.State == Admitted || s.State == Active) {
						s, err = r.Claim(ctx, k)
					}
					if err != nil && !errors.Is(err, ErrStore) || s.State != Waiting && s.State != Active && err == nil {
						t.Fatalf("%+v %v", s, err)
					}
					if s.State == Active {
						in++
					}
				}
			}
		})
	}
}

// While the first call of a process hangs, its rooms can be read and report whether the store is up.
func TestStart_HangingFirstTickBlocksNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	server.Stop()
	core, err := New(Options{Client: server.Client(), Timeout: faultTimeout, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", faultPolicy)
	ctx, cancel := context.WithCancel(t.Context())
	ticked := make(chan error)
	go func() { ticked <- r.Tick(ctx) }()
	awaitWithin(t, patience, "the tick hangs", func() bool {
		b := make([]byte, 1<<20)
		return strings.Contains(string(b[:runtime.Stack(b, true)]), "(*Core).prepare")
	})
	asked := make(chan bool)
	go func() { core.Room("other", faultPolicy); asked <- core.Up() }()
	select {
	case <-asked:
	case err := <-ticked:
		t.Errorf("the rooms waited for the first tick, which ended with %v", err)
		<-asked
		ticked = nil
	}
	cancel()
	server.Cont()
	if ticked != nil {
		<-ticked
	}
}

// A call that finds the store emptied waits for the restore of another caller at most until its own deadline.
func TestRestore_HangingBlocksNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Socket())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	core, err := New(Options{Client: client, Timeout: faultTimeout, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", faultPolicy)
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Drop(calls("room_restore"))
	ticked := make(chan error, 1)
	go func() { ticked <- r.Tick(t.Context()) }() // for a second or more
	awaitWithin(t, patience, "the restore hangs", func() bool { return proxy.Dropped() > 0 })
	if _, err := r.Claim(t.Context(), Ticket{ID: ID{1}}); !errors.Is(err, ErrStore) {
		t.Errorf("claim: %v", err)
	}
	select {
	case err := <-ticked:
		t.Errorf("the claim waited for the restore of the tick, which ended with %v", err)
	default:
		proxy.Heal()
		proxy.Reset()
		<-ticked
	}
}

// A room without visitors is ticked every 2 s, but more often while the store is away.
func TestIdleRoom_TicksSoonAfterStoreFails(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Socket())
	var ticks atomic.Int64
	core, err := New(Options{
		Client: storeClient(t, proxy.Addr()), Timeout: faultTimeout, Tick: faultTick, Log: slog.New(slog.DiscardHandler),
		Observe: func(script string, _ time.Duration, _ error) {
			if script == "room_advance" {
				ticks.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", faultPolicy)
	running, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = core.Run(running) })
	defer run.Wait()
	defer stop()
	awaitWithin(t, patience, "the room is known", func() bool { return r.Snapshot().Known })
	n := ticks.Load()
	awaitWithin(t, patience, "a tick at its interval", func() bool { return ticks.Load() > n })
	began := time.Now()
	proxy.Cut()
	awaitWithin(t, patience, "the breaker opens", func() bool {
		r.Charge(t.Context())
		return !core.Up()
	})
	n = ticks.Load()
	awaitWithin(t, patience, "five more ticks", func() bool { return ticks.Load() > n+5 })
	if d := time.Since(began); d > 1500*time.Millisecond {
		t.Errorf("the next ticks came %s after the last one; the idle interval is 2 s", d)
	}
}

// Touch records heartbeats while a tick sends earlier ones, or has none to send (for the race detector).
func TestTouch_DuringTick(t *testing.T) {
	t.Parallel()
	core, err := New(Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: patience, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", faultPolicy)
	var heard sync.WaitGroup
	for i := range 4 {
		heard.Go(func() {
			pace := time.NewTicker(time.Duration(300+10*i) * time.Microsecond)
			defer pace.Stop()
			for n := range 200 {
				<-pace.C
				r.Touch(ID{1, byte(i), byte(n)}, false)
			}
		})
	}
	for range 50 {
		if err := r.Tick(t.Context()); err != nil {
			t.Error(err)
		}
	}
	heard.Wait()
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitWithin(t, patience, "every session is in the store", func() bool {
		return r.Tick(t.Context()) == nil && r.Snapshot().Active == 800
	})
}
