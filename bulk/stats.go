package bulk

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

const statsEvery = time.Second

// historian records the tenants' congestion history and reads the counts for metrics.
type historian interface {
	Snapshot(ctx context.Context) error
	Depths(ctx context.Context) (store.Depths, error)
}

// stats records the congestion history and reads the counts for metrics, once a second while this process is the
// keeper.
type stats struct {
	shard   int
	store   historian
	turns   turns
	metrics *Metrics
	log     *slog.Logger
	role    *role
}

func (s *stats) run(ctx context.Context) {
	unserved := ""
	for sleep.For(ctx, statsEvery) {
		if !s.turns.due() {
			continue
		}
		err := s.store.Snapshot(ctx)
		if err == nil {
			var d store.Depths
			if d, err = s.store.Depths(ctx); err == nil {
				s.metrics.depths(s.shard, d, time.Now())
				if types := strings.Join(d.UnservedTypes, " "); types != unserved {
					if unserved = types; types != "" {
						s.log.Warn("no process runs these job types; their jobs wait and become dead letters after unknown_type_after: configure a processor", "types", d.UnservedTypes, "jobs", d.Unserved)
					}
				}
			}
		}
		if err != nil {
			s.role.failed(ctx, err)
			continue
		}
		s.role.ok()
	}
}
