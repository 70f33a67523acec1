package limiter_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/admission/limiter"
	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/lua"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

var strategies = []policy.Strategy{policy.StrategyTokenBucket, admissiontest.GCRAStrategy, policy.StrategyFixedWindow, policy.StrategyLeakyBucket, policy.StrategyAdaptive}

// stored is a limiter of lua/lib/limiter.lua in a store, for the conformance suites.
type stored struct {
	t        rapid.TB
	run      *lua.Runner
	script   *lua.Script
	key      string
	strategy policy.Strategy
}

var serial atomic.Int64 // numbers the keys

// limiterScripts holds testdata/limiter_take.lua with the libraries that production scripts include.
var limiterScripts = sync.OnceValues(func() (*lua.Set, error) {
	files := fstest.MapFS{}
	for name, path := range map[string]string{
		"limiter_take.lua": "testdata/limiter_take.lua", "lib/limiter.lua": "../../lua/lib/limiter.lua", "lib/clock.lua": "../../lua/lib/clock.lua",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	return lua.LoadFS(files)
})

func newStored(t rapid.TB, client redis.UniversalClient, prefix string, s policy.Strategy) *stored {
	set, err := limiterScripts()
	if err != nil {
		t.Fatal(err)
	}
	return &stored{t, lua.NewRunner(client, set, nil), set.Script("limiter_take"), fmt.Sprintf("%s:{test:%d}", prefix, serial.Add(1)), s}
}

func (l *stored) take(now, n, rate, burst, whole int64) (int64, time.Duration) {
	res, err := l.run.Run(context.Background(), l.script, []string{l.key}, now, string(l.strategy), rate, burst, n, whole)
	if err != nil {
		l.t.Fatal(err)
	}
	v := res.([]any)
	return v[0].(int64), time.Duration(v[1].(int64)) * time.Microsecond
}

func (l *stored) Take(now, n, rate, burst int64) (int64, time.Duration) {
	return l.take(now, n, rate, burst, 0)
}

func (l *stored) TakeCost(now, cost, rate, burst int64) (int64, time.Duration) {
	return l.take(now, cost, rate, burst, 1)
}

func TestLimiters_Conform(t *testing.T) {
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
					return newStored(t, client, prefix, s)
				})
			})
		}
	}
}

// state returns what the store would hold of a limiter.
func state(m admissiontest.Meter) (level, at int64) {
	switch m := m.(type) {
	case *limiter.TokenBucket:
		return m.Level, m.At
	case *limiter.LeakyBucket:
		return m.Level, m.At
	case *admissiontest.GCRA:
		return m.Level, m.At
	case *limiter.FixedWindow:
		return m.Level, m.At
	}
	panic("a limiter without a state")
}

func TestStrategies_Conform(t *testing.T) {
	short.Skip(t, "makes many cases")
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	for _, s := range []policy.Strategy{policy.StrategyTokenBucket, policy.StrategyLeakyBucket, policy.StrategyFixedWindow} {
		t.Run(string(s)+"/go", func(t *testing.T) {
			admissiontest.Strategies(t, s, false, func(_ rapid.TB, s policy.Strategy, _, _, _ int64) admissiontest.Paced {
				return admissiontest.PacedMeter{Limited: &admissiontest.Metered{Strategy: s}}
			})
		})
		t.Run(string(s)+"/store", func(t *testing.T) {
			admissiontest.Strategies(t, s, false, func(t rapid.TB, s policy.Strategy, _, _, _ int64) admissiontest.Paced {
				return admissiontest.PacedMeter{Limited: newStored(t, client, prefix, s)}
			})
		})
	}
}

// After every step the script and the Go limiter agree to the unit.
func TestLimiterScript_AgreesWithGo(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	for _, s := range strategies {
		t.Run(string(s), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				script := newStored(t, client, prefix, s)
				model := &admissiontest.Metered{Strategy: s}
				now := int64(1_780_000_000_000_000)
				rate, burst := int64(0), int64(0)
				re := func() {
					rate = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 3_000), rapid.Int64Range(1, 1_000_000_000)).Draw(t, "rate")
					burst = rapid.OneOf(rapid.Just(admissiontest.DefaultBurst(rate)), rapid.Int64Range(1000, 50_000)).Draw(t, "burst")
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
					h := client.HMGet(t.Context(), script.key, "level", "at").Val()
					level, at := state(model.Meter)
					if got != want || gotWait != wantWait || fmt.Sprint(h) != fmt.Sprintf("[%d %d]", level, at) {
						t.Fatalf("%s %d at %d, %d/1000 + %d/1000: script %d %v %v, Go %d %v [%d %d]", what, n, now, rate, burst, got, gotWait, h, want, wantWait, level, at)
					}
				}
			})
		})
	}
}

func TestDefaultBurst_FollowsTheRate(t *testing.T) {
	for _, row := range []struct{ rate, want int64 }{
		{0, 1000}, {1, 1000}, {10_000, 1000}, {10_009, 1000}, {10_010, 1001}, {33_333, 3333}, {10_000_000, 1_000_000},
	} {
		if got := admissiontest.DefaultBurst(row.rate); got != row.want {
			t.Errorf("DefaultBurst(%d) = %d, want %d", row.rate, got, row.want)
		}
	}
}
