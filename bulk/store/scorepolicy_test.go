package store

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// TestScorePolicyRespectsTheGateOfATenant: with the score policy a tenant whose limit was spent stayed first in the queue, and
// the pull asked it for ever, inside Redis. A server of its own, which would have to be killed.
func TestScorePolicyRespectsTheGateOfATenant(t *testing.T) {
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
