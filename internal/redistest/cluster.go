package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/short"
)

// slots is the number of slots of a cluster. Three masters share them as redis-cli would.
const slots = 16384

// PrivateCluster is a cluster of three masters, with equally many replicas each, for one test.
type PrivateCluster struct {
	t     testing.TB
	Nodes []*PrivateServer // by their roles at the start: three masters, then the first replica of each, and so on
	names map[*PrivateServer]string
}

// ThreeMasters starts a cluster of three masters on loopback with a number of replicas each. It waits until all slots are served and
// every replica is in sync. args are appended to the usual arguments of every node; the node timeout is 2 s unless args set another.
// The cluster is stopped when the test ends.
func ThreeMasters(t testing.TB, replicas int, args ...string) *PrivateCluster {
	t.Helper()
	short.Skip(t, "starts a cluster")
	c := &PrivateCluster{t: t, names: map[*PrivateServer]string{}}
	args = append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	}, args...)
	for range 3 * (1 + replicas) {
		p, err := withPort(10000, "", args)
		if err != nil {
			t.Fatal(err)
		}
		c.Nodes = append(c.Nodes, own(t, p))
	}
	for i, n := range c.Nodes {
		c.names[n] = n.do("CLUSTER", "MYID").(string)
		if i < 3 {
			n.do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
			n.do("CLUSTER", "ADDSLOTSRANGE", i*slots/3, (i+1)*slots/3-1)
		}
		// Every pair is introduced, because gossip would take seconds.
		for _, other := range c.Nodes[:i] {
			host, port, _ := net.SplitHostPort(other.Addr())
			n.do("CLUSTER", "MEET", host, port)
		}
	}
	for i, n := range c.Nodes[3:] {
		// The node refuses until it knows the master.
		n.await("it follows its master", func(client redis.UniversalClient) bool {
			return client.Do(t.Context(), "CLUSTER", "REPLICATE", c.names[c.Nodes[i%3]]).Err() == nil
		})
	}
	for i, n := range c.Nodes {
		n.await("the cluster is ok", func(client redis.UniversalClient) bool {
			info := client.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))) &&
				(i < 3 || inStep(t, client))
		})
	}
	return c
}

func inStep(t testing.TB, client redis.UniversalClient) bool {
	return strings.Contains(client.Info(t.Context(), "replication").Val(), "master_link_status:up")
}

// URL returns the store URL, with all nodes.
func (c *PrivateCluster) URL() string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr()
	}
	return "redis-cluster://" + strings.Join(addrs, ",")
}

// Client returns a client of the cluster. It is closed when the test ends.
func (c *PrivateCluster) Client() *redis.ClusterClient {
	c.t.Helper()
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr()
	}
	return clusterClient(c.t, addrs)
}

// Master returns the node that serves key according to the first node that replies, or nil.
func (c *PrivateCluster) Master(key string) *PrivateServer {
	slot := c.slot(key)
	for _, n := range c.Nodes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		ranges, err := n.client().ClusterSlots(ctx).Result()
		cancel()
		if err != nil {
			continue
		}
		for _, r := range ranges {
			if r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
				return c.named(r.Nodes[0].ID)
			}
		}
	}
	return nil
}

// Replica returns the first replica that a master had at the start.
func (c *PrivateCluster) Replica(master *PrivateServer) *PrivateServer {
	for i, n := range c.Nodes[:3] {
		if n == master && len(c.Nodes) > 3 {
			return c.Nodes[3+i]
		}
	}
	return nil
}

func (c *PrivateCluster) named(id string) *PrivateServer {
	for n, name := range c.names {
		if name == id {
			return n
		}
	}
	return nil
}

// slot returns the slot of key, from the first node that replies.
func (c *PrivateCluster) slot(key string) int {
	c.t.Helper()
	var err error
	for _, n := range c.Nodes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		slot, ask := n.client().ClusterKeySlot(ctx, key).Result()
		cancel()
		if ask == nil {
			return int(slot)
		}
		err = ask
	}
	c.t.Fatalf("no node tells the slot of %q: %v", key, err)
	return 0
}

// Move is the migration of one slot, step by step.
type Move struct {
	c        *PrivateCluster
	slot     int
	from, to *PrivateServer
}

// Move begins to move the slot of key from its master to another. Until Finish both masters have keys of the slot.
func (c *PrivateCluster) Move(key string, to *PrivateServer) *Move {
	c.t.Helper()
	m := &Move{c: c, slot: c.slot(key), from: c.Master(key), to: to}
	to.do("CLUSTER", "SETSLOT", m.slot, "IMPORTING", c.names[m.from])
	m.from.do("CLUSTER", "SETSLOT", m.slot, "MIGRATING", c.names[to])
	return m
}

// Left returns the number of keys of the slot that are still on the old master.
func (m *Move) Left() int {
	m.c.t.Helper()
	return int(m.from.do("CLUSTER", "COUNTKEYSINSLOT", m.slot).(int64))
}

// Step moves at most n keys, one after the other.
func (m *Move) Step(n int) {
	m.c.t.Helper()
	host, port, _ := net.SplitHostPort(m.to.Addr())
	keys, _ := m.from.do("CLUSTER", "GETKEYSINSLOT", m.slot, n).([]any)
	for _, k := range keys {
		m.from.do("MIGRATE", host, port, k, 0, patience.Milliseconds())
	}
}

// Finish moves the remaining keys and assigns the slot, first on the new master.
func (m *Move) Finish() {
	m.c.t.Helper()
	for m.Left() > 0 {
		m.Step(100)
	}
	for _, n := range []*PrivateServer{m.to, m.from} {
		n.do("CLUSTER", "SETSLOT", m.slot, "NODE", m.c.names[m.to])
	}
}

func clusterClient(t testing.TB, addrs []string) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaintNotificationsConfig: maintOff(),
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// IsMaster reports whether the server replies and is a master.
func (s *PrivateServer) IsMaster() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	role, err := s.client().Do(ctx, "ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}

// Strand disconnects the server's replicas for good, so that they lag from now on. The writes that they miss are lost when one of them is
// promoted.
func (s *PrivateServer) Strand() {
	s.t.Helper()
	s.do("ACL", "SETUSER", "default", "-psync", "-sync")
	s.do("CLIENT", "KILL", "TYPE", "replica")
}

// do sends a command, which must succeed, on the client of this package.
func (s *PrivateServer) do(command ...any) any {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := s.client().Do(ctx, command...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatalf("%s: %v: %v", s.Addr(), command, err)
	}
	return got
}

func (s *PrivateServer) await(what string, ok func(redis.UniversalClient) bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok(s.client()) {
		select {
		case <-deadline.C:
			s.t.Fatalf("%s: not within %s: %s\n%s", s.Addr(), patience, what,
				s.client().Info(context.Background(), "replication").Val()+s.client().ClusterInfo(context.Background()).Val())
		case <-tick.C:
		}
	}
}
