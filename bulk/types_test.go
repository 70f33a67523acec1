package bulk

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// TestEngine_OldBesideNew is a rolling deploy that adds a type: the old process made about 900 of 1,000 jobs dead.
func TestEngine_OldBesideNew(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	group := func(s *store.Store, id, kind string, jobs func(i int) string) {
		if _, _, err := s.CreateGroup(t.Context(), store.GroupSpec{ID: id, Tenant: id, Type: kind, Aggregate: `{"op":"count"}`}); err != nil {
			t.Fatal(err)
		}
		list := make([]store.Job, 500)
		for i := range list {
			list[i] = store.Job{ID: fmt.Sprint("j", i), Type: jobs(i), Payload: []byte("1")}
		}
		if _, err := s.AddJobs(t.Context(), id, store.Chunk{}, list); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Seal(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	old, fresh := openStore(t, client, prefix, nil), openStore(t, client, prefix, nil)
	var wrong atomic.Int64
	only := func(kinds ...string) func(e *Engine) {
		return func(e *Engine) {
			for _, kind := range kinds {
				e.Register(kind, HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
					if j.Type != kind || j.Attempt != 1 {
						wrong.Add(1)
					}
					return nil, nil
				}))
			}
		}
	}
	_, stopOld := engine(t, old, Options{}, only("mail"))
	group(old, "new-type", "fax", func(int) string { return "" })
	group(old, "mixed", "mail", func(i int) string { return []string{"", "fax", "fax"}[i%3] })
	_, stopNew := engine(t, fresh, Options{}, only("mail", "fax"))
	for _, id := range []string{"new-type", "mixed"} {
		if g := ended(t, fresh, id); g.Status != store.Completed || g.Succeeded != 500 {
			t.Errorf("%s: %s, %d succeeded, %d dead", id, g.Status, g.Succeeded, g.Dead)
		}
	}
	stopOld()
	stopNew()
	if wrong.Load() > 0 {
		t.Errorf("%d runs of a wrong type, or repeated", wrong.Load())
	}
	clean(t, fresh)
}
