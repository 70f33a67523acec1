package store

import "testing"

// A tenant's concurrency holds over its groups and levels, under each policy, and changes at once.
func TestTenantConcurrency_HoldsOverItsGroups(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"fair":    func(*Settings) {},
		"strict":  func(set *Settings) { set.Strict = true },
		"score":   func(set *Settings) { set.Policy = "score" },
		"classic": func(set *Settings) { set.Policy, set.Limiter, set.Gating = "score", "fixed_window", false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := open(t, change)
			if _, err := s.SetTenant(t.Context(), Tenant{Name: "a", Concurrency: 3}); err != nil {
				t.Fatal(err)
			}
			for _, g := range []GroupSpec{{ID: "g1", Tenant: "a"}, {ID: "g2", Tenant: "a", Level: High}, {ID: "g3", Tenant: "b", Level: Low}} {
				create(t, s, g)
				add(t, s, g.ID, 0, 10)
			}
			var running []Leased
			count := func() (n int) {
				for range 3 { // the classic pipeline fills and takes
					running = append(running, pull(t, s, 50).Jobs...)
				}
				for _, j := range running {
					if j.Tenant == "a" {
						n++
					}
				}
				clean(t, s)
				return n
			}
			if n := count(); n != 3 || len(running) != 13 {
				t.Fatalf("%d jobs of tenant a run, %d in all, want 3 of 13", n, len(running))
			}
			ack(t, s, Done, running...)
			running = nil
			clean(t, s)
			c.us += 2_000_000
			dispatch(t, s)
			if n := count(); n != 3 {
				t.Fatalf("%d jobs of tenant a run after the first have ended, want 3", n)
			}
			if got, err := s.SetTenant(t.Context(), Tenant{Name: "a", Concurrency: 5}); err != nil || got.Concurrency != 5 {
				t.Fatal(got, err)
			}
			c.us += 2_000_000
			dispatch(t, s)
			if n := count(); n != 5 {
				t.Fatalf("%d jobs of tenant a run, want 5", n)
			}
			if _, err := s.SetTenant(t.Context(), Tenant{Name: "a"}); err != nil {
				t.Fatal(err)
			}
			c.us += 2_000_000
			dispatch(t, s)
			if n := count(); n != 17 {
				t.Fatalf("%d jobs of tenant a run without a limit, want the other 17", n)
			}
			_, err := s.SetTenant(t.Context(), Tenant{Name: "a", Concurrency: -1})
			refused(t, err, CodeInvalid)
		})
	}
}
