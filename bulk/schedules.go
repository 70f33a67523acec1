package bulk

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// scheduleEvery is how often the keeper looks for schedules that are due.
const scheduleEvery = time.Second

// runs makes the due runs of schedules.
type runs interface {
	Round(ctx context.Context) (schedule.Counts, error)
}

// scheduler makes the due runs of schedules while this process is the keeper, and one round now and then while it is not.
type scheduler struct {
	runs    runs
	turns   turns
	metrics *Metrics
	log     *slog.Logger
	role    *role
	logged  time.Time // when an error was last logged
}

func (s *scheduler) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !s.turns.due() {
			sleep.For(ctx, standbyEvery)
			continue
		}
		did, err := s.runs.Round(ctx)
		s.metrics.scheduled(did)
		if did.Failed > 0 || did.Missed > 0 {
			s.log.Warn("runs of schedules were refused or missed; GET /v1/schedules shows which", "failed", did.Failed, "missed", did.Missed)
		}
		if errors.Is(err, store.ErrStore) {
			s.role.failed(ctx, err)
			continue
		}
		if s.role.ok(); err != nil && ctx.Err() == nil && time.Since(s.logged) > complainEvery {
			s.logged = time.Now()
			s.log.Error("cannot make the runs of a schedule; will try again", "error", err)
		}
		sleep.For(ctx, scheduleEvery)
	}
}
