package admission_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/lua"
)

// The slot of a room moves key by key while visitors join. The cluster replies TRYAGAIN until the last key has moved; the room
// continues immediately afterwards.
func TestCluster_RoomMovesBetweenMasters(t *testing.T) {
	t.Parallel()
	c := redistest.ThreeMasters(t, 0, "--cluster-node-timeout", "15000")
	p := steady
	p.Rate = 30_000
	s := siteAt(t, p, c.URL(), topologyRoom)
	a := s.send(60, 15*time.Millisecond)
	s.await("some are in", func() bool { return a.in.Load() >= 10 })
	key := ofRoom(topologyRoom)
	for _, to := range []*redistest.PrivateServer{another(c, key), c.Master(key)} { // there and back
		m := c.Move(key, to)
		for m.Left() > 0 {
			m.Step(1)
			wait(t, 40*time.Millisecond)
		}
		s.await("a script finds its keys divided", func() bool { return s.failedWith("TRYAGAIN") })
		in := a.in.Load()
		m.Finish()
		if c.Master(key) != to {
			t.Fatal("the slot was not moved")
		}
		awaitWithin(t, patience, "the rooms are back", s.up)
		s.await("the next are in", func() bool { return a.in.Load() > in })
	}
	a.judge(p)
	if s.failedWith("CROSSSLOT") {
		t.Error("a script took keys of several slots")
	}
}

// another is a master that does not serve key.
func another(c *redistest.PrivateCluster, key string) *redistest.PrivateServer {
	for _, n := range c.Nodes[:3] {
		if n != c.Master(key) {
			return n
		}
	}
	return nil
}

// With rooms on every master, each master has every script. A promoted master, which has none, gets the scripts that are
// called.
func TestCluster_RoomsLiveOnDifferentMasters(t *testing.T) {
	t.Parallel()
	c := redistest.ThreeMasters(t, 1)
	s := siteAt(t, steady, c.URL(), topologyRoom)
	ids := map[*redistest.PrivateServer]string{}
	for i := 0; len(ids) < 3; i++ {
		id := fmt.Sprintf("room-%d", i)
		if m := c.Master(ofRoom(id)); ids[m] == "" {
			ids[m] = id
		}
	}
	scripts := lua.MustLoad()
	var shas []string
	for _, name := range scripts.Names() {
		shas = append(shas, scripts.Script(name).SHA)
	}
	for m, id := range ids {
		for _, core := range s.cores {
			r := core.Room(id, steady)
			s.await("the room is known", func() bool { return r.Snapshot().Known })
		}
		// The gateways load them beside their first ticks.
		s.await("the master of "+id+" has every script", func() bool {
			exist, err := m.Client().ScriptExists(t.Context(), shas...).Result()
			return err == nil && !slices.Contains(exist, false)
		})
		if n, err := m.Client().DBSize(t.Context()).Result(); err != nil || n == 0 {
			t.Errorf("the master of %s holds %d keys, %v", id, n, err)
		}
	}
}

// A master without replicas fails that serves neither the room nor the layout. With cluster-require-full-coverage no, the room
// is not affected, and gateways that start meanwhile serve it too.
func TestCluster_LostShardIsNotNoticed(t *testing.T) {
	t.Parallel()
	c := redistest.ThreeMasters(t, 0, "--cluster-require-full-coverage", "no")
	s := siteAt(t, steady, c.URL(), topologyRoom)
	a := s.send(40, 10*time.Millisecond)
	s.await("some are in", func() bool { return a.in.Load() >= 10 })
	for _, n := range c.Nodes {
		if n != c.Master(ofRoom(topologyRoom)) && n != c.Master("wr:layout") {
			n.Kill()
			break
		}
	}
	a.judge(steady)
	b := siteAt(t, steady, c.URL(), topologyRoom).send(5, 0)
	b.s.await("those who come to the new gateways are in", func() bool { return b.in.Load() == 5 })
}
