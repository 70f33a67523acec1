// Package child starts the servers of a comparison, ends them, and reads what processor time they used.
package child

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

// Child is a server that this program started, and ends.
type Child struct {
	Name string
	Log  *Tail // what it said lately
	cmd  *exec.Cmd
	done chan struct{}
}

// Start runs a server in a process group of its own, so that a Ctrl-C reaches only this program, which then ends the
// server in good order.
func Start(name, bin string, args ...string) (*Child, error) {
	c := &Child{Name: name, cmd: exec.Command(bin, args...), Log: &Tail{}, done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c.Log, c.Log
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

// PID is its process number.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ended is closed when the server has ended.
func (c *Child) Ended() <-chan struct{} { return c.done }

// Kill ends the server at once, as kill -9 does, and waits until it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Signal sends it a signal, unless it has ended.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Stop asks the server to end and, if it has not after ten seconds, ends it.
func (c *Child) Stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return
	case <-time.After(10 * time.Second):
	}
	c.Kill()
}

// Ready waits until the server accepts connections at addr.
func (c *Child) Ready(ctx context.Context, addr string) error {
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
			return fmt.Errorf("%s ended (%s) instead of listening on %s:\n%s", c.Name, c.cmd.ProcessState, addr, c.Log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on %s: %w\n%s", c.Name, addr, context.Cause(ctx), c.Log)
		case <-tick.C:
		}
	}
}

// Tail keeps the last few kilobytes of what a server says.
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

// FreePort asks the system for a loopback port that nobody uses at the moment.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Find looks a program up in PATH and where Debian puts servers.
func Find(name string) (string, error) {
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

// ErrNoCPU says that this system does not tell.
var ErrNoCPU = errors.New("processor time is only read from /proc")
