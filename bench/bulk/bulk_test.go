package main

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestJain(t *testing.T) {
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
		if got := jain(row.shares, row.n); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("jain(%v, %d) = %v, want %v", row.shares, row.n, got, row.want)
		}
	}
}

func TestPercentile(t *testing.T) {
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

// Each side runs each job of each tenant once, and left sees the end: what is measured is what it should be.
func TestSidesRunWhatTheyWereGiven(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	redis, err := startRedis(ctx, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer redis.stop()
	one := newAsynq(redis)
	one.oneQueue = true
	for _, s := range []side{newAsynq(redis), one, newOurs(redis, defaultLease)} {
		if err := redis.empty(ctx); err != nil {
			t.Fatal(err)
		}
		jobs := []int{700, 1, 30}
		if err := s.fill(ctx, jobs); err != nil {
			t.Fatalf("%s: %v", s.name(), err)
		}
		if left, running, err := s.left(ctx, len(jobs)); err != nil || left != 731 || running != 0 {
			t.Fatalf("%s: %d jobs left and %d running, %v; want 731 and 0", s.name(), left, running, err)
		}
		var mu sync.Mutex
		ran := map[string]int{}
		stop, err := s.start(20, len(jobs), func(_ context.Context, tenant string) {
			mu.Lock()
			defer mu.Unlock()
			ran[tenant]++
		})
		if err != nil {
			t.Fatal(err)
		}
		for left := int64(1); left > 0; {
			if left, _, err = s.left(ctx, len(jobs)); err != nil {
				t.Fatalf("%s: %v with %d jobs left", s.name(), err, left)
			}
		}
		stop()
		if got := []int{ran["t0"], ran["t1"], ran["t2"]}; !slices.Equal(got, jobs) {
			t.Errorf("%s ran %v, want %v", s.name(), got, jobs)
		}
	}
}
