package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Two gateways use a cluster. During a crowd the room's keys move to another master one by one, and later that master is killed. Every
// visitor keeps the place, and rate and order hold.
func TestCrowd_OverCluster(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	store := redistest.ThreeMasters(t, 1)
	s := setup{origin: site.URL, rooms: []string{room(admission(12, 12))}}.withRedis(store.URL())
	a, b := start(t, s), start(t, s)
	if code, _, errs := command(t, nil, "check-config", "--config", a.config, "--store"); code != 0 {
		t.Errorf("check-config --store: %d %s", code, errs)
	}
	crowd := sendCrowd(t, a, 80, func(visitor, try int) *gateway { return []*gateway{a, b}[(visitor+try)%2] })
	crowd.waitInside(20)
	const key = "wr:{room:sale}:state"
	from, to := store.Master(key), store.Nodes[0]
	if to == from {
		to = store.Nodes[1]
	}
	move := store.Move(key, to)
	for move.Left() > 0 {
		move.Step(1)
	}
	move.Finish()
	inside := crowd.inside()
	crowd.waitInside(inside + 15)
	to.Kill()
	crowd.wait(80, 12, 12)
	if m := store.Master(key); m == nil || m == to || m == from {
		t.Error("the room is not on the replica of the master that was killed")
	}
}

// The same with sentinels, one of which is killed with the master.
func TestCrowd_UnderSentinels(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	store := redistest.SentinelTrio(t)
	s := setup{origin: site.URL, rooms: []string{room(admission(12, 12))}}.withRedis(store.URL())
	a, b := start(t, s), start(t, s)
	if code, _, errs := command(t, nil, "check-config", "--config", a.config, "--store"); code != 0 {
		t.Errorf("check-config --store: %d %s", code, errs)
	}
	crowd := sendCrowd(t, a, 80, func(visitor, try int) *gateway { return []*gateway{a, b}[(visitor+try)%2] })
	crowd.waitInside(25)
	store.Sentinels[0].Kill()
	store.Servers[0].Kill()
	crowd.wait(80, 12, 12)
	if m := store.Master(); m == nil || m == store.Servers[0] {
		t.Error("there was no failover")
	}
}

// A bulk worker over a cluster and under sentinels, whose master is killed while jobs run.
func TestBulkStore_ClusterAndSentinels(t *testing.T) {
	const n, workers = 600, 4
	run := func(t *testing.T, url string, kill func()) {
		f := newFarmOn(t, nil, fmt.Sprintf("{url: %q}", url), fmt.Sprintf("durability: replica\nrate: {global: 200}\nworker: {count: %d, lease: 2s}", workers))
		f.to.answer = held(5 * time.Millisecond)
		w := f.worker()
		// A replica may be late: accepted jobs are kept, and the chunk has to be sent again.
		until(t, "the jobs are in", func() bool {
			a := w.ask(http.MethodPost, "/v1/bulk?type=webhook&tenant=acme&id=g", jobLines(n))
			return a.code != http.StatusServiceUnavailable && a.want(http.StatusCreated).code > 0
		})
		f.to.reached(t, n/4)
		kill()
		if g := w.completes("g"); g.Total != n || g.Succeeded != n {
			t.Errorf("%+v", g)
		}
		w.results("g", n)
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		store := redistest.ThreeMasters(t, 1)
		run(t, store.URL(), func() { store.Master("wr:{bulk:0}:").Kill() })
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		store := redistest.SentinelTrio(t)
		run(t, store.URL(), func() { store.Servers[0].Kill() })
	})
}
