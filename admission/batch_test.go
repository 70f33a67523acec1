package admission

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBatcher_CollectsLongerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		b := &batcher[int, int]{wait: time.Millisecond, send: func(_ context.Context, q []int) ([]int, error) {
			sizes = append(sizes, len(q))
			return q, nil
		}}
		// ask returns how long n requests that come at the same time take.
		ask := func(n int) time.Duration {
			began := time.Now()
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					if got, err := b.ask(t.Context(), i); err != nil || got != i {
						t.Errorf("request %d is answered with %d, %v", i, got, err)
					}
				})
			}
			all.Wait()
			return time.Since(began)
		}
		for i, step := range []struct {
			requests int
			want     time.Duration
		}{
			{1, time.Millisecond},
			{batchBusy, time.Millisecond},
			{batchBusy - 1, batchLonger * time.Millisecond}, // after a busy batch
			{batchBusy, time.Millisecond},
			{batchMost, 0}, // a full batch waits for nobody
			{1, batchLonger * time.Millisecond},
		} {
			if took := ask(step.requests); took != step.want {
				t.Errorf("step %d: %d requests take %s, want %s", i, step.requests, took, step.want)
			}
		}
		if len(sizes) != 6 {
			t.Errorf("batches of %d", sizes)
		}
	})
}
