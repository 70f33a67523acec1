package store

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestPull_HoldsRates(t *testing.T) {
	for _, row := range []struct {
		name                    string
		global, perTenant, rate float64 // of the settings, and of the group
		want                    int     // starts within 10 s: the rate's and the burst
		limiter                 string
	}{
		{"global", 100, 0, 0, 1010, "gcra"},
		{"tenant", 1000, 50, 0, 505, "gcra"},
		{"group", 1000, 0, 20, 202, "gcra"},
		{"below one a second", 1000, 0.5, 0, 6, "gcra"},
		{"window", 100, 0, 0, 1000, "fixed_window"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, c := open(t, func(set *Settings) { set.Global, set.PerTenant, set.Limiter = row.global, row.perTenant, row.limiter })
			create(t, s, GroupSpec{ID: "g", Tenant: "a", Rate: row.rate})
			add(t, s, "g", 0, 2000)
			var starts []int64
			for end := c.us + 10_000_000; c.us < end; {
				p := pull(t, s, 50)
				for range p.Jobs {
					starts = append(starts, c.us)
				}
				ack(t, s, Done, p.Jobs...)
				if len(p.Jobs) == 0 {
					if p.Next <= 0 {
						t.Fatalf("nothing to wait for: %+v", p)
					}
					c.advance(p.Next)
				}
			}
			if got := len(starts); got < row.want-1 || got > row.want+1 {
				t.Errorf("%d starts in 10 s, want %d", got, row.want)
			}
			clean(t, s)
		})
	}
}

func TestPatch_NewRateOpensGate(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.PerTenant = 0.001 })
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 100)
	if p := pull(t, s, 10); len(p.Jobs) != 1 {
		t.Fatalf("%d jobs", len(p.Jobs))
	}
	if p := pull(t, s, 10); len(p.Jobs) != 0 || p.Next < 900*time.Second {
		t.Fatalf("%+v", p)
	}
	if _, err := s.SetTenant(t.Context(), Tenant{Name: "a", Rate: 1000}); err != nil {
		t.Fatal(err)
	}
	// What was owed stays owed in jobs: one, which is a millisecond now.
	c.advance(time.Millisecond)
	if p := pull(t, s, 200); len(p.Jobs) != 99 {
		t.Fatalf("%d jobs, next %s", len(p.Jobs), p.Next)
	}
	clean(t, s)
	fast := 50.0
	if l, err := s.SetLimits(t.Context(), LimitsPatch{PerTenant: &fast, PerTenantGiven: true}); err != nil || l.PerTenant != 50 || !l.Live {
		t.Fatalf("%+v %v", l, err)
	}
	if l, err := s.SetLimits(t.Context(), LimitsPatch{GlobalGiven: true, PerTenantGiven: true}); err != nil || l.PerTenant != 0.001 || l.Live {
		t.Fatalf("%+v %v", l, err)
	}
	clean(t, s)
}

func TestConcurrency_FreesSlotWithAck(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a", Concurrency: 3})
	add(t, s, "g", 0, 10)
	p := pull(t, s, 10)
	if len(p.Jobs) != 3 || len(pull(t, s, 10).Jobs) != 0 {
		t.Fatal("concurrency 3 is not kept")
	}
	clean(t, s)
	ack(t, s, Done, p.Jobs[0])
	if again := pull(t, s, 10); len(again.Jobs) != 1 {
		t.Fatalf("%+v", again)
	}
	clean(t, s)
}

