package load

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Every job is done once for each time that it was added, when it is due.
func TestSchedule_IsPunctual(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		due := rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 100_000), func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }), 1, 30).Draw(rt, "due")
		workers := rapid.IntRange(1, 5).Draw(rt, "workers")
		synctest.Test(t, func(t *testing.T) {
			s := newSchedule()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var mu sync.Mutex
			at := map[int][]time.Duration{}
			for i := 1; i < len(due); i++ {
				s.add(i, due[i])
			}
			go func() { // one that is added while the workers wait
				time.Sleep(due[0])
				s.add(0, due[0])
			}()
			left := len(due) + 1
			s.run(ctx, workers, func(job int) {
				mu.Lock()
				defer mu.Unlock()
				now := time.Since(s.start)
				if at[job] = append(at[job], now); job == 0 && len(at[job]) == 1 {
					s.add(0, now+time.Second)
				}
				if left--; left == 0 {
					stop()
				}
			})
			for i := range due {
				if len(at[i]) == 0 || at[i][0] != due[i] {
					t.Fatalf("job %d, due at %s, was done at %v", i, due[i], at[i])
				}
			}
			if len(at[0]) != 2 || at[0][1] != due[0]+time.Second {
				t.Fatalf("the job that was added again was done at %v", at[0])
			}
		})
	})
}
