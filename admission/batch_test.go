package admission

import (
	"context"
	"errors"
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

// An observer learns of the call that its own request waited for, and of no other.
func TestBatcher_ReportsCallToObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		b := &batcher[int, int]{script: "room_seen", wait: time.Millisecond, send: func(_ context.Context, q []int) ([]int, error) {
			time.Sleep(time.Second)
			return make([]int, len(q)), broken
		}}
		began := time.Now()
		var calls []BatchCall
		ctx := ObserveBatches(t.Context(), func(c BatchCall) { calls = append(calls, c) })
		var others sync.WaitGroup
		others.Go(func() { _, _ = b.ask(t.Context(), 1) })
		synctest.Wait() // it leads the batch
		if _, err := b.ask(ctx, 2); !errors.Is(err, broken) {
			t.Error(err)
		}
		others.Wait()
		if len(calls) != 1 {
			t.Fatalf("%+v", calls)
		}
		if c := calls[0]; c.Script != "room_seen" || c.Size != 2 || !c.Asked.Equal(began) || c.Sent.Sub(began) != time.Millisecond || !errors.Is(c.Err, broken) {
			t.Errorf("%+v", c)
		}
	})
}
