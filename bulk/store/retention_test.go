package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// TestRetention_LeavesNothing: a group that was redriven late, a gate that outlives its group and its tenant, chunks between those of
// other groups: after all retention times no data is left.
func TestRetention_LeavesNothing(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	for _, row := range []GroupSpec{{}, {Results: FailureResults}, {Results: NoResults}, {Results: FailureResults, Aggregate: counts}, {Results: NoResults, Aggregate: counts}} {
		t.Run(fmt.Sprintf("%q %s", row.Results, row.Aggregate), func(t *testing.T) { nothingLeftOver(t, row) })
	}
}

func nothingLeftOver(t *testing.T, spec GroupSpec) {
	client := redistest.Client(t)
	s, c := openOn(t, client, func(set *Settings) { set.KeepJobs, set.KeepGroups, set.KeepDead = time.Hour, 2*time.Hour, 5*time.Hour })
	dying(t, s, c, "late", 250, []byte("1"))
	create(t, s, GroupSpec{ID: "many", Tenant: "beta", Results: spec.Results, Aggregate: spec.Aggregate})
	for i := range 700 {
		jobs := []Job{{ID: fmt.Sprintf("j%d*[?]/:é", i), Payload: []byte("1")}}
		if _, err := s.AddJobs(t.Context(), "many", Chunk{Key: fmt.Sprintf("*:/%d", i), Last: true, Answer: []byte("{}")}, jobs); err != nil {
			t.Fatal(err)
		}
	}
	create(t, s, GroupSpec{ID: "gated", Tenant: "gamma", CallbackURL: "http://nobody.example", Results: spec.Results, Aggregate: spec.Aggregate})
	add(t, s, "gated", 0, 2)
	for left := 702; left > 0; c.advance(time.Second) {
		for _, j := range pull(t, s, 500).Jobs {
			verdict := Done
			if j.Group == "gated" && left > 1 {
				verdict = Held
			}
			if left--; verdict == Held {
				left = 0
			}
			if _, err := s.Ack(t.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: verdict, After: time.Hour}}); err != nil {
				t.Fatal(err)
			}
		}
		dispatch(t, s)
	}
	for _, id := range []string{"many", "gated"} {
		if _, err := s.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	tend := func() {
		for more := true; more; {
			more = false
			for _, id := range dispatch(t, s).Tend {
				did, err := s.Tend(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if did.Reduce {
					reduce(t, s, id)
				}
				more = true
			}
		}
		clean(t, s)
	}
	tend()
	c.advance(90 * time.Minute) // what was reduced is past its retention, but for the dead letters
	tend()
	if g, err := s.Redrive(t.Context(), "late", 0); err != nil || g.Total != 250 {
		t.Fatalf("%+v, %v", g, err)
	}
	clean(t, s)
	ack(t, s, Done, pull(t, s, 500).Jobs...)
	tend()
	for range 5 {
		c.advance(90 * time.Minute)
		tend()
	}
	for i, key := range s.keys {
		if i == keyState || i == keyBell {
			continue
		}
		if n, err := client.Exists(t.Context(), key).Result(); err != nil || n != 0 {
			t.Errorf("%s is left over", key)
		}
	}
}

// TestTenantWithSettings_RunsAfterItsLastGroup: a tenant that was gated by its rate when its last group was deleted kept the gate in its
// record without a wake time, and none of its later groups started.
func TestTenantWithSettings_RunsAfterItsLastGroup(t *testing.T) {
	s, c := open(t, func(set *Settings) {
		set.KeepJobs, set.KeepGroups, set.KeepDead = time.Second, time.Second, time.Second
	})
	gatedTenant(t, s)
	if _, err := s.Cancel(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		for _, id := range dispatch(t, s).Tend {
			did, err := s.Tend(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if did.Reduce {
				reduce(t, s, id)
			}
		}
		c.advance(1100 * time.Millisecond)
	}
	_, err := s.Group(t.Context(), "first")
	refused(t, err, CodeNotFound)
	clean(t, s)
	create(t, s, GroupSpec{ID: "next", Tenant: "acme"})
	add(t, s, "next", 0, 1)
	c.advance(10 * time.Second)
	dispatch(t, s)
	if jobs := pull(t, s, 10).Jobs; len(jobs) != 1 {
		t.Errorf("%d jobs of the next group start, want 1", len(jobs))
	}
	clean(t, s)
}

// gatedTenant makes a tenant with a rate of its own, which its group has spent.
func gatedTenant(t *testing.T, s *Store) {
	t.Helper()
	if _, err := s.SetTenant(t.Context(), Tenant{Name: "acme", Rate: 0.1}); err != nil {
		t.Fatal(err)
	}
	create(t, s, GroupSpec{ID: "first", Tenant: "acme"})
	add(t, s, "first", 0, 5)
	ack(t, s, Done, pull(t, s, 10).Jobs...)
}

// TestRetention_DropsHistoryOfIdleTenant: the history stayed until the tenant's next job.
func TestRetention_DropsHistoryOfIdleTenant(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, c := openOn(t, client, func(set *Settings) { set.StatsRetention = time.Minute })
		for _, tenant := range []string{"a", "a-b", "a.b", "ab", "b"} {
			create(t, s, GroupSpec{ID: tenant, Tenant: tenant})
			add(t, s, tenant, 0, 1)
		}
		snapshots := func(n int) {
			for range n {
				if err := s.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.advance(time.Second)
			}
		}
		snapshots(10)
		for left := 4; left > 0; {
			for _, j := range pull(t, s, 5).Jobs {
				if j.Group != "ab" {
					ack(t, s, Done, j)
					left--
				}
			}
		}
		c.advance(time.Minute)
		snapshots(3)
		for tenant, want := range map[string]int{"a": 0, "a-b": 0, "a.b": 0, "ab": 3, "b": 0} {
			h, err := s.History(t.Context(), tenant, time.UnixMicro(0))
			if err != nil || len(h) != want {
				t.Errorf("%d entries of %q, want %d, %v", len(h), tenant, want, err)
			}
		}
	})
}

// TestConfigure_ShortensRetention: existing groups were deleted only after the former retention, and sealed only after the former
// unsealed_after.
func TestConfigure_ShortensRetention(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Global = 1e6 })
	const groups = 450 // more than one round looks at
	for i := range groups {
		id := fmt.Sprintf("g%04d", i)
		create(t, s, GroupSpec{ID: id, Tenant: "acme", Aggregate: counts})
		c.advance(time.Microsecond)
		add(t, s, id, 0, 1)
		if _, err := s.Seal(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for more := true; more; {
		p := pull(t, s, 500)
		more = len(p.Jobs) > 0
		ack(t, s, Done, p.Jobs...)
	}
	create(t, s, GroupSpec{ID: "open", Tenant: "acme", Aggregate: counts})
	rounds(t, s, c, 5*time.Second) // under the settings of before nothing is due
	set := s.Settings()
	set.KeepJobs, set.KeepGroups, set.KeepDead, set.UnsealedAfter = time.Second, 2*time.Second, time.Second, 3*time.Second
	if err := s.Configure(set); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		c.advance(100 * time.Millisecond)
		for _, id := range dispatch(t, s).Tend {
			for again := true; again; {
				did, err := s.Tend(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				again = did.Again
			}
		}
	}
	left, _, err := s.Groups(t.Context(), Filter{Limit: 10})
	if err != nil || len(left) != 0 { // "open" was sealed, and ended without a job
		t.Errorf("there are still %d groups, first %+v, %v", len(left), left[:min(1, len(left))], err)
	}
	clean(t, s)
}
