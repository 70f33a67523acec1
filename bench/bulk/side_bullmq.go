package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
)

// bullmqSide is BullMQ in Node processes, with jobs of one queue in the shared Redis. It has no tenants.
type bullmqSide struct {
	redis *rig.Redis
	dir   string // of side.mjs
	nodes []*node
}

// newBullMQ starts the processes, which stay for all rounds, so that their code is compiled. An errLeftOut names what is missing.
func newBullMQ(r *rig.Run, redis *rig.Redis, dir string, processes int) *bullmqSide {
	if _, err := rig.Find("node"); err != nil {
		rig.Check(errLeftOut("node is not installed; tools/need.sh node npm installs it"))
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "bullmq")); err != nil {
		rig.Check(errLeftOut(dir + " has no node_modules/bullmq: install it by tools/npm.sh bench/bulk/bullmq, or name its directory by --bullmq"))
	}
	s := &bullmqSide{redis: redis, dir: dir}
	for range processes {
		s.nodes = append(s.nodes, startNode(r, redis, dir))
	}
	return s
}

func (s *bullmqSide) name() string { return "bullmq" }

func (s *bullmqSide) fill(ctx context.Context, jobs []int) error {
	if len(jobs) != 1 {
		return fmt.Errorf("bullmq has one queue here, not %d tenants", len(jobs))
	}
	return s.add(ctx, s.nodes, jobs[0])
}

// add adds jobs through some of the processes.
func (s *bullmqSide) add(ctx context.Context, nodes []*node, jobs int) error {
	return s.each(nodes, jobs, func(n *node, jobs int) error { return n.do(ctx, "add", jobs) })
}

// each divides a number among processes and calls f for all of them at the same time.
func (s *bullmqSide) each(nodes []*node, sum int, f func(n *node, part int) error) error {
	var parallel errgroup.Group
	for i, part := range split(sum, len(nodes)) {
		if part > 0 {
			parallel.Go(func() error { return f(nodes[i], part) })
		}
	}
	return parallel.Wait()
}

func (s *bullmqSide) start(workers, _ int, handle handler) (stop func(), err error) {
	ctx := context.Background()
	for _, n := range s.nodes {
		n.handle.Store(&handle)
	}
	if err := s.each(s.nodes, workers, func(n *node, workers int) error { return n.do(ctx, "work", workers) }); err != nil {
		return nil, err
	}
	return func() {
		rig.Check(s.each(s.nodes, workers, func(n *node, _ int) error { return n.do(ctx, "rest", 0) }))
	}, nil
}

// left reads BullMQ's lists. Jobs that have ended are removed from the active list.
func (s *bullmqSide) left(ctx context.Context, _ int) (left, running int64, err error) {
	pipe := s.redis.Client.Pipeline()
	waiting, active := pipe.LLen(ctx, "bull:"+tenantName(0)+":wait"), pipe.LLen(ctx, "bull:"+tenantName(0)+":active")
	_, err = pipe.Exec(ctx)
	return waiting.Val() + active.Val(), active.Val(), err
}

func (s *bullmqSide) submit(ctx context.Context) error { return s.nodes[0].do(ctx, "add", 1) }

func (s *bullmqSide) ways(_ *bench, jobs int) (ways []way) {
	for n := 1; n <= len(s.nodes); n++ {
		ways = append(ways, way{name: fmt.Sprintf("bullmq, %d processes", n), put: func(ctx context.Context) error { return s.add(ctx, s.nodes[:n], jobs) }})
	}
	return ways
}

func (s *bullmqSide) empty(ctx context.Context) error { return s.redis.Empty(ctx) }

func (s *bullmqSide) used(ctx context.Context) (u usage, err error) {
	if u, err = shared(ctx, s.redis); err != nil {
		return u, err
	}
	u.worker = 0 // this process only counts
	for _, n := range s.nodes {
		cpu, err := rig.CPU(n.cmd.Process.Pid)
		if err != nil {
			return u, err
		}
		u.worker += cpu
	}
	return u, nil
}

// node is a running bullmq/side.mjs, which documents the lines.
type node struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan string             // the first words of replies; closed when the program has ended
	handle  atomic.Pointer[handler] // of the jobs that run now, which do not wait for it
}

func startNode(r *rig.Run, redis *rig.Redis, dir string) *node {
	host, port, _ := strings.Cut(redis.Addr, ":")
	n := &node{replies: make(chan string)}
	n.cmd = rig.Program(context.WithoutCancel(r), "node", filepath.Join(dir, "side.mjs"), host, port, tenantName(0), string(payload))
	out := rig.Must(n.cmd.StdoutPipe())
	n.in = rig.Must(n.cmd.StdinPipe())
	rig.Check(n.cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(n.replies)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, number, _ := strings.Cut(lines.Text(), " ")
			if word != "ran" {
				n.replies <- word
				continue
			}
			jobs, _ := strconv.Atoi(number)
			for range jobs {
				(*n.handle.Load())(r, tenantName(0))
			}
		}
	}()
	r.Cleanup(func() {
		_ = n.in.Close() // the program ends
		timer := time.AfterFunc(10*time.Second, n.kill)
		for range n.replies { // replies that nobody waited for
		}
		<-ended
		_ = n.cmd.Wait() // of no interest: it was killed, or has ended with its input
		timer.Stop()
	})
	return n
}

func (n *node) kill() { _ = n.cmd.Process.Kill() }

// do sends a command and waits for its reply.
func (n *node) do(ctx context.Context, command string, number int) error {
	if _, err := fmt.Fprintf(n.in, "%s %d\n", command, number); err != nil {
		return fmt.Errorf("bullmq: %s: %w", command, err)
	}
	select {
	case _, ok := <-n.replies:
		if !ok {
			return fmt.Errorf("bullmq: the Node process ended at %s %d; its output is above", command, number)
		}
		return nil
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("bullmq: no reply to %s %d after two minutes", command, number)
	case <-ctx.Done():
		return ctx.Err()
	}
}
