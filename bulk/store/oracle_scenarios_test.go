package store_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// Scenario is a pipeline under a load, and what the run has to show.
type Scenario struct {
	Simulation
	Pipeline string // what it is, for people
	Settings store.Settings
	Shared   int64 // Model.SharedCount: cannot be had of the store
	Ideal    time.Duration
	// MostOver is the most that the run may take over the ideal, as a share of it, and MostThrottles the most refusals a job;
	// negative: no bound.
	MostOver, MostThrottles float64
}

// published is the load of the table: 3 tenants, 10 jobs a second each. Scale shortens it: so many times fewer jobs.
func published(scale int) Scenario {
	s := store.Defaults()
	s.Global = 30
	return Scenario{
		Simulation: Simulation{Tenants: 3, Jobs: 5000 / scale, Workers: 50, Batch: 50, Service: 10 * time.Millisecond, Dispatch: 100 * time.Millisecond},
		Settings:   s, Ideal: 500 * time.Second / time.Duration(scale), MostOver: -1, MostThrottles: -1,
	}
}

// smaller is the check with one tenant: 1,000 jobs, 100 a second.
func smaller() Scenario {
	c := published(1)
	c.Tenants, c.Jobs, c.Settings.Global, c.Ideal = 1, 1000, 100, 10*time.Second
	return c
}

func (c Scenario) classic(name, pipeline string, dynamic bool, most time.Duration, shared int64, pace time.Duration) Scenario {
	c.Name, c.Pipeline, c.Shared, c.Pace = name, pipeline, shared, pace
	c.Settings.Policy, c.Settings.Limiter, c.Settings.Gating = "score", "fixed_window", false
	c.Settings.Congestion, c.Settings.MaxBackoff = dynamic, most
	return c
}

func (c Scenario) ours(name, pipeline string, perTenant, over, throttles float64) Scenario {
	c.Name, c.Pipeline, c.Settings.PerTenant, c.MostOver, c.MostThrottles = name, pipeline, perTenant, over, throttles
	return c
}

// Scenarios are those of docs/congestion.md; 15,000 jobs become scale times fewer: 1 is the table.
func Scenarios(scale int) []Scenario {
	const unbounded, configured, looks = 1 << 20 * time.Second, 120 * time.Second, 50 * time.Millisecond
	big, small := published(scale), smaller()
	busy := big.ours("refused", "default, the downstream takes 8 a second of each tenant", 0, -1, 1)
	busy.Downstream = window(8)
	busy.Ideal = busy.Ideal * 10 / 8
	return []Scenario{
		big.classic("fixed", "classic, fixed 1 s, 1,000 checks a second", false, configured, 0, looks),
		big.classic("exact", "classic, dynamic, each counts all before it", true, unbounded, 0, 0),
		big.classic("shared", "classic, dynamic, 16 at a time see one count", true, unbounded, 16, 0),
		big.classic("capped", "classic, dynamic, max_backoff 120 s, 1,000 checks a second", true, configured, 0, looks),
		big.ours("default", "default", 0, 0.01, 0),
		big.ours("limited", "default, `per_tenant: 10`", 10, 0.01, 0),
		busy,
		small.classic("small-fixed", "1,000 jobs: classic, fixed 1 s", false, configured, 0, 0),
		small.classic("small-exact", "1,000 jobs: classic, dynamic, each counts all before it", true, unbounded, 0, 0),
		small.classic("small-shared", "1,000 jobs: classic, dynamic, 170 at a time see one count", true, unbounded, 170, 0),
		small.ours("small-default", "1,000 jobs: default", 0, 0.01, 0),
	}
}

// window is a downstream that takes n jobs of a tenant in each second, and asks the others to wait for the next one.
func window(n int) func(string, int64) (bool, time.Duration) {
	type taken struct {
		second int64
		n      int
	}
	of := map[string]taken{}
	return func(tenant string, now int64) (bool, time.Duration) {
		t := of[tenant]
		if second := now / 1_000_000; t.second != second {
			t = taken{second: second}
		}
		if t.n++; t.n > n {
			return false, time.Duration(1_000_000-now%1_000_000) * time.Microsecond
		}
		of[tenant] = t
		return true, 0
	}
}

// Row is a line of the table.
func (c Scenario) Row(r Report) string {
	over := math.Round(100 * (r.Took.Seconds()/c.Ideal.Seconds() - 1))
	return fmt.Sprintf("| %s | %.0f s | %+.0f %% | %.2f | %d |", c.Pipeline, r.Took.Seconds(), over+0, r.Throttles, r.Peak)
}

// Table is the table of some runs.
func Table(rows []string) string {
	return "| pipeline | done after | over ideal | throttles a job | most starts in any second |\n|---|---|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
}

// Judge returns an error if a run misses a bound of the scenario.
func (c Scenario) Judge(r Report) error {
	over := r.Took.Seconds()/c.Ideal.Seconds() - 1
	burst := max(1, c.Settings.Global/10)
	switch {
	case c.MostOver >= 0 && over > c.MostOver:
		return fmt.Errorf("%s: %v, %.1f %% over the ideal; at most %.1f %%", c.Name, r.Took, 100*over, 100*c.MostOver)
	case c.MostThrottles >= 0 && r.Throttles > c.MostThrottles:
		return fmt.Errorf("%s: %.2f throttles a job; at most %.2f", c.Name, r.Throttles, c.MostThrottles)
	case c.Settings.Limiter == "gcra" && float64(r.Peak) > c.Settings.Global+burst:
		return fmt.Errorf("%s: %d starts in a sliding second; rate %v, burst %v", c.Name, r.Peak, c.Settings.Global, burst)
	case c.Settings.Limiter == "gcra" && c.Settings.PerTenant > 0 && float64(r.TenantPeak) > c.Settings.PerTenant+max(1, c.Settings.PerTenant/10):
		return fmt.Errorf("%s: %d starts of a tenant in a sliding second; rate %v", c.Name, r.TenantPeak, c.Settings.PerTenant)
	}
	return nil
}
