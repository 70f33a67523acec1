package admission_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/lua"
)

func TestScorePriority(t *testing.T) {
	const now = 1_780_000_000_000
	for _, row := range []struct {
		name                     string
		base, alpha, total, done int64
		want                     int64 // over −now
	}{
		{"nothing done", 0, 10_000, 100, 0, 0},
		{"half done: as good as ten seconds of age", 0, 10_000, 100, 50, 10_000},
		{"nine of ten", 0, 10_000, 100, 90, 90_000},
		{"one job left of a million", 0, 10_000, 1_000_000, 999_999, 9_999_990_000},
		{"one job alone", 0, 10_000, 1, 0, 0},
		{"all done counts as one left", 0, 10_000, 100, 100, 990_000},
		{"more done than there is", 0, 10_000, 100, 120, 990_000},
		{"no jobs yet", 0, 10_000, 0, 0, -10_000},
		{"premium", 1_000_000, 10_000, 100, 50, 1_010_000},
		{"low", -1_000_000, 10_000, 100, 50, -990_000},
		{"by age alone", 0, 0, 100, 99, 0},
		{"by age alone, premium", 1_000_000, 0, 100, 0, 1_000_000},
		{"shared evenly: who has had much comes later", 0, -10_000, 100, 90, -90_000},
		{"shared evenly, all done", 0, -10_000, 100, 100, -990_000},
		{"rounded down", 0, 1, 3, 1, 0},
		{"rounded down below zero too", 0, -1, 3, 1, -1},
		{"thirds", 0, 10_000, 3, 1, 5000},
		{"sevenths", 0, 10_000, 7, 1, 1666},
	} {
		if got := ScorePriority(now, row.base, row.alpha, row.total, row.done) + now; got != row.want {
			t.Errorf("%s: %d over age, want %d", row.name, got, row.want)
		}
	}
	if older, newer := ScorePriority(now, 0, 10_000, 10, 0), ScorePriority(now+1, 0, 10_000, 10, 0); older <= newer {
		t.Errorf("of two alike the older goes first: %d, %d", older, newer)
	}
}

func TestFairBoost(t *testing.T) {
	for _, row := range []struct {
		total, done int64
		want        float64
	}{{0, 0, 1}, {0, 5, 1}, {100, 0, 1}, {100, 50, 1}, {100, 75, 1.5}, {100, 99, 1.98}, {100, 100, 2}, {100, 130, 2}, {1, 0, 1}, {1, 1, 2}} {
		if got := FairBoost(row.total, row.done); got != row.want {
			t.Errorf("FairBoost(%d, %d) = %v, want %v", row.total, row.done, got, row.want)
		}
	}
}

func TestFairCharge(t *testing.T) {
	for _, row := range []struct {
		cost   int64
		weight float64
		want   int64
	}{{0, 1000, 0}, {1, 1000, 65536}, {3, 1000, 196608}, {1, 16_000, 4096}, {1, 3000, 21846}, {1, 10, 6_553_600}, {1000, 1_600_000, 40960}, {1, 1500, 43691}} {
		if got := FairCharge(row.cost, row.weight); got != row.want {
			t.Errorf("FairCharge(%d, %v) = %d, want %d", row.cost, row.weight, got, row.want)
		}
	}
}

