package lifecycle

import (
	"context"
	"fmt"
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

// AddReloads adds a part that calls reload at SIGHUP and when one of the files
// changes, whose list is asked for anew each time.
func (g *Group) AddReloads(reload func(), files func() []string) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	stop := make(chan struct{})
	g.Add(func() error {
		defer signal.Stop(hup)
		tick := time.NewTicker(look)
		defer tick.Stop()
		seen := marks(files())
		for {
			select {
			case <-stop:
				return nil
			case <-hup:
			case <-tick.C:
				if now := marks(files()); now == seen {
					continue
				}
			}
			reload()
			seen = marks(files())
		}
	}, func() { close(stop) })
}

// marks tells whether any of the files has changed: by time, size and, for
// links that are switched as a whole, the file that they lead to.
func marks(files []string) string {
	var all string
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			var inode uint64
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				inode = uint64(st.Ino)
			}
			all += fmt.Sprintln(f, info.ModTime().UnixNano(), info.Size(), inode)
		}
	}
	return all
}
