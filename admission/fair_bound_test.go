package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission/admissiontest"
)

// ledger judges fairness from outside: it adds up by how much each flow's virtual service grew (cost/weight, in admissiontest.FairUnit),
// and for each two flows since both have had work without a break how far one got ahead of the other.
type ledger struct {
	served  map[string]int64
	most    map[string]int64 // the largest single visit so far
	between map[[2]string]*span
}

// span is the least and the most of served[i] − served[j] while both had work.
type span struct{ low, high int64 }

func newLedger() *ledger {
	return &ledger{map[string]int64{}, map[string]int64{}, map[[2]string]*span{}}
}

// working records which flows have work now, in sets that share among themselves. A flow in no set starts anew.
func (l *ledger) working(sets ...[]string) {
	now := map[[2]string]*span{}
	for _, flows := range sets {
		slices.Sort(flows)
		for i, a := range flows {
			for _, b := range flows[i+1:] {
				pair := [2]string{a, b}
				if now[pair] = l.between[pair]; now[pair] == nil {
					d := l.served[a] - l.served[b]
					now[pair] = &span{d, d}
				}
			}
		}
	}
	l.between = now
}

func (l *ledger) serve(flow string, charge int64) {
	l.served[flow] += charge
	l.most[flow] = max(l.most[flow], charge)
	for pair, s := range l.between {
		d := l.served[pair[0]] - l.served[pair[1]]
		s.low, s.high = min(s.low, d), max(s.high, d)
	}
}

// check is the bound, in any interval in which both had work:
// |served_i/w_i − served_j/w_j| ≤ max_i/w_i + max_j/w_j, a visit being a batch.
func (l *ledger) check(t *rapid.T) {
	for pair, s := range l.between {
		if s.high-s.low > l.most[pair[0]]+l.most[pair[1]] {
			t.Fatalf("%s against %s: virtual service differs by %d, largest visits %d and %d",
				pair[0], pair[1], s.high-s.low, l.most[pair[0]], l.most[pair[1]])
		}
	}
}

// Three levels of tenants and groups run random operations. Both bounds hold, boost stays bounded and acts inside a tenant,
// strict levels drain in order, and no gated group is served.
func TestFairTree_KeepsBounds(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict=%t", strict), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { fairTree(t, strict) })
		})
	}
}

func fairTree(t *rapid.T, strict bool) {
	tree := NewFairTree(strict)
	tenants, groups := newLedger(), newLedger()
	flow := func(level int, tenant string) string { return fmt.Sprint(level, "/", tenant) }
	weight := func() int64 {
		return rapid.OneOf(rapid.Just(int64(1000)), rapid.Int64Range(500, 3000)).Draw(t, "weight")
	}
	// Flows that share: tenants of all levels, or of one where levels are strict; groups of one tenant and level.
	working := func() {
		flows, siblings := map[string][]string{}, map[string][]string{}
		for _, g := range tree.Groups {
			if !tree.Waiting(g.Level, g.Tenant) {
				continue
			}
			f, among := flow(g.Level, g.Tenant), ""
			if strict {
				among = fmt.Sprint(g.Level)
			}
			if !slices.Contains(flows[among], f) {
				flows[among] = append(flows[among], f)
			}
			if len(g.Costs) > 0 && !g.Gated {
				siblings[f] = append(siblings[f], f+"/"+g.ID)
			}
		}
		tenants.working(slices.Collect(maps.Values(flows))...)
		groups.working(slices.Collect(maps.Values(siblings))...)
	}
	pick := func(t *rapid.T) *FairGroup {
		if len(tree.Groups) == 0 {
			t.Skip("no groups yet")
		}
		return tree.Groups[rapid.SampledFrom(slices.Sorted(maps.Keys(tree.Groups))).Draw(t, "group")]
	}
	// Many jobs of much the same cost: the bound is a visit or two, and a run far longer.
	costs := rapid.Custom(func(t *rapid.T) []int64 {
		return slices.Repeat([]int64{rapid.Int64Range(1, 3).Draw(t, "cost")}, rapid.IntRange(1, 300).Draw(t, "jobs"))
	})
	pull := func(t *rapid.T) {
		batch := rapid.IntRange(1, 3).Draw(t, "batch")
		for range rapid.IntRange(1, 100).Draw(t, "visits") {
			working()
			var high [3]bool // levels that have work
			for level := range high {
				high[level] = waiting(tree, level)
			}
			v, ok := tree.Visit(batch)
			if !ok {
				break
			}
			g := tree.Groups[v.Group]
			if g.Gated || tree.Tenants[v.Tenant].Gated {
				t.Fatalf("%+v is gated", v)
			}
			if strict && slices.Contains(high[:v.Level], true) {
				t.Fatalf("%+v goes before a higher level", v)
			}
			// The boost is at most 2 and moves the group alone.
			plain := admissiontest.FairCharge(v.Cost, float64(g.Weight))
			if v.GroupCharge > plain || 2*v.GroupCharge < plain {
				t.Fatalf("%+v: moved by %d, without boost %d", v, v.GroupCharge, plain)
			}
			tenants.serve(flow(v.Level, v.Tenant), v.TenantCharge)
			groups.serve(flow(v.Level, v.Tenant)+"/"+v.Group, v.GroupCharge)
			tenants.check(t)
			groups.check(t)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"group": func(t *rapid.T) {
			if len(tree.Groups) == 6 {
				t.Skip("enough groups")
			}
			c := costs.Draw(t, "costs")
			tree.Place(&FairGroup{
				ID: fmt.Sprint("g", len(tree.Groups)), Tenant: rapid.SampledFrom([]string{"acme", "bolt"}).Draw(t, "tenant"),
				Level: rapid.SampledFrom([]int{1, 1, 1, 0, 2}).Draw(t, "level"), Weight: weight(), Costs: c, Total: int64(len(c)),
			})
		},
		"jobs": func(t *rapid.T) {
			g := pick(t)
			c := costs.Draw(t, "costs")
			g.Costs, g.Total = append(g.Costs, c...), g.Total+int64(len(c))
			tree.Place(g)
		},
		"gate group": func(t *rapid.T) {
			g := pick(t)
			g.Gated = !g.Gated
			tree.Place(g)
		},
		"gate tenant": func(t *rapid.T) {
			name := pick(t).Tenant
			tree.Gate(name, !tree.Tenants[name].Gated)
		},
		"re-weight":        func(t *rapid.T) { pick(t).Weight = weight() },
		"re-weight tenant": func(t *rapid.T) { tree.Tenants[pick(t).Tenant].Weight = weight() },
		"pull":             pull,
		"pull again":       pull,
		"":                 func(*rapid.T) { working() },
	})
}

