package admission_test

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/internal/short"
)

// A replica is promoted while the old master runs on, and each has gateways that see only it. Each master keeps the limit by
// itself: together they exceed it by at most another burst and the rate times the time in which both serve.
func TestTwoMasters_EachKeepsLimit(t *testing.T) {
	short.Skip(t, "needs two masters")
	t.Parallel()
	old := redistest.Server(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(old.Addr())
	if err != nil {
		t.Fatal(err)
	}
	next := redistest.Server(t, "--replicaof", host, port)
	top := topology{replicas: 1, master: func() *redistest.PrivateServer { return old }}
	here := siteAt(t, steady, "redis://"+old.Addr(), topologyRoom)
	top.level(t)
	began := here.clock()
	order(t, next, "REPLICAOF", "NO", "ONE")
	there := siteAt(t, steady, "redis://"+next.Addr(), topologyRoom)
	first, second := here.send(60, 0), there.send(60, 0)
	here.await("both admit visitors", func() bool { return first.in.Load() >= 30 && second.in.Load() >= 30 })
	old.Kill()
	both := here.clock() - began
	first.abandon()
	there.await("all of the second crowd are in", func() bool { return second.in.Load() == 60 })
	over, bound := excess(steady, first, second), float64(steady.Burst+steady.Rate*both/1_000_000)/1000
	t.Logf("over the limit by %.1f, the bound is %.1f", over, bound)
	if over > bound {
		t.Errorf("over the limit by %.1f after %s of two masters, the bound is %.1f", over, micros(both), bound)
	}
}

// While no server reports the master of the room, each of 300 concurrent callers gets a response by its deadline, nothing piles
// up, and the room serves as without the store. When the topology responds again, the room continues.
func TestTopology_SilentBlocksNobody(t *testing.T) {
	short.Skip(t, "waits for the clock")
	for name, start := range map[string]func(*testing.T) (url string, silent []*redistest.PrivateServer){
		"cluster": func(t *testing.T) (string, []*redistest.PrivateServer) {
			c := redistest.ThreeMasters(t, 0, "--cluster-node-timeout", "60000")
			return c.URL(), c.Nodes
		},
		"sentinel": func(t *testing.T) (string, []*redistest.PrivateServer) {
			s := redistest.SentinelTrio(t)
			return s.URL(), s.Sentinels
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, silent := start(t)
			for _, n := range silent {
				n.Stop()
			}
			client, err := redisurl.Open(url, faultTimeout)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			core, err := New(Options{Client: client, Timeout: faultTimeout, Tick: faultTick, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			r := core.Room(topologyRoom, steady)
			running, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = core.Run(running) })
			defer run.Wait()
			defer stop()
			before := runtime.NumGoroutine()
			var longest atomic.Int64
			var tickets sync.Map
			for wave := range byte(4) {
				var all sync.WaitGroup
				for i := range 300 {
					all.Go(func() {
						id := ID{byte(i), byte(i >> 8), wave}
						began := time.Now()
						s, refusal, err := r.Join(t.Context(), Arrival{ID: id, Client: Client{1}})
						if err != nil || refusal != Granted || !s.Offline {
							t.Errorf("join: %+v %q %v", s, refusal, err)
						}
						if _, err := r.Check(t.Context(), s.Ticket); err != nil {
							t.Errorf("check: %v", err)
						}
						tickets.Store(id, s.Ticket)
						took := int64(time.Since(began))
						for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
						}
					})
				}
				if n := runtime.NumGoroutine() - before; n > 300+200 {
					t.Errorf("%d goroutines for 300 callers", n)
				}
				all.Wait()
			}
			if d := time.Duration(longest.Load()); d > patience/2 { // a call without one never ends
				t.Errorf("two calls took %s, a deadline is %s", d, faultTimeout)
			}
			awaitWithin(t, patience, "the breaker opens", func() bool { return !core.Up() })
			for _, n := range silent {
				n.Cont()
			}
			awaitWithin(t, failoverPatience, "the room is back", core.Up)
			tickets.Range(func(_, v any) bool {
				k := v.(Ticket)
				awaitWithin(t, patience, "a place is enrolled", func() bool {
					s, err := r.Check(t.Context(), k)
					if err == nil && s.State != Waiting && s.State != Admitted && s.State != Active {
						t.Fatalf("%+v", s)
					}
					return err == nil && !s.Offline
				})
				return false // one is enough
			})
		})
	}
}
