package redistest

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// PrivateServer is a server for one test, which may kill, stop and restart it. Its methods may be called from any goroutine, one
// at a time, and report failures with t.Error.
type PrivateServer struct {
	t  testing.TB
	mu sync.Mutex
	p  *process

	asking sync.Once
	asked  redis.UniversalClient // used by this package alone
}

// Server starts a private server on a unix socket and a loopback port. args, such as ("--appendonly", "yes"), are appended to the usual
// arguments. The server is stopped when the test ends.
func Server(t testing.TB, args ...string) *PrivateServer {
	t.Helper()
	return private(t, "", args)
}

// Sentinel starts a sentinel that watches master under name and decides alone on a failover after 500 ms of silence. Its Addr is for
// redis-sentinel:// URLs, and its Client connects to the sentinel. The sentinel is stopped when the test ends.
func Sentinel(t testing.TB, name string, master *PrivateServer) *PrivateServer {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return private(t, fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\nsentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 3000\n", name, host, port), []string{"--sentinel"})
}

func private(t testing.TB, config string, args []string) *PrivateServer {
	t.Helper()
	p, err := withPort(0, config, args)
	if err != nil {
		t.Fatal(err)
	}
	return own(t, p)
}

// own stops a server when the test ends.
func own(t testing.TB, p *process) *PrivateServer {
	s := &PrivateServer{t: t, p: p}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.p.remove()
	})
	return s
}

func (s *PrivateServer) client() redis.UniversalClient {
	s.asking.Do(func() { s.asked = newClient(s.t, s.p.socket) })
	return s.asked
}

// Socket returns the path of the unix socket. It stays the same over Restart.
func (s *PrivateServer) Socket() string { return s.p.socket }

// Addr returns the host:port on loopback. It stays the same over Restart.
func (s *PrivateServer) Addr() string { return s.p.addr }

// URL returns the store URL of the unix socket.
func (s *PrivateServer) URL() string { return "unix://" + s.p.socket }

// Client returns a client over the unix socket. It is closed when the test ends.
func (s *PrivateServer) Client() redis.UniversalClient {
	s.t.Helper()
	return newClient(s.t, s.p.socket)
}

// Kill ends the server with SIGKILL. Data that the server had not written to disk is lost.
func (s *PrivateServer) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.kill()
}

// Stop halts the server with SIGSTOP: connections stay open and get no replies.
func (s *PrivateServer) Stop() { s.signal(syscall.SIGSTOP) }

// Cont resumes a halted server.
func (s *PrivateServer) Cont() { s.signal(syscall.SIGCONT) }

func (s *PrivateServer) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.p.signal(sig); err != nil {
		s.t.Errorf("signal %v: %v", sig, err)
	}
}

// Restart kills the server if it runs, and starts it again with the same directory, socket and port. Data survives only with
// --appendonly yes.
func (s *PrivateServer) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.kill()
	if err := s.p.start(); err != nil {
		s.t.Error(err)
	}
}

// RestartWith is Restart with further arguments, which later restarts keep.
func (s *PrivateServer) RestartWith(args ...string) {
	s.mu.Lock()
	s.p.args = append(s.p.args, args...)
	s.mu.Unlock()
	s.Restart()
}

func newClient(t testing.TB, socket string) redis.UniversalClient {
	c := redis.NewClient(clientOptions(socket))
	t.Cleanup(func() { _ = c.Close() })
	return c
}
