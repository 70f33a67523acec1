package gateway

import (
	"log/slog"
	"sync"
	"time"
)

// faultLog limits the log lines about faults of requests. Where something that all requests need is away, there is one line a
// second of each kind, with how many faults there were, and not one a request.
type faultLog struct {
	mu    sync.Mutex
	kinds map[faultKind]*faultCount
}

// faultKind is one of a bounded number: codes are fixed, rooms and origins are configured.
type faultKind struct{ code, where string }

type faultCount struct {
	last  time.Time // of a line
	since int       // faults after it
}

// faultPause is the time between two lines of a kind.
const faultPause = time.Second

// times counts a fault and returns how many a line stands for now; 0: no line is due. A line about something worse than a warning
// always is.
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
