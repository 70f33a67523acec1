package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// supervisor starts the server again whenever it dies. Of the programs that share a directory one is active: the holder of lock.
type supervisor struct {
	engine *engine
	log    *slog.Logger
	times  times

	lock   *lock
	active bool

	seen       bool          // a server was alive at the last check
	since      time.Time     // when seen became true
	pause      time.Duration // before the next start of a server that died
	next       time.Time     // the earliest time of that start
	lost       time.Time     // when the socket was first missing; zero while it exists
	probe      time.Time     // when to check the socket next
	terminated bool          // SIGTERM was sent because the socket is missing
}

// lead makes this program the active supervisor if no other program is.
func (s *supervisor) lead() error {
	if s.active {
		return nil
	}
	ok, err := s.lock.try(unix.LOCK_EX)
	if err != nil || !ok {
		return err
	}
	s.active = true
	s.seen, s.since, s.lost, s.terminated = false, time.Now(), time.Time{}, false
	return s.lock.write(fmt.Sprintf("%d %s\n", os.Getpid(), filepath.Base(os.Args[0])))
}

// check starts the server if none runs, and otherwise checks that clients can reach it.
func (s *supervisor) check(now time.Time) error {
	alive, err := s.engine.alive()
	if err != nil {
		return err
	}
	if !alive {
		if s.seen {
			if now.Sub(s.since) >= s.times.steady {
				s.pause = s.times.firstPause
			}
			s.next = now.Add(s.pause)
			s.log.Error("the store died; starting it again", "in", s.pause.String(), "log", s.engine.path("redis.log"))
			s.pause = min(2*s.pause, s.times.longPause)
		}
		s.seen, s.lost, s.terminated = false, time.Time{}, false
		if now.Before(s.next) {
			return nil
		}
		if err := s.engine.start(); err != nil {
			s.next = now.Add(s.pause)
			s.pause = min(2*s.pause, s.times.longPause)
			return err
		}
		s.seen, s.since = true, now
		return nil
	}
	if !s.seen {
		s.seen, s.since = true, now
		s.log.Info("took over a running store", "socket", s.engine.socket)
	}
	if err := s.engine.renew(context.Background()); err != nil {
		return err
	}
	return s.checkSocket(now)
}

// checkSocket ends a server that cannot be reached any more.
func (s *supervisor) checkSocket(now time.Time) error {
	if now.Before(s.probe) {
		return nil
	}
	s.probe = now.Add(s.times.unreachable / 10) // each check opens a connection
	if s.engine.reachable() {
		s.lost, s.terminated = time.Time{}, false
		return nil
	}
	if s.lost.IsZero() {
		s.lost = now
	}
	for _, step := range []struct {
		after time.Duration
		sig   unix.Signal
		done  bool
	}{{2 * s.times.unreachable, unix.SIGKILL, false}, {s.times.unreachable, unix.SIGTERM, s.terminated}} {
		if now.Sub(s.lost) < step.after {
			continue
		}
		if step.done {
			return nil
		}
		s.log.Error("the store runs, but its socket is missing; ending the process to start another", "socket", s.engine.socket, "signal", step.sig.String())
		s.terminated = true
		return s.engine.signal(step.sig)
	}
	return nil
}
