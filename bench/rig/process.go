package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/internal/freeport"
)

// Child is a process that this program started and stops.
type Child struct {
	Name string
	Log  *Tail // the end of its output
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a process in a process group of its own, so that Ctrl-C reaches only this program, which then stops the
// process.
func Start(name, bin string, args ...string) (*Child, error) {
	c := &Child{Name: name, cmd: exec.Command(bin, args...), Log: &Tail{}, done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c.Log, c.Log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // the exit status is in ProcessState
		close(c.done)
	}()
	return c, nil
}

// Start starts a server, waits until it listens on addr, and stops it at the end of the run.
func (r *Run) Start(name, bin, addr string, args ...string) *Child {
	c := Must(Start(name, bin, args...))
	r.Cleanup(c.Stop)
	for deadline := time.Now().Add(20 * time.Second); ; r.Wait(20 * time.Millisecond) {
		if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			Check(conn.Close())
			return c
		}
		select {
		case <-c.done:
			Check(fmt.Errorf("%s exited (%s) and never listened on %s:\n%s", name, c.cmd.ProcessState, addr, c.Log))
		default:
			Require(time.Now().Before(deadline), "%s does not listen on %s after 20 s:\n%s", name, addr, c.Log)
		}
	}
}

// PID returns the process ID.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ended returns a channel that is closed when the process has ended.
func (c *Child) Ended() <-chan struct{} { return c.done }

// Kill sends SIGKILL and waits for the process to end.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Signal sends a signal to the process, unless it has ended.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Stop sends SIGTERM, and SIGKILL if the process is still running after ten seconds.
func (c *Child) Stop() {
	_ = c.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		c.Kill()
	}
}

// Tail keeps the last kilobytes that were written to it.
type Tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() > 16<<10 {
		t.b.Next(t.b.Len() - 8<<10)
	}
	return t.b.Write(p)
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// Program returns a command that runs until it exits or ctx ends, and then is stopped by SIGTERM.
func Program(ctx context.Context, bin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}

// Report runs a program and decodes the JSON that it prints. Its exit status is ignored: 1 means that the report names a
// promise that was broken.
func Report(ctx context.Context, into any, bin string, args ...string) error {
	out, err := Program(ctx, bin, args...).Output()
	if jsonErr := json.Unmarshal(out, into); jsonErr != nil {
		return fmt.Errorf("%s %s: %w", bin, strings.Join(args, " "), errors.Join(err, jsonErr))
	}
	return nil
}

// Port returns a loopback address whose port is free, and stays so for a server that is restarted.
func (r *Run) Port() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Must(freeport.Find())))
}

// Find returns the path of a program in PATH or in the directories where Debian and Homebrew install servers.
func Find(name string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/usr/local/sbin/", "/opt/homebrew/bin/", "/usr/local/bin/"} {
		if p, err := exec.LookPath(dir + name); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: install it, or run make bench, which installs it", name)
}