func TestShares_FollowWeightAndLevel(t *testing.T) {
	for _, row := range []struct {
		name  string
		specs []GroupSpec
		want  []float64 // shares of the first 2,100 starts
	}{
		{"equal tenants", []GroupSpec{{Tenant: "a"}, {Tenant: "b"}, {Tenant: "c"}}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"weights of tenants' groups", []GroupSpec{{Tenant: "a", Weight: 3}, {Tenant: "b"}}, []float64{.75, .25}},
		{"weights within a tenant", []GroupSpec{{Tenant: "a", Weight: 2}, {Tenant: "a"}}, []float64{2. / 3, 1. / 3}},
		{"levels", []GroupSpec{{Tenant: "a", Level: High}, {Tenant: "b"}, {Tenant: "c", Level: Low}}, []float64{16. / 21, 4. / 21, 1. / 21}},
		{"many groups do not help a tenant", []GroupSpec{{Tenant: "a"}, {Tenant: "a"}, {Tenant: "a"}, {Tenant: "b"}}, []float64{1. / 6, 1. / 6, 1. / 6, .5}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t, func(set *Settings) { set.Global = 1e6 })
			for i, spec := range row.specs {
				spec.ID = fmt.Sprint("g", i)
				create(t, s, spec)
				add(t, s, spec.ID, 0, 2500)
			}
			got := make([]float64, len(row.specs))
			for range 300 {
				p := pull(t, s, 7)
				for _, j := range p.Jobs {
					var i int
					_, _ = fmt.Sscanf(j.Group, "g%d", &i)
					got[i] += 1. / 2100
				}
				ack(t, s, Done, p.Jobs...)
			}
			for i := range got {
				if math.Abs(got[i]-row.want[i]) > 0.01 {
					t.Errorf("shares %.3f, want %.3f", got, row.want)
					break
				}
			}
			clean(t, s)
		})
	}
}

func TestStrict_DrainsHighFirst(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.Strict = true })
	create(t, s, GroupSpec{ID: "low", Tenant: "a", Level: Low})
	create(t, s, GroupSpec{ID: "high", Tenant: "b", Level: High})
	add(t, s, "low", 0, 20)
	add(t, s, "high", 0, 20)
	p := pull(t, s, 30)
	for i, j := range p.Jobs {
		if want := map[bool]string{true: "high", false: "low"}[i < 20]; j.Group != want {
			t.Fatalf("job %d is of %s", i, j.Group)
		}
	}
	clean(t, s)
}

func TestStart_WaitsForRunAtAndSeal(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a", StartSealed: true})
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{
		{ID: "later", Payload: []byte("1"), RunAt: time.UnixMicro(begin).Add(time.Minute)}, {ID: "now", Payload: []byte("2"), Type: "email", Cost: 3},
	}); err != nil {
		t.Fatal(err)
	}
	if p := pull(t, s, 10); len(p.Jobs) != 0 {
		t.Fatal("a job starts before the seal")
	}
	if g, err := s.Seal(t.Context(), "g"); err != nil || g.NonReady != 1 || g.Pending != 1 {
		t.Fatalf("%+v %v", g, err)
	}
	p := pull(t, s, 10)
	if len(p.Jobs) != 1 || p.Jobs[0].ID != "now" || p.Jobs[0].Type != "email" || p.Jobs[0].Cost != 3 {
		t.Fatalf("%+v", p)
	}
	clean(t, s)
	c.advance(time.Minute)
	dispatch(t, s)
	if p := pull(t, s, 10); len(p.Jobs) != 1 || p.Jobs[0].ID != "later" {
		t.Fatalf("%+v", p)
	}
	clean(t, s)
}

func TestAddJobs_RefusesOverQuota(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.PendingPerTenant = 5 })
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 5)
	_, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "x", Payload: []byte("1")}})
	refused(t, err, CodeQuota)
	ack(t, s, Done, pull(t, s, 1).Jobs...)
	add(t, s, "g", 10, 1)
	clean(t, s)
}

func TestPull_ClassicPipeline(t *testing.T) {
	s, c := open(t, func(set *Settings) {
		set.Policy, set.Limiter, set.Gating, set.Global = "score", "fixed_window", false, 30
	})
	for _, tenant := range []string{"a", "b", "c"} {
		create(t, s, GroupSpec{ID: tenant, Tenant: tenant})
		add(t, s, tenant, 0, 100)
	}
	done := 0
	for end := c.us + 60_000_000; c.us < end && done < 300; c.advance(100 * time.Millisecond) {
		dispatch(t, s)
		p := pull(t, s, 50)
		done += len(p.Jobs)
		ack(t, s, Done, p.Jobs...)
	}
	if done != 300 {
		t.Fatalf("%d jobs in 60 s at 30/s", done)
	}
	clean(t, s)
}
