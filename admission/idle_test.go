package admission

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Each gateway reads the snapshots of all idle rooms in one round trip, and one gateway at a time runs the script.
func TestIdleRooms_GatewaysTakeTurns(t *testing.T) {
	const gateways, rooms, span = 3, 20, 5 * time.Second
	client := redistest.Server(t).Client()
	var reads, ticks atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	defer run.Wait()
	defer cancel()
	var all []*Room
	for range gateways {
		core, err := New(Options{Client: client, Prefix: "wr", Timeout: patience, Log: quiet(), Observe: func(script string, _ time.Duration, _ error) {
			switch script {
			case "snapshot_read":
				reads.Add(1)
			case "room_advance":
				ticks.Add(1)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range rooms {
			all = append(all, core.Room(fmt.Sprint("room", i), basePolicy))
		}
		run.Go(func() { _ = core.Run(ctx) })
		core.Settle(ctx)
	}
	eventually := time.After(30 * time.Second)
	for _, r := range all {
		for r.Snapshot().Gateways != gateways {
			select {
			case <-eventually:
				t.Fatalf("%d gateways are counted", r.Snapshot().Gateways)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	reads.Store(0)
	ticks.Store(0)
	began := time.Now()
	<-time.After(span)
	took := time.Since(began).Seconds()
	stats, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	scripts, gets := calls(stats, "evalsha"), calls(stats, "get")-ticks.Load() // the script gets the snapshot too
	perRoom := float64(scripts) / rooms / took
	t.Logf("%d rooms, %d gateways, %.1f s: %d script calls, %.2f a second and room; %d snapshots read in %d round trips", rooms, gateways, took, scripts, perRoom, gets, reads.Load())
	// Two reads may fall on either end; the script runs once in keepTime, and twice where two gateways find it due together.
	if most := (took/keepTime.Seconds() + 1) * rooms * 1.5; float64(scripts) > most {
		t.Errorf("%d script calls in %.1f s, want at most %.0f", scripts, took, most)
	}
	if most := (took/idlePause.Seconds() + 2) * gateways * rooms; float64(gets) > most || gets == 0 {
		t.Errorf("%d snapshots read in %.1f s, want at most %.0f", gets, took, most)
	}
	if n := gets / max(1, reads.Load()); n < 2 {
		t.Errorf("%d snapshots a round trip", n)
	}
	for _, r := range all {
		if s := r.Snapshot(); s.Gateways != gateways || r.store.known.gaps != "" {
			t.Errorf("%d gateways, silences %q", s.Gateways, r.store.known.gaps)
		}
	}
}

// calls returns the calls of a command in the text of INFO commandstats.
func calls(stats, command string) (n int64) {
	_, rest, _ := strings.Cut(stats, "cmdstat_"+command+":calls=")
	_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n)
	return n
}

// One read of an idle room shows a gateway what changed elsewhere, or the gateway ticks the room.
func TestIdleRoom_NoticesChanges(t *testing.T) {
	sid := testID()
	for name, row := range map[string]struct {
		happens func(t *testing.T, a, b *Room)
		noticed func(*Room) bool
	}{
		"a change of an operator": {
			func(t *testing.T, a, _ *Room) { must(t, a.Patch(ctx5(t), "ann", Live{Rate: new(int64(7000))})) },
			func(r *Room) bool { return r.Snapshot().Policy.Rate == 7000 },
		},
		"a pause": {
			func(t *testing.T, a, _ *Room) { must(t, a.Pause(ctx5(t), "ann")) },
			func(r *Room) bool { return r.Snapshot().Policy.Paused },
		},
		"a reset": {
			func(t *testing.T, a, _ *Room) { must(t, a.Reset(ctx5(t), "ann")) },
			func(r *Room) bool { return r.Snapshot().Fence == 2 },
		},
		"a revocation": {
			func(t *testing.T, a, _ *Room) {
				must(t, a.RevokeSession(ctx5(t), "ann", sid))
				mustTick(t, a)
			},
			func(r *Room) bool { return r.Revoked(sid) },
		},
		"a revocation by an origin": {
			func(t *testing.T, a, _ *Room) {
				a.Revoke(sid)
				mustTick(t, a)
			},
			func(r *Room) bool { return r.Revoked(sid) },
		},
		"a visitor who joins": {
			func(t *testing.T, a, _ *Room) {
				for range 6 {
					mustJoin(t, a, testID(), testClient(1))
				}
				mustTick(t, a)
			},
			func(r *Room) bool { return r.Snapshot().Active > 0 && r.ticker.pause() < idlePause },
		},
		"a policy of its own": {
			func(_ *testing.T, _, b *Room) {
				p := basePolicy
				p.Rate = 9000
				b.setPolicy(p)
			},
			func(r *Room) bool { return r.Snapshot().Policy.Rate == 9000 },
		},
		"a store that was emptied": {
			func(t *testing.T, a, _ *Room) { lost(t, a.c.o.Client) },
			func(r *Room) bool { return strings.HasPrefix(r.Snapshot().Epoch, "2.") },
		},
		"a store that went back": {
			func(t *testing.T, a, _ *Room) {
				// The copy is from before the last ticks.
				must(t, a.c.o.Client.HIncrBy(ctx5(t), a.keys[0], "seq", -1).Err())
				must(t, a.c.o.Client.Del(ctx5(t), a.keys[keySnapshot]).Err())
			},
			func(r *Room) bool { return strings.HasPrefix(r.Snapshot().Epoch, "2.") },
		},
		"nobody keeps the time": {
			func(*testing.T, *Room, *Room) {},
			func(r *Room) bool { return r.RedisNow()-r.Snapshot().RedisTime < 1000 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, c := redistest.Server(t).Client(), newTestClock()
			a, b := testRoom(t, client, "wr", c, basePolicy), testRoom(t, client, "wr", c, basePolicy)
			for range 3 {
				c.pass(time.Second)
				mustTick(t, a)
				mustTick(t, b)
			}
			c.pass(idlePause)
			mustTick(t, a)
			if ok, err := b.ticker.readIdle(ctx5(t)); err != nil || !ok {
				t.Fatalf("an idle room needs a tick: %v", err)
			}
			c.pass(250 * time.Millisecond)
			if row.noticed(b) {
				t.Fatal("noticed before it happened")
			}
			row.happens(t, a, b)
			c.pass(idlePause)
			if name == "nobody keeps the time" {
				c.pass(keepTime)
			}
			if ok, err := b.ticker.readIdle(ctx5(t)); err != nil {
				t.Fatal(err)
			} else if !ok {
				mustTick(t, b)
			}
			if !row.noticed(b) {
				t.Errorf("not noticed: %+v", b.Snapshot())
			}
		})
	}
}

// A store that replies to reads alone counts as away.
func TestIdleRoom_NoticesStoreRefusingWrites(t *testing.T) {
	t.Parallel()
	client, c := redistest.Server(t).Client(), newTestClock()
	r := testRoom(t, client, "wr", c, basePolicy)
	must(t, client.ConfigSet(ctx5(t), "min-replicas-to-write", "1").Err())
	for waited := time.Duration(0); !r.store.away.Load(); waited += idlePause {
		if waited > keepTime+r.c.o.Timeout+2*idlePause {
			t.Fatalf("after %v it counts as there", waited)
		}
		c.pass(idlePause)
		ok, err := r.ticker.readIdle(ctx5(t))
		if err == nil && !ok {
			err = r.Tick(ctx5(t))
		}
		if err != nil {
			r.store.failed(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
