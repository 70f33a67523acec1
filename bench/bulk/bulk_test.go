package main

import (
	"context"
	"errors"
	"io"
	"maps"
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

// Each side runs each job of each tenant once, and left returns 0 at the end.
func TestSides_RunEveryJobOnce(t *testing.T) {
	err := rig.Do(t.Context(), io.Discard, func(r *rig.Run) {
		redis := r.Redis()
		one := newAsynq(redis)
		one.oneQueue = true
		for _, s := range []side{newAsynq(redis), one, newOurs(redis, defaultLease)} {
			rig.Check(redis.Empty(r))
			drained(t, r, s, []int{700, 1, 30})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// drained fills a side, runs its jobs and compares how many of each tenant have run.
func drained(t *testing.T, r *rig.Run, s side, jobs []int) {
	t.Helper()
	rig.Check(s.fill(r, jobs))
	if left, running, err := s.left(r, len(jobs)); err != nil || left != int64(total(jobs)) || running != 0 {
		t.Fatalf("%s: %d jobs left and %d running, %v; want %d and 0", s.name(), left, running, err, total(jobs))
	}
	var mu sync.Mutex
	ran := map[string]int{}
	all := make(chan struct{})
	stop := rig.Must(s.start(20, len(jobs), func(_ context.Context, tenant string) {
		mu.Lock()
		defer mu.Unlock()
		ran[tenant]++
		if total(slices.Collect(maps.Values(ran))) == total(jobs) {
			close(all)
		}
	}))
	select {
	case <-all:
	case <-time.After(time.Minute):
		stop()
		t.Fatalf("%s: of %v jobs some have not run after a minute", s.name(), jobs)
	}
	var err error
	for left := int64(1); left > 0 && err == nil; {
		left, _, err = s.left(r, len(jobs))
	}
	stop()
	want := map[string]int{}
	for i, n := range jobs {
		want[tenantName(i)] = n
	}
	if !maps.Equal(ran, want) || err != nil {
		t.Errorf("%s ran %v, want %v, %v", s.name(), ran, want, err)
	}
}

// Each peer runs each job once, starts again for single jobs, enqueues, is emptied, and counts its processor time.
func TestPeers_RunEveryJobOnce(t *testing.T) {
	for name, open := range map[string]func(*rig.Run, *rig.Redis) peer{
		"bullmq": func(r *rig.Run, redis *rig.Redis) peer { return newBullMQ(r, redis, "bullmq", 2) },
		"river":  func(r *rig.Run, _ *rig.Redis) peer { return newRiver(r, false) },
	} {
		t.Run(name, func(t *testing.T) {
			err := rig.Do(t.Context(), io.Discard, func(r *rig.Run) {
				var p peer
				err := rig.Try(func() { p = open(r, r.Redis()) })
				if missing := errLeftOut(""); errors.As(err, &missing) {
					t.Skip(missing)
				}
				rig.Check(err)
				before := rig.Must(p.used(r))
				drained(t, r, p, []int{300})
				if took := rig.Must(starts(r, p, 2, time.Millisecond)); len(took) != 2 || slices.Min(took) <= 0 {
					t.Errorf("single jobs started after %v", took)
				}
				rig.Check(p.empty(r))
				for _, w := range p.ways(nil, 1001) {
					rig.Check(w.put(r))
				}
				if left, _, err := p.left(r, 1); err != nil || left != int64(1001*len(p.ways(nil, 0))) {
					t.Errorf("%d jobs left, %v", left, err)
				}
				if after := rig.Must(p.used(r)); after.store < before.store || after.worker <= before.worker {
					t.Errorf("processor time before %v, after %v", before, after)
				}
				if err := p.fill(r, []int{1, 1}); err == nil {
					t.Error("two tenants are no error")
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestOpenPeers_NamesWhatIsWrong(t *testing.T) {
	err := rig.Do(t.Context(), io.Discard, func(r *rig.Run) { openPeers(r, nil, options{peers: "asynq,sidekiq"}) })
	if want := "--peers sidekiq: no such peer; there are asynq, bullmq, river"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	err = rig.Do(t.Context(), io.Discard, func(r *rig.Run) {
		if peers := openPeers(r, nil, options{peers: "asynq,bullmq", bullmq: t.TempDir()}); len(peers) != 0 {
			t.Errorf("%v without a program", peers)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
