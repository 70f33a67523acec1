package bulk

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion"
)

// How long a loop pauses after a failed call of the store: twice as long each time, from the first to the last.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// health knows which of the engine's roles are without the store. An outage is logged once, when the first role meets it,
// and its end once, when no role is left without.
type health struct {
	log    *slog.Logger
	report func(up bool)

	mu    sync.Mutex
	down  map[string]struct{}
	since time.Time
}

func newHealth(log *slog.Logger, report func(up bool)) *health {
	report(true)
	return &health{log: log, report: report, down: map[string]struct{}{}}
}

func (h *health) failed(role string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.down) == 0 {
		h.since = time.Now()
		h.report(false)
		h.log.Error("the store is away; going on as soon as it is back", "role", role, "error", err)
	}
	h.down[role] = struct{}{}
}

func (h *health) fine(role string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, was := h.down[role]; !was {
		return
	}
	delete(h.down, role)
	if len(h.down) == 0 {
		h.report(true)
		h.log.Info("the store is back", "after", time.Since(h.since).Round(time.Millisecond).String())
	}
}

// role is what one loop knows of the store. It belongs to that loop's goroutine.
type role struct {
	health   *health
	name     string
	failures int
}

func (h *health) role(name string) *role { return &role{health: h, name: name} }

// ok notes a call that the store answered.
func (r *role) ok() {
	if r.failures > 0 {
		r.failures = 0
		r.health.fine(r.name)
	}
}

// failed notes a call that went wrong and pauses the loop. A call that ended because the loop shall stop is no failure.
func (r *role) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.health.failed(r.name, err)
	pause := min(firstPause<<min(r.failures, 10), lastPause)
	r.failures++
	sleep(ctx, pause/2+within(pause/2))
}

// sleep waits for d and says whether ctx still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// within draws a time from 0 to d, so that those who failed together do not come again together.
func within(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(d) + 1)) //nolint:gosec // spreads load; nothing is kept safe by it
}

// retryAfter draws the least wait before try attempt+1: between half of base·2^(attempt−1), at most p.Most, and all of it. The
// store takes the larger of it and the tenant's congestion backoff.
func retryAfter(p Retry, attempt int64) time.Duration {
	return congestion.Retry(p.Base, p.Most, attempt, rand.Float64()) //nolint:gosec // as within
}
