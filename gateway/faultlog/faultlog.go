// Package faultlog limits the log lines about faults of requests to one per second and kind.
package faultlog

import (
	"log/slog"
	"sync"
	"time"
)

// Limiter decides which faults are logged. While something that all requests need is away, one line per second and kind stands for
// all faults. The zero value is ready for use.
type Limiter struct {
	mu    sync.Mutex
	kinds map[Kind]*count
}

// Kind is the code of a problem with its room or origin. Kinds are bounded: codes are fixed, rooms and origins are configured.
type Kind struct{ Code, Where string }

type count struct {
	last  time.Time // of the last line
	since int       // faults after that line
}

// pause is the time between two lines of a kind.
const pause = time.Second

// Count counts a fault and returns the number of faults that a line now stands for; 0: no line is due. A fault worse than a warning
// always has a line of its own.
func (l *Limiter) Count(now time.Time, level slog.Level, kind Kind) int {
	if level > slog.LevelWarn {
		return 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.kinds[kind]
	if c == nil {
		if l.kinds == nil {
			l.kinds = map[Kind]*count{}
		}
		c = &count{}
		l.kinds[kind] = c
	}
	c.since++
	if now.Sub(c.last) < pause {
		return 0
	}
	n := c.since
	c.last, c.since = now, 0
	return n
}
