package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
)

// trio is a master with two replicas under three sentinels, set up as docs/store.md recommends.
type trio struct {
	servers   map[string]*server // by address
	sentinels []*rig.Redis
	url       string
}

// server is a redis-server of a trio.
type server struct {
	*rig.Child
	args []string
}

const outage = 6 * time.Second // of a master that fails; meanwhile a replica is promoted

func startTrio(r *rig.Run) *trio {
	t := &trio{servers: map[string]*server{}}
	bin := rig.Must(rig.Find("redis-server"))
	start := func(args ...string) string {
		addr := r.Port()
		host, port, _ := strings.Cut(addr, ":")
		args = append(args, "--bind", host, "--port", port, "--dir", rig.Must(os.MkdirTemp(r.Dir, "redis-")))
		s := &server{args: args, Child: r.Start("redis-server", bin, addr, args...)}
		r.Cleanup(func() { s.Kill() }) // it may be another process by then
		t.servers[addr] = s
		return addr
	}
	var master string
	for i := range 3 {
		args := []string{"--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0",
			"--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"}
		if i == 0 {
			master = start(args...)
		} else {
			host, port, _ := strings.Cut(master, ":")
			start(append(args, "--replicaof", host, port)...)
		}
	}
	config := fmt.Sprintf("sentinel monitor m %s 2\nsentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 4000\n", strings.Replace(master, ":", " ", 1))
	var hosts []string
	for i := range 3 {
		addr := r.Port()
		host, port, _ := strings.Cut(addr, ":")
		r.Start("sentinel", bin, addr, r.File(fmt.Sprintf("sentinel-%d.conf", i), config), "--sentinel", "--bind", host, "--port", port)
		t.sentinels = append(t.sentinels, r.OpenRedis(addr))
		hosts = append(hosts, addr)
	}
	t.url = "redis-sentinel://" + strings.Join(hosts, ",") + "/m"
	for _, s := range t.sentinels {
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(s.Client.Info(r, "sentinel").Val(), "slaves=2,sentinels=3"); r.Wait(100 * time.Millisecond) {
			rig.Require(time.Now().Before(deadline), "the sentinels do not know each other after 20 s")
		}
	}
	return t
}

// master returns the address of the present master.
func (t *trio) master(ctx context.Context) (string, error) {
	v, err := t.sentinels[0].Client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m").StringSlice()
	return strings.Join(v, ":"), err
}

// fail stops the master, or kills it, until a replica has long been promoted.
func (t *trio) fail(ctx context.Context, kills bool) error {
	addr, err := t.master(ctx)
	if err != nil {
		return err
	}
	s := t.servers[addr]
	if !kills {
		if err := s.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		rig.Sleep(ctx, outage)
		return s.Signal(syscall.SIGCONT)
	}
	s.Kill()
	rig.Sleep(ctx, outage)
	s.Child, err = rig.Start("redis-server", rig.Must(rig.Find("redis-server")), s.args...)
	return err
}

// failovers returns a plan in which masters fail instead of freezes: alternately killed and stopped, each after an interval in which the
// former one has become a replica.
func failovers(plan []fault) (out []fault) {
	free, n := 3*time.Second, 0
	for _, f := range plan {
		if f.kind == freeze {
			if f.at < free {
				continue
			}
			f.kind, f.length = fail, outage
			f.gateway, n = n, n+1 // of the failures; odd ones stop the master
			free = f.at + 2*outage
		}
		out = append(out, f)
	}
	return out
}
