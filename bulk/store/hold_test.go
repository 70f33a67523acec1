package store

import (
	"slices"
	"testing"
	"time"
)

// A pull names the limits that let no further job start, and for how long, so that a batch does not wait for jobs that cannot come.
func TestPull_NamesLimitsThatHold(t *testing.T) {
	t.Parallel()
	const most = UntilEvent
	for name, row := range map[string]struct {
		spec    GroupSpec
		tenant  Tenant
		types   map[string]TypeLimit
		classic bool
		jobs    int
		want    []Hold
		started int
	}{
		"no limit":                        {jobs: 5, started: 5},
		"more jobs than wanted":           {spec: GroupSpec{Concurrency: 11}, jobs: 30, started: 10},
		"of a group":                      {spec: GroupSpec{Concurrency: 3}, jobs: 30, started: 3, want: []Hold{{Group: "g", For: most}}},
		"of a group, with all its jobs":   {spec: GroupSpec{Concurrency: 3}, jobs: 3, started: 3, want: []Hold{{Group: "g", For: most}}},
		"of a group, with all wanted":     {spec: GroupSpec{Concurrency: 10}, jobs: 30, started: 10, want: []Hold{{Group: "g", For: most}}},
		"rate of a group":                 {spec: GroupSpec{Rate: 20}, jobs: 30, started: 2, want: []Hold{{Group: "g", For: 50 * time.Millisecond}}},
		"of a tenant":                     {tenant: Tenant{Concurrency: 3}, jobs: 30, started: 3, want: []Hold{{Tenant: "acme", For: most}}},
		"rate of a tenant":                {tenant: Tenant{Rate: 20}, jobs: 30, started: 2, want: []Hold{{Tenant: "acme", For: 50 * time.Millisecond}}},
		"of a type":                       {types: map[string]TypeLimit{"mail": {Concurrency: 3}}, jobs: 30, started: 3, want: []Hold{{Type: "mail", For: most}}},
		"rate of a type":                  {types: map[string]TypeLimit{"mail": {Rate: 20}}, jobs: 30, started: 2, want: []Hold{{Type: "mail", For: 50 * time.Millisecond}}},
		"of another type":                 {types: map[string]TypeLimit{"fax": {Concurrency: 3}}, jobs: 5, started: 5},
		"of a type, classic pipeline":     {types: map[string]TypeLimit{"mail": {Concurrency: 3}}, jobs: 30, started: 3, classic: true, want: []Hold{{Type: "mail", For: most}}},
		"no limit reached, classic":       {jobs: 5, started: 5, classic: true},
		"of a tenant, a type and a group": {spec: GroupSpec{Concurrency: 3}, tenant: Tenant{Concurrency: 3}, types: map[string]TypeLimit{"mail": {Concurrency: 3}}, jobs: 30, started: 3, want: []Hold{{Tenant: "acme", For: most}, {Type: "mail", For: most}, {Group: "g", For: most}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := limited(t, func(set *Settings) { set.Burst, set.Types, set.Gating = 0, row.types, !row.classic })
			row.spec.ID, row.spec.Tenant, row.spec.Type = "g", "acme", "mail"
			create(t, s, row.spec)
			add(t, s, "g", 0, row.jobs)
			if row.tenant != (Tenant{}) {
				row.tenant.Name = "acme"
				if _, err := s.SetTenant(t.Context(), row.tenant); err != nil {
					t.Fatal(err)
				}
			}
			p := pull(t, s, 10)
			if len(p.Jobs) != row.started || !slices.Equal(p.Held, row.want) {
				t.Errorf("%d jobs started, held by %+v; want %d and %+v", len(p.Jobs), p.Held, row.started, row.want)
			}
			if again := pull(t, s, 10); len(row.want) > 0 && len(again.Jobs) > 0 {
				t.Errorf("%d further jobs started", len(again.Jobs))
			}
		})
	}
}

// A pull that starts nothing names the limit of the type that lets none start, of which other processes may have the runs.
func TestPull_NamesLimitOfTypeWithoutJobs(t *testing.T) {
	t.Parallel()
	s, _ := limited(t, func(set *Settings) { set.Types = map[string]TypeLimit{"mail": {Concurrency: 3}} })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	add(t, s, "g", 0, 30)
	pull(t, s, 10)
	if p := pull(t, s, 10); len(p.Jobs) > 0 || !slices.Equal(p.Held, []Hold{{Type: "mail", For: UntilEvent}}) {
		t.Errorf("%d jobs started, held by %+v", len(p.Jobs), p.Held)
	}
}
