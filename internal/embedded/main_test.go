package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
)

// TestMain also is the program that tests kill: with the variable set it uses the store of that directory until its
// standard input ends.
func TestMain(m *testing.M) {
	if dir := os.Getenv("EMBEDDED_TEST_DIR"); dir != "" {
		os.Exit(helperMain(dir))
	}
	// These tests take the store away on purpose; the client library would log each failed dial.
	redisurl.LogTo(slog.New(slog.DiscardHandler))
	redistest.MainNoLeaks(m)
}

func helperMain(dir string) int {
	if os.Getenv("EMBEDDED_TEST_WHAT") == "key" {
		id, secret, err := LoadOrCreateKey(dir)
		fmt.Printf("%s %x %v\n", id, secret, err)
		return 0
	}
	s, err := Start(context.Background(), Options{Dir: dir, times: &quick})
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("closed")
	return 0
}

// patience bounds every wait; it only decides how long a failure takes.
const patience = time.Minute

var quick = times{
	tick: 5 * time.Millisecond, firstPause: 5 * time.Millisecond, longPause: 50 * time.Millisecond, steady: time.Hour,
	unreachable: 2 * time.Second, ask: patience, tell: patience,
}

// helper is another program that uses the store.
type helper struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func program(t *testing.T, dir string, env ...string) *helper {
	t.Helper()
	h := &helper{t: t, cmd: exec.Command(os.Args[0])}
	h.cmd.Env = append(append(os.Environ(), "EMBEDDED_TEST_DIR="+dir), env...)
	h.cmd.Stderr = io.Discard
	var err error
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(stdout)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	return h
}

// says fails the test unless the next line of the program is want.
func (h *helper) says(want string) {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		h.t.Fatalf("the program says %q (%v), want %q", line, err, want)
	}
}

// leave lets the program close the store and end.
func (h *helper) leave() {
	h.t.Helper()
	_ = h.stdin.Close()
	h.says("closed")
	_ = h.cmd.Wait()
	h.cmd.Process = nil
}

// kill is kill -9.
func (h *helper) kill() {
	if h.cmd.Process != nil {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		h.cmd.Process = nil
	}
}

// storeDir returns a directory. A server that still uses it at the end of the test is stopped.
func storeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "em") // short enough for a socket
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "data")
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(dir, "server.lock")); err == nil {
			socket, err := socketPath(dir)
			if err != nil {
				t.Error(err)
			}
			e := engine{dir: dir, socket: socket, log: slog.New(slog.DiscardHandler)}
			if err := e.stop(patience, patience); err != nil {
				t.Error(err)
			}
			e.hold.close()
		}
		_ = os.RemoveAll(filepath.Dir(dir))
	})
	return dir
}

// logs collects what a Server logs.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, dir string, extra ...string) (*Server, *logs) {
	t.Helper()
	out := &logs{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := Start(ctx, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(out, nil)), extra: extra, times: &quick})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, out
}

func closeServer(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, s *Server) *redis.Client {
	t.Helper()
	c := newClient(s)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newClient(s *Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.engine.socket, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// eventually polls until f is nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

// runID names one life of the server.
func runID(t *testing.T, s *Server) string {
	t.Helper()
	var id string
	eventually(t, func() error {
		info, err := client(t, s).Info(t.Context(), "server").Result()
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(info, "run_id:")
		id, _, _ = strings.Cut(rest, "\r\n")
		return nil
	})
	if len(id) != 40 {
		t.Fatalf("run id %q", id)
	}
	return id
}

func pidOf(t *testing.T, dir string) int {
	t.Helper()
	var pid int
	eventually(t, func() error {
		text, err := os.ReadFile(filepath.Join(dir, "redis.pid"))
		if err != nil {
			return err
		}
		_, err = fmt.Sscan(string(text), &pid)
		return err
	})
	return pid
}

func killServer(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Kill(pidOf(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// ends waits until no server holds the directory: what another test starts at this moment holds our files, too, until it is a
// program of its own.
func ends(t *testing.T, dir, otherwise string) {
	t.Helper()
	eventually(t, func() error {
		if running(t, dir) {
			return errors.New(otherwise)
		}
		return nil
	})
}

// running reports whether a server process holds the directory.
func running(t *testing.T, dir string) bool {
	t.Helper()
	e := engine{dir: dir, log: slog.New(slog.DiscardHandler)}
	alive, err := e.alive()
	if err != nil {
		t.Fatal(err)
	}
	e.hold.close()
	return alive
}
