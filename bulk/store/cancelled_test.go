package store

import (
	"testing"
	"time"
)

// TestCancel_LateAddKeepsHousekeeping: a chunk that was incomplete at the cancel and was sent again postponed the group's
// housekeeping by a day, as for a submission in progress; its cancelled jobs were swept and reduced only then.
func TestCancel_LateAddKeepsHousekeeping(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	jobs := []Job{{ID: "a", Payload: []byte("{}")}}
	if _, err := s.AddJobs(t.Context(), "g", Chunk{Key: "k"}, jobs); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if a, err := s.AddJobs(t.Context(), "g", Chunk{Key: "k"}, jobs); err != nil || a.Duplicates != 1 {
		t.Fatal(a, err)
	}
	c.advance(time.Second)
	if d := dispatch(t, s); len(d.Tend) != 1 {
		t.Fatalf("nobody looks after the cancelled group: %+v", d)
	}
	clean(t, s)
}

// TestCancel_FinishesWithLastOutcome: a reducer that had begun before the cancel finished the group while a job ran and
// others were not swept yet. Later reductions read the result as the reducer's state.
func TestCancel_FinishesWithLastOutcome(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 10)
	jobs := pull(t, s, 2).Jobs
	ack(t, s, Done, jobs[0])
	r, err := s.BeginReduce(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Results(t.Context(), "g", r.Cursor, 10)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.CommitReduce(t.Context(), "g", r.Fence, p.Next, 1, []byte("state")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	g, err := s.Cancel(t.Context(), "g")
	if err != nil || g.Result != nil {
		t.Fatalf("the result of a group whose outcomes are not all in is %q, %v", g.Result, err)
	}
	if _, ok, err := s.Finish(t.Context(), "g", r.Fence, []byte(`{"sum":1}`)); ok || err != nil {
		t.Fatalf("finished while a job runs and eight are not swept: %t, %v", ok, err)
	}
	ack(t, s, Done, jobs[1])
	c.advance(time.Second)
	if d := dispatch(t, s); len(d.Tend) != 1 {
		t.Fatalf("%+v", d)
	}
	if tend, err := s.Tend(t.Context(), "g"); err != nil || !tend.Reduce {
		t.Fatalf("%+v, %v", tend, err)
	}
	if r, err = s.BeginReduce(t.Context(), "g"); err != nil || string(r.State) != "state" {
		t.Fatalf("the reducer's state is %q, %v", r.State, err)
	}
	if p, err = s.Results(t.Context(), "g", r.Cursor, 10); err != nil || len(p.Outcomes) != 9 {
		t.Fatal(p, err)
	}
	if ok, err := s.CommitReduce(t.Context(), "g", r.Fence, p.Next, 9, []byte("state 2")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if g, ok, err := s.Finish(t.Context(), "g", r.Fence, []byte(`{"sum":2}`)); !ok || err != nil || string(g.Result) != `{"sum":2}` || g.Status != Cancelled {
		t.Fatalf("%+v, %t, %v", g, ok, err)
	}
	clean(t, s)
}

// TestPatch_NewRateKeepsRetryAfter: a group was gated by its own rate for longer than by a Retry-After. A higher rate opened the gate
// before the Retry-After had passed.
func TestPatch_NewRateKeepsRetryAfter(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Rate: 0.1})
	add(t, s, "g", 0, 10)
	p := pull(t, s, 5)
	if len(p.Jobs) != 1 || p.Next != 10*time.Second {
		t.Fatalf("%+v", p)
	}
	if _, err := s.Ack(t.Context(), []Ack{{Key: p.Jobs[0].Key, Fence: p.Jobs[0].Fence, Verdict: Held, After: 5 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	rate := 100.0
	if _, err := s.Patch(t.Context(), "g", Patch{Rate: &rate}); err != nil {
		t.Fatal(err)
	}
	c.advance(4 * time.Second)
	if p := pull(t, s, 5); len(p.Jobs) != 0 {
		t.Fatalf("%d jobs started before the Retry-After had passed", len(p.Jobs))
	}
	c.advance(time.Second)
	if p := pull(t, s, 5); len(p.Jobs) == 0 {
		t.Fatal("no job started when the Retry-After had passed")
	}
	clean(t, s)
}
