package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/internal/freeport"
)

// patience bounds every wait for a server. It is long because tests run on busy machines; it only delays failures.
const patience = time.Minute

var errNoBinary = errors.New("redistest: neither redis-server nor valkey-server is in PATH; the tests need a real one: " +
	"sudo apt-get install redis-server (Debian, Ubuntu) or brew install redis (macOS)")

// process is one server with its directory. Its methods are not safe for concurrent use.
type process struct {
	binary string
	args   []string
	dir    string
	socket string
	addr   string // host:port, empty without TCP
	cmd    *exec.Cmd
}

// newProcess starts a server with a directory of its own and waits until the server replies. config is the text of its configuration file,
// which the server may rewrite; empty: none.
func newProcess(config string, args []string) (*process, error) {
	binary, err := find()
	if err != nil {
		return nil, err
	}
	// Not in t.TempDir, whose name contains the test's name: the path of a socket is limited to about 100 bytes.
	dir, err := os.MkdirTemp("", "anteroom-redis")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	p := &process{binary: binary, dir: dir, socket: filepath.Join(dir, "s")}
	p.args = append([]string{
		"--unixsocket", p.socket, "--unixsocketperm", "700", "--dir", dir, "--logfile", filepath.Join(dir, "log"),
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--bind", "127.0.0.1",
	}, args...)
	if config != "" {
		path := filepath.Join(dir, "conf")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			_ = os.RemoveAll(dir)
			return nil, fmt.Errorf("redistest: %w", err)
		}
		p.args = append([]string{path}, p.args...)
	}
	if err := p.start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

// chosen is the server program for the tests, by its path or by its name in PATH; empty: the default.
const chosen = "ANTEROOM_TEST_REDIS"

func find() (string, error) {
	if name := os.Getenv(chosen); name != "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("%w (%s=%s: %w)", errNoBinary, chosen, name, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoBinary
}

// start runs the server and waits until it replies to PING.
func (p *process) start() error {
	_ = os.Remove(p.socket)
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.SysProcAttr = childAttr()
	var early bytes.Buffer // output of the server before it has opened its log
	out, err := os.Create(filepath.Join(p.dir, "out"))
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer func() { _ = out.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("redistest: start %s: %w", p.binary, err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := redis.NewClient(clientOptions(p.socket))
	defer func() { _ = c.Close() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err = os.Stat(p.socket); err == nil { // earlier, go-redis would log each failed dial
			if err = c.Ping(ctx).Err(); err == nil {
				return nil
			}
		}
		if p.dead() {
			p.cmd = nil
			for _, name := range []string{"out", "log"} {
				text, _ := os.ReadFile(filepath.Join(p.dir, name))
				early.Write(text)
			}
			return fmt.Errorf("redistest: %s %s ended at once:\n%s", p.binary, strings.Join(p.args, " "), early.String())
		}
		select {
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("redistest: %s does not answer after %s: %w", p.binary, patience, err)
		case <-tick.C:
		}
	}
}

// dead reports whether the child has ended, and reaps it. A goroutine in Wait would fail the leak checks.
func (p *process) dead() bool {
	pid, err := unix.Wait4(p.cmd.Process.Pid, nil, unix.WNOHANG, nil)
	return pid == p.cmd.Process.Pid || errors.Is(err, unix.ECHILD)
}

// kill ends the server immediately, whether it runs or is stopped.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // returns "signal: killed"
	p.cmd = nil
}

func (p *process) remove() {
	p.kill()
	_ = os.RemoveAll(p.dir)
}

func clientOptions(socket string) *redis.Options {
	return &redis.Options{
		Network: "unix", Addr: socket, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, DialerRetries: 1,
		MaintNotificationsConfig: maintOff(),
	}
}

func maintOff() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

var ports sync.Mutex

// withPort starts a server on a free loopback port. It tries several ports, because another program may take one before the server binds
// it. bus is the distance to a second port that must be free, 0 for none.
func withPort(bus int, config string, args []string) (*process, error) {
	ports.Lock()
	defer ports.Unlock()
	var lastErr error
	for range 5 {
		port, err := freeport.Find(bus)
		if err != nil {
			return nil, err
		}
		p, err := newProcess(config, append([]string{"--port", strconv.Itoa(port)}, args...))
		if err == nil {
			p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			return p, nil
		}
		if errors.Is(err, errNoBinary) {
			return nil, err
		}
		lastErr = err
	}
	return nil, lastErr
}

// newCluster starts a node, assigns it all slots and waits until it serves them.
func newCluster() (*process, error) {
	p, err := withPort(10000, "", []string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := redis.NewClient(clientOptions(p.socket))
	defer func() { _ = c.Close() }()
	if err := c.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		p.remove()
		return nil, fmt.Errorf("redistest: assign slots: %w", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := c.ClusterInfo(ctx).Result()
		if err == nil && strings.Contains(info, "cluster_state:ok") {
			return p, nil
		}
		select {
		case <-ctx.Done():
			p.remove()
			return nil, fmt.Errorf("redistest: the cluster is not ok after %s: %q, %w", patience, info, err)
		case <-tick.C:
		}
	}
}

func (p *process) signal(s syscall.Signal) error {
	if p.cmd == nil {
		return errors.New("redistest: the server is not running")
	}
	return p.cmd.Process.Signal(s)
}
