package admission

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// A room in which visitors join and wait is ticked once an interval, however many join. The first join of an idle room is seen
// immediately.
func TestLoop_TicksAtInterval(t *testing.T) {
	short.Skip(t, "waits for the clock")
	for name, keyed := range map[string]bool{"plain": false, "by keys": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var looks atomic.Int64
			core, err := New(Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: patience, Log: quiet(),
				Observe: func(script string, _ time.Duration, _ error) {
					if script == "room_advance" {
						looks.Add(1)
					}
				}})
			if err != nil {
				t.Fatal(err)
			}
			p := basePolicy
			p.Rate, p.Burst = 0, 1000
			r := core.Room("sale", p)
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = core.Run(ctx) })
			defer run.Wait()
			defer cancel()
			core.Settle(ctx)
			join := func() {
				if _, _, err := r.Join(ctx, Arrival{ID: testID(), Keyed: keyed}); err != nil {
					t.Error(err)
				}
			}
			join() // takes the burst
			join()
			began := time.Now()
			for deadline := time.After(10 * time.Second); r.Snapshot().Waiting == 0; {
				select {
				case <-deadline:
					t.Fatal("the loop of an idle room has not seen a join")
				case <-time.After(5 * time.Millisecond):
				}
			}
			if seen := time.Since(began); seen > 600*time.Millisecond { // two ticks, and a machine that is busy
				t.Errorf("the loop of an idle room has seen a join after %s", seen)
			}
			before, ticker := looks.Load(), time.NewTicker(20*time.Millisecond)
			defer ticker.Stop()
			began = time.Now()
			for time.Since(began) < 2*time.Second {
				<-ticker.C
				join()
			}
			ticks := time.Since(began).Seconds() * float64(time.Second/core.o.Tick)
			if n := looks.Load() - before; float64(n) > ticks+3 {
				t.Errorf("48 joins a second made %d ticks in %s, want %.0f", n, time.Since(began), ticks)
			}
		})
	}
}
