package gateway

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/forwarded"
)

// socket accepts visitors. Where the system has no descriptor or memory for one more it waits for some to be given back,
// rather than spin or give up. When it closes it hears nobody new, and takes those first who are connected already: the
// system would reset them.
type socket struct {
	net.Listener
	log    *slog.Logger
	failed func() // called each time that nobody could be accepted
	told   time.Time

	mu      sync.Mutex
	begun   bool // somebody calls Accept
	ended   bool
	leaving chan struct{} // closed by Close
	until   time.Time     // after which nobody more is taken
}

const (
	acceptPause  = 5 * time.Millisecond // the first; it doubles up to acceptLong
	acceptLong   = time.Second
	acceptTold   = 10 * time.Second // between two lines in the log
	lastCall     = 5 * time.Millisecond
	lastCallLong = 500 * time.Millisecond
)

// newSocket wraps ln. Without deadlines, as only listeners of tests are, it just closes.
func newSocket(ln net.Listener, log *slog.Logger, failed func()) *socket {
	return &socket{Listener: ln, log: log, failed: failed, leaving: make(chan struct{})}
}

func (s *socket) Accept() (net.Conn, error) {
	s.mu.Lock()
	s.begun = true
	s.mu.Unlock()
	for pause := acceptPause; ; pause = min(2*pause, acceptLong) {
		if !s.open() {
			return nil, net.ErrClosed
		}
		c, err := s.Listener.Accept()
		switch {
		case err == nil:
			return c, nil
		case s.isLeaving() && errors.Is(err, os.ErrDeadlineExceeded) && pending(s.Listener):
			continue // a busy machine looks at the time first, and comes late to it
		case s.isLeaving():
			return nil, errors.Join(net.ErrClosed, s.end())
		case !passing(err):
			return nil, errors.Join(err, s.end())
		}
		s.failed()
		if now := time.Now(); now.Sub(s.told) >= acceptTold {
			s.told = now
			s.log.Warn("no connection can be accepted for now", "error", err)
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-s.leaving:
			wait.Stop()
		}
	}
}

// open reports whether one more connection may be accepted. While the socket is closing, those are that come within lastCall.
func (s *socket) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if s.until.IsZero() {
		return true
	}
	now := time.Now()
	d, ok := s.Listener.(deadliner)
	if ok && now.Before(s.until) && d.SetDeadline(now.Add(lastCall)) == nil {
		return true
	}
	s.ended = true
	_ = s.Listener.Close()
	return false
}

// pending reports whether a connection is established that was not accepted yet.
func pending(ln net.Listener) (yes bool) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		yes = err == nil && n > 0
	})
	return yes && err == nil
}

type deadliner interface{ SetDeadline(time.Time) error }

func (s *socket) isLeaving() bool {
	select {
	case <-s.leaving:
		return true
	default:
		return false
	}
}

func (s *socket) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	return s.Listener.Close()
}

// Close may be called twice, by Shutdown and by the server. Accept closes what is below when the last one is in.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.until.IsZero() || s.ended {
		return nil
	}
	now := time.Now()
	s.until = now.Add(lastCallLong)
	close(s.leaving)
	if d, ok := s.Listener.(deadliner); ok && s.begun {
		hush(s.Listener)
		return d.SetDeadline(now.Add(lastCall))
	}
	s.ended = true
	return s.Listener.Close()
}

// passing reports whether an error of accept ends when resources are freed.
func passing(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO},
		func(e error) bool { return errors.Is(err, e) })
}

// prefaceWanted returns what connections from a peer begin with, by the configuration in use.
func (g *Gateway) prefaceWanted(peer netip.Addr) wire.ProxyProtocol {
	o := &g.state.Load().options
	if o.ProxyProtocol == 0 || !forwarded.Contains(o.TrustedProxies, peer) {
		return 0
	}
	return o.ProxyProtocol
}

func (g *Gateway) prefaceRefused(peer net.Addr, reason string, err error) {
	g.metrics.prefaces[reason].Inc()
	g.log.Debug("connection closed for its PROXY header", "peer", peer.String(), "reason", reason, "error", err)
}
