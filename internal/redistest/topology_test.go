package redistest

import (
	"strings"
	"testing"
	"time"
)

// eventually polls for as long as a failover may take on a busy machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatal(what)
		case <-tick.C:
		}
	}
}

func TestMove_MovesASlotKeyByKey(t *testing.T) {
	t.Parallel()
	c := ThreeMasters(t, 0, "--cluster-node-timeout", "15000")
	client := c.Client()
	keys := []string{"{a}1", "{a}2", "{a}3"}
	for _, k := range keys {
		if err := client.Set(t.Context(), k, k, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	from := c.Master("{a}")
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	m := c.Move("{a}", to)
	m.Step(1)
	if n := m.Left(); n != 2 {
		t.Fatalf("%d keys are left, 2 should be", n)
	}
	for _, k := range keys { // by ASK, or where it was
		if got, err := client.Get(t.Context(), k).Result(); err != nil || got != k {
			t.Fatalf("half-way %s reads %q, %v", k, got, err)
		}
	}
	if err := client.MGet(t.Context(), keys...).Err(); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Fatalf("several keys half-way: %v", err)
	}
	m.Finish()
	if c.Master("{a}") != to {
		t.Fatal("the slot is not where it was moved to")
	}
	if got, err := client.MGet(t.Context(), keys...).Result(); err != nil || len(got) != 3 || got[2] != "{a}3" {
		t.Fatalf("afterwards: %v, %v", got, err)
	}
}

func TestThreeMasters_AReplicaTakesOver(t *testing.T) {
	t.Parallel()
	c := ThreeMasters(t, 1)
	old := c.Master("{a}")
	next := c.Replica(old)
	if next.IsMaster() {
		t.Fatal("the replica is a master")
	}
	old.Kill()
	eventually(t, "no takeover", func() bool { return next.IsMaster() && c.Master("{a}") == next })
}

func TestSentinelTrio_PromotesAReplica(t *testing.T) {
	t.Parallel()
	s := SentinelTrio(t)
	old := s.Servers[0]
	if s.Master() != old || !old.IsMaster() {
		t.Fatal("another master than the first")
	}
	old.Kill()
	eventually(t, "no promotion", func() bool { m := s.Master(); return m != nil && m != old && m.IsMaster() })
}

// A promoted replica lacks the writes that it missed while it was stranded.
func TestStrand_LetsTheReplicaLag(t *testing.T) {
	t.Parallel()
	s := SentinelTrio(t)
	old := s.Servers[0]
	old.do("SET", "k", "before")
	for _, replica := range s.Servers[1:] {
		eventually(t, "the replica has it", func() bool { got, _ := replica.do("GET", "k").(string); return got == "before" })
	}
	old.Strand()
	old.do("SET", "k", "after")
	old.Kill()
	eventually(t, "no promotion", func() bool { m := s.Master(); return m != nil && m != old && m.IsMaster() })
	if got := s.Master().do("GET", "k"); got != "before" {
		t.Fatalf("the promoted replica has %q", got)
	}
}
