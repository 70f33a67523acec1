package store

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// TestScorePolicy_RespectsGateOfTenant: with the score policy a tenant whose limit was spent stayed first in the queue, and
// the pull looped for ever inside Redis. The test has a server of its own, because a hanging server would have to be killed.
func TestScorePolicy_RespectsGateOfTenant(t *testing.T) {
	set := Defaults()
	set.Policy, set.PerTenant = "score", 10
	c := &clock{us: begin}
	s, err := New(Options{Client: redistest.Server(t).Client(), Prefix: redistest.Prefix(t), Timeout: 5 * time.Second, Settings: set, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, GroupSpec{ID: "spent", Tenant: "acme"})
	add(t, s, "spent", 0, 50)
	c.advance(time.Second)
	create(t, s, GroupSpec{ID: "next", Tenant: "small"})
	add(t, s, "next", 0, 50)
	p := pull(t, s, 20)
	of := map[string]int{}
	for _, j := range p.Jobs {
		of[j.Group]++
	}
	if of["spent"] != 1 || of["next"] != 1 || p.Next != 100*time.Millisecond {
		t.Errorf("pulled %v, next in %v; want one of each tenant (burst 1) and the next slot in 100ms", of, p.Next)
	}
	c.advance(p.Next)
	if p = pull(t, s, 20); len(p.Jobs) != 2 {
		t.Errorf("pulled %v at the next slot; want one of each tenant", ids(p.Jobs))
	}
	clean(t, s)
}

// TestReady_IsShort: in the classic pipeline jobs moved to READY and spent the rate of each window while no worker was free. When workers
// came, the jobs of many windows started together.
func TestReady_IsShort(t *testing.T) {
	s, c := open(t, func(set *Settings) {
		set.Policy, set.Limiter, set.Gating, set.Global, set.BaseBackoff = "score", "fixed_window", false, 10, 100*time.Millisecond
	})
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 300)
	for range 10 {
		if p := pull(t, s, 1); len(p.Jobs) != 1 {
			t.Fatalf("%+v", p)
		}
		c.advance(time.Second)
		for d := dispatch(t, s); d.More; d = dispatch(t, s) {
		}
	}
	if p := pull(t, s, 100); len(p.Jobs) > 10 {
		t.Errorf("%d jobs start in one window of 10", len(p.Jobs))
	}
	clean(t, s)
}

// TestClassicPipeline_RatesGroup: the rate of a group, such as a redrive's, was ignored.
func TestClassicPipeline_RatesGroup(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Policy, set.Limiter, set.Gating = "score", "fixed_window", false })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Rate: 2})
	add(t, s, "g", 0, 20)
	if p := pull(t, s, 20); len(p.Jobs) != 2 {
		t.Errorf("%d jobs start in one window, the group's rate is 2", len(p.Jobs))
	}
	c.advance(time.Second)
	clean(t, s)
}