// waiting reports whether a group of a level could be served now.
func waiting(tree *FairTree, level int) bool {
	for _, g := range tree.Groups {
		if g.Level == level && tree.Waiting(level, g.Tenant) {
			return true
		}
	}
	return false
}

// The shares that follow from weights, levels and limits, in whole numbers.
func TestFairTree_SharesByWeight(t *testing.T) {
	t.Parallel()
	jobs := func(n int) []int64 {
		costs := make([]int64, n)
		for i := range costs {
			costs[i] = 1
		}
		return costs
	}
	for _, row := range []struct {
		name   string
		strict bool
		groups []FairGroup
		pull   int
		want   map[string]int64 // jobs by group
	}{
		{"levels are 16 to 4 to 1", false, []FairGroup{
			{ID: "high", Tenant: "a", Level: 0, Weight: 1000}, {ID: "normal", Tenant: "b", Level: 1, Weight: 1000}, {ID: "low", Tenant: "c", Level: 2, Weight: 1000},
		}, 2100, map[string]int64{"high": 1600, "normal": 400, "low": 100}},
		{"strict drains high first", true, []FairGroup{
			{ID: "high", Tenant: "a", Level: 0, Weight: 1000}, {ID: "normal", Tenant: "b", Level: 1, Weight: 1000}, {ID: "low", Tenant: "c", Level: 2, Weight: 1000},
		}, 12_100, map[string]int64{"high": 10_000, "normal": 2100}},
		{"tenants first, then their groups", false, []FairGroup{
			{ID: "a1", Tenant: "a", Level: 1, Weight: 1000}, {ID: "b1", Tenant: "b", Level: 1, Weight: 1000}, {ID: "b2", Tenant: "b", Level: 1, Weight: 1000}, {ID: "b3", Tenant: "b", Level: 1, Weight: 1000},
		}, 1200, map[string]int64{"a1": 600, "b1": 200, "b2": 200, "b3": 200}},
		{"a group's weight counts twice", false, []FairGroup{
			{ID: "a1", Tenant: "a", Level: 1, Weight: 3000}, {ID: "b1", Tenant: "b", Level: 1, Weight: 1000},
		}, 1200, map[string]int64{"a1": 900, "b1": 300}},
	} {
		t.Run(row.name, func(t *testing.T) {
			tree := NewFairTree(row.strict)
			for _, g := range row.groups {
				g.Costs = jobs(10_000)
				tree.Place(&g)
			}
			got := map[string]int64{}
			for _, v := range tree.Pull(row.pull, 1) {
				got[v.Group] += v.Jobs
			}
			for _, g := range row.groups {
				if d := got[g.ID] - row.want[g.ID]; d < -1 || d > 1 {
					t.Errorf("%s: %d jobs, want %d; all: %v", g.ID, got[g.ID], row.want[g.ID], got)
				}
			}
		})
	}
}
