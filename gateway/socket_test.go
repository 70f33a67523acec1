package gateway

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
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

// Those who are connected when the socket closes are taken; the system would reset them.
func TestSocketTakesWhoIsThereBeforeItCloses(t *testing.T) {
	ln := listen(t)
	s := newSocket(ln, slog.New(slog.DiscardHandler), func() {})
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
		t.Error("it still listens")
	}
}

// late is a listener on a busy machine: every other time the deadline has passed before Accept looks.
type late struct {
	*net.TCPListener
	calls int
}

func (l *late) Accept() (net.Conn, error) {
	if l.calls++; l.calls%2 == 0 {
		pause(2 * lastCall)
	}
	return l.TCPListener.Accept()
}

func TestSocketTakesWhoIsThereOnABusyMachine(t *testing.T) {
	ln := listen(t)
	s := newSocket(&late{TCPListener: ln.(*net.TCPListener)}, slog.New(slog.DiscardHandler), func() {})
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

func TestSocketThatNobodyAcceptsFromIsClosed(t *testing.T) {
	ln := listen(t)
	s := newSocket(ln, slog.New(slog.DiscardHandler), func() {})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

// failing is a listener of a system that has run out of something for a while.
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

func TestSocketWaitsForDescriptors(t *testing.T) {
	ln := listen(t)
	log := &syncBuffer{}
	var failed atomic.Int64
	s := newSocket(&failing{ln, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS}}, slog.New(slog.NewTextHandler(log, nil)), func() { failed.Add(1) })
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
		t.Errorf("counted %d times, told %d times, want 4 and 1", failed.Load(), n)
	}
	s = newSocket(&failing{ln, []error{syscall.EMFILE, syscall.EBADF}}, slog.New(slog.DiscardHandler), func() {})
	if _, err := s.Accept(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("an error that does not pass: %v", err)
	}
}

// A connection that is idle when the gateway leaves has one more request, whose answer ends it.
func TestLastRequestOfAnIdleConnection(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, LastRequest: time.Minute,
	})
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	if a, err := exchange(c, r, "GET /"); err != nil || a.closed {
		t.Fatalf("%+v %v", a, err)
	}
	down := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { down <- b.Gateway.Shutdown(ctx) }()
	eventually(t, "nobody new is taken", func() bool {
		n, err := net.Dial("tcp", b.addr)
		if err == nil {
			n.Close()
		}
		return err != nil
	})
	if a, err := exchange(c, r, "GET /"); err != nil || a.status != 200 || !a.closed {
		t.Errorf("the last request: %+v %v", a, err)
	}
	select {
	case err := <-down:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits though nobody is left")
	}
}

// A connection that has said nothing when the gateway leaves holds it up for a few seconds, whatever its limits.
func TestSilentConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	short.Skip(t, "waits for the clock")
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Limits: wire.Limits{HeaderTimeout: time.Hour},
	})
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.call("GET /").code(t, 200) // so that the other one has been accepted
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.Gateway.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
