package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock is an open lock file. Its flock belongs to the open file, not to the process: a child that inherits the file shares the
// flock, and two locks of one process exclude each other as those of two processes do.
type lock struct{ f *os.File }

func openLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &lock{f}, nil
}

// try takes the lock (unix.LOCK_SH or unix.LOCK_EX) if no other file holds it now. A shared lock is lost if it cannot become exclusive.
func (l *lock) try(how int) (bool, error) {
	for {
		err := unix.Flock(int(l.f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("lock %s: %w (store.dir must be on a file system with flock)", l.f.Name(), err)
		}
	}
}

// take waits for the lock until ctx is done.
func (l *lock) take(ctx context.Context, how int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := l.try(how); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", l.f.Name(), ctx.Err())
		case <-tick.C:
		}
	}
}

// write replaces the file's text, which only people read.
func (l *lock) write(text string) error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(text), 0)
	return err
}

// close releases the lock, unless a child has inherited the file.
func (l *lock) close() { _ = l.f.Close() }
