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
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	submit := openWithin(t, 10*time.Second, client, prefix, nil)
	payload := bytes.Repeat([]byte("1"), 1<<20)
	g, _, err := submit.CreateGroup(t.Context(), store.GroupSpec{ID: "g", Tenant: "acme", Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if _, err := submit.AddJobs(t.Context(), g.ID, store.Chunk{}, []store.Job{{ID: fmt.Sprint("j", i), Payload: payload}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := submit.Seal(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	s := openWithin(t, 400*time.Millisecond, client, prefix, nil)
	_, stop := engine(t, s, Options{Worker: WorkerOptions{Count: 200, Batch: 200}}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(context.Context, *Job) ([]byte, error) { return nil, nil }))
	})
	await(t, "not every job has run", func() bool {
		g, err := s.Group(t.Context(), "g")
		return err == nil && g.Status == store.Completed && g.Succeeded == jobs
	})
	stop()
}
