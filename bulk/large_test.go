package bulk

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// TestEngine_RunsLargeJobs: with the largest lines and batches that are allowed, every pull outlasted store.timeout, was given
// back, and was tried again for ever.
func TestEngine_RunsLargeJobs(t *testing.T) {
	short.Skip(t, "moves much memory")
	const jobs = 120
	s := openWithin(t, 400*time.Millisecond, redistest.Client(t), redistest.Prefix(t), nil)
	payload := bytes.Repeat([]byte("1"), 1<<20)
	g, _, err := s.CreateGroup(t.Context(), store.GroupSpec{ID: "g", Tenant: "acme", Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if _, err := s.AddJobs(t.Context(), g.ID, store.Chunk{}, []store.Job{{ID: fmt.Sprint("j", i), Payload: payload}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Seal(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	_, stop := engine(t, s, Options{Worker: WorkerOptions{Count: 200, Batch: 200}}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(context.Context, *Job) ([]byte, error) { return nil, nil }))
	})
	await(t, "not every job has run", func() bool {
		g, err := s.Group(t.Context(), "g")
		return err == nil && g.Status == store.Completed && g.Succeeded == jobs
	})
	stop()
}
