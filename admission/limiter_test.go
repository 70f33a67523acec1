package admission_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

var strategies = []Strategy{StrategyTokenBucket, StrategyGCRA, StrategyFixedWindow, StrategyLeakyBucket, StrategyAdaptive}

// stored is a limiter in a store, for the conformance suite.
type stored struct {
	t       rapid.TB
	limiter *Limiter
	now     int64
}

var serial atomic.Int64 // of the keys that tests draw

func newStored(t rapid.TB, client redis.UniversalClient, prefix string, s Strategy) (l *stored, key string) {
	l = &stored{t: t}
	core, err := New(Options{Client: client, Prefix: prefix, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler), Now: func() int64 { return l.now }})
	if err != nil {
		t.Fatal(err)
	}
	key = LimiterKey(prefix, fmt.Sprintf("test:%d", serial.Add(1)), "x")
	l.limiter = core.LimiterOf(key, s)
	return l, key
}

func (l *stored) answer(g Grant, err error) (int64, time.Duration) {
	if err != nil {
		l.t.Fatal(err)
	}
	return g.Taken, g.Wait
}

func (l *stored) Take(now, n, rate, burst int64) (int64, time.Duration) {
	l.now = now
	return l.answer(l.limiter.Take(context.Background(), n, rate, burst))
}

func (l *stored) TakeCost(now, cost, rate, burst int64) (int64, time.Duration) {
	l.now = now
	return l.answer(l.limiter.TakeCost(context.Background(), cost, rate, burst))
}

func TestLimitersConform(t *testing.T) {
	short.Skip(t, "makes many cases")
	t.Parallel()
	for _, s := range strategies {
		t.Run(string(s)+"/go", func(t *testing.T) {
			admissiontest.Limiters(t, s, func(rapid.TB) admissiontest.Limited { return &admissiontest.Metered{Strategy: s} })
		})
		for name, client := range map[string]redis.UniversalClient{"redis": redistest.Client(t), "cluster": redistest.Cluster(t)} {
			t.Run(string(s)+"/"+name, func(t *testing.T) {
				prefix := redistest.Prefix(t)
				admissiontest.Limiters(t, s, func(t rapid.TB) admissiontest.Limited {
					l, _ := newStored(t, client, prefix, s)
					return l
				})
			})
		}
	}
}

// state is what a meter would have in the store.
func state(m Meter) (level, at int64) {
	switch m := m.(type) {
	case *TokenBucket:
		return m.Level, m.At
	case *LeakyBucket:
		return m.Level, m.At
	case *GCRA:
		return m.Level, m.At
	case *FixedWindow:
		return m.Level, m.At
	}
	panic("a meter without a state")
}

// TestLimiterScriptIsTheGoMeter: the two agree to the unit, after every step.
func TestLimiterScriptIsTheGoMeter(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	for _, s := range strategies {
		t.Run(string(s), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				script, key := newStored(t, client, prefix, s)
				model := &admissiontest.Metered{Strategy: s}
				now := int64(1_780_000_000_000_000)
				rate, burst := int64(0), int64(0)
				re := func() {
					rate = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 3_000), rapid.Int64Range(1, 1_000_000_000)).Draw(t, "rate")
					burst = rapid.OneOf(rapid.Just(DefaultBurst(rate)), rapid.Int64Range(1000, 50_000)).Draw(t, "burst")
				}
				re()
				for range rapid.IntRange(1, 40).Draw(t, "steps") {
					now += rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(0, 100_000_000), rapid.Int64Range(-3000, 0)).Draw(t, "dt")
					if rapid.IntRange(0, 5).Draw(t, "re-rate") == 0 {
						re()
					}
					n := rapid.Int64Range(0, 60).Draw(t, "n")
					what, take := "Take", admissiontest.Limited.Take
					if rapid.Bool().Draw(t, "whole") {
						what, take = "TakeCost", admissiontest.Limited.TakeCost
					}
					got, gotWait := take(script, now, n, rate, burst)
					want, wantWait := take(model, now, n, rate, burst)
					gotWait, wantWait = max(-1, gotWait), max(-1, wantWait)
					h := client.HMGet(t.Context(), key, "level", "at").Val()
					level, at := state(model.Meter)
					if got != want || gotWait != wantWait || fmt.Sprint(h) != fmt.Sprintf("[%d %d]", level, at) {
						t.Fatalf("%s %d at %d, %d/1000 + %d/1000: script %d %v %v, meter %d %v [%d %d]", what, n, now, rate, burst, got, gotWait, h, want, wantWait, level, at)
					}
				}
			})
		})
	}
}

func TestDefaultBurst(t *testing.T) {
	for _, row := range []struct{ rate, want int64 }{
		{0, 1000}, {1, 1000}, {10_000, 1000}, {10_009, 1000}, {10_010, 1001}, {33_333, 3333}, {10_000_000, 1_000_000},
	} {
		if got := DefaultBurst(row.rate); got != row.want {
			t.Errorf("DefaultBurst(%d) = %d, want %d", row.rate, got, row.want)
		}
	}
}

// TestLimiterOutlivesItsDebt: the store may forget a limiter only when that grants nothing early.
func TestLimiterOutlivesItsDebt(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	for _, row := range []struct {
		s                 Strategy
		cost, rate, burst int64
		least             time.Duration
	}{
		{StrategyTokenBucket, 5, 5, 5000, 1000 * time.Second},
		{StrategyGCRA, 1, 1000, 1000, time.Second},
		{StrategyGCRA, 1000, 100, 1000, 10_000 * time.Second},
		{StrategyFixedWindow, 1, 1, 1000, 1000 * time.Second},
		{StrategyGCRA, 1, 0, 1000, 29 * 24 * time.Hour},
	} {
		l, key := newStored(t, client, prefix, row.s)
		l.TakeCost(1_780_000_000_000_000, row.cost, row.rate, row.burst)
		if ttl := client.TTL(t.Context(), key).Val(); ttl < row.least {
			t.Errorf("%+v: forgotten after %v", row, ttl)
		}
	}
}
