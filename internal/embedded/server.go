package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options name the store's directory and the server program.
type Options struct {
	Dir    string       // store.dir; created if missing
	Log    *slog.Logger // nil: slog.Default()
	Binary string       // name or path of the server program; empty: redis-server, else valkey-server

	extra []string // settings for the server, in tests
	times *times   // nil: production's
}

// times are the intervals and limits of supervision.
type times struct {
	tick        time.Duration // between two checks of the server
	firstPause  time.Duration // before a server that died is started again; doubled each time
	longPause   time.Duration // the longest such pause
	steady      time.Duration // after this lifetime the next pause is firstPause again
	unreachable time.Duration // a server whose socket has been missing for this long is replaced
	ask, tell   time.Duration // limits for SHUTDOWN and for SIGTERM to take effect
}

var production = times{
	tick: 50 * time.Millisecond, firstPause: 50 * time.Millisecond, longPause: 5 * time.Second, steady: 30 * time.Second,
	unreachable: 10 * time.Second, ask: 10 * time.Second, tell: 3 * time.Second,
}

// Server is this program's use of the store of a directory, which it may share with other programs.
type Server struct {
	engine     engine
	supervisor supervisor
	users      *lock
	log        *slog.Logger
	times      times

	cancel context.CancelFunc
	done   chan struct{} // closed when the loop has ended
	closed chan struct{} // closed when Close is through
	once   sync.Once
	err    error
}

// Start opens the store of opt.Dir, starts its server unless one runs, and returns when the server replies. Redis first loads its
// file, about a second for a million visitors; ctx bounds the wait. Until Close this program starts the server again whenever it
// dies, unless another program does so.
func Start(ctx context.Context, opt Options) (*Server, error) {
	dir, err := prepareDir(opt.Dir)
	if err != nil {
		return nil, err
	}
	socket, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{log: opt.Log, times: production, done: make(chan struct{}), closed: make(chan struct{})}
	s.log = cmp.Or(s.log, slog.Default())
	if opt.times != nil {
		s.times = *opt.times
	}
	s.engine = engine{dir: dir, socket: socket, binary: opt.Binary, extra: opt.extra, log: s.log}
	s.supervisor = supervisor{engine: &s.engine, log: s.log, times: s.times, pause: s.times.firstPause}

	if s.users, err = openLock(filepath.Join(dir, usersFile)); err != nil {
		return nil, fmt.Errorf("store.dir %s: %w", dir, err)
	}
	if s.supervisor.lock, err = openLock(filepath.Join(dir, "supervisor.lock")); err != nil {
		s.users.close()
		return nil, fmt.Errorf("store.dir %s: %w", dir, err)
	}
	// This waits while another program, which was the last user, stops the server.
	if err := s.users.take(ctx, unix.LOCK_SH); err != nil {
		s.release()
		return nil, fmt.Errorf("store.dir %s: another program is stopping the store: %w", dir, err)
	}
	if err := s.begin(ctx); err != nil {
		err = fmt.Errorf("store.dir %s: %w", dir, err)
		if leaveErr := s.leave(); leaveErr != nil {
			err = errors.Join(err, leaveErr)
		}
		return nil, err
	}
	loop, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.loop(loop)
	return s, nil
}

// URL returns the store URL of the server, which stays the same over restarts.
func (s *Server) URL() string { return "unix://" + escape(s.engine.socket) }

// Wait blocks until Close has returned, and returns its error.
func (s *Server) Wait() error {
	<-s.closed
	return s.err
}

// Close ends this program's use of the store. The last program stops the server, so that its file is complete; any other program
// leaves the server running. Close takes at most a second, unless the server ignores SHUTDOWN and SIGTERM: Close then kills it
// after 13 seconds. Close may be called more than once.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.cancel()
		<-s.done
		s.err = s.leave()
		close(s.closed)
	})
	return s.Wait()
}

// begin waits until a server replies, whichever program supervises it.
func (s *Server) begin(ctx context.Context) error {
	tick := time.NewTicker(min(s.times.tick, 10*time.Millisecond))
	defer tick.Stop()
	logged := time.Now()
	for {
		if err := s.supervisor.lead(); err != nil {
			return err
		}
		if s.supervisor.active {
			started := s.engine.child != 0
			if err := s.supervisor.check(time.Now()); err != nil {
				return err
			}
			if started && s.engine.child == 0 {
				return fmt.Errorf("the server ended while it started. The end of %s says:\n%s\n"+
					"(of a damaged file: make a copy, then redis-check-aof --fix appendonlydir/<the file>)", s.engine.path("redis.log"), s.engine.logTail())
			}
		}
		err := s.engine.ready(ctx)
		if err == nil {
			return nil
		}
		if now := time.Now(); now.Sub(logged) > 2*time.Second {
			logged = now
			s.log.Info("waiting for the store", "socket", s.engine.socket, "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the store does not answer in time: %w (last: %w)", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// loop supervises the server until ctx is done.
func (s *Server) loop(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(s.times.tick)
	defer tick.Stop()
	var last string
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.engine.reap()
		err := s.supervisor.lead()
		if err == nil && s.supervisor.active {
			err = s.supervisor.check(time.Now())
		}
		// The next tick tries again. A repeated error is logged once.
		if err == nil {
			last = ""
		} else if err.Error() != last {
			last = err.Error()
			s.log.Error("cannot supervise the store; trying again", "error", err)
		}
	}
}

// leave stops the server if no other program uses it, and releases the locks.
func (s *Server) leave() error {
	defer s.release()
	last, err := s.users.try(unix.LOCK_EX)
	if err != nil || !last {
		return err
	}
	if err := s.engine.stop(s.times.ask, s.times.tell); err != nil {
		return fmt.Errorf("stop the store of %s: %w", s.engine.dir, err)
	}
	if dir := filepath.Dir(s.engine.socket); dir != s.engine.dir {
		_ = os.Remove(dir) // in the temporary directory; stays if it holds anything else
	}
	return nil
}

func (s *Server) release() {
	for _, l := range []*lock{s.engine.hold, s.supervisor.lock, s.users} {
		if l != nil {
			l.close()
		}
	}
}

// escape writes a path as part of a URL, its slashes as they are.
func escape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
