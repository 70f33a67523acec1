package redisurl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// TestCluster_ReadsItsSlotsAgainWhenTheMasterIsDead: a call that gets no reply makes the client read the slots again. The regular interval
// is longer than this test.
func TestCluster_ReadsItsSlotsAgainWhenTheMasterIsDead(t *testing.T) {
	t.Parallel()
	cluster := redistest.ThreeMasters(t, 1)
	o := cluster.Client().Options()
	c := newCluster(&redis.ClusterOptions{
		Addrs: o.Addrs, MaxRetries: -1, ClusterStateReloadInterval: time.Hour, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: 500 * time.Millisecond, DialerRetries: 1, ReadTimeout: 250 * time.Millisecond, DisableRoutingPolicies: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	// As scripts are sent: the library then neither repeats a call nor tries another node.
	set := func() error {
		cmd := unrepeated{redis.NewStatusCmd(t.Context(), "set", "{a}k", "v")}
		return c.Process(t.Context(), cmd)
	}
	eventually(t, set)
	master := cluster.Master("{a}")
	master.Kill()
	if err := set(); err == nil {
		t.Fatal("a killed master answers")
	}
	eventually(t, set)
	eventually(t, func() error {
		if m := cluster.Master("{a}"); m == nil || m == master {
			return errors.New("there was no failover")
		}
		return nil
	})
}

type unrepeated struct{ *redis.StatusCmd }

func (unrepeated) NoRetry() bool { return true }

// TestCluster_OneNodeOfTheURLIsEnough: the client finds all nodes if one node of the URL replies.
func TestCluster_OneNodeOfTheURLIsEnough(t *testing.T) {
	t.Parallel()
	cluster := redistest.ThreeMasters(t, 0, "--cluster-node-timeout", "15000")
	dead, frozen := redistest.Server(t), redistest.Server(t)
	dead.Kill()
	frozen.Stop()
	for name, seeds := range map[string]string{
		"one is dead": dead.Addr() + "," + cluster.Nodes[0].Addr(),
		"one hangs":   frozen.Addr() + "," + cluster.Nodes[0].Addr(),
		"both":        dead.Addr() + "," + frozen.Addr() + "," + cluster.Nodes[0].Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Open("redis-cluster://"+seeds, 250*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			for _, key := range []string{"{a}", "{b}", "{c}", "{room:sale}"} {
				eventually(t, func() error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second) // as a tick's
					defer cancel()
					return c.Set(ctx, key, "v", 0).Err()
				})
			}
		})
	}
}

// TestCheck_ChecksEveryMaster: the error names an unsuitable master although another master does not reply.
func TestCheck_ChecksEveryMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.ThreeMasters(t, 0, "--cluster-node-timeout", "15000")
	c := open(t, cluster.URL())
	if err := CheckServer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	bad := cluster.Nodes[1]
	if err := bad.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	cluster.Nodes[2].Kill()
	err := CheckServer(t.Context(), c)
	if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "node "+bad.Addr()) {
		t.Fatalf("got %v", err)
	}
}

// TestSentinel_LearnsOfOtherSentinels: the URL names one sentinel, which lists the others and then dies or hangs. The client still
// learns from the others that the master has changed.
func TestSentinel_LearnsOfOtherSentinels(t *testing.T) {
	for name, suffer := range map[string]func(*redistest.PrivateServer){
		"it dies":  (*redistest.PrivateServer).Kill,
		"it hangs": (*redistest.PrivateServer).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trio := redistest.SentinelTrio(t)
			c, err := Open("redis-sentinel://"+trio.Sentinels[2].Addr()+"/"+redistest.MasterName, 250*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			eventually(t, func() error { return c.Set(t.Context(), "k", "v", 0).Err() })
			suffer(trio.Sentinels[2])
			trio.Servers[0].Kill()
			eventually(t, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return c.Set(ctx, "k", "after", 0).Err()
			})
			eventually(t, func() error {
				if m := trio.Master(); m == nil || m == trio.Servers[0] {
					return errors.New("there was no failover")
				}
				return nil
			})
		})
	}
}

