package admission_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
)

// What the programs run with, but for the tick.
const (
	topologyTimeout = 250 * time.Millisecond
	topologyTick    = 50 * time.Millisecond
	// failoverPatience is how long a busy machine may take to notice that a master is gone, to agree on the next, and to
	// go on after the hold.
	failoverPatience = 60 * time.Second
)

// steady admits so slowly that a crowd is there for as long as a failover takes.
var steady = Policy{
	Enabled: true, Method: FIFO, Rate: 20_000, Burst: 5_000, Absence: 10 * time.Minute,
	ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: OnErrorWait,
}

// siteAt is two gateways that opened the store of a URL as the programs do.
func siteAt(t testing.TB, p Policy, url, room string) *site {
	t.Helper()
	s := &site{t: t, admin: redistest.Client(t), patient: 2 * failoverPatience, late: lateness(t)} // any server of this machine has its clock
	running, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	s.stop = func() { cancel(); runs.Wait() }
	for range 2 {
		client, err := redisurl.Open(url, topologyTimeout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		core, err := New(Options{
			Client: client, Timeout: topologyTimeout, Tick: topologyTick, Log: slog.New(slog.DiscardHandler),
			Observe: func(_ string, _ time.Duration, err error) {
				if err != nil {
					s.errs.Store(err.Error(), true)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.cores = append(s.cores, core)
		s.rooms = append(s.rooms, core.Room(room, p))
		runs.Go(func() { _ = core.Run(running) })
	}
	t.Cleanup(s.stop)
	s.await("the first tick", func() bool { return s.up() && s.rooms[0].Snapshot().Known && s.rooms[1].Snapshot().Known })
	return s
}

// topology is a store of several servers, seen from a room.
type topology struct {
	url       string
	clustered bool
	replicas  int                             // of the room's master
	master    func() *redistest.PrivateServer // that now serves the room; nil when no server reports it
	handover  func()                          // asks for a switch of roles in order
	patient   func(time.Duration)             // sets how long a master has to be silent
	votes     func() int64                    // rises with every failover that is tried
}

const topologyRoom = "sale"

// ofRoom is a key of a room with the prefix that cores have by themselves.
func ofRoom(id string) string { return "wr:{room:" + id + "}:state" }

func clustered(t testing.TB, args ...string) topology {
	c := redistest.ThreeMasters(t, 1, args...)
	master := func() *redistest.PrivateServer { return c.Master(ofRoom(topologyRoom)) }
	return topology{
		url: c.URL(), clustered: true, replicas: 1, master: master,
		handover: func() {
			old := master()
			handOverTo(t, func() bool { return master() != old }, c.Replica(old), "CLUSTER", "FAILOVER")
		},
		patient: func(d time.Duration) {
			for _, n := range c.Nodes {
				order(t, n, "CONFIG", "SET", "cluster-node-timeout", d.Milliseconds())
			}
		},
		votes: func() int64 { return highest(t, c.Nodes, `cluster_current_epoch:(\d+)`, "CLUSTER", "INFO") },
	}
}

func watched(t testing.TB, args ...string) topology {
	s := redistest.SentinelTrio(t, args...)
	return topology{
		url: s.URL(), replicas: 2, master: s.Master,
		handover: func() {
			old := s.Master()
			handOverTo(t, func() bool { return s.Master() != old }, s.Sentinels[0], "SENTINEL", "FAILOVER", redistest.MasterName)
		},
		patient: func(d time.Duration) {
			for _, n := range s.Sentinels {
				order(t, n, "SENTINEL", "SET", redistest.MasterName, "down-after-milliseconds", d.Milliseconds())
			}
		},
		votes: func() int64 {
			return highest(t, s.Sentinels, `config-epoch[: ](\d+)`, "SENTINEL", "MASTER", redistest.MasterName)
		},
	}
}

// handOverTo asks until it is done: on a busy machine a server may give up.
func handOverTo(t testing.TB, done func() bool, whom *redistest.PrivateServer, command ...any) {
	t.Helper()
	client := whom.Client()
	var asked time.Time
	awaitWithin(t, 2*failoverPatience, "the switch", func() bool {
		if time.Since(asked) > 12*time.Second {
			if err := client.Do(t.Context(), command...).Err(); err != nil || !asked.IsZero() {
				t.Logf("%v, asked again: %t: %v", command, !asked.IsZero(), err)
			}
			asked = time.Now()
		}
		return done()
	})
}

// highest is the largest number that the servers which answer name.
func highest(t testing.TB, servers []*redistest.PrivateServer, pattern string, command ...any) (most int64) {
	t.Helper()
	number := regexp.MustCompile(pattern)
	most = -1
	for _, n := range servers {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		said, err := n.Client().Do(ctx, command...).Result()
		cancel()
		if found := number.FindStringSubmatch(fmt.Sprint(said)); err == nil && found != nil {
			is, _ := strconv.ParseInt(found[1], 10, 64)
			most = max(most, is)
		}
	}
	if most < 0 {
		t.Errorf("no server replies to %v", command)
	}
	return most
}

func order(t testing.TB, to *redistest.PrivateServer, command ...any) {
	t.Helper()
	if err := to.Client().Do(t.Context(), command...).Err(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
}

// level waits until the master's replicas have all that it has.
func (top topology) level(t testing.TB) {
	t.Helper()
	pipe := top.master().Client().Pipeline() // one connection: WAIT speaks of what its own has written
	pipe.Set(t.Context(), ofRoom(topologyRoom)+"-probe", "", 0)
	there := pipe.Do(t.Context(), "WAIT", top.replicas, (patience / 4).Milliseconds())
	if _, err := pipe.Exec(t.Context()); err != nil || there.Val() != int64(top.replicas) {
		t.Fatalf("%v replicas of %d are in step: %v", there.Val(), top.replicas, err)
	}
}

// topologies runs a test on a cluster with replicas and on a master with replicas under sentinels, or on one of them.
func topologies(t *testing.T, f func(*testing.T, topology), only ...string) {
	for name, start := range map[string]func(testing.TB, ...string) topology{"cluster": clustered, "sentinel": watched} {
		if len(only) > 0 && rounds == 0 && only[0] != name {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t))
		})
	}
}

// promoted waits until another server than old is master of the room and writable, and returns when that was, by the
// clock that the servers of this machine share.
func (s *site) promoted(top topology, old *redistest.PrivateServer) int64 {
	s.t.Helper()
	var at int64
	awaitWithin(s.t, failoverPatience, "another master", func() bool {
		m := top.master()
		if m == nil || m == old || !m.IsMaster() {
			return false
		}
		at = s.clock()
		return true
	})
	return at
}

// admittedAfter waits for the first admission after at, and returns its time.
func (a *audience) admittedAfter(at int64) int64 {
	a.s.t.Helper()
	var first int64
	awaitWithin(a.s.t, failoverPatience, "an admission by the new master", func() bool {
		for _, g := range a.guests {
			if g.entered.Load() > at && (first == 0 || g.entered.Load() < first) {
				first = g.entered.Load()
			}
		}
		return first > 0
	})
	return first
}

// excess is by how many visitors the fullest interval, of any length, is over rate·dt + burst. Of a crowd that is still
// coming in it counts those who are.
func excess(p Policy, crowds ...*audience) float64 {
	var at []int64
	for _, a := range crowds {
		for _, g := range a.guests {
			if us := g.entered.Load(); us > 0 {
				at = append(at, us)
			}
		}
	}
	slices.Sort(at)
	worst := 0.0
	for i := range at {
		for j := i; j < len(at); j++ {
			allowed := float64(p.Rate)/1000*float64(at[j]-at[i])/1e6 + float64(p.Burst)/1000
			worst = max(worst, float64(j-i+1)-allowed)
		}
	}
	return worst
}
