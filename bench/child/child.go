// Package child starts and stops the processes of a measurement and reads how much processor time they used.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
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
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		c.Kill()
	}
}

// Ready waits until the process accepts connections at addr.
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
			return fmt.Errorf("%s exited (%s) and never listened on %s:\n%s", c.Name, c.cmd.ProcessState, addr, c.Log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on %s: %w\n%s", c.Name, addr, context.Cause(ctx), c.Log)
		case <-tick.C:
		}
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

// FreePort returns a loopback address whose port is free. It is below the ports of outgoing connections, so that a server
// which is restarted finds it free again.
func FreePort() (string, error) {
	var last error
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000))) //nolint:gosec // any port will do
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		last = err
	}
	return "", last
}

// Find returns the path of a program in PATH or in the directories where Debian and Homebrew install servers.
func Find(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin", "/usr/local/bin"} {
		if p, err := exec.LookPath(dir + "/" + name); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: install it, or run make bench, which installs it", name)
}

// OwnCPU returns the processor time that this process has used.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// LoadAverage returns the load of the machine in the last minute, or "unknown".
func LoadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}

// ErrNoCPU is returned where the system does not report the processor time of other processes.
var ErrNoCPU = errors.New("processor time is only read from /proc")
