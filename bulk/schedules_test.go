package bulk

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// TestEngine_RunsScheduleOnce: engines that share a store run the job of a due schedule, once, and then those of the groups behind its group.
func TestEngine_RunsScheduleOnce(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	s := openStore(t, redistest.Client(t), prefix, nil)
	plan := &schedule.Schedule{ID: "yearly", Tenant: "acme", Cron: "0 0 1 1 *", Group: store.GroupSpec{Type: "t"}, Jobs: []schedule.Job{{Payload: json.RawMessage(`1`)}}}
	if err := plan.Check(); err != nil {
		t.Fatal(err)
	}
	plan.Next = time.Now().Add(-time.Second).UTC().Truncate(time.Second) // as if it had been planned
	body, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.WriteSchedule(t.Context(), store.ScheduleRecord{ID: plan.ID, Body: body}, plan.Next); err != nil {
		t.Fatal(err)
	}
	var runs atomic.Int64
	for range 2 {
		engine(t, openStore(t, redistest.Client(t), prefix, nil), Options{}, func(e *Engine) {
			e.Register("t", HandlerFunc(func(context.Context, *Job) ([]byte, error) { runs.Add(1); return nil, nil }))
		})
	}
	first := schedule.GroupID("yearly", plan.Next)
	await(t, "no run is made", func() bool { _, err := s.Group(t.Context(), first); return err == nil })
	submit(t, s, store.GroupSpec{ID: "second", Tenant: "acme", After: first}, 3, number)
	submit(t, s, store.GroupSpec{ID: "third", Tenant: "acme", After: first + " second"}, 2, number)
	for _, id := range []string{first, "second", "third"} {
		if g := ended(t, s, id); g.Status != store.Completed {
			t.Errorf("%+v", g)
		}
	}
	if n := runs.Load(); n != 6 {
		t.Errorf("%d runs of 6 jobs", n)
	}
	if now, err := schedule.NewBook(s).Get(t.Context(), "yearly"); err != nil || now.Counts != (schedule.Counts{Started: 1}) || now.Next.Before(time.Now()) {
		t.Errorf("%+v %v", now, err)
	}
	clean(t, s)
}
