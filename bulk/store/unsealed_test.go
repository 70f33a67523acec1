package store

import (
	"testing"
	"time"
)

// TestUnsealed_IsSealedAndNotDropped: an unsealed group was deleted a day after its last new job, while it was running, with its pending
// jobs and dead letters.
func TestUnsealed_IsSealedAndNotDropped(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.UnsealedAfter = time.Hour })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Rate: 1.0 / 600, Tolerance: Tolerance{Count: 100}}) // six an hour
	add(t, s, "g", 0, 20)
	if _, err := s.AddJobs(t.Context(), "g", Chunk{Key: "half"}, nil); err != nil {
		t.Fatal(err)
	}
	runs := 0
	step := func(sealed bool) {
		t.Helper()
		for _, id := range dispatch(t, s).Tend {
			did, err := s.Tend(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if did.Sealed != sealed {
				t.Fatalf("after %d runs: %+v", runs, did)
			}
		}
	}
	for range 40 { // outcomes break the silence
		if runs == 18 {
			break
		}
		for _, j := range pull(t, s, 5).Jobs {
			verdict := Done
			if runs%4 == 3 {
				verdict = Buried
			}
			ack(t, s, verdict, j)
			runs++
		}
		c.advance(5 * time.Minute)
		step(false)
	}
	clean(t, s)
	if g, err := s.Group(t.Context(), "g"); err != nil || g.Sealed || g.Pending != 2 {
		t.Fatalf("%+v, %v", g, err)
	}
	pause := true
	if _, err := s.Patch(t.Context(), "g", Patch{Paused: &pause}); err != nil {
		t.Fatal(err)
	}
	c.advance(61 * time.Minute)
	step(true)
	clean(t, s)
	if g, err := s.Group(t.Context(), "g"); err != nil || g.Status != Running || g.Pending != 2 || g.Dead != 4 {
		t.Fatalf("%+v, %v", g, err)
	}
	_, err := s.AddJobs(t.Context(), "g", Chunk{Key: "half"}, []Job{{ID: "late", Payload: []byte("1")}})
	refused(t, err, CodeSealed)
	pause = false
	if _, err := s.Patch(t.Context(), "g", Patch{Paused: &pause}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ack(t, s, Done, pull(t, s, 5).Jobs...)
		c.advance(10 * time.Minute)
		dispatch(t, s)
	}
	if g := reduce(t, s, "g"); g.Status != Completed || g.Succeeded != 16 {
		t.Errorf("%+v", g)
	}
	clean(t, s)
}
