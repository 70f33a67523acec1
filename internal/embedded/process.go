package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoBinary is returned when no server program is found.
var ErrNoBinary = errors.New("no redis-server or valkey-server found; install one: sudo apt-get install redis-server (Debian, Ubuntu) " +
	"or brew install redis (macOS), or name a running store in store.url")

// FindServer returns the server program that Start would run: named, or the first of redis-server and valkey-server in PATH and
// in directories that the short PATH of a service lacks. It returns ErrNoBinary if there is none.
func FindServer(named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("%w (%w)", ErrNoBinary, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		for _, dir := range []string{"", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/valkey/bin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", ErrNoBinary
}

// engine is the server process of one directory, started by this program or another.
type engine struct {
	dir    string
	socket string
	binary string   // as configured; resolved at each start
	extra  []string // further settings of the server
	log    *slog.Logger

	hold  *lock // server.lock; this program holds it while no server runs
	child int   // pid of a server that this process has started and not yet reaped, else 0
	fresh bool  // renew has not yet checked child's load of its file
	log0  int64 // size of the server's log when child was started
}

func (e *engine) path(name string) string { return filepath.Join(e.dir, name) }

// alive reports whether a server process exists. If not, e holds server.lock and may start one.
func (e *engine) alive() (bool, error) {
	e.reap()
	if e.hold == nil {
		var err error
		if e.hold, err = openLock(e.path("server.lock")); err != nil {
			return false, err
		}
	}
	free, err := e.hold.try(unix.LOCK_EX)
	return !free, err
}

// reap reaps this process's child if it has ended, and logs its status. A goroutine in Wait would notice sooner, but would outlive
// a Close that leaves the server to other programs.
func (e *engine) reap() {
	if e.child == 0 {
		return
	}
	var status unix.WaitStatus
	pid, err := unix.Wait4(e.child, &status, unix.WNOHANG, nil)
	if pid != e.child && !errors.Is(err, unix.ECHILD) {
		return
	}
	switch {
	case status.Signaled():
		e.log.Warn("store process ended", "pid", e.child, "signal", status.Signal().String())
	case status.ExitStatus() != 0:
		e.log.Warn("store process ended", "pid", e.child, "exit", status.ExitStatus())
	default:
		e.log.Info("store process ended", "pid", e.child)
	}
	e.child = 0
}

// start runs a server. Call it only after alive has reported false.
func (e *engine) start() error {
	binary, err := FindServer(e.binary)
	if err != nil {
		return err
	}
	for _, stale := range []string{e.socket, e.path("redis.pid")} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the files of a former server: %w", err)
		}
	}
	logPath := e.path("redis.log")
	if info, err := os.Stat(logPath); err == nil && info.Size() > 16<<20 {
		if err := os.Rename(logPath, logPath+".1"); err != nil {
			return fmt.Errorf("rename the store's log: %w", err)
		}
	}
	out, err := os.OpenFile(logPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the store's log: %w", err)
	}
	defer func() { _ = out.Close() }()
	info, err := out.Stat()
	if err != nil {
		return fmt.Errorf("read the store's log: %w", err)
	}

	cmd := exec.Command(binary, append([]string{
		"--port", "0", "--unixsocket", e.socket, "--unixsocketperm", "700",
		"--dir", e.dir, "--pidfile", e.path("redis.pid"), "--logfile", logPath, "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", "everysec", "--aof-load-truncated", "yes", "--save", "",
		"--maxmemory-policy", "noeviction",
	}, e.extra...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.dir, out, out
	cmd.ExtraFiles = []*os.File{e.hold.f} // the server inherits server.lock and holds it until it ends
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", binary, err)
	}
	e.child, e.fresh, e.log0 = cmd.Process.Pid, true, info.Size()
	_ = cmd.Process.Release() // reap waits by pid
	e.hold.close()
	e.hold = nil
	e.log.Info("store process started", "binary", binary, "pid", e.child, "socket", e.socket, "log", logPath)
	return nil
}

// send sends the server one command without arguments and returns the line of its reply, or io.EOF if the server closes the
// connection instead. A client library would keep a pool, and continue to dial in the background while no server runs.
func (e *engine) send(ctx context.Context, command string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", e.socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReaderSize(conn, 1024).ReadSlice('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(line), "\r\n"), nil
}

// ready returns nil if the server replies. A server that is loading its file is not ready.
func (e *engine) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := e.send(ctx, "PING")
	if err == nil && answer != "+PONG" {
		err = fmt.Errorf("the reply is %q", answer)
	}
	return err
}

