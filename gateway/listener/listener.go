// Package listener accepts connections while descriptors are short and closes without losing established ones.
package listener

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listener accepts connections. While the system has no descriptor or memory for another connection, Accept waits with growing
// pauses. After Close the system refuses new connections, and Accept first returns the established ones, which the system would
// otherwise reset.
type Listener struct {
	net.Listener
	log      *slog.Logger
	failed   func() // called for each failed accept
	lastLine time.Time

	mu       sync.Mutex
	accepted bool // Accept was called
	ended    bool
	leaving  chan struct{} // closed by Close
	until    time.Time     // the end of the last accepts
}

const (
	firstPause   = 5 * time.Millisecond // doubles up to longestPause
	longestPause = time.Second
	logPause     = 10 * time.Second // between two log lines
	lastCall     = 5 * time.Millisecond
	lastCallLong = 500 * time.Millisecond
)

// New returns a listener on top of ln, and calls failed for each failed accept. Close of a listener without deadlines does not wait for
// established connections.
func New(ln net.Listener, log *slog.Logger, failed func()) *Listener {
	return &Listener{Listener: ln, log: log, failed: failed, leaving: make(chan struct{})}
}

func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	l.accepted = true
	l.mu.Unlock()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if !l.open() {
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			return c, nil
		case l.isLeaving() && errors.Is(err, os.ErrDeadlineExceeded) && hasPending(l.Listener):
			continue // on a busy machine the deadline may pass before Accept looks
		case l.isLeaving():
			return nil, errors.Join(net.ErrClosed, l.end())
		case !isTemporary(err):
			return nil, errors.Join(err, l.end())
		}
		l.failed()
		if now := time.Now(); now.Sub(l.lastLine) >= logPause {
			l.lastLine = now
			l.log.Warn("cannot accept connections; trying again. Raise the limit of open files if it is reached", "error", err)
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-l.leaving:
			wait.Stop()
		}
	}
}

// open reports whether another connection may be accepted. While the listener closes, connections within lastCall are accepted.
func (l *Listener) open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.until.IsZero() {
		return true
	}
	now := time.Now()
	d, ok := l.Listener.(deadliner)
	if ok && now.Before(l.until) && d.SetDeadline(now.Add(lastCall)) == nil {
		return true
	}
	l.ended = true
	_ = l.Listener.Close()
	return false
}

// hasPending reports whether an established connection was not accepted yet.
func hasPending(ln net.Listener) (yes bool) {
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

func (l *Listener) isLeaving() bool {
	select {
	case <-l.leaving:
		return true
	default:
		return false
	}
}

func (l *Listener) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	l.ended = true
	return l.Listener.Close()
}

// Close stops the system from accepting. Accept closes the listener below after the last established connection. Close may be
// called twice, by Shutdown and by the server.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.until.IsZero() || l.ended {
		return nil
	}
	now := time.Now()
	l.until = now.Add(lastCallLong)
	close(l.leaving)
	if d, ok := l.Listener.(deadliner); ok && l.accepted {
		dropNew(l.Listener)
		return d.SetDeadline(now.Add(lastCall))
	}
	l.ended = true
	return l.Listener.Close()
}

// isTemporary reports whether accept can succeed again once resources are freed.
func isTemporary(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO},
		func(e error) bool { return errors.Is(err, e) })
}
