package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// faultLog writes the faults that requests meet. What all of them need may be away: then there is a line a second of each
// kind, with how many there were, and not one a request.
type faultLog struct {
	mu    sync.Mutex
	kinds map[faultKind]*faultCount
}

// faultKind is bounded: codes are fixed, rooms and origins configured.
type faultKind struct{ code, where string }

type faultCount struct {
	last  time.Time // of a line
	since int       // faults after it
}

// faultPause is the time between two lines of a kind.
const faultPause = time.Second

// times counts a fault and says how many a line now stands for; 0: none is due. What is worse than a warning always is.
func (f *faultLog) times(now time.Time, level slog.Level, kind faultKind) int {
	if level > slog.LevelWarn {
		return 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.kinds[kind]
	if c == nil {
		if f.kinds == nil {
			f.kinds = map[faultKind]*faultCount{}
		}
		c = &faultCount{}
		f.kinds[kind] = c
	}
	c.since++
	if now.Sub(c.last) < faultPause {
		return 0
	}
	n := c.since
	c.last, c.since = now, 0
	return n
}

// fault logs a fault of this request, where is its room or origin. A line that stands for several says for how many.
func (v *visit) fault(level slog.Level, message, code, where string, attrs ...any) {
	n := v.g.faults.times(v.start, level, faultKind{code, where})
	if n == 0 {
		return
	}
	if n > 1 {
		attrs = append(attrs, "times", n)
	}
	v.g.log.Log(context.WithoutCancel(v.g.life), level, message, attrs...)
}