// renew makes the server rewrite its file if a crash had cut off the file's end. Redis otherwise appends to the rest, which may
// end within a transaction: the next load would take the commands that follow as part of that transaction.
func (e *engine) renew(ctx context.Context) error {
	if !e.fresh || e.ready(ctx) != nil {
		return nil
	}
	e.fresh = false
	f, err := os.Open(e.path("redis.log"))
	if err != nil {
		return fmt.Errorf("read the store's log: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(f, e.log0, 1<<20))
	if err != nil {
		return fmt.Errorf("read the store's log: %w", err)
	}
	if !strings.Contains(string(text), "loaded anyway because aof-load-truncated") {
		return nil
	}
	answer, err := e.send(ctx, "BGREWRITEAOF")
	if err == nil && !strings.HasPrefix(answer, "+") {
		err = fmt.Errorf("the reply is %q", answer)
	}
	if err != nil {
		e.fresh = true // try again at the next check
		return fmt.Errorf("rewrite the store's file: %w", err)
	}
	e.log.Warn("a crash cut off the end of the store's file; rewriting the file", "log", e.path("redis.log"))
	return nil
}

// reachable reports whether the socket leads to a process. A server creates the socket first, but may lose it, for example to a
// program that cleans a temporary directory.
func (e *engine) reachable() bool {
	conn, err := net.DialTimeout("unix", e.socket, 200*time.Millisecond)
	if err == nil {
		_ = conn.Close()
		return true
	}
	return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED)
}

// signal sends sig to the running server, whichever program started it.
func (e *engine) signal(sig syscall.Signal) error {
	pid := e.child
	if pid == 0 {
		text, err := os.ReadFile(e.path("redis.pid"))
		if err != nil {
			return err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || pid < 2 {
			return fmt.Errorf("%s holds no process id: %q", e.path("redis.pid"), text)
		}
	}
	return unix.Kill(pid, sig)
}

// gone waits at most d for the server process to end, and reports whether it has.
func (e *engine) gone(d time.Duration) (bool, error) {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if alive, err := e.alive(); err != nil || !alive {
			e.reap()
			return err == nil, err
		}
		select {
		case <-deadline.C:
			return false, nil
		case <-tick.C:
		}
	}
}

// stop ends the server: by SHUTDOWN, then SIGTERM, then SIGKILL.
func (e *engine) stop(ask, tell time.Duration) error {
	if alive, err := e.alive(); err != nil || !alive {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ask)
	answer, err := e.send(ctx, "SHUTDOWN")
	cancel()
	// The server replies only if it refuses. Without a reply it may be ending, unless there was no connection.
	var network *net.OpError
	if err != nil && (!errors.As(err, &network) || network.Op != "dial") {
		if gone, err := e.gone(ask); gone || err != nil {
			return err
		}
	}
	e.log.Warn("the store ignores SHUTDOWN; sending SIGTERM", "answer", answer, "error", err)
	if err := e.signal(unix.SIGTERM); err != nil {
		e.log.Warn("cannot terminate the store", "error", err)
	}
	if gone, err := e.gone(tell); gone || err != nil {
		return err
	}
	e.log.Error("the store ignores SIGTERM; killing it. Writes of the last second may be lost")
	if err := e.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the store: %w", err)
	}
	gone, err := e.gone(5 * time.Second)
	if err == nil && !gone {
		err = errors.New("the store's process does not end even when killed")
	}
	return err
}

// logTail returns the end of the server's log, for errors.
func (e *engine) logTail() string {
	f, err := os.Open(e.path("redis.log"))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	const most = 1200
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
