package admission_test

import (
	"fmt"
	"os"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/lua"
)

func TestScorePriority_OrdersByLevelAndAge(t *testing.T) {
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
		if got := admissiontest.ScorePriority(now, row.base, row.alpha, row.total, row.done) + now; got != row.want {
			t.Errorf("%s: %d over age, want %d", row.name, got, row.want)
		}
	}
	if older, newer := admissiontest.ScorePriority(now, 0, 10_000, 10, 0), admissiontest.ScorePriority(now+1, 0, 10_000, 10, 0); older <= newer {
		t.Errorf("of two alike the older goes first: %d, %d", older, newer)
	}
}

func TestFairBoost_GrowsWithProgress(t *testing.T) {
	for _, row := range []struct {
		total, done int64
		want        float64
	}{{0, 0, 1}, {0, 5, 1}, {100, 0, 1}, {100, 50, 1}, {100, 75, 1.5}, {100, 99, 1.98}, {100, 100, 2}, {100, 130, 2}, {1, 0, 1}, {1, 1, 2}} {
		if got := admissiontest.FairBoost(row.total, row.done); got != row.want {
			t.Errorf("FairBoost(%d, %d) = %v, want %v", row.total, row.done, got, row.want)
		}
	}
}

func TestFairCharge_DividesByWeight(t *testing.T) {
	for _, row := range []struct {
		cost   int64
		weight float64
		want   int64
	}{{0, 1000, 0}, {1, 1000, 65536}, {3, 1000, 196608}, {1, 16_000, 4096}, {1, 3000, 21846}, {1, 10, 6_553_600}, {1000, 1_600_000, 40960}, {1, 1500, 43691}} {
		if got := admissiontest.FairCharge(row.cost, row.weight); got != row.want {
			t.Errorf("FairCharge(%d, %v) = %d, want %d", row.cost, row.weight, got, row.want)
		}
	}
}

// The formulas in Go and in the scripts' library return the same numbers.
func TestFairFormulas_MatchScripts(t *testing.T) {
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
			fmt.Sprint(admissiontest.ScorePriority(now, base, alpha, total, done)), fmt.Sprint(admissiontest.FairCharge(cost, float64(weight))),
			fmt.Sprint(admissiontest.FairCharge(cost, float64(weight)*admissiontest.FairBoost(total, done))), int64(admissiontest.FairUnit),
			fmt.Sprintf("%d %d %d", admissiontest.FairLevels[0], admissiontest.FairLevels[1], admissiontest.FairLevels[2]),
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("scripts %v, Go %v", got, want)
		}
	})
}
