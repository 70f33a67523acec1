package listener

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Connections that are established when the listener closes are accepted; the system would reset them.
func TestClose_KeepsEstablishedConnections(t *testing.T) {
	ln := listen(t)
	s := New(ln, slog.New(slog.DiscardHandler), func() {})
	dial := func() {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	dial()
	if _, err := s.Accept(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		dial()
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		c, err := s.Accept()
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		c.Close()
	}
	for range 2 {
		if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("then: %v", err)
		}
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the socket still listens")
	}
}

// late simulates a busy machine: the deadline of every second Accept has passed before the call.
type late struct {
	*net.TCPListener
	calls int
}

func (l *late) Accept() (net.Conn, error) {
	if l.calls++; l.calls%2 == 0 {
		<-time.After(2 * lastCall)
	}
	return l.TCPListener.Accept()
}

func TestClose_KeepsEstablishedConnectionsOnBusyMachine(t *testing.T) {
	ln := listen(t)
	s := New(&late{TCPListener: ln.(*net.TCPListener)}, slog.New(slog.DiscardHandler), func() {})
	for range 4 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for i := range 4 {
		c, err := s.Accept()
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		c.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("then: %v", err)
	}
}

func TestClose_WithoutAcceptClosesAtOnce(t *testing.T) {
	ln := listen(t)
	s := New(ln, slog.New(slog.DiscardHandler), func() {})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the socket still listens")
	}
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

// failing is a listener whose first calls of Accept return errs.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) == 0 {
		return f.Listener.Accept()
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
}

func TestAccept_WaitsForDescriptors(t *testing.T) {
	ln := listen(t)
	log := &bytes.Buffer{}
	var failed atomic.Int64
	s := New(&failing{ln, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS}}, slog.New(slog.NewTextHandler(log, nil)), func() { failed.Add(1) })
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	got.Close()
	if n := strings.Count(log.String(), "\n"); failed.Load() != 4 || n != 1 {
		t.Errorf("%d errors counted and %d lines logged, want 4 and 1", failed.Load(), n)
	}
	s = New(&failing{ln, []error{syscall.EMFILE, syscall.EBADF}}, slog.New(slog.DiscardHandler), func() {})
	if _, err := s.Accept(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a permanent error: %v", err)
	}
}
