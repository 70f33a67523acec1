package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/short"
)

// MasterName is the name of the master of a Trio.
const MasterName = "tickets"

// Trio is a master with two replicas under three sentinels, for one test.
type Trio struct {
	t         testing.TB
	Servers   []*PrivateServer // by their roles at the start: the master first
	Sentinels []*PrivateServer
}

// SentinelTrio starts a master, two replicas and three sentinels. A master is down after 1 s of silence if two sentinels agree.
// SentinelTrio waits until all know each other and the replicas are in sync. args are appended to the usual arguments of each server.
// All of them are stopped when the test ends.
func SentinelTrio(t testing.TB, args ...string) *Trio {
	t.Helper()
	short.Skip(t, "starts Sentinels")
	s := &Trio{t: t}
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	master := Server(t, args...)
	host, port, _ := net.SplitHostPort(master.Addr())
	s.Servers = []*PrivateServer{master}
	for range 2 {
		s.Servers = append(s.Servers, Server(t, append([]string{"--replicaof", host, port}, args...)...))
	}
	for _, replica := range s.Servers[1:] {
		replica.await("it is in step", func(c redis.UniversalClient) bool { return inStep(t, c) })
	}
	config := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\nsentinel down-after-milliseconds %[1]s 1000\n"+
		"sentinel failover-timeout %[1]s 4000\n", MasterName, host, port)
	for range 3 {
		sentinel := private(t, config, []string{"--sentinel"})
		// By default sentinels publish every 2 s, and pause for 30 s after the machine has stalled.
		sentinel.do("SENTINEL", "DEBUG", "PUBLISH-PERIOD", 100, "INFO-PERIOD", 500, "TILT-PERIOD", 1000)
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	for _, sentinel := range s.Sentinels {
		sentinel.await("it knows the others", func(c redis.UniversalClient) bool {
			info := c.Info(t.Context(), "sentinel").Val()
			return strings.Contains(info, "slaves=2,sentinels=3") &&
				c.Do(t.Context(), "SENTINEL", "CKQUORUM", MasterName).Err() == nil
		})
	}
	return s
}

// URL returns the store URL, with the sentinels.
func (s *Trio) URL() string {
	addrs := make([]string, len(s.Sentinels))
	for i, n := range s.Sentinels {
		addrs[i] = n.Addr()
	}
	return "redis-sentinel://" + strings.Join(addrs, ",") + "/" + MasterName
}

// Master returns the server that is the master according to the first sentinel that replies, or nil.
func (s *Trio) Master() *PrivateServer {
	for _, sentinel := range s.Sentinels {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		addr, err := sentinel.client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
		cancel()
		if err != nil {
			continue
		}
		for _, n := range s.Servers {
			if n.Addr() == strings.Join(addr, ":") {
				return n
			}
		}
	}
	return nil
}
