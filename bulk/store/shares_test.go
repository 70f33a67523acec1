package store

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// shares pulls and acknowledges the first 2,100 starts of groups g0, g1, … and returns the share of each.
func shares(t *testing.T, s *Store, groups int) []float64 {
	t.Helper()
	got := make([]float64, groups)
	for range 300 {
		p := pull(t, s, 7)
		for _, j := range p.Jobs {
			var i int
			_, _ = fmt.Sscanf(j.Group, "g%d", &i)
			got[i] += 1. / 2100
		}
		ack(t, s, Done, p.Jobs...)
	}
	return got
}

func TestShares_OfTenantsTokensActInsideTheTenant(t *testing.T) {
	for _, row := range []struct {
		name  string
		specs []GroupSpec
		want  []float64
	}{
		{"weight", []GroupSpec{{Tenant: "a", Weight: 100, Own: true}, {Tenant: "b", Own: true}}, []float64{.5, .5}},
		{"level", []GroupSpec{{Tenant: "a", Level: High, Own: true}, {Tenant: "b", Level: Low, Own: true}}, []float64{.5, .5}},
		{"beside an operator's", []GroupSpec{{Tenant: "a", Level: High, Weight: 100, Own: true}, {Tenant: "b", Level: High}}, []float64{.2, .8}},
		{"weights within", []GroupSpec{{Tenant: "a", Weight: 2, Own: true}, {Tenant: "a", Own: true}, {Tenant: "b"}}, []float64{1. / 3, 1. / 6, .5}},
		{"levels within", []GroupSpec{{Tenant: "a", Level: High, Own: true}, {Tenant: "a", Level: Low, Own: true}, {Tenant: "b"}}, []float64{.5 * 16 / 17, .5 / 17, .5}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t, func(set *Settings) { set.Global = 1e6 })
			for i, spec := range row.specs {
				spec.ID = fmt.Sprint("g", i)
				create(t, s, spec)
				add(t, s, spec.ID, 0, 2500)
			}
			got := shares(t, s, len(row.specs))
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

func TestShares_OfTenantsTokensByScore(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Policy, set.Alpha = "score", 0 })
	create(t, s, GroupSpec{ID: "first", Tenant: "a"})
	add(t, s, "first", 0, 3)
	c.advance(time.Second) // the older goes first
	create(t, s, GroupSpec{ID: "second", Tenant: "b", Level: High, BasePriority: 1e9, Own: true})
	add(t, s, "second", 0, 3)
	clean(t, s)
	if p := pull(t, s, 1); p.Jobs[0].Group != "first" {
		t.Error("a tenant's token put its group before that of another tenant")
	}
	clean(t, s)
}

// Changes by a tenant's token have effect inside the tenant only, and do not undo settings of an operator.
func TestPatch_OfTenantsTokenActsInsideTheTenant(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.Global = 1e6 })
	for i, spec := range []GroupSpec{{Tenant: "a"}, {Tenant: "b", Level: Low}} {
		spec.ID = fmt.Sprint("g", i)
		create(t, s, spec)
		add(t, s, spec.ID, 0, 2500)
	}
	weight, high, base := 100.0, High, int64(5)
	if g, err := s.Patch(t.Context(), "g0", Patch{Weight: &weight, Level: &high, BasePriority: &base, Own: true}); err != nil || g.Weight != 100 || g.Level != High {
		t.Fatalf("%+v %v", g, err)
	}
	_, err := s.Patch(t.Context(), "g1", Patch{Level: &high, Own: true})
	refused(t, err, CodeOperators)
	clean(t, s)
	if got := shares(t, s, 2); math.Abs(got[0]-.8) > .01 {
		t.Errorf("shares %.3f: normal beside low should have 0.8", got)
	}
	if _, err := s.Patch(t.Context(), "g1", Patch{Level: &high}); err != nil { // an operator
		t.Fatal(err)
	}
	clean(t, s)
	if got := shares(t, s, 2); math.Abs(got[1]-.8) > .02 {
		t.Errorf("shares %.3f: high beside normal should have 0.8", got)
	}
	// A redrive takes nothing along that an operator did not set.
	g, err := s.Group(t.Context(), "g0")
	if err != nil || !g.Own {
		t.Errorf("%+v %v", g, err)
	}
}

func TestCeilings_OfATenant(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "one", Tenant: "a", MaxGroups: 1})
	create(t, s, GroupSpec{ID: "one", Tenant: "a", MaxGroups: 1}) // again
	_, _, err := s.CreateGroup(t.Context(), GroupSpec{ID: "two", Tenant: "a", Type: "webhook", MaxGroups: 1})
	refused(t, err, CodeQuota)
	create(t, s, GroupSpec{ID: "three", Tenant: "b", MaxGroups: 1})
	jobs := []Job{{ID: "x", Payload: []byte("1")}, {ID: "y", Payload: []byte("1")}}
	if _, err := s.AddJobs(t.Context(), "one", Chunk{MaxPending: 2}, jobs); err != nil {
		t.Fatal(err)
	}
	_, err = s.AddJobs(t.Context(), "one", Chunk{MaxPending: 2}, []Job{{ID: "z", Payload: []byte("1")}})
	refused(t, err, CodeQuota)
	clean(t, s)
}
