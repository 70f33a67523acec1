package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress prints line() until ctx ends: over itself once a second on a terminal, else a line every five seconds.
func progress(ctx context.Context, w *os.File, line func() string) {
	terminal := term.IsTerminal(int(w.Fd()))
	every := 5 * time.Second
	if terminal {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			show(w, terminal, line())
		case <-ctx.Done():
			show(w, terminal, line())
			if terminal {
				_, _ = fmt.Fprintln(w)
			}
			return
		}
	}
}

func show(w io.Writer, over bool, line string) {
	if over {
		_, _ = fmt.Fprintf(w, "\r%s\x1b[K", line)
		return
	}
	_, _ = fmt.Fprintln(w, line)
}

// line says how the crowd is doing; admitted/s is the mean since the last line.
func (c *crowd) line() func() string {
	last, lastAdmitted := time.Now(), int64(0)
	return func() string {
		n := &c.counts
		now, admitted := time.Now(), n.admitted.Load()
		speed := float64(admitted-lastAdmitted) / max(now.Sub(last).Seconds(), 0.001)
		last, lastAdmitted = now, admitted
		joins, polls := c.joins.quantiles(), c.polls.quantiles()
		return fmt.Sprintf("joined %d · waiting %d · let in %d (%.1f/s) · lost %d · polls p50 %.1f p99 %.1f ms · joins p50 %.1f p99 %.1f ms · errors %d",
			n.joined.Load(), n.inLine.Load(), admitted, speed, n.lost.Load(), polls.P50, polls.P99, joins.P50, joins.P99,
			n.connErrors.Load()+n.serverErrors.Load())
	}
}
