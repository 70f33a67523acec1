package bulk

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/internal/sleep"
)

// Bounds of the pause of a loop after a failed call of the store. It doubles each time.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// health tracks which loops cannot reach the store. It logs the beginning of an outage for the first loop and the end
// when no loop is affected.
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
		h.log.Error("cannot reach the store; will continue when it is back", "role", role, "error", err)
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
		h.log.Info("the store is back", "outage", time.Since(h.since).Round(time.Millisecond).String())
	}
}

// role is the health of one loop, owned by its goroutine.
type role struct {
	health   *health
	name     string
	failures int
}

func (h *health) role(name string) *role { return &role{health: h, name: name} }

// ok records a call that the store replied to.
func (r *role) ok() {
	if r.failures > 0 {
		r.failures = 0
		r.health.fine(r.name)
	}
}

// failed records a failed call and pauses the loop. A call that ended with ctx is no failure.
func (r *role) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.health.failed(r.name, err)
	pause := min(firstPause<<min(r.failures, 10), lastPause)
	r.failures++
	sleep.For(ctx, pause/2+within(pause/2))
}

// within returns a random time from 0 to d, so that loops that failed together do not retry together.
func within(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(d) + 1)) //nolint:gosec // spreads load, not a secret
}

// retryAfter returns the shortest wait before try attempt+1: a random time between half of base·2^(attempt−1), at
// most p.Most, and all of it. The store waits for at least the tenant's congestion backoff.
func retryAfter(p Retry, attempt int64) time.Duration {
	return congestion.Retry(p.Base, p.Most, attempt, rand.Float64()) //nolint:gosec // as within
}
