package store

import (
	"testing"
	"time"
)

// TestDispatch_MovesABatch: a round moves one batch of due jobs and reports that there are more; a new dispatch.batch holds from the
// next round on.
func TestDispatch_MovesABatch(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.DispatchBatch = 3 })
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 12)
	ack(t, s, Throttled, pull(t, s, 12).Jobs...)
	c.advance(time.Minute)
	if d := dispatch(t, s); d.Moved != 3 || !d.More {
		t.Fatalf("%+v, want 3 moved of 12, and more", d)
	}
	set := s.Settings()
	set.DispatchBatch = 100
	if err := s.Configure(set); err != nil {
		t.Fatal(err)
	}
	if d := dispatch(t, s); d.Moved != 9 || d.More {
		t.Fatalf("%+v, want the other 9", d)
	}
	clean(t, s)
	set.DispatchBatch = 0
	if err := s.Configure(set); err == nil {
		t.Fatal("a batch of none was taken")
	}
}
