package lifecycle

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// look is the time between two looks at files.
const look = time.Second

// AddUntilDone adds a part that ends when ctx ends.
func (g *Group) AddUntilDone(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error {
		<-ctx.Done()
		return nil
	}, cancel)
}

// Hangups takes SIGHUP for the rest of the process: one that came before the
// parts run, or while they end, would otherwise end it at once.
func Hangups() <-chan os.Signal {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	return hup
}

// AddReloads adds a part that calls reload at SIGHUP, of which Hangups tells, and
// when one of the files changes, whose list is asked for anew each time.
func (g *Group) AddReloads(hup <-chan os.Signal, reload func(), files func() []string) {
	stop := make(chan struct{})
	g.Add(func() error {
		tick := time.NewTicker(look)
		defer tick.Stop()
		seen := marksOf(files(), nil)
		for {
			told := false
			select {
			case <-stop:
				return nil
			case <-hup:
				told = true
			case <-tick.C:
			}
			now := marksOf(files(), nil)
			if !told && maps.Equal(now, seen) {
				continue
			}
			reload()
			// As they were before: what changed while they were read is a change.
			seen = marksOf(files(), now)
		}
	}, func() { close(stop) })
}

// mark tells whether a file has changed: by time, size and, for links that are
// switched as a whole, the file that they lead to. A file that is not there has
// the zero mark.
type mark struct {
	time, size int64
	inode      uint64
}

// marksOf takes the marks of files, those in known from there.
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
