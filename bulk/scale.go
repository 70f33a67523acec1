package bulk

import (
	"context"
	"time"

	"github.com/anteroom/anteroom/internal/sleep"
)

// Parameters of autoscaling.
const (
	growEvery   = 200 * time.Millisecond
	shrinkAfter = 10 * time.Second // without all workers busy
)

// scaler keeps the number of workers between min and max. Each tick with all workers busy and jobs left adds a
// quarter, at least one; workers that were not busy at once for shrinkAfter are removed.
type scaler struct {
	pool     *pool
	min, max int
}

func (s *scaler) run(ctx context.Context) {
	idle := time.Duration(0) // how long each tick has found a free worker
	peak := 0
	for sleep.For(ctx, growEvery) {
		l := s.pool.snapshot(true)
		if l.starved {
			idle, peak = 0, 0
			s.set(l.size, l.size+max(1, l.size/4))
			continue
		}
		if l.peak >= l.size {
			idle, peak = 0, 0
			continue
		}
		idle += growEvery
		peak = max(peak, l.peak)
		if idle >= shrinkAfter {
			s.set(l.size, peak)
			idle, peak = 0, 0
		}
	}
}

func (s *scaler) set(from, to int) {
	if to = min(max(to, s.min), s.max); to != from {
		s.pool.resize(to)
	}
}
