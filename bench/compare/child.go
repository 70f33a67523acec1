package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// child is a server that this program started, and ends.
type child struct {
	name string
	cmd  *exec.Cmd
	log  *tail
	done chan struct{}
}

// start runs a server in a process group of its own, so that a Ctrl-C reaches only this program, which then ends the
// server in good order.
func start(name, bin string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.Command(bin, args...), log: &tail{}, done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in ProcessState
		close(c.done)
	}()
	return c, nil
}

// stop asks the server to end and, if it has not after ten seconds, ends it.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return
	case <-time.After(10 * time.Second):
	}
	_ = c.cmd.Process.Kill()
	<-c.done
}

// ready waits until the server accepts connections at addr.
func (c *child) ready(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			return conn.Close()
		}
		select {
		case <-c.done:
			return fmt.Errorf("%s ended (%s) instead of listening on %s:\n%s", c.name, c.cmd.ProcessState, addr, c.log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on %s: %w\n%s", c.name, addr, context.Cause(ctx), c.log)
		case <-tick.C:
		}
	}
}

// tail keeps the last few kilobytes of what a server says.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() > 16<<10 {
		t.b.Next(t.b.Len() - 8<<10)
	}
	return t.b.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// freePort asks the system for a loopback port that nobody uses at the moment.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// find looks a program up in PATH and where Debian puts servers.
func find(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin", "/usr/local/bin"} {
		if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode()&0o111 != 0 {
			return dir + "/" + name, nil
		}
	}
	return "", fmt.Errorf("%s is missing: install it, or run make bench, which does", name)
}

var errNoCPU = errors.New("processor time is only read from /proc")
