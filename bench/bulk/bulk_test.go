package main

import (
	"context"
	"io"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
)

func TestJainIndex_MeasuresEquality(t *testing.T) {
	for _, row := range []struct {
		shares map[string]int
		n      int
		want   float64
	}{
		{map[string]int{"a": 5, "b": 5}, 2, 1},
		{map[string]int{"a": 5}, 4, 0.25},
		{map[string]int{"a": 1, "b": 3}, 2, 0.8},
		{nil, 3, 0},
	} {
		if got := jainIndex(row.shares, row.n); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("jainIndex(%v, %d) = %v, want %v", row.shares, row.n, got, row.want)
		}
	}
}

func TestPercentile_SelectsByRank(t *testing.T) {
	var all []time.Duration
	for i := 100; i > 0; i-- {
		all = append(all, time.Duration(i)*time.Millisecond)
	}
	for p, want := range map[int]float64{0: 1, 50: 51, 99: 100, 100: 100} {
		if got := percentile(all, p); got != want {
			t.Errorf("percentile %d: %v ms, want %v", p, got, want)
		}
	}
}

// Each side runs each job of each tenant once, and left returns 0 at the end.
func TestSides_RunEveryJobOnce(t *testing.T) {
	err := rig.Do(t.Context(), io.Discard, func(r *rig.Run) {
		redis := r.Redis()
		one := newAsynq(redis)
		one.oneQueue = true
		for _, s := range []side{newAsynq(redis), one, newOurs(redis, defaultLease)} {
			rig.Check(redis.Empty(r))
			jobs := []int{700, 1, 30}
			rig.Check(s.fill(r, jobs))
			if left, running, err := s.left(r, len(jobs)); err != nil || left != 731 || running != 0 {
				t.Fatalf("%s: %d jobs left and %d running, %v; want 731 and 0", s.name(), left, running, err)
			}
			var mu sync.Mutex
			ran := map[string]int{}
			stop := rig.Must(s.start(20, len(jobs), func(_ context.Context, tenant string) {
				mu.Lock()
				defer mu.Unlock()
				ran[tenant]++
			}))
			var err error
			for left := int64(1); left > 0 && err == nil; {
				left, _, err = s.left(r, len(jobs))
			}
			stop()
			if got := []int{ran["t0"], ran["t1"], ran["t2"]}; !slices.Equal(got, jobs) || err != nil {
				t.Errorf("%s ran %v, want %v, %v", s.name(), got, jobs, err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
