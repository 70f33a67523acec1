package store

import (
	"fmt"
	"testing"
)

// The failure that reaches stop_at pauses the group; once resumed, the group runs to its end.
func TestStopAt_PausesTheGroup(t *testing.T) {
	for _, row := range []struct {
		stop          Tolerance
		sealed        bool
		jobs          int
		verdict       Verdict
		stopsAt, runs int // failures until it stops (0: never), of so many
	}{
		{Tolerance{Count: 3}, true, 10, Buried, 3, 10},
		{Tolerance{Count: 3}, false, 10, Rejected, 3, 10},
		{Tolerance{Percent: 20, Share: true}, true, 10, Rejected, 2, 10},
		{Tolerance{Percent: 0.2, Share: true}, false, 10, Buried, 2, 10}, // of a thousand
		{Tolerance{Percent: 100, Share: true}, true, 10, Buried, 10, 10},
		{Tolerance{}, true, 10, Buried, 0, 10},
		{Tolerance{Count: 3}, true, 10, Done, 0, 10},
	} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			s, _ := open(t, nil)
			create(t, s, GroupSpec{ID: "g", Tenant: "acme", StopAt: row.stop})
			add(t, s, "g", 0, row.jobs)
			if row.sealed {
				if _, err := s.Seal(t.Context(), "g"); err != nil {
					t.Fatal(err)
				}
			}
			n := 0
			for {
				jobs := pull(t, s, 1).Jobs
				if len(jobs) == 0 {
					break
				}
				n++
				ack(t, s, row.verdict, jobs...)
			}
			g, err := s.Group(t.Context(), "g")
			if err != nil || g.StopAt != row.stop {
				t.Fatalf("%+v %v", g, err)
			}
			if row.stopsAt == 0 {
				if n != row.runs || g.Stopped || g.Paused {
					t.Errorf("%d ran, stopped %t", n, g.Stopped)
				}
				clean(t, s)
				return
			}
			if n != row.stopsAt || !g.Stopped || !g.Paused {
				t.Fatalf("%d ran, stopped %t", n, g.Stopped)
			}
			if g, err = s.Patch(t.Context(), "g", Patch{Paused: new(false)}); err != nil || g.Stopped {
				t.Fatalf("%+v %v", g, err)
			}
			for jobs := pull(t, s, 1).Jobs; len(jobs) > 0; jobs = pull(t, s, 1).Jobs {
				n++
				ack(t, s, row.verdict, jobs...)
			}
			if n != row.runs {
				t.Errorf("%d ran once it was resumed, want all", n)
			}
			clean(t, s)
		})
	}
}

// A new stop_at has effect again, also for a group that was resumed beyond the former one; removing stop_at lets the group run.
func TestStopAt_IsLive(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", StopAt: Tolerance{Count: 1}})
	add(t, s, "g", 0, 20)
	fails := func(n int) (ran int) {
		for range n {
			jobs := pull(t, s, 1).Jobs
			ran += len(jobs)
			if len(jobs) > 0 {
				ack(t, s, Buried, jobs...)
			}
		}
		return ran
	}
	patch := func(p Patch) {
		t.Helper()
		if _, err := s.Patch(t.Context(), "g", p); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		patch Patch
		want  int
	}{
		{Patch{}, 1},
		{Patch{StopAt: &Tolerance{Count: 4}, Paused: new(false)}, 3},
		{Patch{Paused: new(false)}, 5}, // beyond it
		{Patch{StopAt: &Tolerance{Count: 11}}, 2},
		{Patch{StopAt: &Tolerance{}, Paused: new(false)}, 5},
	} {
		patch(row.patch)
		if n := fails(5); n != row.want {
			t.Errorf("%+v: %d ran, want %d", row.patch, n, row.want)
		}
	}
	if _, err := s.Patch(t.Context(), "g", Patch{StopAt: &Tolerance{Count: -1}}); err == nil {
		t.Error("a count below 0 is accepted")
	}
	clean(t, s)
}

// TestStopAt_ThatIsReachedPausesAtOnce: after a PATCH to a value already reached, or a seal by which the failures reached the share, the
// group was paused only at the next failure.
func TestStopAt_ThatIsReachedPausesAtOnce(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(s *Store) (Group, error)
		stopped bool
	}{
		{"a count", func(s *Store) (Group, error) { return s.Patch(t.Context(), "g", Patch{StopAt: &Tolerance{Count: 5}}) }, true},
		{"more", func(s *Store) (Group, error) { return s.Patch(t.Context(), "g", Patch{StopAt: &Tolerance{Count: 6}}) }, false},
		{"a count, and resume", func(s *Store) (Group, error) {
			return s.Patch(t.Context(), "g", Patch{StopAt: &Tolerance{Count: 5}, Paused: new(false)})
		}, false},
		{"the seal", func(s *Store) (Group, error) { return s.Seal(t.Context(), "g") }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, _ := open(t, nil)
			create(t, s, GroupSpec{ID: "g", Tenant: "acme", StopAt: Tolerance{Percent: 10, Share: true}})
			add(t, s, "g", 0, 20)
			ack(t, s, Buried, pull(t, s, 5).Jobs...)
			g, err := row.change(s)
			if err != nil || g.Stopped != row.stopped || g.Paused != row.stopped {
				t.Fatalf("%+v, %v", g, err)
			}
			clean(t, s)
			n := 0
			for jobs := pull(t, s, 1).Jobs; len(jobs) > 0; jobs = pull(t, s, 1).Jobs {
				ack(t, s, Buried, jobs...)
				n++
			}
			want := map[string]int{"more": 1, "a count, and resume": 15}[row.name]
			if n != want {
				t.Errorf("%d ran, want %d", n, want)
			}
			if g, err = s.Patch(t.Context(), "g", Patch{Paused: new(false)}); err != nil || g.Stopped || g.Paused {
				t.Errorf("%+v, %v", g, err)
			}
			clean(t, s)
		})
	}
}