// TestFairFormulasAreTheScripts: Go and the scripts' library give the same numbers.
func TestFairFormulasAreTheScripts(t *testing.T) {
	lib, err := os.ReadFile("../lua/lib/fair.lua")
	if err != nil {
		t.Fatal(err)
	}
	clock, err := os.ReadFile("../lua/lib/clock.lua")
	if err != nil {
		t.Fatal(err)
	}
	set, err := lua.LoadFS(fstest.MapFS{
		"lib/fair.lua": {Data: lib}, "lib/clock.lua": {Data: clock},
		"test_formulas.lua": {Data: []byte(`#!lua flags=no-writes
-- test_formulas: all formulas at once
-- KEYS: none
-- ARGV: now, base, alpha, total, done, cost, weight
-- RETURNS: {score, charge, boosted charge, unit, levels}
-- INVARIANT: reads nothing
-- INCLUDE: clock, fair
local n = {}
for i, v in ipairs(ARGV) do n[i] = tonumber(v) end
return { int(fair.score(n[1], n[2], n[3], n[4], n[5])), int(fair.charge(n[6], n[7])),
  int(fair.charge(n[6], n[7] * fair.boost(n[4], n[5]))), fair.UNIT, table.concat(fair.LEVELS, ' ') }
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	run := lua.NewRunner(redistest.Client(t), set, nil)
	key := []string{redistest.Prefix(t)}
	rapid.Check(t, func(rt *rapid.T) {
		now := rapid.Int64Range(1, 4_000_000_000_000).Draw(rt, "now")
		base := rapid.OneOf(rapid.SampledFrom([]int64{-1_000_000, 0, 1_000_000}), rapid.Int64Range(-1e9, 1e9)).Draw(rt, "base")
		alpha := rapid.OneOf(rapid.SampledFrom([]int64{0, 10_000, -10_000}), rapid.Int64Range(-1_000_000, 1_000_000)).Draw(rt, "alpha")
		total := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 5_000_000)).Draw(rt, "total")
		done := rapid.Int64Range(0, total+3).Draw(rt, "done")
		cost := rapid.Int64Range(1, 1_000_000).Draw(rt, "cost")
		weight := rapid.Int64Range(1, 1_600_000).Draw(rt, "weight")
		got, err := run.Run(t.Context(), set.Script("test_formulas"), key, now, base, alpha, total, done, cost, weight)
		if err != nil {
			rt.Fatal(err)
		}
		want := []any{
			fmt.Sprint(ScorePriority(now, base, alpha, total, done)), fmt.Sprint(FairCharge(cost, float64(weight))),
			fmt.Sprint(FairCharge(cost, float64(weight)*FairBoost(total, done))), int64(FairUnit),
			fmt.Sprintf("%d %d %d", FairLevels[0], FairLevels[1], FairLevels[2]),
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("scripts %v, Go %v", got, want)
		}
	})
}

func fairQueue(t rapid.TB, client redis.UniversalClient, prefix string) (*FairQueue, string) {
	core, err := New(Options{Client: client, Prefix: prefix, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tag := fmt.Sprintf("test:%d", serial.Add(1))
	return core.FairQueue(tag, "q"), prefix + ":{" + tag + "}:fair:q:"
}

// tags reads a sorted set as the model has it.
func tags(t rapid.TB, client redis.UniversalClient, key string) map[string]int64 {
	list, err := client.ZRangeWithScores(context.Background(), key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]int64{}
	for _, z := range list {
		m[z.Member.(string)] = int64(z.Score)
	}
	return m
}

// TestFairQueueIsTheModel: the scripts grant what the model grants, visit by visit, and keep the same tags.
func TestFairQueueIsTheModel(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{"redis": redistest.Client(t), "cluster": redistest.Cluster(t)} {
		t.Run(name, func(t *testing.T) {
			prefix := redistest.Prefix(t)
			rapid.Check(t, func(t *rapid.T) {
				q, key := fairQueue(t, client, prefix)
				model := admissiontest.NewShares()
				draw := func() FairFlow {
					return FairFlow{
						ID:     rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "flow"),
						Units:  rapid.Int64Range(-10, 40).Draw(t, "units"),
						Weight: rapid.OneOf(rapid.SampledFrom([]int64{10, 1000, 1_600_000}), rapid.Int64Range(1, 1_600_000)).Draw(t, "weight"),
					}
				}
				ctx := context.Background()
				t.Repeat(map[string]func(*rapid.T){
					"put": func(t *rapid.T) {
						flows := []FairFlow{draw(), draw()}
						if err := q.Put(ctx, flows...); err != nil {
							t.Fatal(err)
						}
						model.Put(flows[0])
						model.Put(flows[1])
					},
					"add": func(t *rapid.T) {
						flow := draw()
						if err := q.Add(ctx, flow); err != nil {
							t.Fatal(err)
						}
						model.Add(flow)
					},
					"pull": func(t *rapid.T) {
						want, batch := rapid.Int64Range(1, 30).Draw(t, "want"), rapid.Int64Range(1, 8).Draw(t, "batch")
						got, err := q.Pull(ctx, want, batch)
						if err != nil {
							t.Fatal(err)
						}
						if shares := model.Pull(want, batch); !slices.Equal(got, shares) {
							t.Fatalf("the scripts grant %v, the model %v", got, shares)
						}
					},
					"": func(t *rapid.T) {
						if got := tags(t, client, key+"active"); !maps.Equal(got, model.Active) {
							t.Fatalf("active %v, the model's %v", got, model.Active)
						}
						if got := tags(t, client, key+"idle"); !maps.Equal(got, model.Idle) {
							t.Fatalf("idle %v, the model's %v", got, model.Idle)
						}
						if got, err := client.Get(ctx, key+"clock").Int64(); got != model.V || err != nil && !errors.Is(err, redis.Nil) {
							t.Fatalf("virtual time %d, the model's %d; %v", got, model.V, err)
						}
					},
				})
			})
			for _, k := range client.Keys(t.Context(), prefix+":*").Val() {
				if client.TTL(t.Context(), k).Val() <= 0 {
					t.Errorf("%s has no expiry", k)
				}
			}
		})
	}
}

func TestFairQueueRefusesWhatIsOutOfRange(t *testing.T) {
	q, _ := fairQueue(t, redistest.Client(t), redistest.Prefix(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, err := range map[string]error{
		"no name":        q.Put(ctx, FairFlow{Units: 1, Weight: 1000}),
		"no weight":      q.Put(ctx, FairFlow{ID: "a", Units: 1}),
		"a weight above": q.Add(ctx, FairFlow{ID: "a", Units: 1, Weight: 1_600_001}),
		"too many flows": q.Put(ctx, make([]FairFlow, MaxFlows+1)...),
		"no units":       second(q.Pull(ctx, 0, 1)),
		"too many units": second(q.Pull(ctx, MaxShare+1, 1)),
		"no batch":       second(q.Pull(ctx, 1, 0)),
	} {
		if !errors.Is(err, ErrFlow) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := q.Pull(ctx, 5, 1); err != nil || len(got) != 0 {
		t.Errorf("an empty queue gave %v, %v", got, err)
	}
}

func second[T any](_ T, err error) error { return err }

// BenchmarkFairPull pulls from few flows and from many: the cost of a pull follows what it grants, not how many wait.
func BenchmarkFairPull(b *testing.B) {
	client := redistest.Client(b)
	for _, flows := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			q, _ := fairQueue(b, client, redistest.Prefix(b))
			var put []FairFlow
			for i := range flows {
				if put = append(put, FairFlow{fmt.Sprintf("flow-%d", i), 1e12, int64(500 + 100*(i%20))}); len(put) == MaxFlows || i == flows-1 {
					if err := q.Put(b.Context(), put...); err != nil {
						b.Fatal(err)
					}
					put = put[:0]
				}
			}
			b.ResetTimer()
			for b.Loop() {
				if got, err := q.Pull(b.Context(), 50, 1); err != nil || len(got) != 50 {
					b.Fatalf("%d shares, %v", len(got), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50, "ns/visit")
		})
	}
}
