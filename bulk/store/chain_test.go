package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// chained creates a group that waits for others, with a job, and seals it.
func chained(t testing.TB, s *Store, id string, when When, after ...string) Group {
	t.Helper()
	spec := counted(id)
	spec.After, spec.When = strings.Join(after, " "), when
	create(t, s, spec)
	add(t, s, id, 0, 1)
	g, err := s.Seal(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// end ends a group by the acks of its one job, or by a cancel.
func end(t testing.TB, s *Store, id string, as Status) {
	t.Helper()
	if as == Cancelled {
		if _, err := s.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	} else {
		for _, j := range pull(t, s, 100).Jobs {
			verdict := Done
			if j.Group == id && as == Failed {
				verdict = Rejected
			}
			if j.Group == id {
				ack(t, s, verdict, j)
			} else {
				ack(t, s, Returned, j)
			}
		}
	}
	if g, err := s.Group(t.Context(), id); err != nil || g.Status != as {
		t.Fatalf("%s is %s, want %s; %v", id, g.Status, as, err)
	}
	tendDue(t, s)
	tendDue(t, s) // what waits for it
}

// chainRows is what a group does that waits for a and b, by how they end.
var chainRows = []struct {
	when       When
	a, b, want Status
}{
	{"", Completed, Completed, Dispatched},
	{OnSuccess, Completed, Failed, Cancelled},
	{OnSuccess, Cancelled, Completed, Cancelled},
	{OnFailure, Completed, Completed, Cancelled},
	{OnFailure, Failed, Completed, Dispatched},
	{OnFailure, Completed, Cancelled, Dispatched},
	{OnEnd, Completed, Completed, Dispatched},
	{OnEnd, Failed, Cancelled, Dispatched},
}

func TestChain_StartsAsWhenRequires(t *testing.T) {
	for _, row := range chainRows {
		t.Run(fmt.Sprint(row.when, row.a, row.b), func(t *testing.T) {
			s, _ := open(t, nil)
			for _, id := range []string{"a", "b"} {
				create(t, s, counted(id))
				add(t, s, id, 0, 1)
				if _, err := s.Seal(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			g := chained(t, s, "c", row.when, "a", "b")
			if !g.Gated || g.GatedBy != GatedByAfter || fmt.Sprint(g.Predecessors) != "[{a } {b }]" {
				t.Fatalf("%+v", g)
			}
			clean(t, s)
			end(t, s, "a", row.a)
			if g, err := s.Group(t.Context(), "c"); err != nil || g.GatedBy != GatedByAfter || g.Predecessors[0] != (Predecessor{"a", row.a}) || g.Predecessors[1].Status != "" {
				t.Fatalf("%+v %v", g, err)
			}
			clean(t, s)
			end(t, s, "b", row.b)
			g, err := s.Group(t.Context(), "c")
			if err != nil || g.Status != row.want || g.Gated || g.Skipped != (row.want == Cancelled) || len(g.Predecessors) != 2 {
				t.Fatalf("%+v %v", g, err)
			}
			tendDue(t, s)
			clean(t, s)
			if n := len(pull(t, s, 10).Jobs); n != map[Status]int{Dispatched: 1}[row.want] {
				t.Fatalf("%d jobs", n)
			}
			// Nothing is left of the links once the groups are deleted.
			for _, id := range []string{"a", "b"} {
				if gone, err := s.Delete(t.Context(), id, time.Second); err != nil || !gone {
					t.Fatal(id, gone, err)
				}
			}
			if row.want == Cancelled {
				if gone, err := s.Delete(t.Context(), "c", time.Second); err != nil || !gone {
					t.Fatal(gone, err)
				}
				if n := s.o.Client.ZCard(t.Context(), s.keys[keyLinks]).Val(); n != 0 {
					t.Fatalf("%d links are left", n)
				}
			}
			clean(t, s)
		})
	}
}

// TestChain_WaitsForJobsOfCancelledGroup: a cancelled group has ended once none of its jobs runs.
func TestChain_WaitsForJobsOfCancelledGroup(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, counted("a"))
	add(t, s, "a", 0, 3)
	running := pull(t, s, 1).Jobs
	chained(t, s, "b", OnFailure, "a")
	chained(t, s, "c", OnSuccess, "b")
	if _, err := s.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	tendDue(t, s)
	if p := pull(t, s, 5); len(p.Jobs) != 0 {
		t.Fatal(p)
	}
	ack(t, s, Returned, running...)
	tendDue(t, s)
	tendDue(t, s)
	clean(t, s)
	jobs := pull(t, s, 5).Jobs
	if len(jobs) != 1 || jobs[0].Group != "b" {
		t.Fatal(jobs)
	}
	ack(t, s, Done, jobs...)
	tendDue(t, s)
	if jobs = pull(t, s, 5).Jobs; len(jobs) != 1 || jobs[0].Group != "c" {
		t.Fatal(jobs)
	}
	clean(t, s)
}

// TestChain_CancelAndExpiryHold: a group that waits can be cancelled, and expires; what waits for it goes on, and its predecessors forget it.
func TestChain_CancelAndExpiryHold(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, counted("a"))
	chained(t, s, "cancelled", OnEnd, "a")
	spec := counted("expired")
	spec.After, spec.When, spec.ExpiresAt = "a", OnEnd, after(c.us, time.Minute)
	create(t, s, spec)
	add(t, s, "expired", 0, 1)
	chained(t, s, "last", OnFailure, "cancelled", "expired")
	end(t, s, "cancelled", Cancelled)
	clean(t, s)
	c.advance(time.Minute)
	tendDue(t, s)
	tendDue(t, s)
	clean(t, s)
	if g, err := s.Group(t.Context(), "expired"); err != nil || g.Status != Failed || g.Dead != 1 || g.Skipped {
		t.Fatalf("%+v %v", g, err)
	}
	if jobs := pull(t, s, 5).Jobs; len(jobs) != 1 || jobs[0].Group != "last" {
		t.Fatal(jobs)
	}
	if _, err := s.Seal(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	tendDue(t, s)
	clean(t, s)
}

// TestChain_PredecessorEndsDuringTheUpload: jobs that were added, and the seal, put off the decision by a minute.
func TestChain_PredecessorEndsDuringTheUpload(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, counted("a"))
	spec := counted("b")
	spec.After, spec.When = "a", OnEnd
	create(t, s, spec)
	if _, err := s.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tend(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	add(t, s, "b", 0, 1)
	if _, err := s.Seal(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	tendDue(t, s)
	if p := pull(t, s, 5); len(p.Jobs) != 1 {
		t.Fatalf("%+v", p)
	}
	clean(t, s)
}

// TestChain_EmptyGroupWaitsToo: a group without jobs, or whose jobs were cancelled one by one, ended before its predecessors, and those behind it
// started.
func TestChain_EmptyGroupWaitsToo(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, counted("a"))
	spec := counted("empty")
	spec.After, spec.When = "a", OnEnd
	create(t, s, spec)
	chained(t, s, "cancelled", OnEnd, "a")
	chained(t, s, "behind", OnSuccess, "empty", "cancelled")
	if _, err := s.Seal(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CancelJob(t.Context(), "cancelled", "j000000"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		tendDue(t, s)
	}
	for _, id := range []string{"empty", "cancelled", "behind"} {
		if g, err := s.Group(t.Context(), id); err != nil || g.Status != Dispatched || g.GatedBy != GatedByAfter {
			t.Fatalf("%+v %v", g, err)
		}
	}
	clean(t, s)
	end(t, s, "a", Cancelled)
	for range 2 {
		tendDue(t, s)
	}
	clean(t, s)
	if p := pull(t, s, 5); len(p.Jobs) != 1 || p.Jobs[0].Group != "behind" {
		t.Fatalf("%+v", p)
	}
}

func TestChain_IsChecked(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, counted("a"))
	create(t, s, counted("done"))
	end(t, s, "done", Cancelled)
	many := make([]string, MaxAfter+1)
	for i := range many {
		many[i] = fmt.Sprint("g", i)
	}
	for _, row := range []struct {
		after string
		when  When
		code  Code
	}{
		{"nobody", "", CodeInvalid}, {"a a", "", CodeInvalid}, {"g", "", CodeInvalid}, {"a", "soon", CodeInvalid}, {"", OnEnd, CodeInvalid}, {"a/b", "", CodeInvalid},
		{strings.Join(many, " "), "", CodeInvalid}, {"done", OnSuccess, CodeState},
	} {
		spec := counted("g")
		spec.After, spec.When = row.after, row.when
		_, _, err := s.CreateGroup(t.Context(), spec)
		refused(t, err, row.code)
	}
	// Predecessors that have ended as required do not hold a group, and one that is being deleted is unknown.
	if g := chained(t, s, "g", OnFailure, "done"); g.Gated {
		t.Fatalf("%+v", g)
	}
	if _, err := s.Delete(t.Context(), "done", 0); err != nil {
		t.Fatal(err)
	}
	spec := counted("h")
	spec.After, spec.When = "done", OnEnd
	_, _, err := s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeInvalid)
	// The same request again is the same group, whatever has become of its predecessor.
	spec = counted("g")
	spec.After, spec.When = "done", OnFailure
	if _, created, err := s.CreateGroup(t.Context(), spec); err != nil || created {
		t.Fatal(created, err)
	}
	for i := range 100 {
		spec := counted(fmt.Sprint("behind-", i))
		spec.After = "a"
		create(t, s, spec)
	}
	spec = counted("too-many")
	spec.After = "a"
	_, _, err = s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeInvalid)
	end(t, s, "a", Cancelled)
	for range 3 {
		tendDue(t, s)
	}
	if g, err := s.Group(t.Context(), "behind-99"); err != nil || !g.Skipped {
		t.Fatalf("%+v %v", g, err)
	}
	clean(t, s)
}

// TestChain_RecognisesEndOfEarlierVersion: an earlier version ends, or deletes, a predecessor without a word to the groups behind it.
func TestChain_RecognisesEndOfEarlierVersion(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, counted("a"))
	chained(t, s, "b", OnEnd, "a")
	short := func(id string) string { return s.o.Client.HGet(t.Context(), s.keys[keyNames_], id).Val() }
	s.o.Client.ZRem(t.Context(), s.keys[keyLinks], "a"+short("a")+" "+short("b"))
	end(t, s, "a", Cancelled)
	if g, err := s.Group(t.Context(), "b"); err != nil || g.GatedBy != GatedByAfter {
		t.Fatalf("%+v %v", g, err)
	}
	c.advance(time.Minute)
	tendDue(t, s)
	if g, err := s.Group(t.Context(), "b"); err != nil || g.Gated {
		t.Fatalf("%+v %v", g, err)
	}
}
