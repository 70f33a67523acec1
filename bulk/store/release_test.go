package store

import (
	"testing"
	"time"
)

// Release opens the group's gate and returns all jobs that wait for the downstream, in several steps; jobs with a run_at still wait.
func TestRelease_LiftsDelaysAndNoLimits(t *testing.T) {
	t.Parallel()
	s, c := open(t, func(set *Settings) { set.Global, set.Burst, set.Congestion = 1e6, 1e6, false })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 1201)
	later := c.us + time.Hour.Microseconds()
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "later", Payload: []byte("1"), RunAt: time.UnixMicro(later)}}); err != nil {
		t.Fatal(err)
	}
	for left := 1200; left > 0; {
		jobs := pull(t, s, min(500, left)).Jobs
		acks := make([]Ack, len(jobs))
		for i, j := range jobs {
			acks[i] = Ack{Key: j.Key, Fence: j.Fence, Verdict: Retry, Code: "x", Retries: 5, After: time.Hour}
		}
		if _, err := s.Ack(t.Context(), acks); err != nil {
			t.Fatal(err)
		}
		left -= len(jobs)
	}
	last := pull(t, s, 1).Jobs
	if _, err := s.Ack(t.Context(), []Ack{{Key: last[0].Key, Fence: last[0].Fence, Verdict: Held, After: 50 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	add(t, s, "g", 5000, 1)
	if n := len(pull(t, s, 10).Jobs); n != 0 {
		t.Fatalf("%d jobs of a held group started", n)
	}
	if g, _ := s.Group(t.Context(), "g"); !g.Gated || g.GatedBy != GatedByDownstream || g.NonReady != 1202 {
		t.Errorf("gated %t by %q, %d are not ready", g.Gated, g.GatedBy, g.NonReady)
	}
	clean(t, s)
	g, jobs, err := s.Release(t.Context(), "g")
	if err != nil || jobs != 1201 || g.Gated || g.NonReady != 1 {
		t.Fatalf("released %d jobs, gated %t, %d are not ready, %v", jobs, g.Gated, g.NonReady, err)
	}
	clean(t, s)
	started := 0
	for range 4 {
		started += len(pull(t, s, 500).Jobs)
	}
	if started != 1202 {
		t.Errorf("%d jobs started", started)
	}
	if _, jobs, err := s.Release(t.Context(), "g"); err != nil || jobs != 0 {
		t.Errorf("released %d again, %v", jobs, err)
	}
	clean(t, s)
	_, _, err = s.Release(t.Context(), "nobody")
	refused(t, err, CodeNotFound)
}