// TestOpen_TheDocumentedUsersAreEnough follows a failover as the users that docs/store.md describes, of servers and sentinels.
func TestOpen_TheDocumentedUsersAreEnough(t *testing.T) {
	t.Parallel()
	const page = "../../docs/store.md"
	trio := redistest.SentinelTrio(t)
	redistest.DocumentedUser(t, page, "anteroom", trio.Servers...)
	redistest.DocumentedUser(t, page, "anteroom-sentinel", trio.Sentinels...)
	c := open(t, strings.Replace(trio.URL(), "://", "://anteroom:PASSWORD@", 1)+"?sentinel_user=anteroom-sentinel&sentinel_password=PASSWORD")
	if err := c.Set(t.Context(), "wr:k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := CheckServer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	trio.Servers[0].Kill()
	eventually(t, func() error { return c.Set(t.Context(), "wr:k", "after", 0).Err() })
	log, err := trio.Sentinels[1].Client().Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(log) > 0 {
		t.Errorf("the sentinel refused something: %v, %v", log, err)
	}
}

// TestSentinel_LeavesAReplacedMaster: the client closes connections to a living server that is no longer the master.
func TestSentinel_LeavesAReplacedMaster(t *testing.T) {
	t.Parallel()
	trio := redistest.SentinelTrio(t)
	c, err := Open(trio.URL(), 250*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	eventually(t, func() error { return c.Set(t.Context(), "k", "v", 0).Err() })
	old := trio.Servers[0]
	old.Stop()
	eventually(t, func() error {
		if m := trio.Master(); m == nil || m == old || !m.IsMaster() {
			return errors.New("no other master")
		}
		return nil
	})
	old.Cont()
	// For a moment the old one may still take writes; they are lost.
	eventually(t, func() error {
		err := c.Set(t.Context(), "k", "after", 0).Err()
		if got, _ := trio.Master().Client().Get(t.Context(), "k").Result(); got != "after" {
			return fmt.Errorf("the new master holds %q; the last write: %w", got, err)
		}
		return nil
	})
	eventually(t, func() error {
		if role, _ := old.Client().Do(t.Context(), "ROLE").Slice(); len(role) == 0 || role[0] != "slave" {
			return errors.New("the old master is none of its replicas")
		}
		return nil
	})
	eventually(t, func() error { return c.Set(t.Context(), "k", "last", 0).Err() })
}

// TestSentinel_LeavesAMasterWithoutReplicas: the client follows the sentinel that leads a failover. This one publishes the change when the
// last replica follows the new master; until then a former master that lives refuses writes.
func TestSentinel_LeavesAMasterWithoutReplicas(t *testing.T) {
	t.Parallel()
	trio := redistest.SentinelTrio(t, "--min-replicas-to-write", "1")
	for _, s := range trio.Sentinels { // they make the former master a replica after four of these periods
		if err := s.Client().Do(t.Context(), "SENTINEL", "DEBUG", "PUBLISH-PERIOD", 2000).Err(); err != nil {
			t.Fatal(err)
		}
	}
	leader := trio.Sentinels[0]
	c := open(t, "redis-sentinel://"+leader.Addr()+"/"+redistest.MasterName)
	set := func() error { return c.Set(t.Context(), "k", "v", 0).Err() }
	eventually(t, set)
	published := leader.Client().Subscribe(t.Context(), "+switch-master")
	t.Cleanup(func() { _ = published.Close() })
	if _, err := published.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := leader.Client().Do(t.Context(), "SENTINEL", "FAILOVER", redistest.MasterName).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := set(); !redis.HasErrorPrefix(err, "NOREPLICAS") {
			return fmt.Errorf("the former master does not refuse a write: %w", err)
		}
		return nil
	})
	eventually(t, set)
	select {
	case <-published.Channel():
		t.Error("the client stayed with the former master until the end of the failover")
	case <-time.After(10 * time.Millisecond):
	}
}
