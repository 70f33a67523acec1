package store

import (
	"fmt"
	"testing"
	"time"
)

// The time in the queue is counted once, from acceptance to the first start; the oldest waiting job is that of a group that may start.
func TestWaiting_TimeInQueueAndOldestJob(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil)
	oldest := func() string {
		c.advance(time.Second)
		if err := s.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, err := s.Depths(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(d.Oldest)
	}
	if got := oldest(); got != "map[]" {
		t.Errorf("an empty queue: %s", got)
	}
	add := func(g GroupSpec) {
		t.Helper()
		g.Tenant, g.Type = "acme", "mail"
		if _, _, err := s.CreateGroup(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddJobs(t.Context(), g.ID, Chunk{}, []Job{{ID: "j", Payload: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
	}
	add(GroupSpec{ID: "paused", Level: Normal})
	if _, err := s.Patch(t.Context(), "paused", Patch{Paused: new(true)}); err != nil {
		t.Fatal(err)
	}
	add(GroupSpec{ID: "later", Level: Normal, StartAt: micros(c.us).Add(time.Hour)})
	c.advance(5 * time.Second)
	add(GroupSpec{ID: "low", Level: Low})
	c.advance(5 * time.Second)
	add(GroupSpec{ID: "high", Level: High})
	if got := oldest(); got != "map[high:1s low:6s]" {
		t.Errorf("the oldest jobs: %s", got)
	}
	p, err := s.Pull(t.Context(), 10)
	if err != nil || len(p.Jobs) != 2 {
		t.Fatal(p, err)
	}
	for _, j := range p.Jobs {
		want := map[string]time.Duration{"high": time.Second, "low": 6 * time.Second}[j.Group]
		// A fence may be a little ahead of the time.
		if string(j.Level) != j.Group || j.Waited < want || j.Waited > want+time.Millisecond {
			t.Errorf("%s: level %s, waited %s", j.Group, j.Level, j.Waited)
		}
		if _, err := s.Ack(t.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: Retry, Retries: 5, Code: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(time.Hour)
	dispatch(t, s)
	if p, err = s.Pull(t.Context(), 10); err != nil || len(p.Jobs) < 2 {
		t.Fatal(p, err)
	}
	for _, j := range p.Jobs {
		if j.Group != "later" && j.Waited >= 0 {
			t.Errorf("%s: a later run waited %s", j.Group, j.Waited)
		}
	}
	if got := oldest(); got != "map[]" {
		t.Errorf("with all jobs running: %s", got)
	}
}
