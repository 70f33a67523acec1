package lifecycle

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// checkEvery is the time between two checks of files.
const checkEvery = time.Second

// AddUntilDone adds a part that ends when ctx ends.
func (g *Group) AddUntilDone(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error {
		<-ctx.Done()
		return nil
	}, cancel)
}

// Hangups receives SIGHUP for the rest of the process. Without it, a SIGHUP before the parts run or while they end would end the
// process.
func Hangups() <-chan os.Signal {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	return hup
}

// AddReloads adds a part that calls reload on SIGHUP, which Hangups receives, and when one of the files changes; files is called
// at once and after each reload, which alone may change them.
func (g *Group) AddReloads(hup <-chan os.Signal, reload func(), files func() []string) {
	stop := make(chan struct{})
	watched := files()
	seen := marksOf(watched, nil) // now: a change while the parts start is a change
	g.Add(func() error {
		tick := time.NewTicker(checkEvery)
		defer tick.Stop()
		for {
			signalled := false
			select {
			case <-stop:
				return nil
			case <-hup:
				signalled = true
			case <-tick.C:
			}
			now := marksOf(watched, nil)
			if !signalled && maps.Equal(now, seen) {
				continue
			}
			reload()
			// The marks from before the reload: a change during it counts as a new change.
			watched = files()
			seen = marksOf(watched, now)
		}
	}, func() { close(stop) })
}

// mark identifies a version of a file: by time, size and, for links that are switched as a whole, their target. A missing file
// has the zero mark.
type mark struct {
	time, size int64
	inode      uint64
}

// marksOf returns the marks of files. A mark in known is not read again.
func marksOf(files []string, known map[string]mark) map[string]mark {
	marks := make(map[string]mark, len(files))
	for _, f := range files {
		m, ok := known[f]
		if !ok {
			if info, err := os.Stat(f); err == nil {
				m = mark{time: info.ModTime().UnixNano(), size: info.Size()}
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					m.inode = uint64(st.Ino)
				}
			}
		}
		marks[f] = m
	}
	return marks
}
